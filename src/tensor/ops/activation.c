/* SPDX-License-Identifier: Apache-2.0 */
/* activation.c - relu, gelu (x Phi(x), by erf) and silu (x sigmoid(x)). The gradient of relu at 0
 * is 0. */
#ifndef REAL
#include "tensor/ops/unary.h"

#include <reshard/ops.h>

#include <tgmath.h>

#define RS_REAL_FILE "tensor/ops/activation.c"
#include "tensor/core/real.h"

static const rs_unary relu = {"relu", RS_SPREAD_ANY, RS_KEEPS_INPUT, RS_BOTH(relu),
                              RS_BOTH(relu_back)};
static const rs_unary gelu = {"gelu", RS_SPREAD_ANY, RS_KEEPS_INPUT, RS_BOTH(gelu),
                              RS_BOTH(gelu_back)};
static const rs_unary silu = {"silu", RS_SPREAD_ANY, RS_KEEPS_INPUT, RS_BOTH(silu),
                              RS_BOTH(silu_back)};

reshard_tensor *reshard_relu(reshard_tensor *x)
{
    return rs_unary_run(&relu, x, 0);
}

reshard_tensor *reshard_gelu(reshard_tensor *x)
{
    return rs_unary_run(&gelu, x, 0);
}

reshard_tensor *reshard_silu(reshard_tensor *x)
{
    return rs_unary_run(&silu, x, 0);
}

#else

static void OF(relu)(const rs_unary_rows *rows, const void *x, void *y)
{
    const REAL *a = x;
    REAL *b = y;
    for (int64_t i = 0; i < rows->count * rows->size; i++)
        b[i] = a[i] > 0 ? a[i] : 0;
}

static void OF(relu_back)(const rs_unary_rows *rows, const void *x, const void *g, void *out)
{
    const REAL *a = x, *gradient = g;
    REAL *b = out;
    for (int64_t i = 0; i < rows->count * rows->size; i++)
        b[i] = a[i] > 0 ? gradient[i] : 0;
}

static REAL OF(phi)(REAL v) /* of the normal distribution */
{
    return (REAL)0.5 * (1 + erf(v * (REAL)0.70710678118654752440));
}

static void OF(gelu)(const rs_unary_rows *rows, const void *x, void *y)
{
    const REAL *a = x;
    REAL *b = y;
    for (int64_t i = 0; i < rows->count * rows->size; i++)
        b[i] = a[i] * OF(phi)(a[i]);
}

static void OF(gelu_back)(const rs_unary_rows *rows, const void *x, const void *g, void *out)
{
    const REAL *a = x, *gradient = g;
    REAL *b = out;
    for (int64_t i = 0; i < rows->count * rows->size; i++) {
        REAL density = exp((REAL)-0.5 * a[i] * a[i]) * (REAL)0.39894228040143267794;
        b[i] = gradient[i] * (OF(phi)(a[i]) + a[i] * density);
    }
}

static void OF(silu)(const rs_unary_rows *rows, const void *x, void *y)
{
    const REAL *a = x;
    REAL *b = y;
    for (int64_t i = 0; i < rows->count * rows->size; i++)
        b[i] = a[i] / (1 + exp(-a[i]));
}

static void OF(silu_back)(const rs_unary_rows *rows, const void *x, const void *g, void *out)
{
    const REAL *a = x, *gradient = g;
    REAL *b = out;
    for (int64_t i = 0; i < rows->count * rows->size; i++) {
        REAL s = 1 / (1 + exp(-a[i]));
        b[i] = gradient[i] * (s * (1 + a[i] * (1 - s)));
    }
}

#endif
