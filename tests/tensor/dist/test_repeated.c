/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_repeated.c - tensors of which a rank owns several chunks (4[0,0,1,1]: S(0)): made, gathered,
 * redistributed and differentiated; PyTorch's gather_uneven and multiple_local_shards; redistribute
 * into memory that is there; tensors like others; the default group.
 */
#include "tests/support/check.h"
#include "tests/support/info.h"
#include "tests/tensor/distributed.h"

#include <string.h>

/* ---- several chunks on a rank ---------------------------------------------------------------- */

typedef struct owners {
    const char *spec;
    int64_t rows;
    int32_t count, ranks[10]; /* of the chunks */
} owners;

/* The chunks of a rank, in order, hold the rows that the definition says. */
static reshard_status check_chunks(const owners *o, reshard_tensor *tensor, int32_t rank)
{
    int64_t chunk = (o->rows + o->count - 1) / o->count, index = 0;
    for (int32_t k = 0; k < o->count; k++) {
        int64_t first = k * chunk < o->rows ? k * chunk : o->rows;
        int64_t rows = o->rows - first < chunk ? o->rows - first : chunk;
        if (o->ranks[k] != rank)
            continue;
        reshard_tensor *shard = reshard_tensor_local_shard(tensor, index++);
        CHECK(shard != NULL && reshard_tensor_shape(shard)[0] == rows);
        for (int64_t i = 0; i < 5 * rows; i++)
            CHECK(element(shard, i) == (double)(5 * first + i));
    }
    CHECK(info_tensor(tensor).local_shard_count == index);
    return RESHARD_OK;
}

static reshard_status body_owners(void *user, reshard_group *group)
{
    const owners *o = user;
    static const char *const others[] = {"4: S(0)",
                                         "4: S(1)",
                                         "4: R",
                                         "2,2: S(1), S(0)",
                                         "6[3,3,1,0,0,2]: S(0)",
                                         "5[2,2,1,1,0]: S(1)",
                                         "3[1,1,1]: S(flat)",
                                         "2[0,0]: R"};
    int32_t rank = reshard_group_rank(group);
    reshard_tensor *whole = make_zeros(RESHARD_F64, SHAPE(o->rows, 5)), *made = NULL, *root = NULL;
    for (int64_t i = 0; i < 5 * o->rows; i++)
        set_element(whole, i, (double)i);
    reshard_spec *spec = spec_of(o->spec);
    TRY(reshard_tensor_shard(NULL, group, spec, 0, whole, &made));
    TRY(check_chunks(o, made, rank));
    TRY(reshard_tensor_gather(made, 1, &root));
    CHECK((root != NULL) == (rank == 1));
    for (int64_t i = 0; rank == 1 && i < 5 * o->rows; i++)
        CHECK(element(root, i) == (double)i);
    MUST(reshard_tensor_set_requires_grad(made, 1));
    for (size_t k = 0; k < sizeof others / sizeof *others; k++) {
        reshard_scope *scope = NULL;
        MUST(reshard_scope_open(NULL, &scope));
        reshard_tensor *moved = move_to(made, others[k]), *back = move_to(moved, o->spec);
        TRY(reshard_scope_status(scope));
        TRY(check_chunks(o, back, rank));
        /* The gradient comes back to the chunks: that of the sum of squares is 2x. */
        reshard_tensor *local = reshard_tensor_full(moved);
        reshard_tensor_clear_gradient(made);
        TRY(reshard_backward(reshard_scale(reshard_sum(reshard_mul(local, local)), 0.5), NULL,
                             NULL));
        TRY(check_chunks(o, reshard_tensor_gradient(made), rank));
        TRY(reshard_scope_close(scope));
    }
    /* Operations element by element work on every chunk; others say that they do not. */
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *same = reshard_scale(reshard_add(made, made), 0.5);
    TRY(check_chunks(o, same, rank));
    CHECK(reshard_sum(made) == NULL && strstr(reshard_error_text(), o->spec) != NULL);
    CHECK(reshard_scope_close(scope) == RESHARD_ERR_UNSUPPORTED);
    reshard_spec_release(spec);
    reshard_tensor_release(root);
    reshard_tensor_release(made);
    reshard_tensor_release(whole);
    return RESHARD_OK;
}

static void test_repeated__moved_and_gathered(void **state)
{
    (void)state;
    static owners rows[] = {
        {"4[0,0,1,1]: S(0)", 13, 4, {0, 0, 1, 1}},
        {"5[0,0,1,1,2]: S(0)", 10, 5, {0, 0, 1, 1, 2}},
        {"8[0..3,0..3]: S(0)", 16, 8, {0, 1, 2, 3, 0, 1, 2, 3}},
        {"10[0,0,1,1,1,2,2,2,3,3]: S(0)", 24, 10, {0, 0, 1, 1, 1, 2, 2, 2, 3, 3}},
        {"3[2,2,2]: S(0)", 2, 3, {2, 2, 2}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        run_ranks(4, body_owners, &rows[i]);
}

/* Who takes one tensor or one place from each rank says so. */
static reshard_status body_refused(void *user, reshard_group *group)
{
    (void)user;
    reshard_scope *scope = NULL;
    reshard_tensor *x = make_zeros(RESHARD_F64, SHAPE(2)), *made = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    CHECK(local_as(x, group, "4[0,0,1,1]: S(0)") == NULL);
    CHECK(strstr(reshard_error_text(), "rank 0 occurs twice in the mesh") != NULL);
    CHECK(reshard_scope_close(scope) == RESHARD_ERR_INVALID);
    reshard_spec *spec = spec_of("4[0,0,1,1]: S(0)");
    TRY(reshard_tensor_shard(NULL, group, spec, 0, x, &made));
    MUST(reshard_scope_open(NULL, &scope));
    CHECK(reshard_tensor_to_local(made, NULL) == NULL);
    CHECK(strstr(reshard_error_text(), "this rank has 2 shards") != NULL);
    CHECK(reshard_scope_close(scope) == RESHARD_ERR_UNSUPPORTED);
    reshard_device_mesh *mesh = NULL;
    CHECK(reshard_device_mesh_parse(NULL, group, "4[0,0,1,1]", &mesh) == RESHARD_ERR_INVALID);
    CHECK(strstr(reshard_error_text(), "rank 0 occurs twice in the mesh") != NULL);
    reshard_spec_release(spec);
    reshard_tensor_release(made);
    reshard_tensor_release(x);
    return RESHARD_OK;
}

static void test_repeated__refused(void **state)
{
    (void)state;
    run_ranks(2, body_refused, NULL);
}

/* ---- into memory that is there --------------------------------------------------------------- */

static reshard_status body_into(void *user, reshard_group *group)
{
    static const char *const specs[] = {"4: S(0)", "4: S(1)", "4: R", "4[0,0,1,1]: S(1)",
                                        "2,2: S(1), S(0)"};
    (void)user;
    for (size_t i = 0; i < 5; i++) {
        for (size_t k = 0; k < 5; k++) {
            reshard_tensor *from = spread_random(group, specs[i], RESHARD_F64, SHAPE(7, 9), 1);
            reshard_tensor *to = spread_random(group, specs[k], RESHARD_F64, SHAPE(7, 9), 2);
            reshard_tensor *narrow = spread_random(group, specs[k], RESHARD_F32, SHAPE(7, 9), 2);
            const void *memory = NULL;
            if (info_tensor(to).local_shard_count > 0)
                memory = reshard_tensor_data(reshard_tensor_local_shard(to, 0));
            TRY(reshard_tensor_copy(to, from));
            TRY(reshard_tensor_copy(narrow, from));
            CHECK(memory == NULL ||
                  memory == reshard_tensor_data(reshard_tensor_local_shard(to, 0)));
            reshard_tensor *a = whole_of(from), *b = whole_of(to), *c = whole_of(narrow);
            for (int64_t e = 0; e < 63; e++) {
                CHECK(element(a, e) == element(b, e));
                CHECK((double)(float)element(a, e) == element(c, e));
            }
            reshard_tensor_release(a);
            reshard_tensor_release(b);
            reshard_tensor_release(c);
            reshard_tensor_release(from);
            reshard_tensor_release(to);
            reshard_tensor_release(narrow);
        }
    }
    return RESHARD_OK;
}

static reshard_status expect_into(reshard_tensor *from, reshard_tensor *to, reshard_status status,
                                  const char *words)
{
    CHECK(reshard_tensor_copy(to, from) == status);
    CHECK(strstr(reshard_error_text(), words) != NULL);
    return RESHARD_OK;
}

static reshard_status body_into_refused(void *user, reshard_group *group)
{
    (void)user;
    reshard_tensor *from = spread_random(group, "4: S(0)", RESHARD_F64, SHAPE(8, 4), 1);
    reshard_tensor *other = spread_random(group, "4: S(0)", RESHARD_F64, SHAPE(4, 8), 1);
    reshard_tensor *whole = make_zeros(RESHARD_F64, SHAPE(8, 4)), *count = NULL;
    reshard_spec *spec = spec_of("4: S(0)");
    TRY(reshard_tensor_create_distributed(NULL, group, spec, RESHARD_I64, SHAPE(8, 4), &count));
    TRY(expect_into(whole, from, RESHARD_ERR_INVALID, "the source is not"));
    TRY(expect_into(from, NULL, RESHARD_ERR_INVALID, "the target is NULL"));
    TRY(expect_into(from, whole, RESHARD_ERR_INVALID,
                    "the target is local, and the source is not"));
    TRY(expect_into(from, other, RESHARD_ERR_INVALID, "f64 8x4 into f64 4x8"));
    TRY(expect_into(from, count, RESHARD_ERR_UNSUPPORTED, "from f64 to i64"));
    TRY(expect_into(from, from, RESHARD_ERR_INVALID, "shares memory"));
    /* Over the same ranks, but another group: the two would not meet. */
    reshard_group *again = NULL;
    TRY(reshard_group_subset(group, 4, (const int32_t[]){0, 1, 2, 3}, &again));
    reshard_tensor *foreign = spread_random(again, "4: S(1)", RESHARD_F64, SHAPE(8, 4), 1);
    TRY(expect_into(from, foreign, RESHARD_ERR_INVALID, "distributed over another group"));
    reshard_tensor_release(foreign);
    reshard_group_release(again);
    /* What one rank alone does wrong is told to all, and nobody waits. */
    bool odd = reshard_group_rank(group) == 2;
    reshard_tensor *fine = spread_random(group, "4: S(1)", RESHARD_F64, SHAPE(8, 4), 2);
    TRY(expect_into(from, odd ? other : fine, RESHARD_ERR_INVALID, "rank 2: f64 8x4 into f64 4x8"));
    reshard_tensor_release(fine);
    /* A target that autograd computed keeps its value; one that was saved counts as overwritten. */
    reshard_scope *scope = NULL;
    reshard_tensor *leaf = spread_random(group, "4: S(1)", RESHARD_F64, SHAPE(8, 4), 3);
    MUST(reshard_tensor_set_requires_grad(leaf, 1));
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *square = reshard_mul(leaf, leaf);
    TRY(expect_into(from, square, RESHARD_ERR_INVALID, "was computed by mul"));
    TRY(reshard_tensor_copy(leaf, from));
    reshard_tensor *ones = NULL;
    TRY(reshard_tensor_zeros_like(square, RESHARD_DTYPE_NONE, &ones));
    TRY(reshard_tensor_fill(ones, 1));
    CHECK(reshard_backward(square, ones, NULL) == RESHARD_ERR_INVALID);
    CHECK(reshard_scope_close(scope) == RESHARD_ERR_INVALID);
    reshard_tensor_release(ones);
    reshard_tensor_release(leaf);
    reshard_spec_release(spec);
    reshard_tensor_release(from);
    reshard_tensor_release(other);
    reshard_tensor_release(whole);
    reshard_tensor_release(count);
    return RESHARD_OK;
}

static void test_into__values(void **state)
{
    (void)state;
    run_ranks(4, body_into, NULL);
}

static void test_into__refused(void **state)
{
    (void)state;
    run_ranks(4, body_into_refused, NULL);
}

/* ---- like another ---------------------------------------------------------------------------- */

static reshard_status body_like(void *user, reshard_group *group)
{
    static const char *const specs[] = {NULL, "4: S(0)", "3[2,2,0]: S(1)", "2,2: S(1), R"};
    (void)user;
    for (size_t i = 0; i < 4; i++) {
        reshard_tensor *like = specs[i] == NULL
                                   ? make_zeros(RESHARD_F32, SHAPE(5, 6))
                                   : spread_random(group, specs[i], RESHARD_F32, SHAPE(5, 6), 1);
        reshard_tensor *made[4], *local = make_zeros(RESHARD_F64, SHAPE(5, 6));
        TRY(reshard_tensor_zeros_like(like, RESHARD_DTYPE_NONE, &made[0]));
        TRY(reshard_tensor_zeros_like(like, RESHARD_I32, &made[1]));
        TRY(reshard_tensor_fill(made[1], 1234));
        TRY(reshard_tensor_zeros_like(like, RESHARD_F64, &made[2]));
        TRY(reshard_tensor_fill_random(made[2], RESHARD_UNIFORM, 8));
        TRY(reshard_tensor_zeros_like(like, RESHARD_F64, &made[3]));
        TRY(reshard_tensor_fill_random(made[3], RESHARD_NORMAL, 9));
        CHECK(reshard_tensor_dtype(made[0]) == RESHARD_F32);
        CHECK(reshard_tensor_dtype(made[1]) == RESHARD_I32);
        for (int k = 0; k < 4; k++) {
            bool spread = specs[i] != NULL;
            reshard_tensor *whole = spread ? whole_of(made[k]) : reshard_tensor_retain(made[k]);
            CHECK(!spread || reshard_layout_equals(reshard_tensor_layout(made[k]),
                                                   reshard_tensor_layout(like)));
            if (k == 2)
                MUST(reshard_tensor_fill_random(local, RESHARD_UNIFORM, 8));
            if (k == 3)
                MUST(reshard_tensor_fill_random(local, RESHARD_NORMAL, 9));
            for (int64_t e = 0; e < 30; e++)
                CHECK(element(whole, e) == (k == 0 ? 0 : k == 1 ? 1234 : element(local, e)));
            reshard_tensor_release(whole);
            reshard_tensor_release(made[k]);
        }
        reshard_tensor_release(local);
        reshard_tensor_release(like);
    }
    return RESHARD_OK;
}

static void test_like__values_layout_dtype(void **state)
{
    (void)state;
    run_ranks(4, body_like, NULL);
}

/* ---- the default group ----------------------------------------------------------------------- */

static reshard_status see_group(void *user)
{
    return reshard_current_group() == user ? RESHARD_OK
                                           : reshard_error_set(RESHARD_ERR_CHECK, "another group");
}

static reshard_status body_default(void *user, reshard_group *group)
{
    int32_t pair[] = {0, 1};
    reshard_group *part = NULL;
    reshard_spec *spec = spec_of("2: S(0)");
    reshard_tensor *made = NULL;
    (void)user;
    CHECK(reshard_group_default() == NULL && reshard_current_group() == NULL);
    CHECK(reshard_tensor_create_distributed(NULL, NULL, spec, RESHARD_F32, SHAPE(4), &made) ==
          RESHARD_ERR_INVALID);
    CHECK(strstr(reshard_error_text(), "no group is given") != NULL);
    reshard_group_set_default(group);
    CHECK(reshard_group_default() == group && reshard_current_group() == group);
    TRY(reshard_tensor_create_distributed(NULL, NULL, spec, RESHARD_F32, SHAPE(4), &made));
    CHECK(info_tensor(made).group == group);
    reshard_tensor_release(made);
    /* The scoped one goes before it. */
    TRY(reshard_group_subset(group, 2, pair, &part));
    TRY(reshard_load_with_group(part, see_group, part));
    CHECK(reshard_current_group() == group);
    reshard_group_set_default(part);
    reshard_group_release(part); /* the default is held */
    CHECK(reshard_group_size(reshard_current_group()) == 2);
    reshard_scope *scope = NULL;
    reshard_tensor *x = make_zeros(RESHARD_F64, SHAPE(1));
    set_element(x, 0, 1 + reshard_group_rank(group));
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *sum = reshard_tensor_exchange(
        x, NULL,
        RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_REDUCE, .reduction = RESHARD_SUM));
    CHECK(sum != NULL && element(sum, 0) == 3);
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(x);
    reshard_spec_release(spec);
    return RESHARD_OK; /* what is set here ends here */
}

static void test_default_group__per_thread(void **state)
{
    (void)state;
    reshard_group *self = NULL;
    MUST(reshard_group_self(NULL, &self));
    reshard_group_set_default(self);
    run_ranks(2, body_default, NULL);
    assert_ptr_equal(reshard_group_default(), self);
    reshard_group_set_default(NULL);
    assert_null(reshard_group_default());
    reshard_group_release(self);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_repeated__moved_and_gathered),
        cmocka_unit_test(test_repeated__refused),
        cmocka_unit_test(test_into__values),
        cmocka_unit_test(test_into__refused),
        cmocka_unit_test(test_like__values_layout_dtype),
        cmocka_unit_test(test_default_group__per_thread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
