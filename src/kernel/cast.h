/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast.h - strided n-d copies between f16, bf16, f32, f64, f8_e4m3 and f8_e5m2. What is true of
 * copies (copy.h) is true of casts; float.h says what becomes of a value.
 */
#ifndef RS_KERNEL_CAST_H
#define RS_KERNEL_CAST_H

#include "base/export.h"
#include "kernel/copy.h"

/* count elements that follow each other on both sides. */
typedef void rs_cast_run_fn(const unsigned char *source, unsigned char *target, int64_t count);

typedef struct rs_cast {
    rs_nest nest; /* the loops around the line */
    rs_loop line;
    int32_t source_bytes, target_bytes; /* of an element */
    rs_cast_run_fn *read, *write;       /* to f32, and from it; write NULL: read does all */
    reshard_dtype source, target;
    /* Where values that are finite before and not after are counted, as the caller sets it. NULL:
     * nobody asks. */
    int64_t *overflows;
} rs_cast;

/* Can elements of one type be cast to the other? Also true of a type and itself. */
bool rs_cast_supports(reshard_dtype source, reshard_dtype target);

/* For supported pairs. Strides are in elements of their side. */
RS_EXPORT void rs_cast_prepare(rs_cast *cast, reshard_dtype source, reshard_dtype target,
                               int32_t ndim, const int64_t *size, const int64_t *source_strides,
                               const int64_t *target_strides);
void rs_cast_prepare_for(rs_cast *cast, rs_cpu cpu, reshard_dtype source, reshard_dtype target,
                         int32_t ndim, const int64_t *size, const int64_t *source_strides,
                         const int64_t *target_strides);
RS_EXPORT void rs_cast_run(const rs_cast *cast, const void *source, void *target);
/* As for copies, but complete when it returns. */
int64_t rs_cast_outer_count(const rs_cast *cast);
void rs_cast_run_part(const rs_cast *cast, const void *source, void *target, int64_t first,
                      int64_t count);

/* One element, the obvious way. */
void rs_cast_reference(reshard_dtype source_dtype, reshard_dtype target_dtype, const void *source,
                       void *target);

#endif
