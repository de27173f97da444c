/* SPDX-License-Identifier: Apache-2.0 */
/* test_tensor.c - local tensors: making, elements, views, scopes, errors with words. */
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/info.h"
#include "tests/tensor/values.h"

#include <string.h>

/* ---- making and elements --------------------------------------------------------------------- */

static void test_make__zeros_of_every_dtype(void **state)
{
    (void)state;
    for (int d = 1; d < (int)RESHARD_DTYPE_COUNT; d++) {
        reshard_tensor *tensor = NULL;
        reshard_status status = reshard_tensor_create(NULL, (reshard_dtype)d, SHAPE(3, 5), &tensor);
        if (reshard_dtype_bits((reshard_dtype)d) % 8 != 0) {
            assert_int_equal(status, RESHARD_ERR_INVALID);
            continue;
        }
        assert_int_equal(status, RESHARD_OK);
        const unsigned char *bytes = reshard_tensor_data(tensor);
        for (int i = 0; i < 15 * reshard_dtype_bits((reshard_dtype)d) / 8; i++)
            assert_int_equal(bytes[i], 0);
        reshard_tensor_release(tensor);
    }
}

static void test_make__refusals(void **state)
{
    (void)state;
    reshard_tensor *tensor = NULL;
    int64_t huge[] = {INT64_MAX, 2}, negative[] = {3, -1}, many[9] = {1};
    assert_int_equal(reshard_tensor_create(NULL, RESHARD_F32, 2, huge, &tensor), RESHARD_ERR_RANGE);
    assert_int_equal(reshard_tensor_create(NULL, RESHARD_F32, 2, negative, &tensor),
                     RESHARD_ERR_RANGE);
    assert_string_equal(reshard_error_text(), "dimension 1 has the negative length -1");
    assert_int_equal(reshard_tensor_create(NULL, RESHARD_F32, 9, many, &tensor), RESHARD_ERR_RANGE);
    int64_t wide[] = {INT64_MAX};
    assert_int_equal(reshard_tensor_create(NULL, RESHARD_F64, 1, wide, &tensor), RESHARD_ERR_RANGE);
    int64_t zero_and_huge[] = {0, INT64_MAX, 3};
    assert_int_equal(reshard_tensor_create(NULL, RESHARD_F32, 3, zero_and_huge, &tensor),
                     RESHARD_ERR_RANGE);
    assert_int_equal(
        reshard_tensor_borrow(NULL, RESHARD_F32, SHAPE(2), NULL, NULL, NULL, NULL, &tensor),
        RESHARD_ERR_INVALID);
    assert_null(tensor);
}

static void test_elements__set_get_fill(void **state)
{
    (void)state;
    static const struct {
        reshard_dtype dtype;
        double value, bad;
    } rows[] = {{RESHARD_F32, 0.5, 0},    {RESHARD_F64, 0.1, 0},      {RESHARD_BF16, -3, 0},
                {RESHARD_F16, 0.25, 0},   {RESHARD_BOOL, 1, 2},       {RESHARD_I8, -128, 128},
                {RESHARD_U8, 255, 256},   {RESHARD_I16, -32768, 1e5}, {RESHARD_U16, 65535, -1},
                {RESHARD_I32, -2e9, 3e9}, {RESHARD_U32, 4e9, 5e9},    {RESHARD_I64, -1e15, 1e19},
                {RESHARD_U64, 1e15, -1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reshard_tensor *tensor = make_zeros(rows[i].dtype, SHAPE(2, 3));
        int64_t index[] = {1, 2}, outside[] = {2, 0};
        double value = 0;
        assert_int_equal(reshard_tensor_set(tensor, index, rows[i].value), RESHARD_OK);
        assert_int_equal(reshard_tensor_get(tensor, index, &value), RESHARD_OK);
        assert_true(value == rows[i].value);
        assert_int_equal(reshard_tensor_get(tensor, outside, &value), RESHARD_ERR_RANGE);
        if (rows[i].bad != 0)
            assert_int_equal(reshard_tensor_set(tensor, index, rows[i].bad), RESHARD_ERR_RANGE);
        assert_int_equal(reshard_tensor_fill(tensor, rows[i].value), RESHARD_OK);
        for (int64_t k = 0; k < 6; k++)
            assert_true(element(tensor, k) == rows[i].value);
        assert_int_equal(reshard_tensor_value(tensor, &value), RESHARD_ERR_INVALID);
        reshard_tensor_release(tensor);
    }
}

static int released;

static void count_release(void *user)
{
    released += *(int *)user;
}

static void test_borrow__strided_and_released_once(void **state)
{
    (void)state;
    float memory[12];
    for (int i = 0; i < 12; i++)
        memory[i] = (float)i;
    int one = 1;
    int64_t strides[] = {1, 4};
    reshard_tensor *tensor = NULL;
    released = 0;
    MUST(reshard_tensor_borrow(NULL, RESHARD_F32, SHAPE(4, 3), strides, memory, count_release, &one,
                               &tensor));
    assert_false(info_tensor(tensor).is_contiguous);
    assert_true(element(tensor, 1) == 4); /* row 0, column 1 */
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *view = reshard_tensor_retain(reshard_tensor_narrow(tensor, 0, 1, 2));
    assert_int_equal(reshard_scope_close(scope), RESHARD_OK);
    reshard_tensor_release(tensor);
    assert_int_equal(released, 0);
    assert_true(element(view, 0) == 1 && element(view, 5) == 10);
    reshard_tensor_release(view);
    assert_int_equal(released, 1);
    int64_t wild[] = {INT64_MAX, 1};
    assert_int_equal(
        reshard_tensor_borrow(NULL, RESHARD_F32, SHAPE(4, 3), wild, memory, NULL, NULL, &tensor),
        RESHARD_ERR_RANGE);
}

static void test_copy__strided_to_dense_and_back(void **state)
{
    (void)state;
    reshard_scope *scope = NULL;
    double out[6], in[6] = {10, 20, 30, 40, 50, 60};
    double data[] = {0, 1, 2, 3, 4, 5};
    reshard_tensor *tensor = NULL;
    MUST(reshard_tensor_from_data(NULL, RESHARD_F64, SHAPE(2, 3), data, &tensor));
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *turned = reshard_tensor_transpose(tensor, 0, 1);
    assert_int_equal(reshard_tensor_copy_to(turned, out, sizeof out), RESHARD_OK);
    for (int i = 0; i < 6; i++)
        assert_true(out[i] == (double)(i % 2 * 3 + i / 2));
    assert_int_equal(reshard_tensor_copy_from(turned, in, sizeof in), RESHARD_OK);
    for (int i = 0; i < 6; i++)
        assert_true(element(tensor, i) == in[i % 3 * 2 + i / 3]);
    assert_int_equal(reshard_tensor_copy_to(turned, out, sizeof out - 1), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_scope_close(scope), RESHARD_OK);
    reshard_tensor_release(tensor);
}

/* ---- views ----------------------------------------------------------------------------------- */

static void test_views__by_index_arithmetic(void **state)
{
    (void)state;
    draw_state draw;
    draw_seed(&draw, 1);
    reshard_tensor *x = make_random(RESHARD_F64, &draw, SHAPE(2, 3, 4));
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *turned = reshard_tensor_transpose(x, 0, -1);
    for (int64_t i = 0; i < 24; i++) {
        int64_t a = i / 6, b = i / 2 % 3, c = i % 2;
        assert_true(element(turned, i) == element(x, c * 12 + b * 4 + a));
    }
    reshard_tensor *part = reshard_tensor_narrow(turned, 1, 1, 2);
    assert_true(element(part, 0) == element(turned, 2));
    reshard_tensor *flat = reshard_tensor_reshape(part, SHAPE(-1, 2));
    assert_int_equal(reshard_tensor_shape(flat)[0], 8);
    for (int64_t i = 0; i < 16; i++)
        assert_true(element(flat, i) == element(part, i));
    /* A reshape of dense memory shares it. */
    reshard_tensor *shared = reshard_tensor_reshape(x, SHAPE(6, 4));
    assert_ptr_equal(reshard_tensor_data(shared), reshard_tensor_data(x));
    reshard_tensor *more = reshard_tensor_unsqueeze(x, 3);
    assert_int_equal(reshard_tensor_ndim(more), 4);
    assert_int_equal(reshard_tensor_ndim(reshard_tensor_squeeze(more, -1)), 3);
    assert_ptr_equal(reshard_tensor_contiguous(x), x);
    assert_true(info_tensor(reshard_tensor_contiguous(turned)).is_contiguous);
    assert_ptr_equal(reshard_tensor_data(reshard_tensor_detach(x)), reshard_tensor_data(x));
    reshard_tensor *empty = reshard_tensor_narrow(x, 1, 3, 0);
    assert_int_equal(reshard_tensor_volume(reshard_tensor_reshape(empty, SHAPE(0, 7))), 0);
    assert_int_equal(reshard_scope_close(scope), RESHARD_OK);
    reshard_tensor_release(x);
}

typedef reshard_tensor *(*attempt)(reshard_tensor *x);

static reshard_tensor *narrow_beyond(reshard_tensor *x)
{
    return reshard_tensor_narrow(x, 0, 1, 3);
}
static reshard_tensor *no_such_dim(reshard_tensor *x)
{
    return reshard_tensor_transpose(x, 0, 2);
}
static reshard_tensor *reshape_other(reshard_tensor *x)
{
    return reshard_tensor_reshape(x, SHAPE(4, 2));
}
static reshard_tensor *reshape_two_open(reshard_tensor *x)
{
    return reshard_tensor_reshape(x, SHAPE(-1, -1));
}
static reshard_tensor *squeeze_two(reshard_tensor *x)
{
    return reshard_tensor_squeeze(x, 1);
}
static reshard_tensor *cast_to_int(reshard_tensor *x)
{
    return reshard_tensor_cast(x, RESHARD_I32);
}

static void test_scope__first_error_has_words_and_stays(void **state)
{
    (void)state;
    static const struct {
        attempt fn;
        const char *words;
    } rows[] = {
        {narrow_beyond, "narrow: 3 elements from 1 of dimension 0, which has 3"},
        {no_such_dim, "transpose: dimension 2 does not exist in a tensor of 2 dimensions"},
        {reshape_other, "reshape: 6 elements to a shape of 8"},
        {reshape_two_open, "reshape: sizes 0 and 1 are both -1"},
        {squeeze_two, "squeeze: dimension 1 has the size 2, not 1"},
        {cast_to_int, "cast: from f32 to i32"},
    };
    reshard_tensor *x = make_zeros(RESHARD_F32, SHAPE(3, 2));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reshard_scope *scope = NULL;
        MUST(reshard_scope_open(NULL, &scope));
        assert_null(rows[i].fn(x));
        /* What comes after does nothing, and does not change the words. */
        assert_null(reshard_relu(rows[i].fn(x)));
        assert_null(reshard_tensor_transpose(x, 0, 1));
        assert_null(no_such_dim(x));
        assert_int_not_equal(reshard_scope_status(scope), RESHARD_OK);
        assert_int_not_equal(reshard_scope_close(scope), RESHARD_OK);
        assert_string_equal(reshard_error_text(), rows[i].words);
    }
    assert_null(reshard_relu(x));
    assert_string_equal(reshard_error_text(), "relu: no scope is open on this thread");
    reshard_tensor_release(x);
}

static void test_scope__nesting_and_keeping(void **state)
{
    (void)state;
    reshard_context *context = NULL;
    reshard_scope *outer = NULL, *inner = NULL, *forgotten = NULL;
    MUST(reshard_context_create(NULL, &context));
    MUST(reshard_scope_open(context, &outer));
    reshard_tensor *x = make_zeros(RESHARD_F32, SHAPE(100));
    MUST(reshard_scope_open(context, &inner));
    reshard_tensor *kept = reshard_scope_keep(reshard_scale(reshard_relu(x), 2));
    size_t before = info_memory(context).bytes;
    assert_int_equal(reshard_scope_close(inner), RESHARD_OK);
    assert_true(info_memory(context).bytes < before);
    assert_true(element(kept, 99) == 0);
    MUST(reshard_scope_open(context, &forgotten));
    assert_non_null(reshard_relu(x));
    assert_int_equal(reshard_scope_close(NULL), RESHARD_ERR_INVALID);
    assert_int_equal(reshard_scope_close(outer), RESHARD_OK); /* and the forgotten one */
    assert_null(reshard_relu(x));
    assert_int_equal(info_memory(context).bytes, 0);
    reshard_tensor_release(x);
    reshard_context_destroy(context);
}

static reshard_status use_views(reshard_context *context, void *user)
{
    reshard_tensor *x = NULL;
    reshard_scope *scope = NULL;
    (void)user;
    reshard_status status = reshard_tensor_create(context, RESHARD_F32, SHAPE(4, 3), &x);
    if (status == RESHARD_OK)
        status = reshard_tensor_set_requires_grad(x, 1);
    if (status == RESHARD_OK)
        status = reshard_scope_open(context, &scope);
    if (status == RESHARD_OK) {
        reshard_tensor *parts[2];
        reshard_tensor *y = reshard_tensor_reshape(reshard_tensor_transpose(x, 0, 1), SHAPE(2, 6));
        reshard_split(y, 1, 2, (int64_t[]){2, 4}, parts);
        y = reshard_cat(2, (reshard_tensor *[]){parts[1], parts[0]}, 1);
        (void)reshard_backward(reshard_sum(reshard_mul(y, y)), NULL, NULL);
        status = reshard_scope_close(scope);
    }
    reshard_tensor_release(x);
    return status;
}

static void test_memory__every_failing_allocation(void **state)
{
    (void)state;
    words said = {""};
    if (!context_fail_each(use_views, NULL, &said))
        fail_msg("%s", said.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_make__zeros_of_every_dtype),
        cmocka_unit_test(test_make__refusals),
        cmocka_unit_test(test_elements__set_get_fill),
        cmocka_unit_test(test_borrow__strided_and_released_once),
        cmocka_unit_test(test_copy__strided_to_dense_and_back),
        cmocka_unit_test(test_views__by_index_arithmetic),
        cmocka_unit_test(test_scope__first_error_has_words_and_stays),
        cmocka_unit_test(test_scope__nesting_and_keeping),
        cmocka_unit_test(test_memory__every_failing_allocation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
