/* SPDX-License-Identifier: Apache-2.0 */
/* test_equal.c - equal, allclose, clone and copy, of local and of distributed tensors. */
#include "tests/support/check.h"
#include "tests/tensor/distributed.h"

#include <math.h>
#include <string.h>

#define INF INFINITY

/* What PyTorch 1.13 says of pairs of numbers: equal, and allclose with rtol 0.1, atol 0.5. */
static void test_local__pairs(void **state)
{
    (void)state;
    static const struct {
        double a, b;
        int equal, close, close_nan;
    } rows[] = {
        {1, 1, 1, 1, 1},       {0.0, -0.0, 1, 1, 1},  {10, 11.6, 0, 1, 1}, {11.6, 10, 0, 0, 0},
        {NAN, NAN, 0, 0, 1},   {NAN, 1, 0, 0, 0},     {INF, INF, 1, 1, 1}, {INF, -INF, 0, 0, 0},
        {INF, 1e300, 0, 0, 0}, {1e300, INF, 0, 0, 0},
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        /* Far behind, so that several blocks are compared. */
        reshard_tensor *a = make_zeros(RESHARD_F64, SHAPE(3, 401));
        reshard_tensor *b = make_zeros(RESHARD_F64, SHAPE(3, 401));
        int equal = -1, close = -1, close_nan = -1;
        set_element(a, 1202, rows[k].a);
        set_element(b, 1202, rows[k].b);
        MUST(reshard_tensor_equal(a, b, &equal));
        MUST(reshard_tensor_allclose(a, b, 0.1, 0.5, 0, &close));
        MUST(reshard_tensor_allclose(a, b, 0.1, 0.5, 1, &close_nan));
        if (equal != rows[k].equal || close != rows[k].close || close_nan != rows[k].close_nan)
            fail_msg("%g and %g: %d %d %d", rows[k].a, rows[k].b, equal, close, close_nan);
        reshard_tensor_release(a);
        reshard_tensor_release(b);
    }
}

static void test_local__dtypes_and_strides(void **state)
{
    (void)state;
    static const reshard_dtype dtypes[] = {RESHARD_F16, RESHARD_BF16, RESHARD_F32, RESHARD_F64,
                                           RESHARD_I64, RESHARD_U8,   RESHARD_BOOL};
    for (size_t k = 0; k < sizeof dtypes / sizeof *dtypes; k++) {
        reshard_scope *scope = NULL;
        MUST(reshard_scope_open(NULL, &scope));
        reshard_tensor *a = make_zeros(dtypes[k], SHAPE(2, 3)),
                       *b = make_zeros(dtypes[k], SHAPE(3, 2));
        int equal = -1;
        set_element(a, 1, 1); /* [0][1] */
        set_element(b, 2, 1); /* [1][0] */
        MUST(reshard_tensor_equal(a, reshard_tensor_transpose(b, 0, 1), &equal));
        assert_int_equal(equal, 1);
        MUST(reshard_tensor_equal(a, b, &equal)); /* shapes */
        assert_int_equal(equal, 0);
        reshard_tensor *copy = reshard_tensor_clone(reshard_tensor_transpose(b, 0, 1));
        set_element(b, 2, 0);
        MUST(reshard_tensor_equal(a, copy, &equal));
        assert_int_equal(equal, 1);
        MUST(reshard_tensor_equal(a, reshard_tensor_transpose(b, 0, 1), &equal));
        assert_int_equal(equal, 0);
        MUST(reshard_tensor_copy(reshard_tensor_transpose(a, 0, 1), b));
        MUST(reshard_tensor_equal(reshard_tensor_transpose(a, 0, 1), b, &equal));
        assert_true(equal == 1 && element(a, 1) == 0);
        MUST(reshard_scope_close(scope));
        reshard_tensor_release(a);
        reshard_tensor_release(b);
    }
}

static void test_copy__casts_and_is_seen(void **state)
{
    (void)state;
    reshard_tensor *x = make_zeros(RESHARD_F32, SHAPE(2)), *y = make_zeros(RESHARD_F16, SHAPE(2));
    reshard_scope *scope = NULL;
    set_element(y, 0, 1.5);
    MUST(reshard_tensor_set_requires_grad(x, 1));
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *square = reshard_mul(x, x), *cloned = reshard_tensor_clone(x);
    MUST(reshard_backward(reshard_sum(reshard_scale(cloned, 3)), NULL, NULL));
    assert_true(element(reshard_tensor_gradient(x), 1) == 3);
    MUST(reshard_tensor_copy(x, y));
    assert_true(element(x, 0) == 1.5);
    assert_int_equal(reshard_backward(reshard_sum(square), NULL, NULL), RESHARD_ERR_INVALID);
    (void)reshard_scope_close(scope);
    reshard_tensor_release(x);
    reshard_tensor_release(y);
}

static void test_local__refusals(void **state)
{
    (void)state;
    reshard_tensor *x = make_zeros(RESHARD_F32, SHAPE(2)), *y = make_zeros(RESHARD_F64, SHAPE(2));
    reshard_tensor *z = make_zeros(RESHARD_I64, SHAPE(2)), *w = make_zeros(RESHARD_F32, SHAPE(3));
    int answer = 5;
    const struct {
        reshard_status status;
        const char *words;
    } rows[] = {
        {reshard_tensor_equal(x, y, &answer), "equal: f32 2 and f64 2"},
        {reshard_tensor_allclose(x, w, 0, 0, 0, &answer), "allclose: f32 2 and f32 3"},
        {reshard_tensor_allclose(z, z, 0, 0, 0, &answer),
         "allclose: input 0 is i64, not f16, bf16, f32 or f64"},
        {reshard_tensor_allclose(x, x, -1, 0, 0, &answer),
         "allclose: the tolerances are -1 and 0; they must be 0 or more"},
        {reshard_tensor_copy(x, w), "copy: f32 3 into f32 2"},
        {reshard_tensor_copy(x, z),
         "copy: from i64 to f32: casts are between f16, bf16, f32 and f64"},
        {reshard_tensor_copy(x, x), "copy: the target shares memory with the source"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_not_equal(rows[i].status, RESHARD_OK);
    assert_int_equal(answer, 5);
    assert_string_equal(reshard_error_text(), rows[6].words);
    reshard_status status = reshard_tensor_equal(x, y, &answer);
    assert_true(status == RESHARD_ERR_INVALID && strcmp(reshard_error_text(), rows[0].words) == 0);
    status = reshard_tensor_allclose(x, w, 0, 0, 0, &answer);
    assert_true(status == RESHARD_ERR_INVALID && strcmp(reshard_error_text(), rows[1].words) == 0);
    status = reshard_tensor_allclose(z, z, 0, 0, 0, &answer);
    assert_true(status == RESHARD_ERR_UNSUPPORTED &&
                strcmp(reshard_error_text(), rows[2].words) == 0);
    status = reshard_tensor_copy(x, z);
    assert_true(status == RESHARD_ERR_UNSUPPORTED &&
                strcmp(reshard_error_text(), rows[5].words) == 0);
    reshard_tensor_release(x);
    reshard_tensor_release(y);
    reshard_tensor_release(z);
    reshard_tensor_release(w);
}

/* One element of one rank differs: all ranks say so. */
static reshard_status body_spread(void *user, reshard_group *group)
{
    static const char *const specs[] = {"4: S(0)", "2,2: S(1), S(0)", "3: S(0~)", "2[3,1]: S(1)"};
    (void)user;
    for (size_t i = 0; i < 4; i++) {
        for (size_t k = 0; k < 4; k++) {
            reshard_scope *scope = NULL;
            int equal = -1, close = -1;
            reshard_tensor *a = spread_random(group, specs[i], RESHARD_F32, SHAPE(5, 3), 1);
            reshard_tensor *b = spread_random(group, specs[k], RESHARD_F32, SHAPE(5, 3), 1);
            TRY(reshard_tensor_equal(a, b, &equal));
            CHECK(equal == 1);
            TRY(reshard_scope_open(NULL, &scope));
            reshard_tensor *c = reshard_tensor_clone(b);
            CHECK(reshard_layout_equals(reshard_tensor_layout(c), reshard_tensor_layout(b)));
            reshard_tensor *mine = reshard_tensor_local_shard(b, 0);
            if (mine != NULL && reshard_group_rank(group) == 1 && reshard_tensor_volume(mine) > 0)
                set_element(mine, 0, element(mine, 0) + 0.25);
            TRY(reshard_tensor_equal(a, b, &equal));
            TRY(reshard_tensor_allclose(a, b, 0, 0.3, 0, &close));
            CHECK(equal == 0 && close == 1);
            TRY(reshard_tensor_allclose(a, b, 0, 0.2, 0, &close));
            CHECK(close == 0);
            TRY(reshard_tensor_equal(a, c, &equal));
            CHECK(equal == 1);
            TRY(reshard_tensor_copy(b, a));
            TRY(reshard_tensor_equal(b, a, &equal));
            CHECK(equal == 1);
            TRY(reshard_scope_close(scope));
            reshard_tensor_release(a);
            reshard_tensor_release(b);
        }
    }
    return RESHARD_OK;
}

static void test_distributed__all_ranks_agree(void **state)
{
    (void)state;
    run_ranks(4, body_spread, NULL);
}

static reshard_status body_refused(void *user, reshard_group *group)
{
    (void)user;
    int answer = 0;
    reshard_scope *scope = NULL;
    reshard_tensor *a = spread_random(group, "2: R", RESHARD_F64, SHAPE(3), 1);
    reshard_tensor *local = make_zeros(RESHARD_F64, SHAPE(3));
    TRY(reshard_tensor_set_requires_grad(a, 1));
    TRY(reshard_scope_open(NULL, &scope));
    reshard_tensor *sum = move_to(a, "2: P(sum)");
    CHECK(reshard_tensor_equal(sum, a, &answer) == RESHARD_ERR_INVALID);
    CHECK(strcmp(reshard_error_text(), "equal: a tensor with the partial layout \"2: P(sum)\": "
                                       "redistribute it first") == 0);
    CHECK(reshard_tensor_equal(a, local, &answer) == RESHARD_ERR_INVALID);
    CHECK(strcmp(reshard_error_text(),
                 "equal: input 1 is a local tensor, and another one is distributed") == 0);
    CHECK(reshard_tensor_copy(local, a) == RESHARD_ERR_INVALID);
    CHECK(strcmp(reshard_error_text(),
                 "copy: rank 0: the target is local, and the source is not") == 0);
    /* A clone of a partial tensor is partial, and its gradient flows. */
    reshard_tensor *y = reshard_tensor_full(reshard_sum(reshard_tensor_clone(sum)));
    TRY(reshard_backward(y, NULL, NULL));
    reshard_tensor *gradient = whole_of(reshard_tensor_gradient(a));
    CHECK(gradient != NULL && element(gradient, 2) == 1);
    reshard_tensor_release(gradient);
    TRY(reshard_scope_close(scope));
    reshard_tensor_release(a);
    reshard_tensor_release(local);
    return RESHARD_OK;
}

static void test_distributed__refusals(void **state)
{
    (void)state;
    run_ranks(2, body_refused, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_local__pairs),
        cmocka_unit_test(test_local__dtypes_and_strides),
        cmocka_unit_test(test_copy__casts_and_is_seen),
        cmocka_unit_test(test_local__refusals),
        cmocka_unit_test(test_distributed__all_ranks_agree),
        cmocka_unit_test(test_distributed__refusals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
