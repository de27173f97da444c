/* SPDX-License-Identifier: Apache-2.0 */
/* operation.c - chooses the kernels of an operation, and runs them in the right order. */
#include "exec/operation.h"

#include "base/dtype.h"
#include "base/error.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* ---- identities ------------------------------------------------------------------------------ */

static bool is_signed_integer(reshard_dtype dtype)
{
    return dtype == RESHARD_I8 || dtype == RESHARD_I16 || dtype == RESHARD_I32 ||
           dtype == RESHARD_I64;
}

static void put_integer(uint64_t value, size_t bytes, unsigned char *out)
{
    for (size_t i = 0; i < bytes; i++) {
        out[i] = (unsigned char)value;
        value >>= 8;
    }
}

/* The least or greatest value of an integer dtype. */
static uint64_t integer_limit(reshard_dtype dtype, bool greatest)
{
    int32_t bits = reshard_dtype_bits(dtype);
    uint64_t all = bits == 64 ? UINT64_MAX : ((uint64_t)1 << bits) - 1;
    if (is_signed_integer(dtype))
        return greatest ? all >> 1 : (all >> 1) + 1;
    return greatest ? all : 0;
}

/* The value that changes nothing when it is combined: 0 for sums, 1 for products, the opposite end
 * of the range for min and max, all bits or none for bitwise reductions. */
static void set_identity(reshard_reduction reduction, reshard_dtype dtype, unsigned char *out)
{
    memset(out, 0, 16);
    if (reduction == RESHARD_SUM || reduction == RESHARD_AVG || reduction == RESHARD_BOR ||
        reduction == RESHARD_BXOR)
        return;
    double value = reduction == RESHARD_PROD  ? 1
                   : reduction == RESHARD_MIN ? (double)INFINITY
                                              : -(double)INFINITY;
    if (rs_dtype_is_float(dtype)) {
        rs_cast_reference(RESHARD_F64, dtype, &value, out);
    } else if (rs_dtype_is_complex(dtype)) {
        rs_cast_reference(RESHARD_F64, rs_dtype_part(dtype), &value, out);
    } else if (dtype == RESHARD_BOOL) {
        out[0] = reduction != RESHARD_MAX;
    } else if (reduction == RESHARD_BAND) {
        memset(out, 0xff, rs_element_bytes(dtype));
    } else if (reduction == RESHARD_PROD) {
        put_integer(1, rs_element_bytes(dtype), out);
    } else {
        put_integer(integer_limit(dtype, reduction == RESHARD_MIN), rs_element_bytes(dtype), out);
    }
}

/* ---- preparing ------------------------------------------------------------------------------- */

static reshard_status fail_unsupported(const rs_operation *o, const char *what)
{
    return rs_fail(RESHARD_ERR_UNSUPPORTED, "exec: %s of %s to %s cannot be done", what,
                   reshard_dtype_name(o->source_dtype), reshard_dtype_name(o->target_dtype));
}

static void prepare_copy(const rs_operation *o, rs_kernels *k, const rs_operation_shape *shape)
{
    k->same_steps = !k->casts;
    for (int32_t d = 0; d < shape->ndim; d++)
        k->same_steps = k->same_steps && (shape->size[d] <= 1 ||
                                          shape->source_strides[d] == shape->target_strides[d]);
    rs_copy_tuning tuning = {.cpu = rs_cpu_detect(),
                             .stream_bytes = shape->many ? RS_STREAM_PART_BYTES : RS_STREAM_BYTES,
                             .measures = true};
    if (k->casts)
        rs_cast_prepare(&k->cast, o->source_dtype, o->target_dtype, shape->ndim, shape->size,
                        shape->source_strides, shape->target_strides);
    else
        rs_copy_prepare_tuned(&k->copy, &tuning, (int32_t)rs_element_bytes(o->target_dtype),
                              shape->ndim, shape->size, shape->source_strides,
                              shape->target_strides);
}

/* A fill is a copy of one element to all places. */
static void prepare_fill(const rs_operation *o, rs_kernels *k, const rs_operation_shape *shape)
{
    int64_t still[RS_NEST_MAX] = {0};
    set_identity(o->reduction, o->target_dtype, k->identity);
    rs_copy_prepare(&k->copy, (int32_t)rs_element_bytes(o->target_dtype), shape->ndim, shape->size,
                    still, shape->target_strides);
}

reshard_status rs_operation_prepare(rs_operation *o, rs_kernels *k, const rs_operation_shape *shape)
{
    assert(shape->ndim >= 0 && shape->ndim <= RS_NEST_MAX && o->divisor >= 1);
    memset(k, 0, sizeof *k);
    o->kernels = k;
    k->casts = o->source_dtype != o->target_dtype;
    if (o->kind == RESHARD_MOVE_FILL) {
        k->casts = false;
        prepare_fill(o, k, shape);
        return RESHARD_OK;
    }
    if (k->casts && !rs_cast_supports(o->source_dtype, o->target_dtype))
        return fail_unsupported(o, "a cast");
    prepare_copy(o, k, shape);
    if (o->kind == RESHARD_MOVE_COPY)
        return RESHARD_OK;
    if (k->casts || !rs_combine_supports(o->reduction, o->target_dtype) ||
        (o->divisor > 1 && !rs_combine_supports(RESHARD_AVG, o->target_dtype)))
        return fail_unsupported(o, reshard_reduction_name(o->reduction));
    reshard_reduction reduction = o->reduction == RESHARD_AVG ? RESHARD_SUM : o->reduction;
    rs_combine_prepare(&k->combining, reduction, o->target_dtype, shape->ndim, shape->size,
                       shape->source_strides, shape->target_strides);
    if (o->divisor > 1)
        rs_scale_prepare(&k->scaling, o->target_dtype, o->divisor, shape->ndim, shape->size,
                         shape->target_strides);
    return RESHARD_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

static void run_copy(const rs_operation *o, const void *source, void *target)
{
    if (source == target && o->kernels->same_steps)
        return;
    if (o->kernels->casts)
        rs_cast_run(&o->kernels->cast, source, target);
    else
        rs_copy_run(&o->kernels->copy, source, target);
}

/* target += source / divisor for one element. Adjoints of averages are too rare to be worth a
 * kernel. */
static void add_divided(const void *what, const unsigned char *source, unsigned char *target)
{
    const rs_operation *o = what;
    unsigned char element[16];
    memcpy(element, source, rs_element_bytes(o->target_dtype));
    rs_scale(o->target_dtype, element, 1, o->divisor);
    rs_combine(RESHARD_SUM, o->target_dtype, target, element, 1);
}

static void run_add(const rs_operation *o, const void *source, void *target)
{
    if (o->divisor == 1) {
        rs_combine_run(&o->kernels->combining, source, target);
        return;
    }
    /* with the innermost line, which is kept separately */
    rs_nest nest = o->kernels->combining.nest;
    nest.loops[nest.count++] = o->kernels->combining.line;
    rs_nest_walk(nest.loops, nest.count, nest.loops[0].size, add_divided, o, source, target);
}

void rs_operation_run(const rs_operation *o, const void *source, void *target)
{
    assert(target != NULL && (source != NULL || o->kind == RESHARD_MOVE_FILL));
    assert(o->kind != RESHARD_MOVE_COMBINE || o->contributor < o->contributor_count);
    switch (o->kind) {
    case RESHARD_MOVE_COPY:
        run_copy(o, source, target);
        return;
    case RESHARD_MOVE_FILL:
        rs_copy_run(&o->kernels->copy, o->kernels->identity, target);
        return;
    case RESHARD_MOVE_ADD:
        run_add(o, source, target);
        return;
    case RESHARD_MOVE_COMBINE:
        if (o->contributor == 0)
            run_copy(o, source, target);
        else
            rs_combine_run(&o->kernels->combining, source, target);
        if (o->contributor == o->contributor_count - 1 && o->divisor > 1)
            rs_combine_run(&o->kernels->scaling, NULL, target);
        return;
    }
}

bool rs_operation_is_one_run(const rs_operation *o)
{
    /* The combination has the same loops as the copy. One run is a single line in steps of one
     * element on both sides. */
    return !o->kernels->casts && o->kernels->combining.nest.count == 0 &&
           (o->kernels->combining.line.size == 1 ||
            (o->kernels->combining.line.source_step == (int32_t)rs_element_bytes(o->target_dtype) &&
             o->kernels->combining.line.target_step == (int32_t)rs_element_bytes(o->target_dtype)));
}

void rs_operation_run_bytes(const rs_operation *o, const void *source, void *target, size_t bytes)
{
    assert(rs_operation_is_one_run(o) && bytes % rs_element_bytes(o->target_dtype) == 0);
    int64_t count = (int64_t)(bytes / rs_element_bytes(o->target_dtype));
    reshard_reduction reduction = o->reduction == RESHARD_AVG ? RESHARD_SUM : o->reduction;
    if (o->contributor == 0 && source != target)
        memcpy(target, source, bytes);
    else if (o->contributor != 0)
        rs_combine(reduction, o->target_dtype, target, source, count);
    if (o->contributor == o->contributor_count - 1 && o->divisor > 1)
        rs_scale(o->target_dtype, target, count, o->divisor);
}
