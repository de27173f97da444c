/* SPDX-License-Identifier: Apache-2.0 */
/*
 * combine.h - target = target op source, for reductions over contributors. Integers wrap round. f16
 * and bf16 are computed in f32 and rounded after every step, so that the order of contributors
 * alone decides the result. Of minima and maxima NaN wins.
 *
 * sum, avg, prod, min and max exist for i8 u8 i16 u16 i32 u32 i64 u64 f16 bf16 f32 f64; sum, avg
 * and prod for c64; band, bor and bxor for the integers. avg combines as sum; after the last
 * contributor rs_scale divides by their number. bool has all but avg: what is not 0 is true, sum
 * and max are "or", prod and min are "and".
 */
#ifndef RS_KERNEL_COMBINE_H
#define RS_KERNEL_COMBINE_H

#include "kernel/nest.h"

#include <stdbool.h>
#include <stdint.h>

/* count elements that follow each other on both sides; the two do not overlap. */
typedef void rs_combine_fn(unsigned char *target, const unsigned char *source, int64_t count);
/* Divides count elements: integers towards zero. */
typedef void rs_scale_fn(unsigned char *target, int64_t count, int32_t divisor);

bool rs_combine_supports(reshard_reduction reduction, reshard_dtype dtype);
/* For supported pairs. */
void rs_combine(reshard_reduction reduction, reshard_dtype dtype, void *target, const void *source,
                int64_t count);
/* For types that have avg; divisor >= 1. */
void rs_scale(reshard_dtype dtype, void *target, int64_t count, int32_t divisor);

/* Strided: prepared once, run often. */
typedef struct rs_combining {
    rs_nest nest; /* the loops around the line */
    rs_loop line;
    int32_t element_bytes;
    rs_combine_fn *combine; /* NULL: scales */
    rs_scale_fn *scale;
    int32_t divisor;
} rs_combining;

void rs_combine_prepare(rs_combining *combining, reshard_reduction reduction, reshard_dtype dtype,
                        int32_t ndim, const int64_t *size, const int64_t *source_strides,
                        const int64_t *target_strides);
/* rs_combine_run with such a one divides the target, and its source is not looked at. */
void rs_scale_prepare(rs_combining *combining, reshard_dtype dtype, int32_t divisor, int32_t ndim,
                      const int64_t *size, const int64_t *target_strides);
void rs_combine_run(const rs_combining *combining, const void *source, void *target);
int64_t rs_combine_outer_count(const rs_combining *combining);
void rs_combine_run_part(const rs_combining *combining, const void *source, void *target,
                         int64_t first, int64_t count);

/* Kernels; NULL where there is none. */
rs_combine_fn *rs_combine_find(reshard_reduction reduction, reshard_dtype dtype);
rs_scale_fn *rs_scale_find(reshard_dtype dtype);

#endif
