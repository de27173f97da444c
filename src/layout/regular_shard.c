/* SPDX-License-Identifier: Apache-2.0 */
/* regular_shard.c - computes the shard of one rank of a regular layout: its shape, offset and
 * pieces. */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/shape.h"
#include "layout/flat.h"
#include "layout/layout.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

typedef struct piece_list {
    reshard_context *context;
    reshard_piece *items;
    int64_t count, capacity;
    int64_t wanted; /* stop after this many */
} piece_list;

static reshard_status add_piece(void *user, const rs_region *region, const rs_holder *holder)
{
    piece_list *list = user;
    if (list->count == list->wanted)
        return RESHARD_ERR_CANCELLED; /* stops the visit; not an error */
    if (list->count == RS_PIECES_LISTED_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "rank %d has more than the %" PRId64 " pieces that can be listed",
                       holder->rank, RS_PIECES_LISTED_MAX);
    reshard_status status =
        rs_grow(list->context, &list->items, &list->capacity, list->count + 1, sizeof *list->items);
    if (status != RESHARD_OK)
        return status;
    reshard_piece *piece = &list->items[list->count++];
    memset(piece, 0, sizeof *piece);
    piece->box.ndim = region->layout->ndim;
    memcpy(piece->box.offset, region->start, (size_t)piece->box.ndim * sizeof(int64_t));
    memcpy(piece->box.size, region->size, (size_t)piece->box.ndim * sizeof(int64_t));
    rs_place place;
    rs_region_place(region, holder, region->start, &place);
    piece->at = place.at;
    memcpy(piece->strides, place.strides, (size_t)piece->box.ndim * sizeof(int64_t));
    return RESHARD_OK;
}

/* Where the own line begins in one dim or, if it is empty, where it would begin. */
static int64_t line_offset(const rs_chain *chain, int64_t n, const int32_t *by_level)
{
    rs_line_cursor cursor;
    rs_span span;
    rs_line_cursor_init(&cursor, chain, n, by_level);
    if (rs_line_cursor_next(&cursor, &span))
        return span.start;
    if (chain->count == 1 && chain->cuts[0].rule == RESHARD_RAGGED) {
        const rs_cut *cut = &chain->cuts[0];
        return cut
            ->starts[rs_multiply_divide(by_level[0], cut->piece_count, cut->coordinate_count)];
    }
    return n;
}

static void shape_shard(const reshard_layout *layout, const int32_t *coordinates,
                        reshard_shard *shard)
{
    shard->ndim = layout->ndim;
    int32_t by_level[RESHARD_AXES_MAX];
    for (int32_t d = 0; d < layout->ndim; d++) {
        rs_chain_coordinates(&layout->dims[d], coordinates, by_level);
        shard->shape[d] = rs_chain_length(&layout->dims[d], layout->shape[d], by_level);
        shard->offset[d] = line_offset(&layout->dims[d], layout->shape[d], by_level);
    }
    if (layout->flat.count != 0) {
        int64_t volume = rs_volume(layout->ndim, shard->shape);
        memset(shard->shape, 0, sizeof shard->shape);
        rs_chain_coordinates(&layout->flat, coordinates, by_level);
        shard->ndim = 1;
        shard->shape[0] = rs_chain_length(&layout->flat, volume, by_level);
    }
}

/* The offset of a flat shard: the least offset of its pieces in each dim. An empty shard begins
 * after the last element. */
static void offset_flat_shard(const reshard_layout *layout, reshard_shard *shard)
{
    for (int32_t d = 0; d < layout->ndim; d++) {
        if (shard->piece_count == 0) {
            shard->offset[d] = d == 0 ? layout->shape[0] : 0;
            continue;
        }
        shard->offset[d] = shard->pieces[0].box.offset[d];
        for (int64_t i = 1; i < shard->piece_count; i++)
            shard->offset[d] = rs_min(shard->offset[d], shard->pieces[i].box.offset[d]);
    }
}

static int32_t contributor_of(const reshard_layout *layout, const int32_t *coordinates)
{
    int32_t contributor = 0;
    for (int32_t a = 0; a < layout->axis_count; a++) {
        if (layout->axes[a].role == RS_AXIS_PARTIAL)
            contributor = contributor * layout->axes[a].size + coordinates[a];
    }
    return contributor;
}

static reshard_status describe_shard(const reshard_layout *layout, int32_t rank,
                                     const int32_t *coordinates, int64_t piece_max, rs_arena *arena,
                                     reshard_shard *out_shard, int64_t *out_count)
{
    memset(out_shard, 0, sizeof *out_shard);
    out_shard->rank = rank;
    out_shard->partial = layout->partial;
    out_shard->reduction = layout->reduction;
    out_shard->contributor = contributor_of(layout, coordinates);
    assert(out_shard->contributor < layout->contributor_count);
    out_shard->contributor_count = layout->contributor_count;
    out_shard->divisor = layout->divisor;
    shape_shard(layout, coordinates, out_shard);
    piece_list list = {.context = layout->context, .wanted = piece_max};
    reshard_status status = rs_regular_visit_held(layout, rank, add_piece, &list);
    if (status == RESHARD_ERR_CANCELLED && list.count == piece_max)
        status = RESHARD_OK;
    if (status == RESHARD_OK) {
        out_shard->piece_count = list.count;
        out_shard->pieces =
            rs_arena_copy(arena, list.items, (size_t)list.count, sizeof *list.items);
        status = out_shard->pieces == NULL ? rs_allocation_status() : RESHARD_OK;
    }
    if (status == RESHARD_OK && layout->flat.count != 0)
        offset_flat_shard(layout, out_shard);
    rs_release(layout->context, list.items);
    *out_count = status == RESHARD_OK;
    return status;
}

reshard_status rs_regular_shard(const reshard_layout *layout, int32_t rank, int64_t piece_max,
                                rs_arena *arena, reshard_shard *out_shard, int64_t *out_count)
{
    int32_t coordinates[RESHARD_AXES_MAX];
    *out_count = 0;
    if (!rs_layout_coordinates(layout, rank, coordinates))
        return RESHARD_OK;
    int64_t pieces = rs_min(piece_max, rs_layout_piece_estimate(layout, rank));
    if (pieces > RS_PIECES_LISTED_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "rank %d has about %" PRId64 " pieces; at most %" PRId64 " can be listed",
                       rank, pieces, RS_PIECES_LISTED_MAX);
    return describe_shard(layout, rank, coordinates, piece_max, arena, out_shard, out_count);
}
