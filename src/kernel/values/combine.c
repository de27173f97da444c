/* SPDX-License-Identifier: Apache-2.0 */
/* combine.c - combines over strided shapes. A line that is not dense is collected in a buffer and,
 * on the target's side, put back from it. */
#include "kernel/values/combine.h"

#include "kernel/copy/kernels.h"

#include <assert.h>

#define STAGE_COUNT 512
#define ELEMENT_BYTES_MAX 16 /* c128 */

bool rs_combine_supports(reshard_reduction reduction, reshard_dtype dtype)
{
    return rs_combine_find(reduction, dtype) != NULL;
}

void rs_combine(reshard_reduction reduction, reshard_dtype dtype, void *target, const void *source,
                int64_t count)
{
    rs_combine_fn *combine = rs_combine_find(reduction, dtype);
    assert(combine != NULL && count >= 0);
    combine(target, source, count);
}

void rs_scale(reshard_dtype dtype, void *target, int64_t count, int32_t divisor)
{
    rs_scale_fn *scale = rs_scale_find(dtype);
    assert(scale != NULL && divisor >= 1 && count >= 0);
    scale(target, count, divisor);
}

static void prepare(rs_combining *combining, reshard_dtype dtype, int32_t ndim, const int64_t *size,
                    const int64_t *source_strides, const int64_t *target_strides)
{
    int32_t bytes = reshard_dtype_bits(dtype) / 8;
    combining->element_bytes = bytes;
    rs_nest_build(&combining->nest, bytes, bytes, ndim, size, source_strides, target_strides);
    int32_t line = rs_nest_find(&combining->nest, bytes, bytes);
    combining->line =
        rs_nest_take(&combining->nest, line >= 0 ? line : rs_nest_least_target(&combining->nest));
}

void rs_combine_prepare(rs_combining *combining, reshard_reduction reduction, reshard_dtype dtype,
                        int32_t ndim, const int64_t *size, const int64_t *source_strides,
                        const int64_t *target_strides)
{
    memset(combining, 0, sizeof *combining);
    combining->combine = rs_combine_find(reduction, dtype);
    assert(combining->combine != NULL);
    prepare(combining, dtype, ndim, size, source_strides, target_strides);
}

void rs_scale_prepare(rs_combining *combining, reshard_dtype dtype, int32_t divisor, int32_t ndim,
                      const int64_t *size, const int64_t *target_strides)
{
    memset(combining, 0, sizeof *combining);
    combining->scale = rs_scale_find(dtype);
    combining->divisor = divisor;
    assert(combining->scale != NULL && divisor >= 1);
    prepare(combining, dtype, ndim, size, target_strides, target_strides);
}

/* Combines at most STAGE_COUNT elements. */
static void combine_piece(const rs_combining *combining, const unsigned char *source,
                          unsigned char *target, int64_t count)
{
    _Alignas(64) unsigned char from[STAGE_COUNT * ELEMENT_BYTES_MAX];
    _Alignas(64) unsigned char to[STAGE_COUNT * ELEMENT_BYTES_MAX];
    int64_t bytes = combining->element_bytes;
    assert(bytes <= ELEMENT_BYTES_MAX && count <= STAGE_COUNT);
    const rs_loop *line = &combining->line;
    bool target_is_dense = line->target_step == bytes;
    unsigned char *dense_target = target_is_dense ? target : to;
    if (!target_is_dense)
        rs_units_copy(target, line->target_step, to, bytes, bytes, count);
    if (combining->combine == NULL) {
        combining->scale(dense_target, count, combining->divisor);
    } else {
        bool source_is_dense = line->source_step == bytes;
        if (!source_is_dense)
            rs_units_copy(source, line->source_step, from, bytes, bytes, count);
        combining->combine(dense_target, source_is_dense ? source : from, count);
    }
    if (!target_is_dense)
        rs_units_copy(to, bytes, target, line->target_step, bytes, count);
}

static void combine_line(const void *what, const unsigned char *source, unsigned char *target)
{
    const rs_combining *combining = what;
    const rs_loop *line = &combining->line;
    for (int64_t first = 0; first < line->size; first += STAGE_COUNT) {
        int64_t left = line->size - first;
        combine_piece(combining, source + first * line->source_step,
                      target + first * line->target_step, left < STAGE_COUNT ? left : STAGE_COUNT);
    }
}

int64_t rs_combine_outer_count(const rs_combining *combining)
{
    if (combining->nest.element_count == 0)
        return 0;
    return combining->nest.count > 0 ? combining->nest.loops[0].size : combining->line.size;
}

void rs_combine_run_part(const rs_combining *combining, const void *source, void *target,
                         int64_t first, int64_t count)
{
    assert(first >= 0 && count >= 0 && first + count <= rs_combine_outer_count(combining));
    if (count == 0)
        return;
    const rs_loop *outer = combining->nest.count > 0 ? &combining->nest.loops[0] : &combining->line;
    /* Scaling has no source; use the target's address, so that the pointer arithmetic stays
     * valid. */
    const unsigned char *from = combining->combine != NULL ? source : target;
    from += first * outer->source_step;
    unsigned char *to = (unsigned char *)target + first * outer->target_step;
    if (combining->nest.count > 0) {
        rs_nest_walk(combining->nest.loops, combining->nest.count, count, combine_line, combining,
                     from, to);
        return;
    }
    rs_combining part = *combining;
    part.line.size = count;
    combine_line(&part, from, to);
}

void rs_combine_run(const rs_combining *combining, const void *source, void *target)
{
    rs_combine_run_part(combining, source, target, 0, rs_combine_outer_count(combining));
}
