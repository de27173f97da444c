/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_collective_ops.c - collectives on local tensors and from_local: values against what they
 * mean, written out over plain arrays, and gradients against finite differences of that.
 */
#include "support/check.h"
#include "tensor/ranks.h"

#include <math.h>
#include <string.h>

enum { RANKS_MAX = 5, ROWS_MAX = 12, WIDTH = 2, VALUES_MAX = ROWS_MAX * WIDTH };

typedef enum kind {
    ALL_REDUCE,
    REDUCE_TO,
    REDUCE_SCATTER,
    ALL_GATHER,
    GATHER_TO,
    BROADCAST_FROM,
    SCATTER_FROM,
    ALL_TO_ALL,
    FROM_LOCAL, /* partial, then the whole: the loss is counted once */
    KINDS
} kind;

typedef struct job {
    kind what;
    reshard_reduction reduction;
    int32_t ranks, root;
    int64_t rows[RANKS_MAX]; /* of each rank's input */
    int64_t sent[RANKS_MAX][RANKS_MAX];
    double inputs[RANKS_MAX][VALUES_MAX];
    double gradients[RANKS_MAX][VALUES_MAX];
} job;

/* ---- what they mean -------------------------------------------------------------------------- */

static double reduce(const job *j, int64_t i)
{
    double value = j->inputs[0][i];
    for (int32_t r = 1; r < j->ranks; r++) {
        double x = j->inputs[r][i];
        if (j->reduction == RESHARD_SUM || j->reduction == RESHARD_AVG)
            value += x;
        else if (j->reduction == RESHARD_PROD)
            value *= x;
        else if (j->reduction == RESHARD_MAX ? x > value : x < value)
            value = x;
    }
    return j->reduction == RESHARD_AVG ? value / j->ranks : value;
}

/* Rank r's output; returns its rows. */
static int64_t define(const job *j, int32_t r, double *out)
{
    int64_t rows = 0, n = j->rows[0], chunk = (n + j->ranks - 1) / j->ranks;
    int64_t from = r * chunk < n ? r * chunk : n, to = (r + 1) * chunk < n ? (r + 1) * chunk : n;
    switch (j->what) {
    case ALL_REDUCE:
    case FROM_LOCAL:
        from = 0;
        to = n;
        break;
    case REDUCE_TO:
        from = 0;
        to = r == j->root ? n : 0;
        break;
    case REDUCE_SCATTER:
        break;
    case ALL_GATHER:
    case GATHER_TO:
        for (int32_t s = 0; s < j->ranks && (j->what == ALL_GATHER || r == j->root); s++) {
            memcpy(out + rows * WIDTH, j->inputs[s], sizeof(double) * WIDTH * (size_t)j->rows[s]);
            rows += j->rows[s];
        }
        return rows;
    case BROADCAST_FROM:
        memcpy(out, j->inputs[j->root], sizeof(double) * WIDTH * (size_t)n);
        return n;
    case SCATTER_FROM:
        memcpy(out, j->inputs[j->root] + from * WIDTH,
               sizeof(double) * WIDTH * (size_t)(to - from));
        return to - from;
    default:
        for (int32_t s = 0; s < j->ranks; s++) {
            int64_t at = 0;
            for (int32_t k = 0; k < r; k++)
                at += j->sent[s][k];
            memcpy(out + rows * WIDTH, j->inputs[s] + at * WIDTH,
                   sizeof(double) * WIDTH * (size_t)j->sent[s][r]);
            rows += j->sent[s][r];
        }
        return rows;
    }
    for (int64_t i = from * WIDTH; i < to * WIDTH; i++)
        out[i - from * WIDTH] = reduce(j, i);
    return to - from;
}

static double weight(const job *j, int32_t r, int64_t i)
{
    int32_t salt = j->what == FROM_LOCAL ? 0 : r; /* all ranks have one loss there */
    return (double)(draw_hash((uint64_t)salt + 17, (uint64_t)i) >> 40) / (1 << 24) - 0.4;
}

static double loss(const job *j)
{
    double sum = 0, out[RANKS_MAX * VALUES_MAX];
    for (int32_t r = 0; r < (j->what == FROM_LOCAL ? 1 : j->ranks); r++) {
        int64_t rows = define(j, r, out);
        for (int64_t i = 0; i < rows * WIDTH; i++)
            sum += weight(j, r, i) * out[i];
    }
    return sum;
}

/* ---- what the library does ------------------------------------------------------------------- */

static reshard_tensor *carry_out(const job *j, reshard_tensor *x, reshard_group *group)
{
    int32_t rank = reshard_group_rank(group);
    int64_t receive[RANKS_MAX];
    char text[32];
    for (int32_t s = 0; s < j->ranks; s++)
        receive[s] = j->sent[s][rank];
    switch (j->what) {
    case ALL_REDUCE:
        return reshard_tensor_all_reduce(x, group, j->reduction);
    case REDUCE_TO:
        return reshard_tensor_reduce_to(x, group, j->reduction, j->root);
    case REDUCE_SCATTER:
        return reshard_tensor_reduce_scatter(x, group, j->reduction);
    case ALL_GATHER:
        return reshard_tensor_all_gather(x, group);
    case GATHER_TO:
        return reshard_tensor_gather_to(x, group, j->root);
    case BROADCAST_FROM:
        return reshard_tensor_broadcast_from(x, group, j->root);
    case SCATTER_FROM:
        return reshard_tensor_scatter_from(x, group, j->root);
    case ALL_TO_ALL:
        return reshard_tensor_all_to_all(x, group, j->sent[rank], receive);
    default:
        (void)snprintf(text, sizeof text, "%d: P(%s)", (int)j->ranks,
                       reshard_reduction_name(j->reduction));
        return reshard_tensor_full(local_as(x, group, text));
    }
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    job *j = user;
    int32_t rank = reshard_group_rank(group);
    double expected[RANKS_MAX * VALUES_MAX];
    int64_t shape[] = {j->rows[rank], WIDTH};
    reshard_tensor *x = NULL;
    reshard_scope *scope = NULL;
    TRY(reshard_tensor_from_data(NULL, RESHARD_F64, 2, shape, j->inputs[rank], &x));
    TRY(reshard_tensor_set_requires_grad(x, 1));
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = carry_out(j, x, group);
    CHECK(y != NULL);
    int64_t rows = define(j, rank, expected);
    CHECK(reshard_tensor_shape(y)[0] == rows);
    for (int64_t i = 0; i < rows * WIDTH; i++)
        CHECK(fabs(element(y, i) - expected[i]) < 1e-12);
    reshard_tensor *weights = make_zeros(RESHARD_F64, 2, (int64_t[]){rows, WIDTH});
    for (int64_t i = 0; i < rows * WIDTH; i++)
        set_element(weights, i, weight(j, rank, i));
    (void)reshard_backward(y, weights, NULL);
    reshard_tensor_release(weights);
    TRY(reshard_scope_close(scope));
    const reshard_tensor *gradient = reshard_tensor_gradient(x);
    CHECK(gradient != NULL);
    TRY(reshard_tensor_copy_to(gradient, j->gradients[rank],
                               sizeof(double) * WIDTH * (size_t)j->rows[rank]));
    reshard_tensor_release(x);
    return RESHARD_OK;
}

static void draw_job(draw_state *draw, job *j)
{
    int64_t same = draw_between(draw, 0, 5);
    for (int32_t r = 0; r < j->ranks; r++) {
        j->rows[r] =
            j->what == ALL_GATHER || j->what == GATHER_TO ? draw_between(draw, 0, 4) : same;
        for (int32_t k = 0; k < j->ranks && j->what == ALL_TO_ALL; k++) {
            j->sent[r][k] = draw_between(draw, 0, 2);
            j->rows[r] = k == 0 ? j->sent[r][k] : j->rows[r] + j->sent[r][k];
        }
        for (int64_t i = 0; i < VALUES_MAX; i++)
            j->inputs[r][i] = 0.1 + (double)draw_below(draw, 1 << 20) / (1 << 20) *
                                        (draw_chance(draw, 50) ? 1 : -1);
    }
    j->root = (int32_t)draw_below(draw, j->ranks);
}

static void compare_gradients(job *j)
{
    for (int32_t r = 0; r < j->ranks; r++) {
        for (int64_t i = 0; i < j->rows[r] * WIDTH; i++) {
            double old = j->inputs[r][i], step = 1e-6;
            j->inputs[r][i] = old + step;
            double above = loss(j);
            j->inputs[r][i] = old - step;
            double below = loss(j);
            j->inputs[r][i] = old;
            double expected = (above - below) / (2 * step);
            if (!(fabs(expected - j->gradients[r][i]) < 1e-7 * (1 + fabs(expected))))
                fail_msg("kind %d, %s over %d ranks, rank %d, element %d: %g, differences give %g",
                         (int)j->what, reshard_reduction_name(j->reduction), (int)j->ranks, (int)r,
                         (int)i, j->gradients[r][i], expected);
        }
    }
}

static void test_collectives__values_and_gradients(void **state)
{
    (void)state;
    draw_state draw;
    draw_seed(&draw, 4);
    for (int what = 0; what < (int)KINDS; what++) {
        bool reduces = what <= (int)REDUCE_SCATTER || what == (int)FROM_LOCAL;
        for (int reduction = 0; reduction < (reduces ? (int)RESHARD_REDUCTION_COUNT : 1);
             reduction++) {
            for (int32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
                job j = {
                    .what = (kind)what, .reduction = (reshard_reduction)reduction, .ranks = ranks};
                draw_job(&draw, &j);
                if (reshard_group_run(NULL, ranks, run_rank, &j) != RESHARD_OK)
                    fail_msg("kind %d, %s: %s", what, reshard_reduction_name(j.reduction),
                             reshard_error_text());
                compare_gradients(&j);
            }
        }
    }
}

/* ---- where differences do not help ----------------------------------------------------------- */

static void test_ties__the_first_rank_has_the_gradient(void **state)
{
    (void)state;
    for (int what = 0; what < 2; what++) {
        for (int max = 0; max < 2; max++) {
            job j = {.what = what ? FROM_LOCAL : ALL_REDUCE,
                     .reduction = max ? RESHARD_MAX : RESHARD_MIN,
                     .ranks = 4,
                     .rows = {1, 1, 1, 1}};
            double values[] = {max ? 1 : 9, 5, 5, max ? 2 : 8};
            for (int r = 0; r < 4; r++)
                j.inputs[r][0] = j.inputs[r][1] = values[r];
            if (reshard_group_run(NULL, 4, run_rank, &j) != RESHARD_OK)
                fail_msg("%s", reshard_error_text());
            double whole = 0;
            for (int32_t r = 0; r < (what ? 1 : 4); r++)
                whole += weight(&j, r, 0);
            for (int r = 0; r < 4; r++)
                assert_true(fabs(j.gradients[r][0] - (r == 1 ? whole : 0)) < 1e-12);
        }
    }
}

static void test_product__zeros(void **state)
{
    (void)state;
    static const double cases[][4] = {{2, 3, 4, 1}, {2, 0, 4, 1}, {0, 3, 0, 5}, {0, 0, 0, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        job j = {.what = FROM_LOCAL, .reduction = RESHARD_PROD, .ranks = 4, .rows = {1, 1, 1, 1}};
        for (int r = 0; r < 4; r++)
            j.inputs[r][0] = j.inputs[r][1] = cases[c][r];
        if (reshard_group_run(NULL, 4, run_rank, &j) != RESHARD_OK)
            fail_msg("%s", reshard_error_text());
        for (int r = 0; r < 4; r++) {
            double others = 1;
            for (int s = 0; s < 4; s++)
                others *= s == r ? 1 : cases[c][s];
            assert_true(fabs(j.gradients[r][0] - others * weight(&j, 0, 0)) < 1e-12);
        }
    }
}

/* ---- from_local and from_shards -------------------------------------------------------------- */

static reshard_status wrap_uneven(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group);
    static const int64_t rows[] = {3, 0, 1, 5};
    int64_t shape[] = {rows[rank], 2};
    char text[64];
    size_t length = 0;
    reshard_tensor *local = make_zeros(RESHARD_F32, 2, shape);
    MUST(reshard_tensor_fill(local, rank));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *x = local_as(local, group, "4: S(0)");
    CHECK(x != NULL && reshard_tensor_shape(x)[0] == 9);
    TRY(reshard_spec_text(reshard_layout_spec(reshard_tensor_layout(x)), text, sizeof text,
                          &length));
    CHECK(strcmp(text, "4: S(0=3,0,1,5)") == 0);
    CHECK(reshard_tensor_data(reshard_tensor_local_shard(x, 0)) == reshard_tensor_data(local));
    reshard_tensor *whole = reshard_tensor_full(x);
    static const double expected[] = {0, 0, 0, 2, 3, 3, 3, 3, 3};
    for (int i = 0; i < 9; i++)
        CHECK(element(whole, 2 * i) == expected[i]);
    /* Two axes: 2x2, rows cut by the first, columns by the second. */
    int64_t part[] = {rank / 2 == 0 ? 2 : 1, rank % 2 == 0 ? 3 : 1};
    reshard_tensor *piece = make_zeros(RESHARD_F32, 2, part);
    reshard_tensor *grid = local_as(piece, group, "2,2: S(0), S(1)");
    CHECK(grid != NULL);
    CHECK(reshard_tensor_shape(grid)[0] == 3 && reshard_tensor_shape(grid)[1] == 4);
    reshard_tensor *once = local_as(piece, group, "4: R"); /* not all alike */
    CHECK(once == NULL);
    CHECK(reshard_scope_close(scope) == RESHARD_ERR_MISMATCH);
    CHECK(strstr(reshard_error_text(), "where the others' sizes call for 2x3") != NULL);
    reshard_tensor_release(piece);
    reshard_tensor_release(local);
    return RESHARD_OK;
}

static reshard_status wrap_on_some_ranks(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group);
    reshard_tensor *local = make_zeros(RESHARD_F64, SHAPE(2, 3));
    MUST(reshard_tensor_fill(local, rank));
    TRY(reshard_tensor_set_requires_grad(local, 1));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    /* Ranks 3 and 1 alone have shards; a product and a nonlinearity on the way. */
    reshard_tensor *x = local_as(local, group, "2[3,1]: S(0)");
    reshard_tensor *y = reshard_tensor_full(reshard_gelu(move_to(reshard_scale(x, 2), "4: S(1)")));
    CHECK(y != NULL && element(y, 0) > 5.9 && element(y, 0) < 6.1);
    reshard_tensor *here = reshard_tensor_to_local(x, NULL);
    CHECK(here != NULL && reshard_tensor_shape(here)[0] == (rank % 2 == 1 ? 2 : 0));
    (void)reshard_backward(reshard_sum(y), NULL, NULL);
    TRY(reshard_scope_close(scope));
    double gradient = element(reshard_tensor_gradient(local), 5);
    double v = 2.0 * rank, s = 0.5 * erfc(-v / sqrt(2)) + v * exp(-v * v / 2) / sqrt(2 * acos(-1));
    CHECK(fabs(gradient - (rank % 2 == 1 ? 2 * s : 0)) < 1e-12);
    reshard_tensor_release(local);
    return RESHARD_OK;
}

static reshard_status join_shards(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group);
    reshard_tensor *x = NULL, *tensors[2] = {NULL, NULL};
    char text[128];
    size_t length = 0;
    /* The grid of 5x5, owners 0, 1, 0, 3. */
    static const int32_t owners[] = {0, 1, 0, 3};
    reshard_local_shard shards[2];
    int64_t count = 0;
    memset(shards, 0, sizeof shards);
    for (int i = 3; i >= 0; i--) { /* in another order than the layout's */
        if (owners[i] != rank)
            continue;
        tensors[count] = make_zeros(RESHARD_I32, SHAPE(5, 5));
        MUST(reshard_tensor_fill(tensors[count], i + 1));
        shards[count].tensor = tensors[count];
        shards[count].offset[0] = i / 2 * 5;
        shards[count].offset[1] = i % 2 * 5;
        count++;
    }
    TRY(reshard_tensor_from_shards(NULL, group, SHAPE(10, 10), count, shards, &x));
    reshard_tensor *whole = whole_of(x);
    CHECK(whole != NULL);
    for (int64_t i = 0; i < 100; i++)
        CHECK(element(whole, i) == (double)(i / 50 * 2 + i % 10 / 5 + 1));
    CHECK(reshard_tensor_local_shard_count(x) == count);
    reshard_tensor_release(whole);
    reshard_tensor_release(x);
    x = NULL;
    /* Rank 0's first shard too large, too small, of another type; a global shape of another
     * size. */
    for (int i = 0; i < 4; i++) {
        reshard_tensor *odd = i == 0   ? make_zeros(RESHARD_I32, SHAPE(6, 6))
                              : i == 1 ? make_zeros(RESHARD_I32, SHAPE(4, 4))
                                       : make_zeros(RESHARD_F32, SHAPE(5, 5));
        reshard_local_shard wrong[2] = {shards[0], shards[1]};
        int64_t shape[] = {10, i == 3 && rank == 1 ? 5 : 10};
        if (rank == 1 && i < 3) {
            wrong[0].tensor = odd;
            wrong[0].offset[1] = i == 0 ? 4 : 5;
        }
        reshard_status status = reshard_tensor_from_shards(NULL, group, 2, shape, count, wrong, &x);
        CHECK(x == NULL);
        CHECK(status == (i == 0   ? RESHARD_ERR_OVERLAP
                         : i == 1 ? RESHARD_ERR_GAP
                                  : RESHARD_ERR_MISMATCH));
        reshard_tensor_release(odd);
    }
    /* Defect 9: three shards that sorted sizes alone would take for chunks of dim 1. */
    reshard_local_shard odd = {0};
    static const int64_t sizes[][2] = {{1, 3}, {1, 3}, {2, 1}};
    static const int64_t offsets[][2] = {{0, 0}, {1, 0}, {0, 3}};
    reshard_tensor *own = rank < 3 ? make_zeros(RESHARD_F32, 2, sizes[rank]) : NULL;
    odd.tensor = own;
    for (int d = 0; d < 2 && rank < 3; d++)
        odd.offset[d] = offsets[rank][d];
    TRY(reshard_tensor_from_shards(NULL, group, SHAPE(2, 4), rank < 3, &odd, &x));
    TRY(reshard_spec_text(reshard_layout_spec(reshard_tensor_layout(x)), text, sizeof text,
                          &length));
    CHECK(strncmp(text, "boxes", 5) == 0);
    reshard_tensor_release(own);
    reshard_tensor_release(x);
    reshard_tensor_release(tensors[0]);
    reshard_tensor_release(tensors[1]);
    return RESHARD_OK;
}

static void test_from_local__uneven_and_partly(void **state)
{
    (void)state;
    static const struct {
        reshard_rank_fn body;
        const char *name;
    } bodies[] = {{wrap_uneven, "uneven"}, {wrap_on_some_ranks, "some"}, {join_shards, "shards"}};
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        if (reshard_group_run(NULL, 4, bodies[i].body, NULL) != RESHARD_OK)
            fail_msg("%s: %s", bodies[i].name, reshard_error_text());
    }
}

/* ---- refusals -------------------------------------------------------------------------------- */

static reshard_status refuse(void *user, reshard_group *group)
{
    int which = *(const int *)user;
    int32_t rank = reshard_group_rank(group);
    reshard_tensor *x = make_zeros(RESHARD_F32, SHAPE(3, 2)),
                   *scalar = make_zeros(RESHARD_F32, 0, NULL);
    int64_t send[] = {1, 1, 1}, wrong[] = {1, 1, rank == 2 ? 2 : 1};
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *shorter = rank == 1 ? reshard_tensor_narrow(x, 0, 0, 2) : x, *y = NULL;
    if (which == 0)
        y = reshard_tensor_all_reduce(shorter, group, RESHARD_SUM);
    else if (which == 1)
        y = reshard_tensor_all_reduce(x, group, rank == 2 ? RESHARD_MAX : RESHARD_SUM);
    else if (which == 2)
        y = reshard_tensor_gather_to(x, group, 3);
    else if (which == 3)
        y = reshard_tensor_gather_to(scalar, group, 0);
    else if (which == 4)
        y = reshard_tensor_all_to_all(x, group, send, wrong);
    else if (which == 5)
        y = reshard_tensor_all_to_all(shorter, group, send, send);
    else
        y = reshard_tensor_broadcast_from(rank == 0 ? NULL : x, group, 0);
    CHECK(y == NULL);
    CHECK(reshard_scope_close(scope) != RESHARD_OK && reshard_error_text()[0] != '\0');
    /* The group goes on. */
    TRY(reshard_scope_open(NULL, &scope));
    y = reshard_tensor_all_reduce(x, group, RESHARD_SUM);
    CHECK(y != NULL);
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(x);
    reshard_tensor_release(scalar);
    return RESHARD_OK;
}

static void test_refusals__are_agreed(void **state)
{
    (void)state;
    for (int which = 0; which < 7; which++) {
        if (reshard_group_run(NULL, 3, refuse, &which) != RESHARD_OK)
            fail_msg("case %d: %s", which, reshard_error_text());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives__values_and_gradients),
        cmocka_unit_test(test_ties__the_first_rank_has_the_gradient),
        cmocka_unit_test(test_product__zeros),
        cmocka_unit_test(test_from_local__uneven_and_partly),
        cmocka_unit_test(test_refusals__are_agreed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
