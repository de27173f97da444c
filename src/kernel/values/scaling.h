/* SPDX-License-Identifier: Apache-2.0 */
/*
 * scaling.h - multiplies codes by their scales like the reference kernels: the product is an f32,
 * which is rounded once to the target's type.
 */
#ifndef RS_KERNEL_VALUES_SCALING_H
#define RS_KERNEL_VALUES_SCALING_H

#include "kernel/values/cast.h"

/* ---- fp8 ------------------------------------------------------------------------------------- */

typedef struct rs_scaling {
    rs_cast_run_fn *read, *write;
    int32_t target_bytes;
} rs_scaling;

/* codes is f8_e4m3 or f8_e5m2; target is any type that casts support. */
void rs_scaling_prepare(rs_scaling *scaling, reshard_dtype codes, reshard_dtype target);

/* The scales of a row: element i has scales[(first + i) / block * step]. */
typedef struct rs_scale_row {
    const float *scales;
    int64_t first, block, step;
} rs_scale_row;

void rs_scaling_run(const rs_scaling *scaling, const rs_scale_row *row, const void *codes,
                    int64_t count, void *target);

/* The value of a scale of type e8m0: 2^(code - 127), or NaN for 255. */
float rs_f8_e8m0_to_f32(uint8_t code);

/* ---- mxfp4 ----------------------------------------------------------------------------------- */

#define RS_MXFP4_CODES 16 /* bytes of codes in a group */
#define RS_MXFP4_GROUP 32 /* values in a group: the lower four bits of a byte come first */
#define RS_MXFP4_TABLE (256 * 16)

/* Fills a table of all RS_MXFP4_TABLE values, in the target's dtype: the entry scale * 16 + code.
 * The scale 255 is infinite here, as in the reference, which computes 2^(255 - 127) in f32. */
void rs_mxfp4_table(reshard_dtype target, void *out_table);
/* Decodes contiguous groups, each with its own scale. */
void rs_mxfp4_run(const void *table, int32_t target_bytes, const uint8_t *codes,
                  const uint8_t *scales, int64_t group_count, void *target);

#endif
