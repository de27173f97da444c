/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_collective_ops.c - collectives on local tensors and from_local: values against what they
 * mean, written out over plain arrays, and gradients against finite differences of that.
 */
#include "layout/layout.h"
#include "tests/support/check.h"
#include "tests/support/info.h"
#include "tests/tensor/collectives.h"
#include "tests/tensor/ran_tensor.h"

static reshard_status run_all(void *user, reshard_group *group)
{
    return collectives_run(group, *(const uint64_t *)user);
}

static void test_collectives__values_and_gradients(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= RANKS_MAX; ranks++) {
        uint64_t seed = 4 + (uint64_t)ranks;
        run_ranks(ranks, run_all, &seed);
    }
}

/* ---- where differences do not help ----------------------------------------------------------- */

static void check_ties(double winner)
{
    for (int what = 0; what < 2; what++) {
        for (int max = 0; max < 2; max++) {
            collective_job j = {.what = what ? FROM_LOCAL : ALL_REDUCE,
                                .reduction = max ? RESHARD_MAX : RESHARD_MIN,
                                .ranks = 4,
                                .rows = {1, 1, 1, 1}};
            double values[] = {max ? 1 : 9, winner, winner, max ? 2 : 8};
            for (int r = 0; r < 4; r++)
                j.inputs[r][0] = j.inputs[r][1] = values[r];
            run_ranks(4, run_rank, &j);
            double whole = 0;
            for (int32_t r = 0; r < (what ? 1 : 4); r++)
                whole += weight(&j, r, 0);
            for (int r = 0; r < 4; r++)
                assert_true(fabs(j.gradients[r][0] - (r == 1 ? whole : 0)) < 1e-12);
        }
    }
}

static void test_ties__the_first_rank_has_the_gradient(void **state)
{
    (void)state;
    check_ties(5);
    check_ties(NAN);
}

static void test_product__zeros(void **state)
{
    (void)state;
    static const double cases[][4] = {{2, 3, 4, 1}, {2, 0, 4, 1}, {0, 3, 0, 5}, {0, 0, 0, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        collective_job j = {
            .what = FROM_LOCAL, .reduction = RESHARD_PROD, .ranks = 4, .rows = {1, 1, 1, 1}};
        for (int r = 0; r < 4; r++)
            j.inputs[r][0] = j.inputs[r][1] = cases[c][r];
        run_ranks(4, run_rank, &j);
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
    TRY(reshard_spec_text(reshard_tensor_layout(x)->spec, text, sizeof text, &length));
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
    const int64_t huge[] = {INT64_MAX / 2, 0};
    reshard_tensor *vast = make_zeros(RESHARD_F32, 2, huge);
    TRY(reshard_scope_open(NULL, &scope));
    CHECK(local_as(vast, group, "4: S(0)") == NULL);
    CHECK(reshard_scope_close(scope) == RESHARD_ERR_RANGE);
    CHECK(strstr(reshard_error_text(), "dimension 0 is longer than 2^63-1") != NULL);
    reshard_tensor_release(vast);
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

/* test_init_from_local_shards, with global metadata: the grid of 5x5; and shards that are all
 * empty. */
static reshard_status join_grid(void *user, reshard_group *group)
{
    int32_t rank = reshard_group_rank(group);
    (void)user;
    for (int empty = 0; empty < 2; empty++) {
        int64_t side = empty ? 0 : 5;
        reshard_tensor *local = make_zeros(RESHARD_F32, SHAPE(side, side)), *x = NULL;
        reshard_local_shard shard = {.tensor = local, .offset = {rank / 2 * side, rank % 2 * side}};
        reshard_shards *all = NULL;
        MUST(reshard_tensor_fill(local, rank));
        TRY(reshard_tensor_from_shards(NULL, group, SHAPE(2 * side, 2 * side), 1, &shard, &x));
        static const char *const upstream[] = {
            "test_local_shards", "test_init_from_local_shards",
            "test_init_from_local_shards_and_global_metadata",
            "test_init_from_local_shards_and_global_metadata_with_all_zeros"};
        for (int i = empty ? 3 : 0; i < (empty ? 4 : 3); i++)
            ran_here(group, upstream[i], "%s in %dx%d",
                     ran_shape(reshard_tensor_dtype(x), 2, reshard_tensor_shape(x)).text, (int)side,
                     (int)side);
        CHECK(info_tensor(x).local_shard_count == 1);
        CHECK(reshard_tensor_data(reshard_tensor_local_shard(x, 0)) == reshard_tensor_data(local));
        TRY(reshard_layout_shards(reshard_tensor_layout(x), RESHARD_ALL_RANKS, &all));
        CHECK(all->count == 4);
        for (int32_t r = 0; r < 4; r++) {
            CHECK(all->items[r].rank == r && all->items[r].shape[0] == side);
            CHECK(all->items[r].offset[0] == r / 2 * side);
            CHECK(all->items[r].offset[1] == r % 2 * side);
        }
        reshard_tensor *whole = whole_of(x);
        CHECK(whole != NULL && reshard_tensor_volume(whole) == 4 * side * side);
        for (int64_t i = 0; i < 4 * side * side; i++)
            CHECK(element(whole, i) == (double)(i / 50 * 2 + i % 10 / 5));
        reshard_tensor_release(whole);
        reshard_shards_destroy(all);
        reshard_tensor_release(x);
        reshard_tensor_release(local);
    }
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
    CHECK(info_tensor(x).local_shard_count == count);
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
    CHECK(reshard_tensor_from_shards(NULL, group, SHAPE(10, 10), rank == 1 ? -1 : count, shards,
                                     &x) == RESHARD_ERR_INVALID);
    CHECK(strstr(reshard_error_text(), "-1 shards") != NULL);
    /* Defect 9: three shards that sorted sizes alone would take for chunks of dim 1. */
    reshard_local_shard odd = {0};
    static const int64_t sizes[][2] = {{1, 3}, {1, 3}, {2, 1}};
    static const int64_t offsets[][2] = {{0, 0}, {1, 0}, {0, 3}};
    reshard_tensor *own = rank < 3 ? make_zeros(RESHARD_F32, 2, sizes[rank]) : NULL;
    odd.tensor = own;
    for (int d = 0; d < 2 && rank < 3; d++)
        odd.offset[d] = offsets[rank][d];
    TRY(reshard_tensor_from_shards(NULL, group, SHAPE(2, 4), rank < 3, &odd, &x));
    TRY(reshard_spec_text(reshard_tensor_layout(x)->spec, text, sizeof text, &length));
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
    } bodies[] = {{wrap_uneven, "uneven"},
                  {wrap_on_some_ranks, "some"},
                  {join_shards, "shards"},
                  {join_grid, "grid"}};
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
        y = reshard_tensor_exchange(shorter, group,
                                    RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE,
                                                    .reduction = RESHARD_SUM));
    else if (which == 1)
        y = reshard_tensor_exchange(
            x, group,
            RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE,
                            .reduction = rank == 2 ? RESHARD_MAX : RESHARD_SUM));
    else if (which == 2)
        y = reshard_tensor_exchange(
            x, group, RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_GATHER, .root = 3));
    else if (which == 3)
        y = reshard_tensor_exchange(
            scalar, group, RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_GATHER, .root = 0));
    else if (which == 4)
        y = reshard_tensor_exchange(x, group,
                                    RESHARD_OPTIONS(reshard_exchange,
                                                    .kind = RESHARD_ALL_TO_ALL_SINGLE,
                                                    .send_counts = send, .receive_counts = wrong));
    else if (which == 5)
        y = reshard_tensor_exchange(shorter, group,
                                    RESHARD_OPTIONS(reshard_exchange,
                                                    .kind = RESHARD_ALL_TO_ALL_SINGLE,
                                                    .send_counts = send, .receive_counts = send));
    else if (which == 6)
        y = reshard_tensor_exchange(
            rank == 0 ? NULL : x, group,
            RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_BROADCAST, .root = 0));
    else
        y = reshard_tensor_exchange(
            x, group, RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_BROADCAST, .root = -1));
    CHECK(y == NULL);
    CHECK(reshard_scope_close(scope) != RESHARD_OK && reshard_error_text()[0] != '\0');
    CHECK(which != 7 || strstr(reshard_error_text(), "rank -1 is not in the group of 3") != NULL);
    /* The group goes on. */
    TRY(reshard_scope_open(NULL, &scope));
    y = reshard_tensor_exchange(
        x, group,
        RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE, .reduction = RESHARD_SUM));
    CHECK(y != NULL);
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(x);
    reshard_tensor_release(scalar);
    return RESHARD_OK;
}

static void test_refusals__are_agreed(void **state)
{
    (void)state;
    for (int which = 0; which < 8; which++) {
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
