/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shape.h - arithmetic on shapes: volumes, strides, boxes, and tiles that fit a buffer. A box is an
 * offset and a size in each dimension; strides count elements, and everything is row-major. Code
 * that multiplies its way through a shape calls this instead.
 */
#ifndef RS_BASE_SHAPE_H
#define RS_BASE_SHAPE_H

#include <reshard/spec.h>

#include "base/export.h"

#include <stdbool.h>

/* Passes a shape of 0 to RESHARD_NDIM_MAX dimensions, none negative, whose product fits int64_t
 * with every 0 counted as 1. So the volume fits, and so do all strides, even of a tensor without
 * elements. Errors: INVALID, RANGE. */
RS_EXPORT reshard_status rs_shape_check(int32_t ndim, const int64_t *shape);
/* That product alone, for any ndim and without an error text; false too for a negative size. */
bool rs_shape_fits(int32_t ndim, const int64_t *shape);
/* The product of a shape that has been checked, or of any size within one. */
RS_EXPORT int64_t rs_volume(int32_t ndim, const int64_t *shape);

/* The strides of dense memory of that shape; sizes of 0 count as 1. */
RS_EXPORT void rs_dense_strides(int32_t ndim, const int64_t *shape, int64_t *out_strides);
/* Whether the elements of a box with these strides follow each other in memory. The stride of a
 * dimension of size 1 does not matter. */
RS_EXPORT bool rs_strides_are_dense(int32_t ndim, const int64_t *size, const int64_t *strides);

/* Cuts a box to what it shares with another; false when that is nothing, and the box is then
 * undefined. */
bool rs_box_clip(int32_t ndim, int64_t *offset, int64_t *size, const int64_t *other_offset,
                 const int64_t *other_size);

/*
 * A box cut into tiles that fit a buffer. A tile is whole in the inner dimensions, has some rows of
 * one dimension, and one index of each dimension before that. So the tiles, in their order, are the
 * box in row-major order, and each is one run of dense memory. Any tile can be found by its index
 * alone, so threads and ranks can share them out without talking.
 */
typedef struct rs_tiles {
    int32_t ndim;
    int32_t dim;         /* the one that is cut; -1: there is one tile, the whole box */
    const int64_t *size; /* of the box; not owned */
    int64_t rows;        /* of that dimension in a tile; the last tile may have fewer */
    int64_t count;       /* 0 for a box without elements */
} rs_tiles;

/* Tiles of at most elements_max (at least 1) elements. The array `size` must outlive the tiles. */
rs_tiles rs_tiles_cut(int32_t ndim, const int64_t *size, int64_t elements_max);
/* The box of one tile; its offset counts from the beginning of the whole box. */
void rs_tiles_at(const rs_tiles *tiles, int64_t index, int64_t out_offset[RESHARD_NDIM_MAX],
                 int64_t out_size[RESHARD_NDIM_MAX]);

#endif
