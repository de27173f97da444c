/* SPDX-License-Identifier: Apache-2.0 */
/* activation.c - relu and silu (x sigmoid(x)). The gradient of relu at 0 is 0. NaN passes through
 * relu both ways, so that it is not hidden. */
#ifndef REAL
#include "tensor/ops/unary.h"

#include <reshard/ops.h>

#include <tgmath.h>

#define RS_REAL_FILE "tensor/ops/activation.c"
#include "tensor/core/real.h"

static const rs_unary relu = {"relu", RS_SPREAD_ANY, RS_KEEPS_INPUT, RS_BOTH(relu),
                              RS_BOTH(relu_back)};
static const rs_unary silu = {"silu", RS_SPREAD_ANY, RS_KEEPS_INPUT, RS_BOTH(silu),
                              RS_BOTH(silu_back)};

reshard_tensor *reshard_relu(reshard_tensor *x)
{
    return rs_unary_run(&relu, x, NULL);
}

reshard_tensor *reshard_silu(reshard_tensor *x)
{
    return rs_unary_run(&silu, x, NULL);
}

#else

static void OF(relu)(const rs_unary_rows *rows, const void *x, void *y)
{
    const REAL *a = x;
    REAL *b = y;
    for (int64_t i = 0; i < rows->count * rows->size; i++)
        b[i] = a[i] <= 0 ? 0 : a[i];
}

static void OF(relu_back)(const rs_unary_rows *rows, const void *x, const void *g, void *out)
{
    const REAL *a = x, *gradient = g;
    REAL *b = out;
    for (int64_t i = 0; i < rows->count * rows->size; i++)
        b[i] = a[i] <= 0 ? 0 : gradient[i];
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
