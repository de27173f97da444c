/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast.c - a cast converts runs to f32 and from f32, a few hundred elements at a time, so that the
 * values in between stay in the nearest cache. On a side where the line is not dense, it passes
 * through one more buffer.
 */
#include "kernel/values/cast.h"

#include "base/dtype.h"
#include "kernel/copy/kernels.h"
#include "kernel/values/cast_runs.h"
#include "kernel/values/float.h"
#include "kernel/values/infinite.h"

#include <assert.h>

#define STAGE_COUNT 512
#define ELEMENT_BYTES_MAX 16 /* c128, which can be cast to itself */

static bool is_narrow(reshard_dtype dtype)
{
    return dtype == RESHARD_F8_E4M3 || dtype == RESHARD_F8_E5M2;
}

static bool is_castable(reshard_dtype dtype)
{
    return rs_dtype_is_float(dtype) || is_narrow(dtype);
}

bool rs_cast_supports(reshard_dtype source, reshard_dtype target)
{
    return source == target ? reshard_dtype_bits(source) >= 8
                            : is_castable(source) && is_castable(target);
}

static void keep_1(const unsigned char *source, unsigned char *target, int64_t count)
{
    memcpy(target, source, (size_t)count);
}

static void keep_2(const unsigned char *source, unsigned char *target, int64_t count)
{
    memcpy(target, source, (size_t)count * 2);
}

static void keep_4(const unsigned char *source, unsigned char *target, int64_t count)
{
    memcpy(target, source, (size_t)count * 4);
}

static void keep_8(const unsigned char *source, unsigned char *target, int64_t count)
{
    memcpy(target, source, (size_t)count * 8);
}

static void keep_16(const unsigned char *source, unsigned char *target, int64_t count)
{
    memcpy(target, source, (size_t)count * 16);
}

static void choose(rs_cast *cast, rs_cpu cpu, reshard_dtype source, reshard_dtype target)
{
    bool narrows = target == RESHARD_F16 || target == RESHARD_BF16 || is_narrow(target);
    if (source == target) {
        rs_cast_run_fn *const keeps[ELEMENT_BYTES_MAX + 1] = {
            [1] = keep_1, [2] = keep_2, [4] = keep_4, [8] = keep_8, [16] = keep_16};
        cast->read = keeps[cast->source_bytes];
    } else if (target == RESHARD_F32) {
        cast->read = rs_cast_find_to_f32(cpu, source);
    } else if (source == RESHARD_F32) {
        cast->read = rs_cast_find_from_f32(cpu, target);
    } else {
        cast->read = source == RESHARD_F64 && narrows ? rs_cast_find_f64_to_odd(cpu)
                                                      : rs_cast_find_to_f32(cpu, source);
        cast->write = rs_cast_find_from_f32(cpu, target);
    }
}

void rs_cast_prepare_for(rs_cast *cast, rs_cpu cpu, reshard_dtype source, reshard_dtype target,
                         int32_t ndim, const int64_t *size, const int64_t *source_strides,
                         const int64_t *target_strides)
{
    assert(rs_cast_supports(source, target));
    memset(cast, 0, sizeof *cast);
    cast->source_bytes = reshard_dtype_bits(source) / 8;
    cast->target_bytes = reshard_dtype_bits(target) / 8;
    cast->source = source;
    cast->target = target;
    choose(cast, cpu, source, target);
    rs_nest_build(&cast->nest, cast->source_bytes, cast->target_bytes, ndim, size, source_strides,
                  target_strides);
    int32_t line = rs_nest_find(&cast->nest, cast->source_bytes, cast->target_bytes);
    cast->line = rs_nest_take(&cast->nest, line >= 0 ? line : rs_nest_least_target(&cast->nest));
}

void rs_cast_prepare(rs_cast *cast, reshard_dtype source, reshard_dtype target, int32_t ndim,
                     const int64_t *size, const int64_t *source_strides,
                     const int64_t *target_strides)
{
    rs_cast_prepare_for(cast, rs_cpu_detect(), source, target, ndim, size, source_strides,
                        target_strides);
}

static void count_overflows(const rs_cast *cast, const void *source, const void *target,
                            int64_t count)
{
    int64_t after = rs_count_infinite(cast->target, target, count);
    if (after != 0)
        *cast->overflows += after - rs_count_infinite(cast->source, source, count);
}

/* Casts at most STAGE_COUNT elements. */
static void cast_piece(const rs_cast *cast, const unsigned char *source, unsigned char *target,
                       int64_t count)
{
    _Alignas(64) unsigned char from[STAGE_COUNT * ELEMENT_BYTES_MAX];
    _Alignas(64) unsigned char to[STAGE_COUNT * ELEMENT_BYTES_MAX];
    _Alignas(64) unsigned char between[STAGE_COUNT * sizeof(float)];
    bool source_is_dense = cast->line.source_step == cast->source_bytes;
    bool target_is_dense = cast->line.target_step == cast->target_bytes;
    if (!source_is_dense)
        rs_units_copy(source, cast->line.source_step, from, cast->source_bytes, cast->source_bytes,
                      count);
    const unsigned char *dense_source = source_is_dense ? source : from;
    unsigned char *dense_target = target_is_dense ? target : to;
    cast->read(dense_source, cast->write != NULL ? between : dense_target, count);
    if (cast->write != NULL)
        cast->write(between, dense_target, count);
    if (cast->overflows != NULL)
        count_overflows(cast, dense_source, dense_target, count);
    if (!target_is_dense)
        rs_units_copy(to, cast->target_bytes, target, cast->line.target_step, cast->target_bytes,
                      count);
}

static void cast_line(const void *what, const unsigned char *source, unsigned char *target)
{
    const rs_cast *cast = what;
    for (int64_t first = 0; first < cast->line.size; first += STAGE_COUNT) {
        int64_t left = cast->line.size - first;
        cast_piece(cast, source + first * cast->line.source_step,
                   target + first * cast->line.target_step,
                   left < STAGE_COUNT ? left : STAGE_COUNT);
    }
}

int64_t rs_cast_outer_count(const rs_cast *cast)
{
    if (cast->nest.element_count == 0)
        return 0;
    return cast->nest.count > 0 ? cast->nest.loops[0].size : cast->line.size;
}

void rs_cast_run_part(const rs_cast *cast, const void *source, void *target, int64_t first,
                      int64_t count)
{
    assert(first >= 0 && count >= 0 && first + count <= rs_cast_outer_count(cast));
    if (count == 0)
        return;
    const rs_loop *outer = cast->nest.count > 0 ? &cast->nest.loops[0] : &cast->line;
    const unsigned char *from = (const unsigned char *)source + first * outer->source_step;
    unsigned char *to = (unsigned char *)target + first * outer->target_step;
    if (cast->nest.count > 0) {
        rs_nest_walk(cast->nest.loops, cast->nest.count, count, cast_line, cast, from, to);
        return;
    }
    rs_cast part = *cast;
    part.line.size = count;
    cast_line(&part, from, to);
}

void rs_cast_run(const rs_cast *cast, const void *source, void *target)
{
    rs_cast_run_part(cast, source, target, 0, rs_cast_outer_count(cast));
}

/* Every value of a supported type fits f64. */
static double read_value(reshard_dtype dtype, const void *source)
{
    uint16_t half;
    float single;
    double value;
    switch (dtype) {
    case RESHARD_F8_E4M3:
        return (double)rs_f8_e4m3_to_f32(*(const uint8_t *)source);
    case RESHARD_F8_E5M2:
        return (double)rs_f8_e5m2_to_f32(*(const uint8_t *)source);
    case RESHARD_F16:
        memcpy(&half, source, sizeof half);
        return (double)rs_f16_to_f32(half);
    case RESHARD_BF16:
        memcpy(&half, source, sizeof half);
        return (double)rs_bf16_to_f32(half);
    case RESHARD_F32:
        memcpy(&single, source, sizeof single);
        return (double)single;
    default:
        memcpy(&value, source, sizeof value);
        return value;
    }
}

void rs_cast_reference(reshard_dtype source_dtype, reshard_dtype target_dtype, const void *source,
                       void *target)
{
    if (source_dtype == target_dtype) {
        memcpy(target, source, (size_t)reshard_dtype_bits(source_dtype) / 8);
        return;
    }
    double value = read_value(source_dtype, source);
    float single = (float)value;
    uint16_t half = target_dtype == RESHARD_F16 ? rs_f64_to_f16(value) : rs_f64_to_bf16(value);
    if (target_dtype == RESHARD_F64)
        memcpy(target, &value, sizeof value);
    else if (target_dtype == RESHARD_F32)
        memcpy(target, &single, sizeof single);
    else if (target_dtype == RESHARD_F8_E4M3)
        *(uint8_t *)target = rs_f64_to_f8_e4m3(value);
    else if (target_dtype == RESHARD_F8_E5M2)
        *(uint8_t *)target = rs_f64_to_f8_e5m2(value);
    else
        memcpy(target, &half, sizeof half);
}
