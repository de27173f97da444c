/* SPDX-License-Identifier: Apache-2.0 */
/*
 * partial.c - how the gradient g of a reduction's result becomes that of its contributions x:
 *   sum       g
 *   avg       g divided by the number of contributions
 *   min, max  g for the lowest contributor that has the value, 0 for the others. Another reduction
 *             finds its number.
 *   prod      g times the product of the other contributions. With p the product of all that are
 *             not zero, and z the number of zeros, that is p/x if z = 0, p at the zero if z = 1,
 *             and 0 otherwise. Complex numbers take the conjugate of it, as in PyTorch.
 * Complex numbers have no min and max.
 */
#ifndef REAL
#include "tensor/dist/partial.h"

#include "base/error.h"
#include "layout/layout.h"
#include "tensor/core/dense.h"
#include "tensor/core/move.h"
#include "tensor/core/scope.h"
#include "tensor/dist/spread.h"
#include "tensor/grad/gradient.h"

#include <reshard/group.h>

#include <assert.h>
#include <math.h>

#define RS_REAL_FILE "tensor/dist/partial.c"
#include "tensor/core/real.h"

/* ---- tensors with the shards of x ------------------------------------------------------------ */

/* Makes contributions to another reduction, in another dtype. */
static reshard_status make_like(const reshard_tensor *x, reshard_reduction reduction,
                                reshard_dtype dtype, reshard_tensor **out_tensor)
{
    reshard_layout *layout = NULL;
    const reshard_placement partial = {.kind = RESHARD_PARTIAL, .reduction = reduction};
    reshard_status status = rs_layout_replace_partial(x->distribution->layout, &partial, &layout);
    if (status == RESHARD_OK)
        status = rs_distributed_make(rs_scope_context(), x->distribution->cache, layout, dtype,
                                     out_tensor);
    reshard_layout_release(layout);
    return status;
}

/* Reduces contributions. Every rank that has one gets the result. */
static reshard_status reduce(const reshard_tensor *x, reshard_status before,
                             reshard_tensor **out_tensor)
{
    reshard_layout *layout = NULL;
    reshard_status status = before;
    if (status == RESHARD_OK)
        status = rs_gradient_layout(x->distribution->layout, &layout);
    if (status == RESHARD_OK)
        status = rs_redistribute(rs_scope_context(), x, layout, x->dtype, out_tensor);
    reshard_layout_release(layout);
    return status;
}

/* Finds the number of this rank's contribution. A partial layout gives a rank at most one shard. */
static reshard_status find_contributor(const reshard_tensor *x, int32_t *out_contributor)
{
    reshard_shards *shards = NULL;
    reshard_status status = reshard_layout_shards(
        x->distribution->layout, reshard_group_rank(rs_distributed_group(x)), &shards);
    *out_contributor = status == RESHARD_OK && shards->count > 0 ? shards->items[0].contributor : 0;
    reshard_shards_destroy(shards);
    return status;
}

/* The numbers of one of this rank's shards. */
static void *numbers_of(const reshard_tensor *tensor, int64_t shard)
{
    return tensor->distribution->shards[shard]->data;
}

/* ---- minimum and maximum --------------------------------------------------------------------- */

static reshard_status keep_winners(const reshard_tensor *x, const reshard_tensor *gradient,
                                   reshard_tensor *output)
{
    reshard_tensor *value = NULL, *claims = NULL, *winners = NULL;
    int32_t contributor = 0;
    reshard_status status = find_contributor(x, &contributor);
    if (status == RESHARD_OK)
        status = make_like(x, RESHARD_MIN, RESHARD_I32, &claims);
    status = reduce(x, status, &value);
    const rs_distribution *d = x->distribution;
    for (int64_t i = 0; i < d->shard_count && status == RESHARD_OK; i++)
        RS_CALL(x->dtype, claim, numbers_of(x, i), numbers_of(value, i), d->shards[i]->volume,
                contributor, numbers_of(claims, i));
    status = reduce(claims, status, &winners);
    for (int64_t i = 0; i < d->shard_count && status == RESHARD_OK; i++)
        RS_CALL(x->dtype, keep, numbers_of(gradient, i), numbers_of(winners, i),
                d->shards[i]->volume, contributor, numbers_of(output, i));
    reshard_tensor_release(value);
    reshard_tensor_release(claims);
    reshard_tensor_release(winners);
    return status;
}

/* ---- product --------------------------------------------------------------------------------- */

static reshard_status multiply_others(const reshard_tensor *x, const reshard_tensor *gradient,
                                      reshard_tensor *output)
{
    reshard_tensor *rest = NULL, *zeros = NULL, *product = NULL, *zero_count = NULL;
    const rs_distribution *d = x->distribution;
    reshard_dtype part = rs_dtype_part(x->dtype);
    reshard_status status = make_like(x, RESHARD_PROD, x->dtype, &rest);
    if (status == RESHARD_OK)
        status = make_like(x, RESHARD_SUM, RESHARD_I32, &zeros);
    for (int64_t i = 0; i < d->shard_count && status == RESHARD_OK; i++)
        RS_CALL(part, part_zeros, numbers_of(x, i), d->shards[i]->volume, rs_dtype_parts(x->dtype),
                numbers_of(rest, i), numbers_of(zeros, i));
    status = reduce(rest, status, &product);
    status = reduce(zeros, status, &zero_count);
    for (int64_t i = 0; i < d->shard_count && status == RESHARD_OK; i++) {
        if (rs_dtype_is_complex(x->dtype))
            RS_CALL(part, times_other_pairs, numbers_of(gradient, i), numbers_of(x, i),
                    numbers_of(product, i), numbers_of(zero_count, i), d->shards[i]->volume,
                    numbers_of(output, i));
        else
            RS_CALL(part, times_others, numbers_of(gradient, i), numbers_of(x, i),
                    numbers_of(product, i), numbers_of(zero_count, i), d->shards[i]->volume,
                    numbers_of(output, i));
    }
    reshard_tensor_release(rest);
    reshard_tensor_release(zeros);
    reshard_tensor_release(product);
    reshard_tensor_release(zero_count);
    return status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static reshard_status find_gradient(const reshard_tensor *x, const reshard_tensor *gradient,
                                    reshard_reduction reduction, reshard_tensor *output)
{
    int32_t divisor = reduction == RESHARD_AVG ? x->distribution->layout->divisor : 1;
    if (reduction == RESHARD_MIN || reduction == RESHARD_MAX)
        return keep_winners(x, gradient, output);
    if (reduction == RESHARD_PROD)
        return multiply_others(x, gradient, output);
    for (int64_t i = 0; i < x->distribution->shard_count; i++)
        RS_CALL(rs_dtype_part(x->dtype), divide, numbers_of(gradient, i),
                x->distribution->shards[i]->volume * rs_dtype_parts(x->dtype), (double)divisor,
                numbers_of(output, i));
    return RESHARD_OK;
}

reshard_tensor *rs_partial_gradient(reshard_tensor *x, reshard_tensor *gradient)
{
    assert(x->distribution->shard_count == gradient->distribution->shard_count);
    reshard_reduction reduction = rs_layout_reduction(x->distribution->layout);
    if (reduction == RESHARD_SUM)
        return gradient;
    /* Gradients of f16 and bf16 are computed in f32. */
    reshard_dtype dtype = rs_dtype_is_half(x->dtype) ? RESHARD_F32 : x->dtype;
    reshard_tensor *wide = NULL, *wide_gradient = NULL, *output = NULL, *narrow = NULL;
    reshard_status status = rs_cast_shards(x, dtype, &wide);
    if (status == RESHARD_OK)
        status = rs_cast_shards(gradient, dtype, &wide_gradient);
    if (status == RESHARD_OK)
        status = rs_distributed_make(rs_scope_context(), x->distribution->cache,
                                     x->distribution->layout, dtype, &output);
    if (status == RESHARD_OK)
        status = find_gradient(wide, wide_gradient, reduction, output);
    if (status == RESHARD_OK)
        status = rs_cast_shards(output, x->dtype, &narrow);
    reshard_tensor_release(wide);
    reshard_tensor_release(wide_gradient);
    reshard_tensor_release(output);
    return rs_scope_finish(status, narrow);
}

#else

static void OF(claim)(const void *x, const void *value, int64_t n, int32_t contributor,
                      int32_t *out)
{
    const REAL *a = x, *b = value;
    for (int64_t i = 0; i < n; i++) {
        /* NaN wins a minimum and a maximum, but does not equal itself. */
        bool has_value = a[i] == b[i] || isnan(a[i]);
        out[i] = has_value ? contributor : INT32_MAX;
    }
}

static void OF(keep)(const void *gradient, const int32_t *winners, int64_t n, int32_t contributor,
                     void *out)
{
    const REAL *g = gradient;
    REAL *to = out;
    for (int64_t i = 0; i < n; i++)
        to[i] = winners[i] == contributor ? g[i] : 0;
}

/* Replaces zeros by 1, and notes where they were. A number has one part or two. */
static void OF(part_zeros)(const void *x, int64_t n, int64_t parts, void *rest, int32_t *zeros)
{
    const REAL *a = x;
    REAL *b = rest;
    for (int64_t i = 0; i < n; i++, a += parts, b += parts) {
        zeros[i] = a[0] == 0 && a[parts - 1] == 0;
        b[parts - 1] = a[parts - 1];
        b[0] = zeros[i] ? 1 : a[0];
    }
}

static void OF(times_others)(const void *gradient, const void *x, const void *product,
                             const int32_t *zeros, int64_t n, void *out)
{
    const REAL *g = gradient, *a = x, *p = product;
    REAL *to = out;
    for (int64_t i = 0; i < n; i++) {
        if (zeros[i] == 0)
            to[i] = g[i] * (p[i] / a[i]);
        else
            to[i] = zeros[i] == 1 && a[i] == 0 ? g[i] * p[i] : 0;
    }
}

/* g times the conjugate of p/a. */
static void OF(times_other_pairs)(const void *gradient, const void *x, const void *product,
                                  const int32_t *zeros, int64_t n, void *out)
{
    const REAL *g = gradient, *a = x, *p = product;
    REAL *to = out;
    for (int64_t i = 0; i < n; i++, g += 2, a += 2, p += 2, to += 2) {
        bool zero = a[0] == 0 && a[1] == 0;
        REAL square = a[0] * a[0] + a[1] * a[1], others[2] = {p[0], p[1]};
        if (zeros[i] == 0) {
            others[0] = (p[0] * a[0] + p[1] * a[1]) / square;
            others[1] = (p[1] * a[0] - p[0] * a[1]) / square;
        }
        bool none = zeros[i] > 1 || (zeros[i] == 1 && !zero);
        to[0] = none ? 0 : g[0] * others[0] + g[1] * others[1];
        to[1] = none ? 0 : g[1] * others[0] - g[0] * others[1];
    }
}

static void OF(divide)(const void *gradient, int64_t n, double by, void *out)
{
    const REAL *g = gradient;
    REAL *to = out;
    for (int64_t i = 0; i < n; i++)
        to[i] = (REAL)((double)g[i] / by);
}

#endif
