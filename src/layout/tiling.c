/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiling.c - checks whether shards tile a tensor. Pieces that do not overlap and together have the
 * tensor's volume leave no gap.
 */
#include "layout/tiling.h"
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/shape.h"
#include "layout/overlap.h"
#include "text/text.h"

#include <assert.h>
#include <inttypes.h>

static int64_t count_pieces(int64_t count, const reshard_shard *shards)
{
    int64_t pieces = 0;
    for (int64_t i = 0; i < count; i++)
        pieces += shards[i].piece_count;
    return pieces;
}

static void fill_boxes(int32_t ndim, int64_t count, const reshard_shard *shards, int64_t *boxes,
                       rs_cell_holder *owners)
{
    int64_t next = 0;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t p = 0; p < shards[i].piece_count; p++, next++) {
            const reshard_box *box = &shards[i].pieces[p].box;
            owners[next] = (rs_cell_holder){i, p};
            for (int32_t d = 0; d < ndim; d++) {
                boxes[next * 2 * ndim + d] = box->offset[d];
                boxes[next * 2 * ndim + ndim + d] = box->offset[d] + box->size[d];
            }
        }
    }
}

reshard_status rs_tiling_find_overlap(reshard_context *context, int32_t ndim, int64_t count,
                                      const reshard_shard *shards, bool *out_found,
                                      rs_cell_holder out_pair[2])
{
    int64_t pieces = count_pieces(count, shards);
    int64_t pair[2] = {0, 0};
    bool found = false;
    rs_arena arena;
    rs_arena_init(&arena, context);
    int64_t *boxes =
        rs_arena_allocate_array(&arena, (size_t)pieces, (size_t)(2 * ndim) * sizeof *boxes);
    rs_cell_holder *owners = rs_arena_allocate_array(&arena, (size_t)pieces, sizeof *owners);
    reshard_status status = boxes == NULL || owners == NULL ? rs_allocation_status() : RESHARD_OK;
    if (status == RESHARD_OK) {
        fill_boxes(ndim, count, shards, boxes, owners);
        status = rs_overlap_find(&arena, ndim, pieces, boxes, &found, pair);
    }
    assert(!found || (pair[0] != pair[1] && pair[0] < pieces && pair[1] < pieces));
    for (int i = 0; i < 2 && found; i++)
        out_pair[i] = owners[pair[i]];
    *out_found = found;
    rs_arena_release(&arena);
    return status;
}

reshard_status rs_tiling_check_overlap(reshard_context *context, int32_t ndim, int64_t count,
                                       const reshard_shard *shards)
{
    bool found = false;
    rs_cell_holder pair[2];
    reshard_status status = rs_tiling_find_overlap(context, ndim, count, shards, &found, pair);
    if (status != RESHARD_OK || !found)
        return status;
    char text[512];
    rs_text words;
    rs_text_init(&words, text, sizeof text);
    for (int i = 0; i < 2; i++) {
        const reshard_shard *shard = &shards[pair[i].shard];
        rs_text_add(&words, "%sshard %" PRId64 " ", i == 0 ? "" : " and ", pair[i].shard);
        const reshard_box *box = &shard->pieces[pair[i].piece].box;
        rs_text_add_box(&words, box->ndim, box->offset, box->size);
        rs_text_add(&words, " of rank %d", shard->rank);
    }
    return rs_fail(RESHARD_ERR_OVERLAP, "%s overlap", text);
}

static reshard_status check_boxes(int64_t index, const reshard_shard *shard, int32_t ndim)
{
    for (int64_t p = 0; p < shard->piece_count; p++) {
        const reshard_box *box = &shard->pieces[p].box;
        int64_t end;
        if (box->ndim != ndim)
            return rs_fail(RESHARD_ERR_INVALID,
                           "shard %" PRId64 " of rank %d has %d dimensions, the tensor has %d",
                           index, shard->rank, box->ndim, ndim);
        for (int32_t d = 0; d < ndim; d++) {
            if (box->offset[d] < 0 || box->size[d] < 0 ||
                !rs_add(box->offset[d], box->size[d], &end))
                return rs_fail(RESHARD_ERR_RANGE,
                               "shard %" PRId64 " of rank %d: dimension %d: %" PRId64
                               " elements from %" PRId64 " on are in no tensor",
                               index, shard->rank, d, box->size[d], box->offset[d]);
        }
    }
    return RESHARD_OK;
}

static reshard_status check_overlap(reshard_context *context, int64_t count,
                                    const reshard_shard *shards)
{
    int64_t first = 0; /* shard with pieces */
    while (first < count && shards[first].piece_count == 0)
        first++;
    if (first == count)
        return RESHARD_OK;
    int32_t ndim = shards[first].pieces[0].box.ndim;
    if (ndim < 0 || ndim > RESHARD_NDIM_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "shard %" PRId64 " of rank %d has %d dimensions, not 0 to %d", first,
                       shards[first].rank, ndim, RESHARD_NDIM_MAX);
    for (int64_t i = first; i < count; i++) {
        reshard_status status = check_boxes(i, &shards[i], ndim);
        if (status != RESHARD_OK)
            return status;
    }
    return rs_tiling_check_overlap(context, ndim, count, shards);
}

int64_t rs_tiling_volume(int32_t ndim, int64_t count, const reshard_shard *shards)
{
    int64_t volume = 0;
    for (int64_t i = 0; i < count; i++) {
        for (int64_t p = 0; p < shards[i].piece_count; p++)
            volume += rs_volume(ndim, shards[i].pieces[p].box.size);
    }
    return volume;
}

reshard_status reshard_shards_check(reshard_context *context, int32_t ndim, const int64_t *shape,
                                    int64_t count, const reshard_shard *shards)
{
    if (shape == NULL)
        return check_overlap(context, count, shards);
    if (count < 1)
        return rs_fail(RESHARD_ERR_INVALID, "no shards are given");
    reshard_status status = rs_shape_check(ndim, shape);
    for (int64_t i = 0; i < count && status == RESHARD_OK; i++)
        status = check_boxes(i, &shards[i], ndim);
    if (status != RESHARD_OK)
        return status;
    /* The spec of boxes checks each shard. If there is a gap, creating a layout names it. */
    reshard_spec *spec = NULL;
    reshard_layout *layout = NULL;
    status = reshard_spec_boxes(context, 0, ndim, shape, count, shards, &spec);
    if (status == RESHARD_OK)
        status = rs_tiling_check_overlap(context, ndim, count, spec->shards);
    if (status == RESHARD_OK &&
        rs_tiling_volume(ndim, count, spec->shards) != rs_volume(ndim, shape))
        status = reshard_layout_create(context, spec, ndim, shape, &layout);
    reshard_layout_release(layout);
    reshard_spec_release(spec);
    return status;
}
