/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flat.h - describes a range of a block's row-major order as boxes. In a block of n dims that takes
 * at most 2n-1 boxes: a ragged head, whole slices in the middle, and a ragged tail, where head and
 * tail go one dim deeper at each step.
 */
#ifndef RS_LAYOUT_FLAT_H
#define RS_LAYOUT_FLAT_H

#include <reshard/spec.h>

typedef struct rs_flat_block {
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
} rs_flat_block;

typedef struct rs_flat_box {
    int64_t start[RESHARD_NDIM_MAX];
    int64_t size[RESHARD_NDIM_MAX];
} rs_flat_box;

typedef struct rs_flat_boxes {
    int32_t count;
    rs_flat_box items[2 * RESHARD_NDIM_MAX];
} rs_flat_boxes;

/* The elements from .. to-1 of the row-major order, as boxes in that order. */
void rs_flat_split(const rs_flat_block *block, int64_t from, int64_t to, rs_flat_boxes *out_boxes);

/* The first place at or after `from`, in row-major order, that lies in the box [start, start+size),
 * or -1 if there is none. */
int64_t rs_flat_next(const rs_flat_block *block, const int64_t *start, const int64_t *size,
                     int64_t from);

#endif
