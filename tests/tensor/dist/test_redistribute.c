/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_redistribute.c - distributed tensors between random layouts, held against the oracle: values
 * bit for bit, gradients by finite differences of what is computed on the way.
 */
#include "tests/support/check.h"
#include "tests/support/harness.h"
#include "tests/support/info.h"
#include "tests/tensor/distributed.h"

#include <math.h>
#include <string.h>

/* ---- random layouts -------------------------------------------------------------------------- */

typedef struct job {
    const harness_case *given;
    char texts[2][ORACLE_TEXT_MAX];
    oracle_layout *expected[2];
    int32_t ranks;
} job;

/* Every shard of this rank holds the numbers of its elements, in order. */
static reshard_status check_shards(const reshard_tensor *tensor, const oracle_layout *expected,
                                   const reshard_tensor *whole, int32_t rank)
{
    int64_t seen = 0;
    for (int64_t i = 0; i < expected->shard_count; i++) {
        const oracle_shard *shard = &expected->shards[i];
        if (shard->rank != rank)
            continue;
        const reshard_tensor *local = reshard_tensor_local_shard(tensor, seen++);
        CHECK(local != NULL && reshard_tensor_volume(local) == shard->count);
        for (int32_t d = 0; d < shard->ndim; d++)
            CHECK(reshard_tensor_shape(local)[d] == shard->shape[d]);
        for (int64_t k = 0; k < shard->count; k++)
            CHECK(element(local, k) == element(whole, shard->elements[k]));
    }
    CHECK(seen == info_tensor(tensor).local_shard_count);
    return RESHARD_OK;
}

/* x -> B -> gelu -> A -> whole; or without gelu where B is partial. */
static reshard_tensor *compute(reshard_tensor *x, const job *j, bool partial)
{
    reshard_tensor *y = move_to(x, j->texts[1]);
    y = partial ? reshard_scale(y, 2) : reshard_gelu(y);
    return reshard_tensor_full(move_to(y, j->texts[0]));
}

static double slope(double x, bool partial)
{
    double h = 1e-5;
    if (partial)
        return 2;
    return ((x + h) * 0.5 * erfc(-(x + h) / sqrt(2)) - (x - h) * 0.5 * erfc(-(x - h) / sqrt(2))) /
           (2 * h);
}

static reshard_status check_gradient(reshard_tensor *x, const job *j, const reshard_tensor *whole)
{
    const oracle_layout *target = j->expected[1];
    bool partial = target->shard_count > 0 && target->shards[0].partial, linear = true;
    for (int64_t i = 0; i < target->shard_count; i++)
        linear = linear && (target->shards[i].reduction == RESHARD_SUM ||
                            target->shards[i].reduction == RESHARD_AVG);
    if (partial && !linear)
        return RESHARD_OK;
    reshard_scope *scope = NULL;
    TRY(reshard_tensor_set_requires_grad(x, 1));
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = compute(x, j, partial);
    reshard_tensor *weights = make_zeros(RESHARD_F64, j->given->ndim, j->given->shape);
    for (int64_t i = 0; i < reshard_tensor_volume(weights); i++)
        set_element(weights, i, (double)(i % 7) - 2.5);
    (void)reshard_backward(y, weights, NULL);
    reshard_tensor_release(weights);
    TRY(reshard_scope_close(scope));
    reshard_tensor *gradient = whole_of(reshard_tensor_gradient(x));
    CHECK(gradient != NULL);
    CHECK(reshard_layout_equals(reshard_tensor_layout(reshard_tensor_gradient(x)),
                                reshard_tensor_layout(x)));
    for (int64_t i = 0; i < reshard_tensor_volume(whole); i++) {
        double expected = ((double)(i % 7) - 2.5) * slope(element(whole, i), partial);
        CHECK(fabs(element(gradient, i) - expected) < 1e-7);
    }
    reshard_tensor_release(gradient);
    return RESHARD_OK;
}

static reshard_status run_job(void *user, reshard_group *group)
{
    const job *j = user;
    int32_t rank = reshard_group_rank(group);
    reshard_tensor *whole = make_zeros(RESHARD_F64, j->given->ndim, j->given->shape);
    MUST(reshard_tensor_fill_random(whole, RESHARD_UNIFORM, j->given->seed));
    reshard_tensor *x = spread_random(group, j->texts[0], RESHARD_F64, j->given->ndim,
                                      j->given->shape, j->given->seed);
    CHECK(x != NULL);
    TRY(check_shards(x, j->expected[0], whole, rank));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *y = move_to(x, j->texts[1]), *back = y != NULL ? move_to(y, j->texts[0]) : NULL;
    CHECK(y != NULL && back != NULL);
    if (j->expected[1]->shard_count > 0 && !j->expected[1]->shards[0].partial)
        TRY(check_shards(y, j->expected[1], whole, rank));
    TRY(check_shards(back, j->expected[0], whole, rank));
    TRY(reshard_scope_close(scope));
    reshard_tensor *again = whole_of(x);
    CHECK(is_close(again, whole, 0));
    reshard_tensor_release(again);
    TRY(check_gradient(x, j, whole));
    reshard_tensor_release(x);
    reshard_tensor_release(whole);
    return RESHARD_OK;
}

static void generate(draw_state *draw, harness_case *made)
{
    generate_shape(draw, 60, &made->ndim, made->shape);
    made->spec_count = 2;
    for (int i = 0; i < 2; i++)
        generate_spec(draw, (i == 1 ? GENERATE_PARTIAL : 0) | GENERATE_LISTED | GENERATE_FEW_RANKS,
                      made->ndim, made->shape, &made->specs[i]);
}

static bool check_case(const harness_case *given, words *said)
{
    job j = {.given = given};
    bool good = true;
    int32_t rank_max = 0;
    for (int i = 0; i < 2; i++) {
        const char *why = NULL;
        oracle_spec_text(&given->specs[i], j.texts[i]);
        j.expected[i] = oracle_layout_create(&given->specs[i], given->ndim, given->shape, &why);
        good = good && j.expected[i] != NULL && !oracle_may_be_refused(&given->specs[i]);
        if (j.expected[i] != NULL && j.expected[i]->rank_max > rank_max)
            rank_max = j.expected[i]->rank_max;
    }
    /* Layouts of few ranks may still have high ones. */
    if (good && rank_max < 12 && reshard_group_run(NULL, rank_max + 1, run_job, &j) != RESHARD_OK)
        good = words_say(said, "%s", reshard_error_text());
    else
        good = true;
    for (int i = 0; i < 2; i++)
        oracle_layout_destroy(j.expected[i]);
    return good;
}

static void test_redistribute__random_layouts(void **state)
{
    (void)state;
    harness_run("redistribute", 150, generate, check_case);
}

/* ---- every dtype, bit for bit ---------------------------------------------------------------- */

static reshard_status move_bits(void *user, reshard_group *group)
{
    static const int64_t shapes[][2] = {{5, 3}, {2, 3}, {0, 3}, {13, 21}, {1, 1}};
    (void)user;
    int32_t rank = reshard_group_rank(group), size = reshard_group_size(group);
    for (int d = 1; d < (int)RESHARD_DTYPE_COUNT; d++) {
        if (reshard_dtype_bits((reshard_dtype)d) % 8 != 0)
            continue;
        for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
            reshard_tensor *full = NULL, *x = NULL, *gathered = NULL;
            int64_t bytes = shapes[s][0] * shapes[s][1] * reshard_dtype_bits((reshard_dtype)d) / 8;
            if (rank == size - 1) { /* the source */
                full = make_zeros((reshard_dtype)d, 2, shapes[s]);
                unsigned char *data = reshard_tensor_write(full);
                for (int64_t i = 0; i < bytes; i++)
                    data[i] = (unsigned char)draw_hash(3, (uint64_t)i);
            }
            char rows[32], columns[32];
            (void)snprintf(rows, sizeof rows, "%d: S(0)", size);
            (void)snprintf(columns, sizeof columns, "%d: S(-1)", size);
            reshard_spec *spec = spec_of(rows);
            TRY(reshard_tensor_shard(NULL, group, spec, size - 1, full, &x));
            reshard_spec_release(spec);
            reshard_scope *scope = NULL;
            TRY(reshard_scope_open(NULL, &scope));
            reshard_tensor *y = move_to(x, columns);
            CHECK(y != NULL);
            TRY(reshard_tensor_gather(y, 0, &gathered));
            CHECK((gathered != NULL) == (rank == 0));
            if (gathered != NULL) {
                const unsigned char *data = reshard_tensor_data(gathered);
                for (int64_t i = 0; i < bytes; i++)
                    CHECK(data[i] == (unsigned char)draw_hash(3, (uint64_t)i));
            }
            TRY(reshard_scope_close(scope));
            reshard_tensor_release(gathered);
            reshard_tensor_release(x);
            reshard_tensor_release(full);
        }
    }
    return RESHARD_OK;
}

static void test_redistribute__bits_of_every_dtype(void **state)
{
    (void)state;
    for (int32_t ranks = 1; ranks <= 5; ranks++) {
        run_ranks(ranks, move_bits, NULL);
    }
}

static reshard_status gather_integers(void *user, reshard_group *group)
{
    (void)user;
    reshard_spec *spec = spec_of("3: S(0)");
    reshard_tensor *x = NULL, *all = NULL;
    TRY(reshard_tensor_create_distributed(NULL, group, spec, RESHARD_I64, SHAPE(4), &x));
    TRY(reshard_tensor_fill(x, 16777217));
    TRY(reshard_tensor_gather(x, 1, &all));
    CHECK(all == NULL || element(all, 3) == 16777217);
    /* An integer stays exact on its way to contributions and back. */
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *partial = move_to(x, "3: P(sum)");
    CHECK(partial != NULL && reshard_tensor_dtype(partial) == RESHARD_I64);
    reshard_tensor *again = reshard_tensor_full(partial);
    CHECK(again != NULL && element(again, 0) == 16777217);
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(all);
    reshard_tensor_release(x);
    reshard_spec_release(spec);
    return RESHARD_OK;
}

static void test_gather__integers_beyond_floats(void **state)
{
    (void)state;
    run_ranks(3, gather_integers, NULL);
}

/* ---- memory, caches, casts ------------------------------------------------------------------- */

/* What a move allocates at most, beside a little: the result, of so many elements on this rank. */
typedef struct footprint {
    const char *from, *to;
    int64_t rows, columns;
    int64_t elements; /* of the largest result */
} footprint;

static reshard_status count_memory(void *user, reshard_group *group)
{
    const footprint *given = user;
    reshard_context *context = NULL;
    reshard_spec *from = spec_of(given->from), *to = spec_of(given->to);
    reshard_tensor *x = NULL;
    reshard_scope *scope = NULL;
    size_t little = 512 * 512 * 4 / 64, result = (size_t)given->elements * 4;
    TRY(reshard_context_create(NULL, &context));
    TRY(reshard_tensor_create_distributed(NULL, group, from, RESHARD_F32, 2,
                                          (int64_t[]){given->rows, given->columns}, &x));
    TRY(reshard_scope_open(context, &scope));
    size_t before = info_memory(context).bytes;
    reshard_context_reset_peak(context);
    reshard_tensor *y = reshard_tensor_redistribute(x, to, NULL);
    CHECK(y != NULL);
    CHECK(info_memory(context).bytes_peak - before < result + little);
    CHECK(info_memory(context).bytes - before >=
          4 * (size_t)reshard_tensor_volume(reshard_tensor_local_shard(y, 0)));
    before = info_memory(context).bytes;
    CHECK(reshard_tensor_redistribute(x, from, NULL) != NULL); /* equal layouts share */
    CHECK(info_memory(context).bytes - before < little);
    TRY(reshard_scope_close(scope));
    CHECK(info_memory(context).bytes == 0);
    reshard_tensor_release(x);
    reshard_spec_release(from);
    reshard_spec_release(to);
    reshard_context_destroy(context);
    return RESHARD_OK;
}

/* Upstream needs 3, 4, 2, 1 and 3 shards for the first five, and pads where sizes are uneven. */
static void test_redistribute__allocates_the_result_alone(void **state)
{
    (void)state;
    static const footprint rows[] = {
        {"4: S(0)", "4: S(1)", 512, 512, 512 * 128},
        {"4: S(0)", "4[2,0,3,1]: S(1)", 512, 512, 512 * 128},
        {"4: S(1)", "4: S(0)", 512, 512, 512 * 128},
        {"4: S(0)", "4[1,2,3,0]: S(0)", 512, 512, 512 * 128},
        {"4: S(1)", "4[1,2,3,0]: S(1)", 512, 512, 512 * 128},
        {"4: S(1)", "4: R", 512, 512, 512 * 512},
        {"4: R", "4: S(1)", 512, 512, 512 * 128},
        {"4: S(0)", "4: S(1)", 509, 511, 509 * 128},
        {"4: S(1)", "4: R", 509, 511, 509 * 511},
        {"2,2: S(0), S(0)", "2,2: R, R", 509, 511, 509 * 511},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        footprint row = rows[i];
        if (reshard_group_run(NULL, 4, count_memory, &row) != RESHARD_OK)
            fail_msg("%s to %s: %s", row.from, row.to, reshard_error_text());
    }
}

static reshard_status count_hits(void *user, reshard_group *group)
{
    (void)user;
    reshard_tensor *x = spread_random(group, "2: S(0)", RESHARD_F32, SHAPE(200, 3), 1);
    CHECK(x != NULL);
    for (int turn = 0; turn < 3; turn++) {
        reshard_scope *scope = NULL;
        TRY(reshard_scope_open(NULL, &scope));
        CHECK(move_to(x, "2: S(1)") != NULL);
        CHECK(move_to(x, "2: R") != NULL);
        CHECK(move_to(x, "2: S(0)") != NULL); /* needs no plan */
        TRY(reshard_scope_close(scope));
    }
    reshard_tensor_info counts = {.size = sizeof counts};
    TRY(reshard_tensor_get_info(x, &counts));
    CHECK(counts.plan_misses == 2 && counts.plan_hits == 4 && counts.plans_held == 2);
    /* Bounded: a hundred layouts do not stay. */
    for (int i = 1; i < 100; i++) {
        char text[32];
        reshard_scope *scope = NULL;
        TRY(reshard_scope_open(NULL, &scope));
        (void)snprintf(text, sizeof text, "2: S(0=%d,%d)", i, 200 - i);
        CHECK(move_to(x, text) != NULL);
        TRY(reshard_scope_close(scope));
    }
    TRY(reshard_tensor_get_info(x, &counts));
    CHECK(counts.plans_held == 64);
    /* The last 64 are left, from 36 on. Of these, the one that was not used for longest goes. */
    int64_t hits = counts.plan_hits;
    static const char *const later[] = {"2: S(0=36,164)", "2: S(0=99,101)", "2: S(0=150,50)",
                                        "2: S(0=36,164)", "2: S(0=99,101)"};
    for (int i = 0; i < 5; i++) {
        reshard_scope *scope = NULL;
        TRY(reshard_scope_open(NULL, &scope));
        CHECK(move_to(x, later[i]) != NULL);
        TRY(reshard_scope_close(scope));
    }
    TRY(reshard_tensor_get_info(x, &counts));
    CHECK(counts.plans_held == 64 && counts.plan_hits == hits + 4);
    reshard_tensor_release(x);
    return RESHARD_OK;
}

static void test_cache__counted_and_bounded(void **state)
{
    (void)state;
    run_ranks(2, count_hits, NULL);
}

static reshard_status cast_on_the_way(void *user, reshard_group *group)
{
    (void)user;
    reshard_tensor *x = spread_random(group, "4: S(0)", RESHARD_F32, SHAPE(13, 3), 1);
    reshard_spec *whole = spec_of("4: R");
    CHECK(x != NULL);
    TRY(reshard_tensor_set_requires_grad(x, 1));
    for (int turn = 0; turn < 2; turn++) {
        reshard_redistribute_options options = {.size = sizeof options,
                                                .dtype = RESHARD_BF16,
                                                .gradient_dtype =
                                                    turn ? RESHARD_F16 : RESHARD_DTYPE_NONE};
        reshard_scope *scope = NULL;
        TRY(reshard_scope_open(NULL, &scope));
        reshard_tensor *y = reshard_tensor_redistribute(x, whole, &options);
        CHECK(y != NULL && reshard_tensor_dtype(y) == RESHARD_BF16);
        reshard_tensor *local = reshard_tensor_to_local(y, NULL);
        double got = element(local, 0), exact;
        reshard_tensor *exact_whole = whole_of(x);
        exact = element(exact_whole, 0);
        reshard_tensor_release(exact_whole);
        CHECK(fabs(got - exact) < 0.01);
        (void)reshard_backward(reshard_sum(local), NULL, NULL);
        TRY(reshard_scope_close(scope));
        CHECK(reshard_tensor_dtype(reshard_tensor_gradient(x)) == RESHARD_F32);
    }
    reshard_tensor *gradient = whole_of(reshard_tensor_gradient(x));
    CHECK(gradient != NULL && element(gradient, 38) == 2);
    reshard_tensor_release(gradient);
    reshard_tensor_release(x);
    reshard_spec_release(whole);
    return RESHARD_OK;
}

static void test_redistribute__casts_forwards_and_backwards(void **state)
{
    (void)state;
    run_ranks(4, cast_on_the_way, NULL);
}

/* ---- complex sums, partial to partial -------------------------------------------------------- */

static reshard_status move_partials(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group);
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *complex_part = make_zeros(RESHARD_C64, SHAPE(6, 21));
    float *parts = reshard_tensor_write(complex_part);
    for (int i = 0; i < 252; i++)
        parts[i] = (float)(i * (rank + 1));
    reshard_tensor *x = local_as(complex_part, group, "4: P(sum)");
    CHECK(x != NULL);
    reshard_tensor *y = move_to(x, "4: S(1)"); /* 21 over 4: 6, 6, 6, 3 */
    CHECK(y != NULL);
    const reshard_tensor *shard = reshard_tensor_local_shard(y, 0);
    CHECK(reshard_tensor_shape(shard)[1] == (rank == 3 ? 3 : 6));
    const float *sums = reshard_tensor_data(shard);
    int64_t columns = reshard_tensor_shape(shard)[1];
    for (int64_t i = 0; i < 6 * columns; i++) {
        int64_t at = 2 * (i / columns * 21 + rank * 6 + i % columns);
        CHECK(sums[2 * i] == (float)at * 10 && sums[2 * i + 1] == (float)(at + 1) * 10);
    }
    reshard_tensor *plain = make_zeros(RESHARD_F32, SHAPE(5));
    MUST(reshard_tensor_fill(plain, rank + 1));
    reshard_tensor *biggest = local_as(plain, group, "4: P(max)");
    static const char *const others[] = {"4: P(sum)",  "4: P(avg)",      "4: P(min)",
                                         "4: P(prod)", "2[3,1]: P(sum)", "4: S(0)"};
    for (int i = 0; i < 6; i++) {
        reshard_tensor *whole = reshard_tensor_full(move_to(biggest, others[i]));
        CHECK(whole != NULL && element(whole, 0) == 4 && element(whole, 4) == 4);
    }
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(plain);
    reshard_tensor_release(complex_part);
    return RESHARD_OK;
}

static void test_partial__complex_sums_and_other_reductions(void **state)
{
    (void)state;
    run_ranks(4, move_partials, NULL);
}

/* Gradients that move nothing are handed over, but only where nobody else holds them. */
static reshard_status hold_gradients(void *user, reshard_group *group)
{
    (void)user;
    for (int way = 0; way < 3; way++) {
        reshard_tensor *x = spread_random(group, "3: S(0)", RESHARD_F64, SHAPE(5, 2), 1);
        reshard_tensor *other = spread_random(group, "3: S(0)", RESHARD_F64, SHAPE(5, 2), 2);
        reshard_tensor *g = spread_random(group, "3: S(0)", RESHARD_F64, SHAPE(5, 2), 3);
        reshard_scope *scope = NULL;
        CHECK(x != NULL && other != NULL && g != NULL);
        MUST(reshard_tensor_set_requires_grad(x, 1));
        MUST(reshard_tensor_set_requires_grad(other, 1));
        MUST(reshard_scope_open(NULL, &scope));
        TRY(reshard_tensor_fill(g, 4));
        reshard_tensor *y = way == 0 ? x : way == 1 ? move_to(x, "3: S(0)") : reshard_add(x, other);
        TRY(reshard_backward(y, g, NULL));
        TRY(reshard_scope_close(scope));
        TRY(reshard_tensor_fill(g, 5));
        if (way == 2)
            TRY(reshard_tensor_fill(reshard_tensor_gradient(other), 6));
        const reshard_tensor *shard = reshard_tensor_local_shard(reshard_tensor_gradient(x), 0);
        for (int64_t i = 0; i < reshard_tensor_volume(shard); i++)
            CHECK(element(shard, i) == 4);
        reshard_tensor_release(x);
        reshard_tensor_release(other);
        reshard_tensor_release(g);
    }
    return RESHARD_OK;
}

static void test_gradient__is_its_leafs_own(void **state)
{
    (void)state;
    run_ranks(3, hold_gradients, NULL);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static reshard_status disagree(void *user, reshard_group *group)
{
    int which = *(const int *)user;
    int32_t rank = reshard_group_rank(group);
    reshard_tensor *x = spread_random(group, "3: S(0)", RESHARD_F64, SHAPE(6, 2), 1);
    reshard_tensor *local = make_zeros(RESHARD_F64, SHAPE(2, 2)), *made = NULL;
    reshard_spec *rows = spec_of("3: S(0)");
    reshard_scope *scope = NULL;
    CHECK(x != NULL);
    TRY(reshard_scope_open(NULL, &scope));
    reshard_status status = RESHARD_OK;
    if (which == 0) /* other specs */
        (void)move_to(x, rank == 1 ? "3: R" : "3: S(1)");
    else if (which == 1) /* one rank has failed before */
        (void)reshard_tensor_full(
            reshard_scale(rank == 2 ? reshard_tensor_narrow(x, 0, 0, 1) : x, 1));
    else if (which == 2) /* a dim that is not there, on one rank */
        (void)move_to(x, rank == 1 ? "3: S(2)" : "3: S(1)");
    else if (which == 3) /* a rank that the group does not have */
        (void)move_to(x, "4: S(0)");
    else if (which == 4) /* from_local of other dtypes */
        (void)local_as(rank == 0 ? reshard_tensor_cast(local, RESHARD_F32) : local, group,
                       "3: S(0)");
    else if (which == 5) /* shapes that do not fit */
        (void)local_as(rank == 0 ? reshard_tensor_narrow(local, 1, 0, 1) : local, group, "3: S(0)");
    else if (which == 6)
        status = reshard_tensor_shard(NULL, group, rows, rank == 2, local, &made);
    else if (which == 7)
        status = reshard_tensor_shard(NULL, group, rows, 0, rank == 0 ? NULL : local, &made);
    else if (which == 8)
        status = reshard_tensor_gather(x, rank == 0 ? 1 : 2, &made);
    else /* backward, where one rank's loss is not recorded */
        (void)reshard_backward(reshard_tensor_full(reshard_scale(x, rank == 1 ? 1 : 2)), local,
                               NULL);
    char first[300];
    reshard_status closed = reshard_scope_close(scope);
    status = status != RESHARD_OK ? status : closed;
    (void)snprintf(first, sizeof first, "%s", reshard_error_text());
    CHECK(status != RESHARD_OK && first[0] != '\0' && made == NULL);
    /* The group is as good as before. */
    reshard_tensor *whole = whole_of(x);
    CHECK(whole != NULL);
    reshard_tensor_release(whole);
    reshard_tensor_release(x);
    reshard_tensor_release(local);
    reshard_spec_release(rows);
    return RESHARD_OK;
}

static void test_errors__are_agreed_and_the_group_goes_on(void **state)
{
    (void)state;
    for (int which = 0; which < 10; which++) {
        if (reshard_group_run(NULL, 3, disagree, &which) != RESHARD_OK)
            fail_msg("case %d: %s", which, reshard_error_text());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_redistribute__random_layouts),
        cmocka_unit_test(test_redistribute__bits_of_every_dtype),
        cmocka_unit_test(test_gather__integers_beyond_floats),
        cmocka_unit_test(test_redistribute__allocates_the_result_alone),
        cmocka_unit_test(test_cache__counted_and_bounded),
        cmocka_unit_test(test_redistribute__casts_forwards_and_backwards),
        cmocka_unit_test(test_partial__complex_sums_and_other_reductions),
        cmocka_unit_test(test_gradient__is_its_leafs_own),
        cmocka_unit_test(test_errors__are_agreed_and_the_group_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
