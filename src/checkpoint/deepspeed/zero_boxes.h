/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_boxes.h - the boxes of one tensor that ranks hold as ranges of its row-major order. They are
 * found once, and serve the weights and all states, whose ranges are the same.
 */
#ifndef RS_CHECKPOINT_DEEPSPEED_ZERO_BOXES_H
#define RS_CHECKPOINT_DEEPSPEED_ZERO_BOXES_H

#include "checkpoint/deepspeed/zero.h"

typedef struct rs_zero_box {
    int32_t rank;
    int64_t at;             /* where it begins in the rank's flat array */
    const int64_t *numbers; /* its offset in the tensor, then its size */
} rs_zero_box;

typedef struct rs_zero_boxes {
    rs_arena *arena; /* where numbers and pieces go */
    int32_t ndim;
    const int64_t *shape;
    int64_t next; /* the first element of the tensor that no range has held yet */
    int64_t count, capacity;
    rs_zero_box *items;
} rs_zero_boxes;

/* Begins another tensor; the list keeps its memory. */
void rs_zero_boxes_begin(rs_zero_boxes *boxes, int32_t ndim, const int64_t *shape);
/* The next `count` elements of the tensor lie in a rank's flat array, from `at` on. */
reshard_status rs_zero_boxes_add(rs_zero_boxes *boxes, int32_t rank, int64_t at, int64_t count);
/* Describes the tensor and gives it its pieces. The flat array of rank i is flats[i * stride].
 * Errors: UNSUPPORTED if it would have to be cut but cannot be. */
reshard_status rs_zero_boxes_tensor(const rs_zero_boxes *boxes, rs_slice name, reshard_dtype dtype,
                                    const rs_zero_flat *flats, int32_t stride,
                                    rs_stored_tensor *out_tensor);
void rs_zero_boxes_release(rs_zero_boxes *boxes);

#endif
