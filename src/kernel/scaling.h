/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scaling.h - codes times their scales, as the reference kernels have it: the product is an f32,
 * which is rounded once to the type that is wanted.
 */
#ifndef RS_KERNEL_SCALING_H
#define RS_KERNEL_SCALING_H

#include "kernel/cast.h"

/* ---- fp8 ------------------------------------------------------------------------------------- */

typedef struct rs_scaling {
    rs_cast_run_fn *read, *write;
    int32_t target_bytes;
} rs_scaling;

/* codes: f8_e4m3 or f8_e5m2. target: any type that casts know. */
void rs_scaling_prepare(rs_scaling *scaling, reshard_dtype codes, reshard_dtype target);

/* Which scale the elements of a row have: that at (first + i) / block * step. */
typedef struct rs_scale_row {
    const float *scales;
    int64_t first, block, step;
} rs_scale_row;

void rs_scaling_run(const rs_scaling *scaling, const rs_scale_row *row, const void *codes,
                    int64_t count, void *target);

/* The f32 that a scale of type e8m0 is: 2^(code - 127), and NaN for 255. */
float rs_f8_e8m0_to_f32(uint8_t code);

/* ---- mxfp4 ----------------------------------------------------------------------------------- */

#define RS_MXFP4_CODES 16 /* bytes of a group */
#define RS_MXFP4_GROUP 32 /* values in them: the lower four bits of a byte come first */
#define RS_MXFP4_TABLE (256 * 16)

/* All values that there are: scale * 16 + code, RS_MXFP4_TABLE of them, in the target's dtype. The
 * scale 255 is infinite there, as in the reference, which computes 2^(255 - 127) in f32. */
void rs_mxfp4_table(reshard_dtype target, void *out_table);
/* Decodes groups that follow each other, each with its scale. */
void rs_mxfp4_run(const void *table, int32_t target_bytes, const uint8_t *codes,
                  const uint8_t *scales, int64_t group_count, void *target);

#endif
