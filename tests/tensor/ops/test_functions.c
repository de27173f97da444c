/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_functions.c - functions of one number where they have edges: NaN, infinities, zeros of both
 * signs, bounds. Values and gradients are those that PyTorch 1.13 gives in f32.
 */
#include "tests/support/check.h"
#include "tests/tensor/values.h"

#include <math.h>

#define INF INFINITY

enum { COUNT = 9 };
static const double inputs[COUNT] = {NAN, INF, -INF, 0.0, -0.0, -1, 0.5, 2, -0.25};

#define FN(name, call)                             \
    static reshard_tensor *name(reshard_tensor *x) \
    {                                              \
        return call;                               \
    }
FN(square, reshard_pow(x, 2))
FN(inverse, reshard_pow(x, -1))
FN(root, reshard_pow(x, 0.5))
FN(inverse_root, reshard_pow(x, -0.5))
FN(clamp, reshard_clamp(x, -0.25, 0.5))
FN(crossed, reshard_clamp(x, 1, -1))
FN(number, reshard_nan_to_num(x, 3, 7, -INF))

static const struct {
    const char *name;
    reshard_tensor *(*fn)(reshard_tensor *x);
    double values[COUNT], gradients[COUNT];
} rows[] = {
    {"exp",
     reshard_exp,
     {NAN, INF, 0.0, 1, 1, 0.36787945, 1.64872122, 7.38905621, 0.778800786},
     {NAN, INF, 0.0, 1, 1, 0.36787945, 1.64872122, 7.38905621, 0.778800786}},
    {"log",
     reshard_log,
     {NAN, INF, NAN, -INF, -INF, NAN, -0.693147182, 0.693147182, NAN},
     {NAN, 0.0, -0.0, INF, -INF, -1, 2, 0.5, -4}},
    {"log1p",
     reshard_log1p,
     {NAN, INF, NAN, 0.0, -0.0, -INF, 0.405465096, 1.09861231, -0.287682086},
     {NAN, 0.0, -0.0, 1, 1, INF, 0.666666687, 0.333333343, 1.33333337}},
    {"sqrt",
     reshard_sqrt,
     {NAN, INF, NAN, 0.0, -0.0, NAN, 0.707106769, 1.41421354, NAN},
     {NAN, 0.0, NAN, INF, -INF, NAN, 0.707106769, 0.353553385, NAN}},
    {"tanh",
     reshard_tanh,
     {NAN, 1, -1, 0.0, -0.0, -0.761594176, 0.462117165, 0.964027584, -0.244918659},
     {NAN, 0.0, 0.0, 1, 1, 0.419974297, 0.786447704, 0.070650816, 0.940014839}},
    {"sigmoid",
     reshard_sigmoid,
     {NAN, 1, 0.0, 0.5, 0.5, 0.268941432, 0.622459352, 0.880797029, 0.437823504},
     {NAN, 0.0, 0.0, 0.25, 0.25, 0.196611941, 0.23500371, 0.104993626, 0.246134073}},
    {"square",
     square,
     {NAN, INF, INF, 0.0, 0.0, 1, 0.25, 4, 0.0625},
     {NAN, INF, -INF, 0.0, -0.0, -2, 1, 4, -0.5}},
    {"inverse",
     inverse,
     {NAN, 0.0, -0.0, INF, -INF, -1, 2, 0.5, -4},
     {NAN, -0.0, -0.0, -INF, -INF, -1, -4, -0.25, -16}},
    {"root",
     root,
     {NAN, INF, NAN, 0.0, -0.0, NAN, 0.707106769, 1.41421354, NAN},
     {NAN, 0.0, NAN, INF, -INF, NAN, 0.707106769, 0.353553385, NAN}},
    {"inverse_root",
     inverse_root,
     {NAN, 0.0, NAN, INF, -INF, NAN, 1.41421354, 0.707106769, NAN},
     {NAN, -0.0, -0.0, -INF, -INF, NAN, -1.41421354, -0.176776692, NAN}},
    {"clamp",
     clamp,
     {NAN, 0.5, -0.25, 0.0, -0.0, -0.25, 0.5, 0.5, -0.25},
     {0.0, 0.0, 0.0, 1, 1, 0.0, 1, 0.0, 1}},
    {"crossed",
     crossed,
     {NAN, -1, -1, -1, -1, -1, -1, -1, -1},
     {0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0}},
    {"number",
     number,
     {3, 7, -3.40282347e+38, 0.0, -0.0, -1, 0.5, 2, -0.25},
     {0.0, 0.0, 0.0, 1, 1, 1, 1, 1, 1}},
};

static int is_same(double found, double expected)
{
    if (isnan(expected))
        return isnan(found);
    if (isinf(expected) || expected == 0)
        return found == expected && signbit(found) == signbit(expected);
    return fabs(found - expected) <= 3e-7 * fabs(expected);
}

static void test_functions__edges_are_pytorchs(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        reshard_scope *scope = NULL;
        MUST(reshard_scope_open(NULL, &scope));
        reshard_tensor *x = make_zeros(RESHARD_F32, SHAPE(COUNT));
        for (int i = 0; i < COUNT; i++)
            set_element(x, i, inputs[i]);
        MUST(reshard_tensor_set_requires_grad(x, 1));
        reshard_tensor *y = rows[k].fn(x);
        MUST(reshard_backward(reshard_sum(y), NULL, NULL));
        for (int i = 0; i < COUNT; i++) {
            double value = element(y, i), gradient = element(reshard_tensor_gradient(x), i);
            if (!is_same(value, rows[k].values[i]) || !is_same(gradient, rows[k].gradients[i]))
                fail_msg("%s(%g): %.9g, not %.9g, with gradient %.9g, not %.9g", rows[k].name,
                         inputs[i], value, rows[k].values[i], gradient, rows[k].gradients[i]);
        }
        MUST(reshard_scope_close(scope));
        reshard_tensor_release(x);
    }
}

/* The largest finite number is that of the dtype, and not of the f32 it is computed in. */
static void test_nan_to_num__limits_of_the_dtype(void **state)
{
    (void)state;
    static const struct {
        reshard_dtype dtype;
        double largest;
    } types[] = {{RESHARD_F16, 65504},
                 {RESHARD_BF16, 3.3895313892515355e38},
                 {RESHARD_F32, 3.4028234663852886e38},
                 {RESHARD_F64, 1.7976931348623157e308}};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        reshard_scope *scope = NULL;
        MUST(reshard_scope_open(NULL, &scope));
        reshard_tensor *x = make_zeros(types[k].dtype, SHAPE(2));
        set_element(x, 0, INF);
        set_element(x, 1, -INF);
        reshard_tensor *y = reshard_nan_to_num(x, 0, INF, -INF);
        assert_true(element(y, 0) == types[k].largest && element(y, 1) == -types[k].largest);
        MUST(reshard_scope_close(scope));
        reshard_tensor_release(x);
    }
}

/* Far from zero, a logarithm of 2 is lost in a number to which it is added. */
static void test_log_softmax__of_large_numbers(void **state)
{
    (void)state;
    static const double sizes[] = {1e6, 1e17, 1e300};
    for (int i = 0; i < 3; i++) {
        reshard_scope *scope = NULL;
        MUST(reshard_scope_open(NULL, &scope));
        reshard_tensor *x = make_zeros(RESHARD_F64, SHAPE(2));
        set_element(x, 0, sizes[i]);
        set_element(x, 1, sizes[i]);
        MUST(reshard_tensor_set_requires_grad(x, 1));
        reshard_tensor *y = reshard_log_softmax(x, 0);
        MUST(reshard_backward(reshard_tensor_narrow(y, 0, 0, 1), NULL, NULL));
        for (int k = 0; k < 2; k++) {
            assert_true(fabs(element(y, k) + 0.69314718055994531) < 1e-15);
            assert_true(fabs(element(reshard_tensor_gradient(x), k) - (k == 0 ? 0.5 : -0.5)) <
                        1e-15);
        }
        MUST(reshard_scope_close(scope));
        reshard_tensor_release(x);
    }
}

/* As PyTorch's amax: elements that are equal to the maximum share its gradient; NaN is one. */
static void test_max__ties_share_the_gradient(void **state)
{
    (void)state;
    static const double values[] = {1, 3, 3, 2, 3, 1};
    reshard_scope *scope = NULL;
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *x = make_zeros(RESHARD_F64, SHAPE(2, 3));
    for (int i = 0; i < 6; i++)
        set_element(x, i, values[i]);
    MUST(reshard_tensor_set_requires_grad(x, 1));
    reshard_tensor *y = reshard_reduce_dims(x, RESHARD_MAX, 2, (int32_t[]){0, 1}, 0);
    MUST(reshard_backward(y, NULL, NULL));
    for (int i = 0; i < 6; i++)
        assert_true(element(reshard_tensor_gradient(x), i) == (values[i] == 3 ? 1.0 / 3 : 0));
    reshard_tensor_clear_gradient(x);
    set_element(x, 4, NAN);
    y = reshard_reduce_dims(x, RESHARD_MAX, 1, (int32_t[]){0}, 0);
    MUST(reshard_backward(reshard_sum(y), NULL, NULL));
    assert_true(element(y, 0) == 2 && isnan(element(y, 1)) && element(y, 2) == 3);
    const reshard_tensor *gradient = reshard_tensor_gradient(x);
    assert_true(isnan(element(gradient, 1)) && isnan(element(gradient, 4)));
    assert_true(element(gradient, 0) == 0 && element(gradient, 3) == 1);
    MUST(reshard_scope_close(scope));
    reshard_tensor_release(x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_functions__edges_are_pytorchs),
        cmocka_unit_test(test_log_softmax__of_large_numbers),
        cmocka_unit_test(test_nan_to_num__limits_of_the_dtype),
        cmocka_unit_test(test_max__ties_share_the_gradient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
