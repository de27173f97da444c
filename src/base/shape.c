/* SPDX-License-Identifier: Apache-2.0 */
#include "base/shape.h"

#include "base/checked.h"
#include "base/error.h"

#include <assert.h>
#include <inttypes.h>

bool rs_shape_fits(int32_t ndim, const int64_t *shape)
{
    int64_t product = 1;
    for (int32_t d = 0; d < ndim; d++) {
        if (shape[d] < 0 || !rs_multiply(product, rs_max(shape[d], 1), &product))
            return false;
    }
    return true;
}

reshard_status rs_shape_check(int32_t ndim, const int64_t *shape)
{
    if (ndim < 0 || ndim > RESHARD_NDIM_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "%" PRId32 " dimensions are not between 0 and %d", ndim,
                       RESHARD_NDIM_MAX);
    if (ndim > 0 && shape == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the shape is NULL");
    for (int32_t d = 0; d < ndim; d++) {
        if (shape[d] < 0)
            return rs_fail(RESHARD_ERR_RANGE,
                           "dimension %" PRId32 " has the negative length %" PRId64, d, shape[d]);
    }
    if (!rs_shape_fits(ndim, shape))
        return rs_fail(RESHARD_ERR_RANGE, "the shape has more than 2^63-1 elements");
    return RESHARD_OK;
}

int64_t rs_volume(int32_t ndim, const int64_t *shape)
{
    int64_t volume = 1;
    for (int32_t d = 0; d < ndim; d++)
        volume *= shape[d];
    return volume;
}

void rs_dense_strides(int32_t ndim, const int64_t *shape, int64_t *out_strides)
{
    int64_t stride = 1;
    for (int32_t d = ndim - 1; d >= 0; d--) {
        out_strides[d] = stride;
        stride *= rs_max(shape[d], 1);
    }
}

bool rs_strides_are_dense(int32_t ndim, const int64_t *size, const int64_t *strides)
{
    int64_t stride = 1;
    for (int32_t d = ndim - 1; d >= 0; d--) {
        if (size[d] != 1 && strides[d] != stride)
            return false;
        stride *= size[d];
    }
    return true;
}

bool rs_box_clip(int32_t ndim, int64_t *offset, int64_t *size, const int64_t *other_offset,
                 const int64_t *other_size)
{
    assert(ndim >= 0);
    for (int32_t d = 0; d < ndim; d++) {
        int64_t low = rs_max(offset[d], other_offset[d]);
        int64_t high = rs_min(offset[d] + size[d], other_offset[d] + other_size[d]);
        if (low >= high)
            return false;
        offset[d] = low;
        size[d] = high - low;
    }
    return true;
}

rs_tiles rs_tiles_cut(int32_t ndim, const int64_t *size, int64_t elements_max)
{
    assert(ndim >= 0 && ndim <= RESHARD_NDIM_MAX && elements_max >= 1);
    rs_tiles tiles = {.ndim = ndim, .dim = ndim - 1, .size = size};
    if (rs_volume(ndim, size) == 0)
        return tiles;
    int64_t inner = 1; /* elements of the dims that a tile has whole */
    while (tiles.dim >= 0 && size[tiles.dim] <= elements_max / inner)
        inner *= size[tiles.dim--];
    tiles.count = 1;
    if (tiles.dim >= 0) {
        tiles.rows = elements_max / inner;
        tiles.count = rs_volume(tiles.dim, size) * rs_divide_up(size[tiles.dim], tiles.rows);
    }
    return tiles;
}

void rs_tiles_at(const rs_tiles *tiles, int64_t index, int64_t out_offset[RESHARD_NDIM_MAX],
                 int64_t out_size[RESHARD_NDIM_MAX])
{
    assert(index >= 0 && index < tiles->count);
    for (int32_t d = tiles->ndim - 1; d >= 0; d--) {
        int64_t extent = tiles->size[d];
        int64_t rows = d > tiles->dim ? extent : d == tiles->dim ? tiles->rows : 1;
        int64_t steps = rs_divide_up(extent, rows);
        out_offset[d] = index % steps * rows;
        out_size[d] = rs_min(rows, extent - out_offset[d]);
        index /= steps;
    }
    assert(index == 0);
}
