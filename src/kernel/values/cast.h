/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast.h - strided n-d copies that convert between f16, bf16, f32, f64, f8_e4m3 and f8_e5m2. The
 * rules for copies (copy.h) also hold for casts; float.h defines the conversion of a value.
 */
#ifndef RS_KERNEL_VALUES_CAST_H
#define RS_KERNEL_VALUES_CAST_H

#include "base/export.h"
#include "kernel/copy/copy.h"

/* Converts count elements that are contiguous on both sides. */
typedef void rs_cast_run_fn(const unsigned char *source, unsigned char *target, int64_t count);

typedef struct rs_cast {
    rs_nest nest; /* the loops around the line */
    rs_loop line;
    int32_t source_bytes, target_bytes; /* bytes of an element */
    /* convert to f32 and from it; if write is NULL, read does everything */
    rs_cast_run_fn *read, *write;
    reshard_dtype source, target;
    /* If not NULL, incremented for each value that is finite before the cast and not after it. Set
     * by the caller after prepare. */
    int64_t *overflows;
} rs_cast;

/* Whether elements of one type can be cast to the other. Also true for a type and itself. */
bool rs_cast_supports(reshard_dtype source, reshard_dtype target);

/* For supported pairs only. Strides are in elements of their own side. */
RS_EXPORT void rs_cast_prepare(rs_cast *cast, reshard_dtype source, reshard_dtype target,
                               int32_t ndim, const int64_t *size, const int64_t *source_strides,
                               const int64_t *target_strides);
void rs_cast_prepare_for(rs_cast *cast, rs_cpu cpu, reshard_dtype source, reshard_dtype target,
                         int32_t ndim, const int64_t *size, const int64_t *source_strides,
                         const int64_t *target_strides);
RS_EXPORT void rs_cast_run(const rs_cast *cast, const void *source, void *target);
/* As for copies, but no fence is needed. */
int64_t rs_cast_outer_count(const rs_cast *cast);
void rs_cast_run_part(const rs_cast *cast, const void *source, void *target, int64_t first,
                      int64_t count);

/* Casts one element in the obvious way; tests compare with it. */
void rs_cast_reference(reshard_dtype source_dtype, reshard_dtype target_dtype, const void *source,
                       void *target);

#endif
