/* SPDX-License-Identifier: Apache-2.0 */
/*
 * functions.c - functions of one number: a row for each, with its value and its slope. A kernel
 * multiplies gradients by the slope, which is computed from the input or from the output, whichever
 * the row keeps. Values and slopes at the edges (NaN, infinity, bounds) are PyTorch's.
 */
#ifndef REAL
#include "base/error.h"
#include "tensor/grad/node.h"
#include "tensor/ops/unary.h"

#include <reshard/ops.h>

#include <float.h>
#include <tgmath.h>

#define RS_REAL_FILE "tensor/ops/functions.c"
#include "tensor/core/real.h"

/* The functions of x alone. */
#define ROW(name, spread, keeps)                                                 \
    reshard_tensor *reshard_##name(reshard_tensor *x)                            \
    {                                                                            \
        static const rs_unary row = {#name, spread, keeps, RS_BOTH(find_##name), \
                                     RS_BOTH(find_##name##_back)};               \
        return rs_unary_run(&row, x, NULL);                                      \
    }

ROW(neg, RS_SPREAD_LINEAR, RS_KEEPS_NOTHING)
ROW(exp, RS_SPREAD_ANY, RS_KEEPS_OUTPUT)
ROW(log, RS_SPREAD_ANY, RS_KEEPS_INPUT)
ROW(log1p, RS_SPREAD_ANY, RS_KEEPS_INPUT)
ROW(sqrt, RS_SPREAD_ANY, RS_KEEPS_OUTPUT)
ROW(tanh, RS_SPREAD_ANY, RS_KEEPS_OUTPUT)
ROW(sigmoid, RS_SPREAD_ANY, RS_KEEPS_OUTPUT)

/* Those of x and other numbers. */
static const rs_unary pow_row = {"pow", RS_SPREAD_ANY, RS_KEEPS_INPUT, RS_BOTH(find_pow),
                                 RS_BOTH(find_pow_back)};
static const rs_unary clamp_row = {"clamp", RS_SPREAD_ANY, RS_KEEPS_INPUT, RS_BOTH(find_clamp),
                                   RS_BOTH(find_clamp_back)};
static const rs_unary number_row = {"nan_to_num", RS_SPREAD_ANY, RS_KEEPS_INPUT,
                                    RS_BOTH(find_number), RS_BOTH(find_number_back)};

reshard_tensor *reshard_pow(reshard_tensor *x, double exponent)
{
    return rs_unary_run(&pow_row, x, (double[RS_UNARY_PARAMETERS]){exponent});
}

reshard_tensor *reshard_clamp(reshard_tensor *x, double low, double high)
{
    if (!rs_op_begin("clamp", 1, &x))
        return NULL;
    if (isnan(low) || isnan(high))
        return rs_scope_fail(rs_fail(RESHARD_ERR_INVALID, "clamp: the bound %s is NaN",
                                     isnan(low) ? "low" : "high"));
    return rs_unary_run(&clamp_row, x, (double[RS_UNARY_PARAMETERS]){low, high});
}

static double largest_of(reshard_dtype dtype)
{
    switch (dtype) {
    case RESHARD_F16:
        return 65504;
    case RESHARD_BF16:
        return 0x1.FEp127;
    case RESHARD_F32:
        return (double)FLT_MAX;
    default:
        return DBL_MAX;
    }
}

reshard_tensor *reshard_nan_to_num(reshard_tensor *x, double nan, double high, double low)
{
    /* The limits are those of x, and not of the f32 in which f16 and bf16 are computed. */
    double largest = x != NULL ? largest_of(x->dtype) : 0;
    return rs_unary_run(&number_row, x,
                        (double[RS_UNARY_PARAMETERS]){nan, high >= INFINITY ? largest : high,
                                                      low <= -INFINITY ? -largest : low});
}

#else

/* Defines a kernel by the value at x, and the one of its backward step by the slope, where `kept`
 * is x or the value. p are the operation's numbers. */
#define FUNCTION(name, value, slope)                                                             \
    static void OF(find_##name)(const rs_unary_rows *rows, const void *in, void *out)            \
    {                                                                                            \
        const REAL *a = in;                                                                      \
        const REAL p[] = {(REAL)rows->parameters[0], (REAL)rows->parameters[1],                  \
                          (REAL)rows->parameters[2]};                                            \
        REAL *b = out;                                                                           \
        (void)p;                                                                                 \
        for (int64_t i = 0; i < rows->count * rows->size; i++) {                                 \
            REAL x = a[i];                                                                       \
            b[i] = (value);                                                                      \
        }                                                                                        \
    }                                                                                            \
    static void OF(find_##name##_back)(const rs_unary_rows *rows, const void *in, const void *g, \
                                       void *out)                                                \
    {                                                                                            \
        const REAL *a = in, *gradient = g;                                                       \
        const REAL p[] = {(REAL)rows->parameters[0], (REAL)rows->parameters[1],                  \
                          (REAL)rows->parameters[2]};                                            \
        REAL *b = out;                                                                           \
        (void)p;                                                                                 \
        for (int64_t i = 0; i < rows->count * rows->size; i++) {                                 \
            REAL kept = a != NULL ? a[i] : 0;                                                    \
            (void)kept;                                                                          \
            b[i] = gradient[i] * (slope);                                                        \
        }                                                                                        \
    }

/* Of exponents of one half, PyTorch makes roots, which differ from C's pow at -inf and -0. */
static REAL OF(power)(REAL x, REAL exponent)
{
    if (exponent == (REAL)0.5)
        return (REAL)sqrt(x);
    return exponent == (REAL)-0.5 ? (REAL)(1 / sqrt(x)) : (REAL)pow(x, exponent);
}

FUNCTION(neg, -x, -1)
FUNCTION(exp, exp(x), kept)
FUNCTION(log, log(x), 1 / kept)
FUNCTION(log1p, log1p(x), 1 / (1 + kept))
FUNCTION(sqrt, sqrt(x), 1 / (2 * kept))
FUNCTION(tanh, tanh(x), 1 - kept * kept)
FUNCTION(sigmoid, 1 / (1 + exp(-x)), kept *(1 - kept))
FUNCTION(pow, OF(power)(x, p[0]), p[0] == 0 ? 0 : p[0] * OF(power)(kept, p[0] - 1))
/* With low above high, everything becomes high. NaN stays NaN. */
FUNCTION(clamp, (x < p[0] ? p[0] : x) > p[1] ? p[1] : (x < p[0] ? p[0] : x),
         kept >= p[0] && kept <= p[1])
FUNCTION(number,
         isnan(x)   ? p[0]
         : isinf(x) ? (x > 0 ? p[1] : p[2])
                    : x,
         (REAL)(isfinite(kept) != 0))

#undef FUNCTION
#endif
