/* SPDX-License-Identifier: Apache-2.0 */
/* test_gelu.c - gelu and its gradient in f32, held against erfc in f64: everywhere, in the tails
 * and where there is nothing to compute. */
#include "tests/support/check.h"
#include "tests/tensor/values.h"

#include <math.h>

/* x, gelu(x) and its derivative, which the gradient is for an incoming one of 1. */
static void compute(int64_t count, const float *x, float *y, float *slope)
{
    reshard_tensor *input = NULL;
    reshard_scope *scope = NULL;
    MUST(reshard_tensor_from_data(NULL, RESHARD_F32, 1, &count, x, &input));
    MUST(reshard_tensor_set_requires_grad(input, 1));
    MUST(reshard_scope_open(NULL, &scope));
    reshard_tensor *output = reshard_gelu(input);
    MUST(reshard_backward(reshard_sum(output), NULL, NULL));
    MUST(reshard_tensor_copy_to(output, y, (size_t)count * sizeof *y));
    MUST(reshard_tensor_copy_to(reshard_tensor_gradient(input), slope,
                                (size_t)count * sizeof *slope));
    MUST(reshard_scope_close(scope));
    reshard_tensor_release(input);
}

static double phi(double x)
{
    return 0.5 * erfc(-x / sqrt(2));
}

static void test_gelu__is_x_times_phi(void **state)
{
    (void)state;
    enum { COUNT = 80003 }; /* not a multiple of the lanes */
    static float x[COUNT], y[COUNT], slope[COUNT];
    for (int i = 0; i < COUNT; i++)
        x[i] = (float)(i - COUNT / 2) * 4e-4F; /* -16 .. 16 */
    compute(COUNT, x, y, slope);
    for (int i = 0; i < COUNT; i++) {
        double a = (double)x[i], bell = exp(-0.5 * a * a) / sqrt(2 * acos(-1));
        /* The exponent is rounded to f32, so that its error grows with it. */
        double allowed = (1e-6 + 1e-7 * a * a) * fabs(a * phi(a)) + 1e-37;
        if (!(fabs((double)y[i] - a * phi(a)) <= allowed))
            fail_msg("gelu(%.9g) is %.9g, not %.9g", a, (double)y[i], a * phi(a));
        if (!(fabs((double)slope[i] - (phi(a) + a * bell)) <= 1e-6))
            fail_msg("the slope at %.9g is %.9g, not %.9g", a, (double)slope[i], phi(a) + a * bell);
    }
}

static void test_gelu__at_the_ends(void **state)
{
    (void)state;
    const float x[] = {0.0F, -0.0F, INFINITY, NAN, 1e30F, -1e30F, 1e-30F};
    float y[7], slope[7];
    compute(7, x, y, slope);
    assert_true(y[0] == 0 && y[1] == 0 && fabsf(slope[0] - 0.5F) < 1e-6F);
    assert_true(isinf(y[2]) && y[2] > 0 && isnan(y[3]) && isnan(slope[3]));
    assert_true(y[4] == 1e30F && slope[4] == 1 && y[5] == 0 && slope[5] == 0);
    assert_true(fabsf(y[6] - 0.5e-30F) < 1e-36F);
}

static void test_gelu__any_count(void **state)
{
    (void)state;
    for (int64_t count = 1; count <= 17; count++) {
        float x[17], y[18], slope[18];
        for (int64_t i = 0; i < count; i++)
            x[i] = (float)(i + 1) * 0.25F;
        y[count] = slope[count] = 7;
        compute(count, x, y, slope);
        assert_true(y[count] == 7 && slope[count] == 7);
        for (int64_t i = 0; i < count; i++)
            assert_true(fabs((double)y[i] - (double)x[i] * phi((double)x[i])) < 3e-6);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gelu__is_x_times_phi),
        cmocka_unit_test(test_gelu__at_the_ends),
        cmocka_unit_test(test_gelu__any_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
