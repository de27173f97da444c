/* SPDX-License-Identifier: Apache-2.0 */
/*
 * equal.c - whether two tensors have equal or close values, and copying one into the other. With
 * distributed tensors, each rank compares its shards, and all ranks agree on the answer.
 */
#include "base/error.h"
#include "kernel/values/cast.h"
#include "layout/layout.h"
#include "tensor/core/move.h"
#include "tensor/dist/spread.h"
#include "tensor/grad/node.h"

#include <reshard/distributed.h>

#include <math.h>
#include <string.h>

typedef struct comparison {
    const char *name;
    bool exact; /* otherwise |a - b| <= absolute + relative |b| */
    double relative, absolute;
    bool equal_nan;
} comparison;

/* ---- local tensors --------------------------------------------------------------------------- */

static bool is_close(const comparison *c, double a, double b)
{
    if (isnan(a) && isnan(b))
        return c->equal_nan;
    if (a == b) /* infinities, too */
        return true;
    return !c->exact && isfinite(a) && isfinite(b) &&
           fabs(a - b) <= c->absolute + c->relative * fabs(b);
}

/* Compares dense memory of numbers, a block at a time as f64. */
static bool compare_numbers(const comparison *c, reshard_dtype dtype, int64_t count,
                            const unsigned char *a, const unsigned char *b)
{
    enum { BLOCK = 512 };
    double values[2][BLOCK];
    int64_t bytes = (int64_t)rs_element_bytes(dtype);
    for (int64_t at = 0; at < count; at += BLOCK) {
        int64_t n = count - at < BLOCK ? count - at : BLOCK, step = 1;
        rs_cast cast;
        rs_cast_prepare(&cast, dtype, RESHARD_F64, 1, &n, &step, &step);
        rs_cast_run(&cast, a + at * bytes, values[0]);
        rs_cast_run(&cast, b + at * bytes, values[1]);
        for (int64_t i = 0; i < n; i++) {
            if (!is_close(c, values[0][i], values[1][i]))
                return false;
        }
    }
    return true;
}

/* Dtypes other than floating ones are compared byte by byte. */
static bool compare_dense(const comparison *c, const reshard_tensor *a, const reshard_tensor *b)
{
    reshard_dtype part = rs_dtype_part(a->dtype);
    if (rs_dtype_is_float(part))
        return compare_numbers(c, part, a->volume * rs_dtype_parts(a->dtype), a->data, b->data);
    return a->volume == 0 ||
           memcmp(a->data, b->data, (size_t)a->volume * rs_element_bytes(a->dtype)) == 0;
}

static reshard_status compare_local(const comparison *c, reshard_tensor *a, reshard_tensor *b,
                                    bool *out_same)
{
    reshard_tensor *x = NULL, *y = NULL;
    reshard_status status = rs_tensor_densify(a->context, a, &x);
    if (status == RESHARD_OK)
        status = rs_tensor_densify(b->context, b, &y);
    if (status == RESHARD_OK)
        *out_same = compare_dense(c, x, y);
    reshard_tensor_release(x);
    reshard_tensor_release(y);
    return status;
}

/* ---- distributed tensors --------------------------------------------------------------------- */

/* Collective. */
static reshard_status compare_shards(const comparison *c, reshard_tensor *a, reshard_tensor *b,
                                     bool *out_same)
{
    reshard_tensor *moved = NULL;
    bool same = true;
    reshard_status status =
        rs_redistribute(b->context, b, a->distribution->layout, b->dtype, &moved);
    if (status != RESHARD_OK)
        return status;
    for (int64_t i = 0; i < a->distribution->shard_count && same && status == RESHARD_OK; i++)
        status =
            compare_local(c, a->distribution->shards[i], moved->distribution->shards[i], &same);
    reshard_tensor_release(moved);
    return rs_agree_on(rs_distributed_group(a), status, NULL, c->name, same, out_same);
}

static reshard_status check_pair(const comparison *c, reshard_tensor *const *pair)
{
    for (int32_t i = 0; i < 2; i++) {
        if (pair[i] == NULL)
            return rs_fail(RESHARD_ERR_INVALID, "input %d is NULL", i);
        if (!c->exact && !rs_dtype_is_float(pair[i]->dtype))
            return rs_fail(RESHARD_ERR_UNSUPPORTED, "input %d is %s, not f16, bf16, f32 or f64", i,
                           reshard_dtype_name(pair[i]->dtype));
        if (pair[i]->distribution != NULL && pair[i]->distribution->layout->partial)
            return rs_refuse_partial(pair[i]);
    }
    if (pair[0]->dtype != pair[1]->dtype || (!c->exact && !rs_shape_equals(pair[0], pair[1])))
        return rs_fail(RESHARD_ERR_INVALID, "%s and %s", rs_tensor_describe(pair[0]).text,
                       rs_tensor_describe(pair[1]).text);
    return rs_any_distributed(2, pair) ? rs_check_together(2, pair) : RESHARD_OK;
}

static reshard_status compare(const comparison *c, reshard_tensor *a, reshard_tensor *b,
                              int *out_same)
{
    bool same = false;
    reshard_status status = check_pair(c, (reshard_tensor *[]){a, b});
    if (status == RESHARD_OK && rs_shape_equals(a, b))
        status = a->distribution != NULL ? compare_shards(c, a, b, &same)
                                         : compare_local(c, a, b, &same);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "%s", c->name);
    *out_same = same;
    return RESHARD_OK;
}

reshard_status reshard_tensor_equal(reshard_tensor *a, reshard_tensor *b, int *out_equal)
{
    const comparison c = {.name = "equal", .exact = true};
    return compare(&c, a, b, out_equal);
}

reshard_status reshard_tensor_allclose(reshard_tensor *a, reshard_tensor *b, double relative,
                                       double absolute, int equal_nan, int *out_close)
{
    const comparison c = {.name = "allclose",
                          .relative = relative,
                          .absolute = absolute,
                          .equal_nan = equal_nan != 0};
    if (!(relative >= 0) || !(absolute >= 0))
        return rs_fail(RESHARD_ERR_INVALID,
                       "allclose: the tolerances are %g and %g; they must be 0 or more", relative,
                       absolute);
    return compare(&c, a, b, out_close);
}

/* ---- copying --------------------------------------------------------------------------------- */

static reshard_status check_copy(const reshard_tensor *target, const reshard_tensor *source)
{
    if (target == NULL || source == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the %s is NULL", target == NULL ? "target" : "source");
    const rs_distribution *to = target->distribution, *from = source->distribution;
    if ((to != NULL) != (from != NULL))
        return rs_fail(RESHARD_ERR_INVALID, "the target is %s, and the source is not",
                       to != NULL ? "distributed" : "local");
    if (to != NULL && to->cache != from->cache)
        return rs_fail(RESHARD_ERR_INVALID, "the target is distributed over another group");
    if (!rs_shape_equals(target, source))
        return rs_fail(RESHARD_ERR_INVALID, "%s into %s", rs_tensor_describe(source).text,
                       rs_tensor_describe(target).text);
    if (to == NULL && target->storage == source->storage)
        return rs_fail(RESHARD_ERR_INVALID, "the target shares memory with the source");
    if (target->node != NULL)
        return rs_fail(RESHARD_ERR_INVALID,
                       "the target was computed by %s: its gradient is that of its own value",
                       target->node->name);
    if (target->dtype != source->dtype &&
        (!rs_dtype_is_float(target->dtype) || !rs_dtype_is_float(source->dtype)))
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "from %s to %s: casts are between f16, bf16, f32 and f64",
                       reshard_dtype_name(source->dtype), reshard_dtype_name(target->dtype));
    return RESHARD_OK;
}

reshard_status reshard_tensor_copy(reshard_tensor *target, reshard_tensor *source)
{
    reshard_status status = check_copy(target, source);
    if (source != NULL && source->distribution != NULL)
        return rs_fail_within(rs_redistribute_into(status, source, target), "copy");
    if (status != RESHARD_OK)
        return rs_fail_within(status, "copy");
    (void)reshard_tensor_write(target);
    if (target->dtype == source->dtype) {
        rs_tensor_copy(source, target);
    } else if (target->volume != 0) {
        rs_cast cast;
        rs_cast_prepare(&cast, source->dtype, target->dtype, source->ndim, source->shape,
                        source->strides, target->strides);
        rs_cast_run(&cast, source->data, target->data);
    }
    return RESHARD_OK;
}
