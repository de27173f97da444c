/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine.h - target = target op source, for reductions over contributors. Integers wrap around.
 * f16 and bf16 are computed in f32 and rounded after every step, so that only the order of
 * contributors decides the result. In a minimum or maximum, NaN wins.
 *
 * sum, avg, prod, min and max exist for i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64; sum, avg
 * and prod for c64 and c128; band, bor and bxor for the integers. avg combines like sum; after the
 * last contributor, rs_scale divides by their number. bool supports all but avg: nonzero is true,
 * sum and max are "or", prod and min are "and".
 */
#ifndef RS_KERNEL_VALUES_COMBINE_H
#define RS_KERNEL_VALUES_COMBINE_H

#include "base/export.h"
#include "kernel/copy/nest.h"

#include <stdbool.h>
#include <stdint.h>

/* Combines count elements that are contiguous on both sides; the two do not overlap. */
typedef void rs_combine_fn(unsigned char *target, const unsigned char *source, int64_t count);
/* Divides count elements; integers are rounded towards zero. */
typedef void rs_scale_fn(unsigned char *target, int64_t count, int32_t divisor);

bool rs_combine_supports(reshard_reduction reduction, reshard_dtype dtype);
/* For supported pairs only. */
void rs_combine(reshard_reduction reduction, reshard_dtype dtype, void *target, const void *source,
                int64_t count);
/* For types that support avg; divisor >= 1. */
void rs_scale(reshard_dtype dtype, void *target, int64_t count, int32_t divisor);

/* The strided form, prepared once and run often. */
typedef struct rs_combining {
    rs_nest nest; /* the loops around the line */
    rs_loop line;
    int32_t element_bytes;
    rs_combine_fn *combine; /* NULL if this one scales */
    rs_scale_fn *scale;
    int32_t divisor;
} rs_combining;

RS_EXPORT void rs_combine_prepare(rs_combining *combining, reshard_reduction reduction,
                                  reshard_dtype dtype, int32_t ndim, const int64_t *size,
                                  const int64_t *source_strides, const int64_t *target_strides);
/* Prepares a division: rs_combine_run then divides the target and ignores the source. */
void rs_scale_prepare(rs_combining *combining, reshard_dtype dtype, int32_t divisor, int32_t ndim,
                      const int64_t *size, const int64_t *target_strides);
RS_EXPORT void rs_combine_run(const rs_combining *combining, const void *source, void *target);
int64_t rs_combine_outer_count(const rs_combining *combining);
void rs_combine_run_part(const rs_combining *combining, const void *source, void *target,
                         int64_t first, int64_t count);

/* The kernels, or NULL if there is none. */
rs_combine_fn *rs_combine_find(reshard_reduction reduction, reshard_dtype dtype);
rs_scale_fn *rs_scale_find(reshard_dtype dtype);

#endif
