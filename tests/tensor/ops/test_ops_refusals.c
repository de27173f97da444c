/* SPDX-License-Identifier: Apache-2.0 */
/* test_ops_refusals.c - what operations refuse, and in which words. */
#include "tests/support/check.h"
#include "tests/tensor/values.h"

#include <math.h>

typedef reshard_tensor *(*refused_fn)(reshard_tensor *x, reshard_tensor *integers);

static reshard_tensor *bad_add(reshard_tensor *x, reshard_tensor *integers)
{
    return reshard_add(x, integers);
}
static reshard_tensor *bad_shapes(reshard_tensor *x, reshard_tensor *integers)
{
    (void)integers;
    return reshard_add(x, reshard_tensor_transpose(x, 0, 1));
}
static reshard_tensor *bad_linear(reshard_tensor *x, reshard_tensor *integers)
{
    (void)integers;
    return reshard_linear(x, reshard_tensor_transpose(x, 0, 1), NULL);
}
static reshard_tensor *bad_matmul(reshard_tensor *x, reshard_tensor *integers)
{
    (void)integers;
    return reshard_matmul(x, x);
}
static reshard_tensor *bad_index(reshard_tensor *x, reshard_tensor *integers)
{
    return reshard_embedding(x, integers);
}
static reshard_tensor *bad_index_type(reshard_tensor *x, reshard_tensor *integers)
{
    (void)integers;
    return reshard_embedding(x, x);
}
static reshard_tensor *bad_label(reshard_tensor *x, reshard_tensor *integers)
{
    return reshard_cross_entropy(x, integers, NULL);
}
static reshard_tensor *bad_cat(reshard_tensor *x, reshard_tensor *integers)
{
    return reshard_cat(2, (reshard_tensor *[]){x, integers}, 0);
}
static reshard_tensor *bad_split(reshard_tensor *x, reshard_tensor *integers)
{
    reshard_tensor *parts[2];
    (void)integers;
    reshard_split(x, 1, 2, (int64_t[]){1, 1}, parts);
    return parts[0];
}
static reshard_tensor *bad_dropout(reshard_tensor *x, reshard_tensor *integers)
{
    (void)integers;
    return reshard_dropout(x, 1, 0);
}
static reshard_tensor *bad_mean(reshard_tensor *x, reshard_tensor *integers)
{
    (void)integers;
    return reshard_mean(reshard_tensor_narrow(x, 0, 0, 0));
}
static reshard_tensor *bad_norm(reshard_tensor *x, reshard_tensor *integers)
{
    (void)integers;
    return reshard_rmsnorm(x, x, 0.1);
}
static reshard_tensor *bad_attention(reshard_tensor *x, reshard_tensor *integers)
{
    (void)integers;
    return reshard_causal_attention(x, x, x, 0);
}

#define BAD(name, call)                                                            \
    static reshard_tensor *bad_##name(reshard_tensor *x, reshard_tensor *integers) \
    {                                                                              \
        (void)x;                                                                   \
        (void)integers;                                                            \
        return call;                                                               \
    }
BAD(sub, reshard_sub(x, integers))
BAD(exp, reshard_exp(integers))
BAD(clamp, reshard_clamp(x, 0, (double)NAN))
BAD(mask, reshard_where(x, x, x))
BAD(mask_shape, reshard_where(integers, x, x))
BAD(large_mask, reshard_masked_fill(reshard_tensor_narrow(x, 0, 0, 1),
                                    reshard_tensor_unsqueeze(integers, 1), 1))
BAD(fill, reshard_masked_fill(integers, integers, 1))
BAD(no_dims, reshard_reduce_dims(x, RESHARD_SUM, 0, NULL, 0))
BAD(dims, reshard_reduce_dims(x, RESHARD_MAX, 2, (int32_t[]){1, -1}, 0))
BAD(far_dim, reshard_reduce_dims(x, RESHARD_AVG, 1, (int32_t[]){2}, 0))
BAD(no_max,
    reshard_reduce_dims(reshard_tensor_narrow(x, 1, 0, 0), RESHARD_MAX, 1, (int32_t[]){1}, 0))
static const reshard_cross_entropy_options classes_4 = {.size = sizeof classes_4, .classes = 4};
static const reshard_cross_entropy_options classes_2 = {.size = sizeof classes_2, .classes = 2};
BAD(classes, reshard_cross_entropy(x, integers, &classes_4))
BAD(padded_label, reshard_cross_entropy(x, integers, &classes_2))
BAD(bmm, reshard_bmm(x, 0, x, 1))

static void test_ops__refusals_have_words(void **state)
{
    (void)state;
    static const struct {
        refused_fn fn;
        const char *words;
    } rows[] = {
        {bad_add, "add: input 1 is i64, not f16, bf16, f32, f64, c64 or c128"},
        {bad_shapes, "add: f32 2x3 and f32 3x2 cannot be broadcast"},
        {bad_linear, "linear: x f32 2x3 by weight f32 3x2"},
        {bad_matmul, "matmul: f32 2x3 by f32 2x3"},
        {bad_index, "embedding: index 1 is 9; it may be 0..1"},
        {bad_index_type, "embedding: indices are f32, not i64"},
        {bad_label, "cross_entropy: index 1 is 9; it may be 0..2"},
        {bad_cat, "cat: input 0 is f32 2x3 and input 1 is i64 2"},
        {bad_split, "split: parts of 2 elements together of dimension 1, which has 3"},
        {bad_dropout, "dropout: a probability of 1, not 0 <= p < 1"},
        {bad_mean, "mean: the tensor has no elements"},
        {bad_norm, "rmsnorm: x f32 2x3 with a weight of f32 2x3"},
        {bad_sub, "sub: input 1 is i64, not f16, bf16, f32, f64, c64 or c128"},
        {bad_exp, "exp: input 0 is i64, not f16, bf16, f32 or f64"},
        {bad_clamp, "clamp: the bound high is NaN"},
        {bad_mask, "where: the mask is f32, not bool, u8 or i64"},
        {bad_mask_shape, "where: f32 2x3 and bool 2 cannot be broadcast"},
        {bad_large_mask, "masked_fill: a mask i64 2x1 is larger than f32 1x3"},
        {bad_fill, "masked_fill: input 0 is i64, not f16, bf16, f32 or f64"},
        {bad_no_dims, "sum_dims: over 0 dims; there must be one or more"},
        {bad_dims, "max_dims: dimension 1 is named twice"},
        {bad_far_dim, "mean_dims: dimension 2 does not exist in a tensor of 2 dimensions"},
        {bad_no_max, "max_dims: the reduced dimensions have no elements"},
        {bad_classes, "cross_entropy: 4 classes of logits with 3 columns"},
        {bad_padded_label, "cross_entropy: index 1 is 9; it may be 0..1"},
        {bad_bmm, "bmm: f32 2x3 by f32 2x3; both must have 3 dims"},
        {bad_attention, "causal_attention: input 0 is f32 2x3 and input 0 is f32 2x3; they are "
                        "[batch, heads, length, size], alike"},
    };
    reshard_tensor *x = make_zeros(RESHARD_F32, SHAPE(2, 3));
    reshard_tensor *integers = make_zeros(RESHARD_I64, SHAPE(2));
    set_element(integers, 1, 9);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        reshard_scope *scope = NULL;
        MUST(reshard_scope_open(NULL, &scope));
        assert_null(rows[i].fn(x, integers));
        assert_int_not_equal(reshard_scope_close(scope), RESHARD_OK);
        assert_string_equal(reshard_error_text(), rows[i].words);
    }
    reshard_tensor_release(x);
    reshard_tensor_release(integers);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops__refusals_have_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
