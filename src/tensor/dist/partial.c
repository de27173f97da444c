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
    int64_t count = x->distribution->shard_count;
    for (int64_t i = 0; i < count && status == RESHARD_OK; i++)
        RS_CALL(x->dtype, claim, x->distribution->shards[i]->data,
                value->distribution->shards[i]->data, x->distribution->shards[i]->volume,
                contributor, (void *)claims->distribution->shards[i]->data);
    status = reduce(claims, status, &winners);
    for (int64_t i = 0; i < count && status == RESHARD_OK; i++)
        RS_CALL(x->dtype, keep, gradient->distribution->shards[i]->data,
                (const void *)winners->distribution->shards[i]->data,
                x->distribution->shards[i]->volume, contributor,
                output->distribution->shards[i]->data);
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
    int64_t count = x->distribution->shard_count;
    reshard_status status = make_like(x, RESHARD_PROD, x->dtype, &rest);
    if (status == RESHARD_OK)
        status = make_like(x, RESHARD_SUM, RESHARD_I32, &zeros);
    for (int64_t i = 0; i < count && status == RESHARD_OK; i++)
        if (rs_dtype_is_complex(x->dtype))
            RS_CALL(rs_dtype_part(x->dtype), part_zero_pairs, x->distribution->shards[i]->data,
                    x->distribution->shards[i]->volume, rest->distribution->shards[i]->data,
                    (void *)zeros->distribution->shards[i]->data);
        else
            RS_CALL(x->dtype, part_zeros, x->distribution->shards[i]->data,
                    x->distribution->shards[i]->volume, rest->distribution->shards[i]->data,
                    (void *)zeros->distribution->shards[i]->data);
    status = reduce(rest, status, &product);
    status = reduce(zeros, status, &zero_count);
    for (int64_t i = 0; i < count && status == RESHARD_OK; i++)
        if (rs_dtype_is_complex(x->dtype))
            RS_CALL(rs_dtype_part(x->dtype), times_other_pairs,
                    gradient->distribution->shards[i]->data, x->distribution->shards[i]->data,
                    product->distribution->shards[i]->data,
                    (const void *)zero_count->distribution->shards[i]->data,
                    x->distribution->shards[i]->volume, output->distribution->shards[i]->data);
        else
            RS_CALL(x->dtype, times_others, gradient->distribution->shards[i]->data,
                    x->distribution->shards[i]->data, product->distribution->shards[i]->data,
                    (const void *)zero_count->distribution->shards[i]->data,
                    x->distribution->shards[i]->volume, output->distribution->shards[i]->data);
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
        RS_CALL(rs_dtype_part(x->dtype), divide, gradient->distribution->shards[i]->data,
                x->distribution->shards[i]->volume * rs_dtype_parts(x->dtype), (double)divisor,
                output->distribution->shards[i]->data);
    return RESHARD_OK;
}

/* Turns f16 and bf16 into f32, in which their gradients are computed. */
static reshard_status widen(reshard_tensor *tensor, reshard_tensor **out_tensor)
{
    if (!rs_dtype_is_half(tensor->dtype)) {
        *out_tensor = reshard_tensor_retain(tensor);
        return RESHARD_OK;
    }
    rs_distribution *d = tensor->distribution;
    reshard_tensor *wide = NULL;
    reshard_status status =
        rs_distributed_make(rs_scope_context(), d->cache, d->layout, RESHARD_F32, &wide);
    for (int64_t i = 0; i < d->shard_count && status == RESHARD_OK; i++) {
        reshard_tensor_release(wide->distribution->shards[i]);
        wide->distribution->shards[i] = NULL;
        status = rs_real(d->shards[i], &wide->distribution->shards[i]);
    }
    return rs_tensor_hand_out(status, wide, out_tensor);
}

static reshard_status narrow(reshard_tensor *wide, reshard_dtype dtype)
{
    if (wide->dtype == dtype)
        return RESHARD_OK;
    rs_distribution *d = wide->distribution;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < d->shard_count && status == RESHARD_OK; i++) {
        reshard_tensor *shard = d->shards[i];
        d->shards[i] = NULL;
        status = rs_unreal(shard, dtype, &d->shards[i]);
    }
    wide->dtype = dtype;
    return status;
}

reshard_tensor *rs_partial_gradient(reshard_tensor *x, reshard_tensor *gradient)
{
    assert(x->distribution->shard_count == gradient->distribution->shard_count);
    reshard_reduction reduction = rs_layout_reduction(x->distribution->layout);
    if (reduction == RESHARD_SUM)
        return gradient;
    reshard_tensor *wide = NULL, *wide_gradient = NULL, *output = NULL;
    reshard_status status = widen(x, &wide);
    if (status == RESHARD_OK)
        status = widen(gradient, &wide_gradient);
    if (status == RESHARD_OK)
        status = rs_distributed_make(rs_scope_context(), x->distribution->cache,
                                     x->distribution->layout, wide->dtype, &output);
    if (status == RESHARD_OK)
        status = find_gradient(wide, wide_gradient, reduction, output);
    if (status == RESHARD_OK)
        status = narrow(output, x->dtype);
    reshard_tensor_release(wide);
    reshard_tensor_release(wide_gradient);
    return rs_scope_finish(status, output);
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

static void OF(part_zeros)(const void *x, int64_t n, void *rest, int32_t *zeros)
{
    const REAL *a = x;
    REAL *b = rest;
    for (int64_t i = 0; i < n; i++) {
        zeros[i] = a[i] == 0;
        b[i] = a[i] == 0 ? 1 : a[i];
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

static void OF(part_zero_pairs)(const void *x, int64_t n, void *rest, int32_t *zeros)
{
    const REAL *a = x;
    REAL *b = rest;
    for (int64_t i = 0; i < n; i++) {
        zeros[i] = a[2 * i] == 0 && a[2 * i + 1] == 0;
        b[2 * i] = zeros[i] ? 1 : a[2 * i];
        b[2 * i + 1] = a[2 * i + 1];
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
