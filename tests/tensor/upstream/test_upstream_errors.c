/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_upstream_errors.c - what PyTorch's tests of sharded tensors expect to be refused, restated
 * by sizes, dtypes and specs. An error comes on all ranks, in words, and leaves the group usable;
 * what upstream refuses for want of an implementation works here, and the test shows that.
 */
#include "tests/support/check.h"
#include "tests/support/info.h"
#include "tests/tensor/cuts.h"
#include "tests/tensor/ran_tensor.h"

#include <string.h>

static void run(int32_t ranks, reshard_rank_fn body, void *user, const char *name)
{
    if (reshard_group_run(NULL, ranks, body, user) != RESHARD_OK)
        fail_msg("%s: %s", name, reshard_error_text());
}

/* The call failed in words that hold these, made nothing, and the group goes on. */
static reshard_status expect_refusal(reshard_group *group, reshard_status status,
                                     const reshard_tensor *made, const char *words)
{
    CHECK(status != RESHARD_OK && made == NULL);
    CHECK(strstr(reshard_error_text(), words) != NULL);
    TRY(reshard_group_barrier(group));
    return RESHARD_OK;
}

/* ---- specs that do not suit ------------------------------------------------------------------ */

typedef struct misfit {
    const char *spec, *words;
} misfit;

static reshard_status refuse_spec(void *user, reshard_group *group)
{
    const misfit *given = user;
    static const int64_t shape[] = {10, 20};
    reshard_spec *spec = spec_of(given->spec);
    reshard_tensor *whole = make_zeros(RESHARD_F32, 2, shape), *made = NULL, *x = NULL;
    reshard_status status =
        reshard_tensor_create_distributed(NULL, group, spec, RESHARD_F32, 2, shape, &made);
    TRY(expect_refusal(group, status, made, given->words));
    ran_here(group, "test_invalid_sharding", "%s %s", ran_shape(RESHARD_F32, 2, shape).text,
             ran_spec(spec).text);
    status = reshard_tensor_shard(NULL, group, spec, 0, whole, &made);
    TRY(expect_refusal(group, status, made, given->words));
    TRY(cut_directly(group, "4: S(0)", whole, &x));
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    made = reshard_tensor_redistribute(x, spec, NULL);
    TRY(expect_refusal(group, reshard_scope_close(scope), made, given->words));
    TRY(reshard_scope_open(NULL, &scope));
    made = reshard_tensor_from_local(whole, group, spec);
    TRY(expect_refusal(group, reshard_scope_close(scope), made, ""));
    reshard_tensor_release(x);
    reshard_tensor_release(whole);
    reshard_spec_release(spec);
    return RESHARD_OK;
}

/* An operation that needs another layout: the norm of rows that are cut, and the sum with a local
 * tensor of the whole shape. */
static reshard_status refuse_operation(void *user, reshard_group *group)
{
    (void)user;
    reshard_tensor *x = spread_random(group, "4: S(1)", RESHARD_F32, SHAPE(10, 20), 1);
    reshard_tensor *one = spread_random(group, "1[0]: S(0)", RESHARD_F32, SHAPE(10, 20), 1);
    reshard_tensor *local = make_zeros(RESHARD_F32, SHAPE(10, 20));
    reshard_tensor *weight = spread_random(group, "4: R", RESHARD_F32, SHAPE(20), 1);
    CHECK(x != NULL && one != NULL && weight != NULL);
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *made = reshard_layernorm(x, weight, NULL, 1e-5);
    TRY(expect_refusal(group, reshard_scope_close(scope), made, "4: S(1)"));
    TRY(reshard_scope_open(NULL, &scope));
    made = reshard_add(one, local);
    ran_here(group, "test_invalid_sharding", "%s + %s", ran_tensor(one).text,
             ran_tensor(local).text);
    TRY(expect_refusal(group, reshard_scope_close(scope), made, ""));
    reshard_tensor_release(weight);
    reshard_tensor_release(local);
    reshard_tensor_release(one);
    reshard_tensor_release(x);
    return RESHARD_OK;
}

static void test_invalid_sharding(void **state)
{
    (void)state;
    static const misfit rows[] = {
        {"4: S(2)", "dimension 2"},
        {"4: S(-3)", "dimension -3"},
        {"1[1]: S(2)", "dimension 2"},
        {"1[1]: S(3)", "dimension 3"},
        {"1[1]: S(4)", "dimension 4"},
        {"1[1]: S(-3)", "dimension -3"},
        {"1[1]: S(-4)", "dimension -4"},
        {"1[1]: S(-5)", "dimension -5"},
        {"1[5]: S(0)", "rank 5"},
        {"2[0,5]: S(0)", "rank 5"},
        {"boxes 10x20: 0[0:5,0:20] 5[5:10,0:20]", "rank 5"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        misfit row = rows[i];
        run(4, refuse_spec, &row, row.spec);
    }
    run(4, refuse_operation, NULL, "operation");
    /* Named dims, named workers, and a mesh with too few placements are no specs at all. */
    static const char *const texts[] = {"1[1]: S(H)",         "1[worker0]: S(0)",
                                        "1[workerfoo]: S(0)", "2,2: S(0)",
                                        "2,2: S(0), S(1), R", "2,2[0,1,0,2]: S(0), R"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        reshard_spec *spec = NULL;
        ran("test_invalid_sharding", "f32 10x20 %s", texts[i]);
        assert_int_not_equal(reshard_spec_parse(NULL, texts[i], &spec), RESHARD_OK);
        assert_null(spec);
    }
}

static reshard_status ask_sizes(void *user, reshard_group *group)
{
    (void)user;
    static const int64_t two[] = {10, 20}, negative[] = {10, -1},
                         huge[] = {INT64_MAX / 2, 3, 1, 1, 1, 1, 1, 1, 1};
    reshard_spec *spec = spec_of("4: S(0)");
    reshard_tensor *x = NULL, *y = NULL, *made = NULL;
    TRY(reshard_tensor_create_distributed(NULL, group, spec, RESHARD_F32, 2, two, &x));
    CHECK(reshard_tensor_ndim(x) == 2 && reshard_tensor_volume(x) == 200);
    CHECK(reshard_tensor_shape(x)[0] == 10 && reshard_tensor_shape(x)[1] == 20);
    TRY(reshard_tensor_create_distributed(NULL, group, spec, RESHARD_F32, 1, two, &y));
    CHECK(reshard_tensor_ndim(y) == 1 && reshard_tensor_volume(y) == 10);
    ran_here(group, "test_sharded_tensor_sizes", "%s", ran_tensor(x).text);
    ran_here(group, "test_sharded_tensor_sizes", "%s", ran_tensor(y).text);
    static const struct {
        int32_t ndim;
        const int64_t *shape;
        reshard_dtype dtype;
    } wrong[] = {{2, negative, RESHARD_F32},
                 {2, huge, RESHARD_F32},
                 {RESHARD_NDIM_MAX + 1, huge, RESHARD_F32},
                 {-1, two, RESHARD_F32},
                 {0, two, RESHARD_F32}, /* a scalar cannot be cut */
                 {2, two, RESHARD_DTYPE_COUNT}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        reshard_status status = reshard_tensor_create_distributed(
            NULL, group, spec, wrong[i].dtype, wrong[i].ndim, wrong[i].shape, &made);
        TRY(expect_refusal(group, status, made, ""));
        CHECK(reshard_error_text()[0] != '\0');
    }
    reshard_tensor_release(x);
    reshard_tensor_release(y);
    reshard_spec_release(spec);
    return RESHARD_OK;
}

static void test_sharded_tensor_sizes(void **state)
{
    (void)state;
    run(4, ask_sizes, NULL, "sizes");
}

/* ---- one rank's tensor ----------------------------------------------------------------------- */

static reshard_status shard_wrongly(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group);
    static const char *const upstream = "test_shard_tensor_errors";
    reshard_tensor *whole = make_zeros(RESHARD_F32, SHAPE(12, 12)), *made = NULL, *other = NULL;
    reshard_spec *rows = spec_of("4: S(0)"), *columns = spec_of("4: S(1)");
    reshard_spec *boxes = spec_of("boxes 12x12: 1[0:12,0:5] 3[0:12,5:12]");
    reshard_spec *few = spec_of("boxes 10x5: 0[0:5,0:5] 1[5:10,0:5]");
    for (int64_t i = 0; i < 144; i++)
        set_element(whole, i, (double)i);
    reshard_status status =
        reshard_tensor_shard(NULL, group, rows, rank == 1 ? 1 : 0, whole, &made);
    TRY(expect_refusal(group, status, made, "rank 1"));
    /* Upstream: every rank names itself. */
    status = reshard_tensor_shard(NULL, group, rows, rank, whole, &made);
    TRY(expect_refusal(group, status, made, "rank"));
    ran_here(group, upstream, "%s %s, from each rank itself", ran_tensor(whole).text,
             ran_spec(rows).text);
    /* Upstream: every rank has a spec of its own, whose first chunk is on itself. */
    char texts[4][32];
    for (int r = 0; r < 4; r++)
        (void)snprintf(texts[r], sizeof texts[r], "4[%d,1,2,3]: S(0)", r);
    reshard_spec *own = spec_of(texts[rank]);
    status = reshard_tensor_shard(NULL, group, own, 0, whole, &made);
    TRY(expect_refusal(group, status, made, "rank"));
    ran_here(group, upstream, "%s %s, %s, %s, %s", ran_tensor(whole).text, texts[0], texts[1],
             texts[2], texts[3]);
    reshard_spec_release(own);
    status = reshard_tensor_shard(NULL, group, few, 0, whole, &made);
    TRY(expect_refusal(group, status, made, "10x5"));
    ran_here(group, upstream, "%s %s", ran_tensor(whole).text, ran_spec(few).text);
    status = reshard_tensor_shard(NULL, group, rank == 2 ? columns : rows, 0, whole, &made);
    TRY(expect_refusal(group, status, made, ""));
    status = reshard_tensor_shard(NULL, group, rows, 4, whole, &made);
    TRY(expect_refusal(group, status, made, "rank 4"));
    other = make_zeros(RESHARD_F32, SHAPE(12, 11)); /* upstream does not compare shapes */
    status = reshard_tensor_shard(NULL, group, rows, 0, rank == 3 ? other : whole, &made);
    TRY(expect_refusal(group, status, made, "rank 3"));
    /* Upstream refuses an enumerable spec and a tensor that is not contiguous. */
    TRY(reshard_tensor_shard(NULL, group, boxes, 0, whole, &made));
    CHECK(info_tensor(made).local_shard_count == rank % 2);
    CHECK(rank != 3 || element(reshard_tensor_local_shard(made, 0), 7) == 17);
    reshard_tensor_release(made);
    made = NULL;
    reshard_scope *scope = NULL;
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *turned = reshard_tensor_transpose(whole, 0, 1);
    CHECK(turned != NULL && !info_tensor(turned).is_contiguous);
    TRY(reshard_tensor_shard(NULL, group, rows, 0, rank == 0 ? turned : NULL, &made));
    ran_here(group, upstream, "%s %s, transposed", ran_tensor(turned).text, ran_spec(rows).text);
    for (int64_t i = 0; i < 36; i++)
        CHECK(element(reshard_tensor_local_shard(made, 0), i) ==
              (double)(i % 12 * 12 + 3 * rank + i / 12));
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(made);
    reshard_tensor_release(other);
    reshard_tensor_release(whole);
    reshard_spec_release(rows);
    reshard_spec_release(columns);
    reshard_spec_release(boxes);
    reshard_spec_release(few);
    return RESHARD_OK;
}

static void test_shard_tensor_errors(void **state)
{
    (void)state;
    run(4, shard_wrongly, NULL, "shard");
}

/* ---- local tensors --------------------------------------------------------------------------- */

static reshard_status wrap_wrongly(void *user, reshard_group *group)
{
    (void)user;
    int32_t rank = reshard_group_rank(group);
    reshard_tensor *local = make_zeros(RESHARD_F32, SHAPE(6, 12)), *made = NULL;
    reshard_scope *scope = NULL;
    MUST(reshard_tensor_fill(local, rank));
    /* 24x12 of which rows 18 to 24 are nobody's. */
    reshard_local_shard shard = {.tensor = local, .offset = {6 * rank, 0}};
    reshard_status status =
        reshard_tensor_from_shards(NULL, group, SHAPE(24, 12), rank < 3, &shard, &made);
    CHECK(status == RESHARD_ERR_GAP);
    TRY(expect_refusal(group, status, made, ""));
    /* A spec of boxes does not say how local sizes add up; a dim that is not there. */
    static const char *const specs[] = {
        "boxes 24x12: 0[0:6,0:12] 1[6:12,0:12] 2[12:18,0:12] 3[18:24,0:12]",
        "boxes 10x5: 0[0:5,0:5] 1[5:10,0:5]", "4: S(2)", "4: S(flat)", "5: S(0)"};
    for (int i = 0; i < 5; i++) {
        TRY(reshard_scope_open(NULL, &scope));
        made = local_as(local, group, specs[i]);
        ran_here(group, "test_init_from_local_tensor_errors", "f32 24x12 %s", specs[i]);
        TRY(expect_refusal(group, reshard_scope_close(scope), made, ""));
    }
    /* Upstream refuses local tensors that are not contiguous. */
    reshard_tensor *wide = make_zeros(RESHARD_F32, SHAPE(12, 6)), *x = NULL;
    for (int64_t i = 0; i < 72; i++)
        set_element(wide, i, (double)(100 * rank + i));
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *turned = reshard_tensor_transpose(wide, 0, 1);
    CHECK(turned != NULL && !info_tensor(turned).is_contiguous);
    reshard_tensor *wrapped = local_as(turned, group, "4[2,3,1,0]: S(0)");
    x = reshard_tensor_full(wrapped);
    CHECK(x != NULL && reshard_tensor_shape(x)[0] == 24 && reshard_tensor_shape(x)[1] == 12);
    ran_here(group, "test_init_from_local_tensor_errors", "%s, transposed",
             ran_tensor(wrapped).text);
    static const int64_t owners[] = {2, 3, 1, 0};
    for (int64_t i = 0; i < 288; i++)
        CHECK(element(x, i) == (double)(owners[i / 72] * 100 + i % 12 * 6 + i / 12 % 6));
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(wide);
    reshard_tensor_release(local);
    return RESHARD_OK;
}

static void test_init_from_local_tensor_errors(void **state)
{
    (void)state;
    run(4, wrap_wrongly, NULL, "wrap");
}

/* The grid of 5x5 on 10x10, with something wrong on rank 1; upstream's are wrong on rank 0. */
typedef struct shards_case {
    const char *name, *upstream;
    int32_t odd_rank;
    int64_t size[2], offset[2];
    reshard_dtype dtype;
    int requires_grad, count;
    int64_t shape[2];
    reshard_status expected;
    int64_t columns; /* of the shape that the other ranks give */
} shards_case;

static const shards_case shards_cases[] = {
    {"right", NULL, 1, {5, 5}, {0, 5}, RESHARD_F32, 0, 1, {10, 10}, RESHARD_OK, 10},
    {"right, empty shard too",
     NULL,
     1,
     {5, 5},
     {0, 5},
     RESHARD_F32,
     0,
     -2,
     {10, 10},
     RESHARD_OK,
     10},
    {"overlap", NULL, 1, {6, 6}, {0, 4}, RESHARD_F32, 0, 1, {10, 10}, RESHARD_ERR_OVERLAP, 10},
    {"gap", NULL, 1, {4, 4}, {0, 5}, RESHARD_F32, 0, 1, {10, 10}, RESHARD_ERR_GAP, 10},
    {"nothing", NULL, 1, {5, 5}, {0, 5}, RESHARD_F32, 0, 0, {10, 10}, RESHARD_ERR_GAP, 10},
    {"outside", NULL, 1, {5, 5}, {0, 6}, RESHARD_F32, 0, 1, {10, 10}, RESHARD_ERR_RANGE, 10},
    {"negative offset",
     NULL,
     1,
     {5, 5},
     {-1, 5},
     RESHARD_F32,
     0,
     1,
     {10, 10},
     RESHARD_ERR_RANGE,
     10},
    {"twice the same",
     NULL,
     1,
     {5, 5},
     {0, 5},
     RESHARD_F32,
     0,
     2,
     {10, 10},
     RESHARD_ERR_OVERLAP,
     10},
    {"another shape",
     NULL,
     1,
     {5, 5},
     {0, 5},
     RESHARD_F32,
     0,
     1,
     {10, 5},
     RESHARD_ERR_MISMATCH,
     10},
    {"another dtype",
     NULL,
     1,
     {5, 5},
     {0, 5},
     RESHARD_I32,
     0,
     1,
     {10, 10},
     RESHARD_ERR_MISMATCH,
     10},
    {"requires_grad",
     NULL,
     1,
     {5, 5},
     {0, 5},
     RESHARD_F32,
     1,
     1,
     {10, 10},
     RESHARD_ERR_MISMATCH,
     10},
    {"two dtypes", NULL, 1, {5, 5}, {0, 5}, RESHARD_F32, 0, 3, {10, 10}, RESHARD_ERR_INVALID, 10},
    {"three dims", NULL, 1, {5, 5}, {0, 5}, RESHARD_F32, 0, 4, {10, 10}, RESHARD_ERR_INVALID, 10},
    {"no tensor", NULL, 1, {5, 5}, {0, 5}, RESHARD_F32, 0, 5, {10, 10}, RESHARD_ERR_INVALID, 10},
    {"size",
     "test_init_from_local_shards_invalid_property_cross_ranks",
     0,
     {5, 5},
     {0, 0},
     RESHARD_F32,
     0,
     1,
     {10, 10},
     RESHARD_ERR_MISMATCH,
     5},
    {"int and float",
     "test_init_from_local_shards_invalid_property_cross_ranks",
     0,
     {5, 5},
     {0, 0},
     RESHARD_I32,
     0,
     1,
     {10, 10},
     RESHARD_ERR_MISMATCH,
     10},
    {"gradients",
     "test_init_from_local_shards_invalid_property_cross_ranks",
     0,
     {5, 5},
     {0, 0},
     RESHARD_F32,
     1,
     1,
     {10, 10},
     RESHARD_ERR_MISMATCH,
     10},
    {"overlap",
     "test_init_from_local_shards_invalid_shards_overlap",
     0,
     {6, 6},
     {0, 0},
     RESHARD_F32,
     0,
     1,
     {10, 10},
     RESHARD_ERR_OVERLAP,
     10},
    {"gap",
     "test_init_from_local_shards_invalid_shards_gaps",
     0,
     {4, 4},
     {0, 0},
     RESHARD_F32,
     0,
     1,
     {10, 10},
     RESHARD_ERR_GAP,
     10},
};

static reshard_status join_wrongly(void *user, reshard_group *group)
{
    const shards_case *c = user;
    int32_t rank = reshard_group_rank(group);
    reshard_tensor *mine = make_zeros(RESHARD_F32, SHAPE(5, 5)), *made = NULL;
    reshard_tensor *empty = make_zeros(RESHARD_F32, SHAPE(0, 5));
    reshard_tensor *whole_numbers = make_zeros(RESHARD_I32, SHAPE(0, 5));
    reshard_tensor *solid = make_zeros(RESHARD_F32, SHAPE(1, 5, 5));
    reshard_tensor *given = make_zeros(c->dtype, 2, c->size);
    reshard_tensor *again = make_zeros(c->dtype, 2, c->size);
    if (c->requires_grad)
        TRY(reshard_tensor_set_requires_grad(given, 1));
    reshard_local_shard shards[2] = {{.tensor = mine, .offset = {rank / 2 * 5, rank % 2 * 5}},
                                     {.tensor = again}};
    int64_t shape[] = {10, c->columns}, count = 1;
    if (rank == c->odd_rank) {
        memcpy(shape, c->shape, sizeof shape);
        memcpy(shards[0].offset, c->offset, sizeof c->offset);
        memcpy(shards[1].offset, c->offset, sizeof c->offset);
        count = c->count == 0 || c->count == 1 ? c->count : c->count > 3 ? 1 : 2;
        shards[0].tensor = c->count == 4 ? solid : c->count == 5 ? NULL : given;
        shards[1].tensor = c->count == -2 ? empty : c->count == 3 ? whole_numbers : again;
    }
    reshard_status status = reshard_tensor_from_shards(NULL, group, 2, shape, count, shards, &made);
    ran_here(group, c->upstream, "f32 10x%d in 5x5, on rank %d %s at %d,%d of %dx%d%s",
             (int)c->columns, (int)c->odd_rank, ran_shape(c->dtype, 2, c->size).text,
             (int)c->offset[0], (int)c->offset[1], (int)c->shape[0], (int)c->shape[1],
             c->requires_grad ? ", with gradients" : "");
    if (status != c->expected)
        (void)fprintf(stderr, "%s: %s\n", c->name, reshard_status_name(status));
    CHECK(status == c->expected);
    if (status == RESHARD_OK)
        CHECK(info_tensor(made).local_shard_count == count);
    else
        TRY(expect_refusal(group, status, made, ""));
    reshard_tensor_release(made);
    reshard_tensor *all[] = {mine, empty, whole_numbers, solid, given, again};
    for (int i = 0; i < 6; i++)
        reshard_tensor_release(all[i]);
    return RESHARD_OK;
}

static reshard_status join_nothing(void *user, reshard_group *group)
{
    (void)user;
    reshard_tensor *made = NULL;
    reshard_status status = reshard_tensor_from_shards(NULL, group, SHAPE(10, 10), 0, NULL, &made);
    ran_here(group, "test_init_from_local_shards_invalid_local_shards", "10x10 of nothing");
    return expect_refusal(group, status, made, "no rank has a shard");
}

static void test_invalid_local_shards(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof shards_cases / sizeof *shards_cases; i++) {
        shards_case c = shards_cases[i];
        run(4, join_wrongly, &c, c.name);
    }
    run(4, join_nothing, NULL, "nothing");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_invalid_sharding),
        cmocka_unit_test(test_sharded_tensor_sizes),
        cmocka_unit_test(test_shard_tensor_errors),
        cmocka_unit_test(test_init_from_local_tensor_errors),
        cmocka_unit_test(test_invalid_local_shards),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
