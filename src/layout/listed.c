/* SPDX-License-Identifier: Apache-2.0 */
/*
 * listed.c - layouts made from lists of shards: boxes, covers, callbacks, and cuts that cannot be
 * kept as arithmetic. Shards are sorted by rank; those of one rank keep their order.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/search.h"
#include "base/sort.h"
#include "layout/layout.h"
#include "layout/tiling.h"

#include <inttypes.h>
#include <string.h>

/* At this point `index` is still the place in the given list. */
static int compare_shards(const void *a, const void *b)
{
    const reshard_shard *x = a, *y = b;
    if (x->rank != y->rank)
        return x->rank < y->rank ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static reshard_status order_shards(reshard_layout *layout, int64_t count, reshard_shard *shards)
{
    if (count > INT32_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "%" PRId64 " shards are too many", count);
    for (int64_t i = 0; i < count; i++)
        shards[i].index = (int32_t)i;
    rs_sort(shards, (size_t)count, sizeof *shards, compare_shards);
    int32_t *ranks = rs_arena_allocate_array(&layout->arena, (size_t)count, sizeof *ranks);
    if (ranks == NULL)
        return rs_allocation_status();
    int32_t found = 0;
    int64_t first = 0; /* the first shard of the current rank */
    for (int64_t i = 0; i < count; i++) {
        if (i == 0 || shards[i].rank != shards[i - 1].rank) {
            ranks[found++] = shards[i].rank;
            first = i;
        }
        shards[i].index = (int32_t)(i - first);
        shards[i].partial = 0;
        shards[i].contributor = 0;
        shards[i].contributor_count = 1;
        shards[i].divisor = 1;
    }
    layout->shard_count = count;
    layout->shards = shards;
    layout->rank_count = found;
    layout->ranks = ranks;
    return RESHARD_OK;
}

int64_t rs_listed_first_shard(const reshard_layout *layout, int32_t rank)
{
    int64_t at;
    RS_FIND_FIRST(at, layout->shard_count, layout->shards[at].rank >= rank);
    return at;
}

/* Makes each piece of a tiling a cell. */
static reshard_status pieces_to_cells(reshard_layout *layout)
{
    int64_t count = 0;
    for (int64_t i = 0; i < layout->shard_count; i++)
        count += layout->shards[i].piece_count;
    rs_cell *cells = rs_arena_allocate_array(&layout->arena, (size_t)count, sizeof *cells);
    rs_cell_holder *holders =
        rs_arena_allocate_array(&layout->arena, (size_t)count, sizeof *holders);
    int64_t *first_cells =
        rs_arena_allocate_array(&layout->arena, (size_t)layout->shard_count, sizeof *first_cells);
    if (cells == NULL || holders == NULL || first_cells == NULL)
        return rs_allocation_status();
    int64_t next = 0;
    for (int64_t i = 0; i < layout->shard_count; i++) {
        first_cells[i] = next;
        for (int64_t p = 0; p < layout->shards[i].piece_count; p++, next++) {
            const reshard_box *box = &layout->shards[i].pieces[p].box;
            memcpy(cells[next].start, box->offset, sizeof cells[next].start);
            memcpy(cells[next].size, box->size, sizeof cells[next].size);
            cells[next].first_holder = next;
            cells[next].holder_count = 1;
            holders[next] = (rs_cell_holder){i, p};
        }
    }
    layout->cell_count = count;
    layout->cells = cells;
    layout->cell_holders = holders;
    layout->first_cells = first_cells;
    return RESHARD_OK;
}

static reshard_status index_cells(reshard_layout *layout)
{
    int32_t ndim = layout->ndim;
    int64_t *boxes = rs_arena_allocate_array(&layout->arena, (size_t)layout->cell_count,
                                             (size_t)(2 * ndim) * sizeof *boxes);
    if (boxes == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < layout->cell_count; i++) {
        const rs_cell *cell = &layout->cells[i];
        for (int32_t d = 0; d < ndim; d++) {
            boxes[i * 2 * ndim + d] = cell->start[d];
            boxes[i * 2 * ndim + ndim + d] = cell->start[d] + cell->size[d];
        }
    }
    return rs_index_build(&layout->cell_index, &layout->arena, ndim, layout->cell_count, boxes);
}

static reshard_status tile(reshard_layout *layout)
{
    reshard_status status =
        rs_tiling_check_overlap(layout->context, layout->ndim, layout->shard_count, layout->shards);
    if (status != RESHARD_OK)
        return status;
    int64_t owned = rs_tiling_volume(layout->ndim, layout->shard_count, layout->shards);
    if (owned == layout->volume)
        return pieces_to_cells(layout);
    /* There is a gap. Building the cells finds it, unless there are too many cells. */
    status = rs_cells_build(layout);
    if (status == RESHARD_ERR_RANGE)
        status = rs_fail(RESHARD_ERR_GAP, "%" PRId64 " of %" PRId64 " elements have an owner",
                         owned, layout->volume);
    return status;
}

reshard_status rs_listed_init(reshard_layout *layout, int64_t shard_count, reshard_shard *shards,
                              bool cover)
{
    layout->listed = true;
    layout->contributor_count = 1;
    layout->divisor = 1;
    if (shard_count < 1)
        return rs_fail(RESHARD_ERR_INVALID, "no shards are given");
    reshard_status status = order_shards(layout, shard_count, shards);
    if (status == RESHARD_OK)
        status = cover ? rs_cells_build(layout) : tile(layout);
    if (status == RESHARD_OK)
        status = index_cells(layout);
    return status;
}
