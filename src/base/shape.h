/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape.h - arithmetic on shapes: volumes, strides, boxes, and tiles that fit a buffer. A box is an
 * offset and a size in each dimension. Strides count elements, and everything is row-major. Other
 * code calls these functions instead of multiplying its way through a shape.
 */
#ifndef RS_BASE_SHAPE_H
#define RS_BASE_SHAPE_H

#include <reshard/base.h>

#include "base/export.h"

#include <stdbool.h>

/* Accepts a shape of 0 to RESHARD_NDIM_MAX dimensions, none of them negative, whose product fits
 * int64_t when every 0 is counted as 1. So the volume fits and all strides do, even if the tensor
 * has no elements. Errors: INVALID, RANGE. */
RS_EXPORT reshard_status rs_shape_check(int32_t ndim, const int64_t *shape);
/* Checks only for negative sizes and that the product fits; for any ndim, and without setting an
 * error text. */
bool rs_shape_fits(int32_t ndim, const int64_t *shape);
/* The product of a checked shape, or of any box size that fits inside one. */
RS_EXPORT int64_t rs_volume(int32_t ndim, const int64_t *shape);

/* The strides of dense memory of this shape; sizes of 0 count as 1. */
RS_EXPORT void rs_dense_strides(int32_t ndim, const int64_t *shape, int64_t *out_strides);
/* Whether a box with these strides is contiguous in memory. The stride of a dimension of size 1
 * does not matter. */
RS_EXPORT bool rs_strides_are_dense(int32_t ndim, const int64_t *size, const int64_t *strides);

/* Reduces a box to its intersection with another. Returns false if they do not meet; the box is
 * then undefined. */
bool rs_box_clip(int32_t ndim, int64_t *offset, int64_t *size, const int64_t *other_offset,
                 const int64_t *other_size);

/*
 * A box cut into tiles that fit a buffer. A tile is whole in the inner dimensions, has some rows of
 * one dimension, and has a single index of each outer dimension. So the tiles in order cover the
 * box in row-major order, and each tile is one contiguous run if the box is dense. A tile can be
 * computed from its index alone, so threads and ranks can divide the tiles among themselves without
 * talking.
 */
typedef struct rs_tiles {
    int32_t ndim;
    int32_t dim;         /* the dimension that is cut, or -1 if one tile is the whole box */
    const int64_t *size; /* the size of the box; not owned */
    int64_t rows;        /* rows of that dimension in a tile; the last tile may have fewer */
    int64_t count;       /* 0 for a box without elements */
} rs_tiles;

/* Cuts a box into tiles of at most elements_max (at least 1) elements. The array `size` must
 * outlive the tiles. */
rs_tiles rs_tiles_cut(int32_t ndim, const int64_t *size, int64_t elements_max);
/* The box of one tile; its offset is relative to the whole box. */
void rs_tiles_at(const rs_tiles *tiles, int64_t index, int64_t out_offset[RESHARD_NDIM_MAX],
                 int64_t out_size[RESHARD_NDIM_MAX]);

#endif
