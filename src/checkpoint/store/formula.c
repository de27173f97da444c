/* SPDX-License-Identifier: Apache-2.0 */
/*
 * formula.c - computes a box in tiles, so that codes, scales and intermediate values fit into the
 * scratch memory, however small that is.
 */
#include "checkpoint/store/formula.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "kernel/values/infinite.h"
#include "kernel/values/scaling.h"

#include <assert.h>
#include <string.h>

/* Scratch bytes for each element of a tile: its code, its scale as stored and as f32 (there are
 * never more scales than elements), and the rest for reading. */
#define SCALED_BYTES 16
/* Scratch bytes for each group of a tile: codes, scale, 32 values of four bytes, and some for
 * reading. */
#define MXFP4_BYTES 192

static const int64_t *strides_of(int32_t ndim, const int64_t *size,
                                 int64_t strides[RESHARD_NDIM_MAX])
{
    rs_dense_strides(ndim, size, strides);
    return strides;
}

/* ---- scaled ---------------------------------------------------------------------------------- */

/* A tile, with its codes and scales. */
typedef struct scaled_tile {
    int64_t offset[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX]; /* of the tile in the tensor */
    int64_t scale_offset[RESHARD_NDIM_MAX], scale_size[RESHARD_NDIM_MAX];
    char *codes, *raw, *rest;
    float *scales;
    size_t rest_bytes;
} scaled_tile;

static void place_scales(const rs_formula *formula, scaled_tile *tile)
{
    for (int32_t d = 0; d < formula->scales->carried_ndim; d++) {
        int64_t block = formula->blocks[d], last = tile->offset[d] + tile->size[d] - 1;
        tile->scale_offset[d] = tile->offset[d] / block;
        tile->scale_size[d] = last / block - tile->scale_offset[d] + 1;
    }
}

static void widen_scales(reshard_dtype dtype, const char *raw, int64_t count, float *out_scales)
{
    if (dtype != RESHARD_F8_E8M0) {
        rs_cast cast;
        const int64_t stride = 1;
        rs_cast_prepare(&cast, dtype, RESHARD_F32, 1, &count, &stride, &stride);
        rs_cast_run(&cast, raw, out_scales);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        out_scales[i] = rs_f8_e8m0_to_f32((uint8_t)raw[i]);
}

static reshard_status read_scaled(const rs_formula *formula, scaled_tile *tile,
                                  rs_formula_tally *tally)
{
    const rs_stored_tensor *codes = formula->codes, *scales = formula->scales;
    int64_t count = rs_volume(scales->carried_ndim, tile->scale_size);
    reshard_status status = rs_store_read_box(formula->checkpoint, codes, tile->offset, tile->size,
                                              tile->codes, tile->rest, tile->rest_bytes);
    if (status == RESHARD_OK)
        status = rs_store_read_box(formula->checkpoint, scales, tile->scale_offset,
                                   tile->scale_size, tile->raw, tile->rest, tile->rest_bytes);
    if (status != RESHARD_OK)
        return status;
    widen_scales(scales->dtype, tile->raw, count, tile->scales);
    tally->bytes_read +=
        (uint64_t)(rs_volume(codes->carried_ndim, tile->size) + count * scales->element_bytes);
    return RESHARD_OK;
}

/* Finds the scales of the row at these indices of the tile. */
static rs_scale_row find_row(const rs_formula *formula, const scaled_tile *tile,
                             const int64_t *index)
{
    int32_t last = formula->codes->carried_ndim - 1, ndim = formula->scales->carried_ndim;
    int64_t strides[RESHARD_NDIM_MAX], at = 0;
    rs_dense_strides(ndim, tile->scale_size, strides);
    for (int32_t d = 0; d < ndim && d < last; d++)
        at += ((tile->offset[d] + index[d]) / formula->blocks[d] - tile->scale_offset[d]) *
              strides[d];
    bool is_cut = last >= 0 && last < ndim;
    int64_t block = is_cut ? formula->blocks[last] : INT64_MAX;
    return (rs_scale_row){.scales = tile->scales + at,
                          .first = is_cut ? tile->offset[last] % block : 0,
                          .block = block,
                          .step = 1};
}

/* Computes a tile. Tiles are runs of the dense box, so the rows of a tile follow each other in
 * memory. */
static void make_tile(const rs_stored_tensor *tensor, const scaled_tile *tile, char *memory,
                      rs_formula_tally *tally)
{
    const rs_formula *formula = tensor->formula;
    int32_t outer = tensor->carried_ndim > 0 ? tensor->carried_ndim - 1 : 0;
    int64_t length = tensor->carried_ndim > 0 ? tile->size[outer] : 1;
    int64_t index[RESHARD_NDIM_MAX] = {0}, rows = rs_volume(outer, tile->size);
    rs_scaling scaling;
    rs_scaling_prepare(&scaling, formula->codes->dtype, tensor->dtype);
    for (int64_t i = 0; i < rows; i++) {
        rs_scale_row row = find_row(formula, tile, index);
        rs_scaling_run(&scaling, &row, tile->codes + i * length, length,
                       memory + i * length * tensor->element_bytes);
        for (int32_t d = outer - 1; d >= 0 && ++index[d] == tile->size[d]; d--)
            index[d] = 0;
    }
    int64_t lost = rs_count_infinite(tensor->dtype, memory, rows * length);
    if (lost != 0)
        tally->overflows +=
            lost - rs_count_infinite(formula->codes->dtype, tile->codes, rows * length);
}

static reshard_status read_box_scaled(const rs_stored_tensor *tensor, const int64_t *offset,
                                      const int64_t *size, char *memory, char *scratch,
                                      size_t scratch_bytes, rs_formula_tally *tally)
{
    int32_t ndim = tensor->carried_ndim;
    int64_t most = (int64_t)(scratch_bytes / SCALED_BYTES / 64 * 64);
    rs_tiles tiles = rs_tiles_cut(ndim, size, most);
    reshard_status status = RESHARD_OK;
    scaled_tile tile = {.codes = scratch,
                        .raw = scratch + most,
                        .scales = (float *)(void *)(scratch + 5 * most),
                        .rest = scratch + 9 * most,
                        .rest_bytes = scratch_bytes - 9 * (size_t)most};
    for (int64_t i = 0; status == RESHARD_OK && i < tiles.count; i++) {
        rs_tiles_at(&tiles, i, tile.offset, tile.size);
        for (int32_t d = 0; d < ndim; d++)
            tile.offset[d] += offset[d];
        place_scales(tensor->formula, &tile);
        status = read_scaled(tensor->formula, &tile, tally);
        if (status != RESHARD_OK)
            break;
        make_tile(tensor, &tile, memory, tally);
        memory += rs_volume(ndim, tile.size) * tensor->element_bytes;
    }
    return status;
}

/* ---- mxfp4 ----------------------------------------------------------------------------------- */

/* Copies decoded groups, [expert, row, value], to their places in the box, [expert, value, row].
 * from, groups: offset and size of the box of groups that was decoded. */
static void transpose_groups(const rs_stored_tensor *tensor, const int64_t *offset,
                             const int64_t *size, const int64_t *from, const int64_t *groups,
                             const char *values, char *memory)
{
    int64_t strides[RESHARD_NDIM_MAX], width = groups[2] * RS_MXFP4_GROUP;
    int64_t begin = rs_max(offset[1], from[2] * RS_MXFP4_GROUP);
    int64_t end = rs_min(offset[1] + size[1], from[2] * RS_MXFP4_GROUP + width);
    const int64_t part[3] = {groups[0], end - begin, groups[1]};
    const int64_t value_strides[3] = {groups[1] * width, 1, width};
    const int64_t *to = strides_of(3, size, strides);
    int64_t at = (from[0] - offset[0]) * to[0] + (begin - offset[1]) * to[1] + from[1] - offset[2];
    rs_copy copy;
    rs_copy_prepare(&copy, tensor->element_bytes, 3, part, value_strides, to);
    rs_copy_run(&copy, values + (begin - from[2] * RS_MXFP4_GROUP) * tensor->element_bytes,
                memory + at * tensor->element_bytes);
}

static reshard_status read_box_mxfp4(const rs_stored_tensor *tensor, const int64_t *offset,
                                     const int64_t *size, char *memory, char *scratch,
                                     size_t scratch_bytes, rs_formula_tally *tally)
{
    const rs_formula *formula = tensor->formula;
    int64_t most = (int64_t)(scratch_bytes / MXFP4_BYTES / 64 * 64);
    int64_t first = offset[1] / RS_MXFP4_GROUP, last = (offset[1] + size[1] - 1) / RS_MXFP4_GROUP;
    const int64_t all[3] = {size[0], size[2], last - first + 1};
    char *scales = scratch + most * RS_MXFP4_CODES, *values = scales + most;
    char *rest = values + most * RS_MXFP4_GROUP * (int64_t)sizeof(uint32_t);
    size_t rest_bytes = (size_t)(scratch + scratch_bytes - rest);
    reshard_status status = RESHARD_OK;
    rs_tiles tiles = rs_tiles_cut(3, all, most);
    for (int64_t i = 0; i < tiles.count; i++) {
        int64_t from[RESHARD_NDIM_MAX] = {0}, groups[RESHARD_NDIM_MAX] = {0};
        rs_tiles_at(&tiles, i, from, groups);
        from[0] += offset[0];
        from[1] += offset[2];
        from[2] += first;
        from[3] = 0;
        groups[3] = RS_MXFP4_CODES;
        status = rs_store_read_box(formula->checkpoint, formula->codes, from, groups, scratch, rest,
                                   rest_bytes);
        if (status == RESHARD_OK)
            status = rs_store_read_box(formula->checkpoint, formula->scales, from, groups, scales,
                                       rest, rest_bytes);
        if (status != RESHARD_OK)
            return status;
        int64_t count = rs_volume(3, groups);
        rs_mxfp4_run(formula->table, tensor->element_bytes, (const uint8_t *)scratch,
                     (const uint8_t *)scales, count, values);
        tally->bytes_read += (uint64_t)count * (RS_MXFP4_CODES + 1);
        transpose_groups(tensor, offset, size, from, groups, values, memory);
    }
    /* All codes are finite, so every infinite value is an overflow. */
    tally->overflows += rs_count_infinite(tensor->dtype, memory, rs_volume(3, size));
    return RESHARD_OK;
}

/* ---- links ----------------------------------------------------------------------------------- */

/* Adds to `count` elements that begin at `source`, and writes them to `memory` as elements of the
 * tensor. The two overlap, but where an element is written none is left to be read. */
static void add_to_box(const rs_stored_tensor *tensor, const char *source, int64_t count,
                       char *memory)
{
    enum { CHUNK = 512 };
    const rs_stored_tensor *read = tensor->formula->links[0].source;
    const int64_t one = 1;
    for (int64_t done = 0; done < count; done += CHUNK) {
        double values[CHUNK];
        rs_cast cast;
        int64_t part = rs_min(count - done, CHUNK);
        rs_cast_prepare(&cast, read->dtype, RESHARD_F64, 1, &part, &one, &one);
        rs_cast_run(&cast, source + done * read->element_bytes, values);
        for (int64_t i = 0; i < part; i++)
            values[i] += tensor->formula->added;
        rs_cast_prepare(&cast, RESHARD_F64, tensor->dtype, 1, &part, &one, &one);
        rs_cast_run(&cast, values, memory + done * tensor->element_bytes);
    }
}

/* Elements that are narrower than the tensor's are read to the end of the memory. */
static reshard_status read_box_linked(const rs_stored_tensor *tensor, const int64_t *offset,
                                      const int64_t *size, char *memory, char *scratch,
                                      size_t scratch_bytes, rs_formula_tally *tally)
{
    const rs_stored_tensor *read = tensor->formula->links[0].source;
    int64_t count = rs_volume(tensor->carried_ndim, size);
    char *source = memory + count * (tensor->element_bytes - read->element_bytes);
    assert(tensor->element_bytes >= read->element_bytes);
    if (read->formula == NULL)
        tally->bytes_read += (uint64_t)(count * read->element_bytes);
    reshard_status status =
        rs_formula_read_links(tensor, offset, size, source, scratch, scratch_bytes, tally);
    if (status == RESHARD_OK && tensor->formula->added != 0)
        add_to_box(tensor, source, count, memory);
    return status;
}

/* ---- constants ------------------------------------------------------------------------------- */

static void fill_box(const rs_stored_tensor *tensor, const int64_t *size, char *memory)
{
    size_t each = (size_t)tensor->element_bytes;
    size_t bytes = (size_t)rs_volume(tensor->carried_ndim, size) * each;
    if (bytes == 0)
        return;
    memcpy(memory, tensor->formula->constant, each);
    /* Each step doubles what is filled. */
    for (size_t done = each; done < bytes;) {
        size_t part = done <= bytes - done ? done : bytes - done;
        memcpy(memory + done, memory, part);
        done += part;
    }
}

/* Copies a box of a tensor that is held in memory. */
static void copy_box(const rs_stored_tensor *tensor, const int64_t *offset, const int64_t *size,
                     char *memory)
{
    int64_t from[RESHARD_NDIM_MAX], to[RESHARD_NDIM_MAX], at = 0;
    int32_t ndim = tensor->carried_ndim;
    rs_copy copy;
    rs_dense_strides(ndim, tensor->carried_shape, from);
    rs_dense_strides(ndim, size, to);
    for (int32_t d = 0; d < ndim; d++)
        at += offset[d] * from[d];
    rs_copy_prepare(&copy, tensor->element_bytes, ndim, size, from, to);
    rs_copy_run(&copy, (const char *)tensor->formula->held + at * tensor->element_bytes, memory);
}

/* ---- casts ----------------------------------------------------------------------------------- */

/* Half of a level's scratch holds what is cast; the rest is for reading it. */
static reshard_status read_box_cast(const rs_stored_tensor *tensor, const int64_t *offset,
                                    const int64_t *size, char *memory, char *scratch,
                                    size_t scratch_bytes, rs_formula_tally *tally)
{
    const rs_formula *formula = tensor->formula;
    const rs_stored_tensor *from = formula->cast_from;
    const size_t part = RS_FORMULA_SCRATCH_MIN / 2;
    const int64_t one = 1;
    int32_t ndim = tensor->carried_ndim;
    reshard_status status = RESHARD_OK;
    rs_tiles tiles = rs_tiles_cut(ndim, size, (int64_t)part / from->element_bytes);
    for (int64_t i = 0; status == RESHARD_OK && i < tiles.count; i++) {
        int64_t at[RESHARD_NDIM_MAX] = {0}, extent[RESHARD_NDIM_MAX] = {0};
        rs_tiles_at(&tiles, i, at, extent);
        for (int32_t d = 0; d < ndim; d++)
            at[d] += offset[d];
        int64_t count = rs_volume(ndim, extent);
        if (from->formula == NULL)
            tally->bytes_read += (uint64_t)(count * from->element_bytes);
        status = from->formula != NULL
                     ? rs_formula_read(from, at, extent, scratch, scratch + part,
                                       scratch_bytes - part, tally)
                     : rs_store_read_box(formula->checkpoint, from, at, extent, scratch,
                                         scratch + part, scratch_bytes - part);
        if (status != RESHARD_OK)
            break;
        rs_cast cast;
        rs_cast_prepare(&cast, from->dtype, tensor->dtype, 1, &count, &one, &one);
        cast.overflows = &tally->overflows;
        rs_cast_run(&cast, scratch, memory);
        memory += count * tensor->element_bytes;
    }
    return status;
}

/* ---- all kinds ------------------------------------------------------------------------------- */

static size_t count_scratch(const rs_stored_tensor *tensor)
{
    const rs_formula *formula = tensor->formula;
    size_t bytes = RS_FORMULA_SCRATCH_MIN;
    if (formula == NULL)
        return bytes;
    if (formula->cast_from != NULL)
        return bytes + count_scratch(formula->cast_from);
    if (formula->values != NULL) /* half of it is for what is encoded */
        return 2 * count_scratch(formula->values);
    for (int64_t i = 0; i < formula->link_count; i++) {
        if (formula->links[i].source->formula != NULL)
            return 2 * bytes;
    }
    return bytes;
}

static reshard_status read_box(const rs_stored_tensor *tensor, const int64_t *offset,
                               const int64_t *size, void *memory, char *scratch,
                               size_t scratch_bytes, rs_formula_tally *tally)
{
    if (tensor->formula->values != NULL)
        return rs_formula_encode(tensor, offset, size, memory, scratch, scratch_bytes, tally);
    if (tensor->formula->cast_from != NULL)
        return read_box_cast(tensor, offset, size, memory, scratch, scratch_bytes, tally);
    if (tensor->formula->links != NULL)
        return read_box_linked(tensor, offset, size, memory, scratch, scratch_bytes, tally);
    return tensor->formula->is_mxfp4
               ? read_box_mxfp4(tensor, offset, size, memory, scratch, scratch_bytes, tally)
               : read_box_scaled(tensor, offset, size, memory, scratch, scratch_bytes, tally);
}

reshard_status rs_formula_read(const rs_stored_tensor *tensor, const int64_t *offset,
                               const int64_t *size, void *memory, char *scratch,
                               size_t scratch_bytes, rs_formula_tally *tally)
{
    assert(tensor->formula != NULL);
    if (tensor->formula->constant != NULL) {
        fill_box(tensor, size, memory);
        return RESHARD_OK;
    }
    if (tensor->formula->held != NULL) {
        copy_box(tensor, offset, size, memory);
        return RESHARD_OK;
    }
    reshard_context *context = tensor->formula->checkpoint->context;
    size_t needed = count_scratch(tensor);
    if (scratch_bytes >= needed)
        return read_box(tensor, offset, size, memory, scratch, scratch_bytes, tally);
    char *own = rs_allocate(context, needed);
    if (own == NULL)
        return rs_allocation_status();
    reshard_status status = read_box(tensor, offset, size, memory, own, needed, tally);
    rs_release(context, own);
    return status;
}
