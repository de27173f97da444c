/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gelu.c - gelu(x) = x Phi(x) and its derivative Phi(x) + x phi(x), where Phi is the cumulative
 * distribution function of the standard normal distribution, and phi its density.
 *
 * f64 uses erf. f32 uses erfc(z) = exp(-z^2) erfcx(z), eight elements at a time: the exponential is
 * needed for the density as well, and erfcx is smooth. In y = 1 / (1 + k|x|), which takes 0 ..
 * infinity to 1 .. 0, it is y times a polynomial in 2y - 1, the one with the smallest maximum
 * relative error. This error is 4e-7 of Phi for all x, even where 1 + erf(x) would cancel.
 */
#include "tensor/ops/unary.h"

#include "kernel/copy/copy.h"
#include "tensor/core/lanes.h"

#include <reshard/ops.h>

#include <math.h>

#define ROOT_HALF 0.70710678118654752440
#define DENSITY_AT_0 0.39894228040143267794 /* 1 / sqrt(2 pi) */

/* ---- f64 ------------------------------------------------------------------------------------- */

static double distribution(double x)
{
    return 0.5 * (1 + erf(x * ROOT_HALF));
}

static void gelu_f64(const rs_unary_rows *rows, const void *x, void *y)
{
    const double *a = x;
    double *b = y;
    for (int64_t i = 0; i < rows->count * rows->size; i++)
        b[i] = a[i] * distribution(a[i]);
}

static void gelu_back_f64(const rs_unary_rows *rows, const void *x, const void *g, void *out)
{
    const double *a = x, *gradient = g;
    double *b = out;
    for (int64_t i = 0; i < rows->count * rows->size; i++)
        b[i] = gradient[i] * (distribution(a[i]) + a[i] * exp(-0.5 * a[i] * a[i]) * DENSITY_AT_0);
}

/* ---- f32 ------------------------------------------------------------------------------------- */

/* Phi(x), and exp(-x^2/2). */
RS_LANES_INLINE void find_both(const rs_lanes *x, rs_lanes *out_phi, rs_lanes *out_bell)
{
    const rs_lanes zero = {0};
    const rs_lane_bits negative = *x < zero;
    rs_lanes minus = -*x, size, bell, exponent = *x * *x * -0.5F;
    rs_lanes_choose(&negative, &minus, x, &size);
    rs_lanes_exp(&exponent, &bell);
    rs_lanes y = 1.0F / (1.0F + 0.247487373F * size);
    rs_lanes s = y + y - 1.0F;
    rs_lanes p = s * 8.438726775e-5F + 3.614472384e-5F;
    p = p * s - 8.461783535e-4F;
    p = p * s - 1.580294060e-3F;
    p = p * s + 4.573544972e-3F;
    p = p * s + 3.184004969e-2F;
    p = p * s + 9.509792222e-2F;
    p = p * s + 1.942245286e-1F;
    p = p * s + 3.023571531e-1F;
    p = p * s + 3.742127538e-1F;
    rs_lanes tail = 0.5F * p * y * bell, rest = 1.0F - tail;
    rs_lanes_choose(&negative, &tail, &rest, out_phi);
    *out_bell = bell;
}

RS_LANES_INLINE void run_forward(const float *x, float *y, int64_t count)
{
    for (int64_t i = 0; i < count; i += RS_LANES) {
        rs_lanes a, phi, bell;
        rs_lanes_load(&a, x + i, count - i);
        find_both(&a, &phi, &bell);
        a = a * phi;
        rs_lanes_store(&a, y + i, count - i);
    }
}

RS_LANES_INLINE void run_backward(const float *x, const float *gradient, float *out, int64_t count)
{
    for (int64_t i = 0; i < count; i += RS_LANES) {
        rs_lanes a, g, phi, bell;
        rs_lanes_load(&a, x + i, count - i);
        rs_lanes_load(&g, gradient + i, count - i);
        find_both(&a, &phi, &bell);
        g = g * (phi + a * bell * (float)DENSITY_AT_0);
        rs_lanes_store(&g, out + i, count - i);
    }
}

RS_LANES_AVX2 static void forward_avx2(const float *x, float *y, int64_t count)
{
    run_forward(x, y, count);
}

RS_LANES_AVX2 static void backward_avx2(const float *x, const float *gradient, float *out,
                                        int64_t count)
{
    run_backward(x, gradient, out, count);
}

static void gelu_f32(const rs_unary_rows *rows, const void *x, void *y)
{
    if (rs_cpu_detect() >= RS_CPU_AVX2)
        forward_avx2(x, y, rows->count * rows->size);
    else
        run_forward(x, y, rows->count * rows->size);
}

static void gelu_back_f32(const rs_unary_rows *rows, const void *x, const void *g, void *out)
{
    if (rs_cpu_detect() >= RS_CPU_AVX2)
        backward_avx2(x, g, out, rows->count * rows->size);
    else
        run_backward(x, g, out, rows->count * rows->size);
}

/* ---------------------------------------------------------------------------------------------- */

static const rs_unary gelu = {
    "gelu", RS_SPREAD_ANY, RS_KEEPS_INPUT, {gelu_f32, gelu_f64}, {gelu_back_f32, gelu_back_f64}};

reshard_tensor *reshard_gelu(reshard_tensor *x)
{
    return rs_unary_run(&gelu, x, NULL);
}
