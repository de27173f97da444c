/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards.c - lists of shards for callers: those of one rank, or of all ranks. Regular layouts
 * compute them, listed layouts copy what they have. Each list owns its memory.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/limits.h"
#include "layout/layout.h"

#include <inttypes.h>

reshard_status rs_regular_shards(const reshard_layout *layout, rs_arena *arena,
                                 reshard_shard **out_shards, int64_t *out_count)
{
    int32_t size = layout->rank_count;
    if (size > RS_PIECES_LISTED_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "%d ranks have shards; at most %" PRId64 " can be listed",
                       size, RS_PIECES_LISTED_MAX);
    reshard_shard *shards = rs_arena_allocate_array(arena, (size_t)size, sizeof *shards);
    if (shards == NULL)
        return rs_allocation_status();
    int64_t count = 0, pieces = 0;
    for (int32_t i = 0; i < size; i++) {
        int64_t found;
        pieces =
            rs_add_up(pieces, rs_layout_piece_estimate(layout, reshard_layout_rank_at(layout, i)));
        if (pieces > RS_PIECES_LISTED_MAX)
            return rs_fail(RESHARD_ERR_RANGE,
                           "the first %d of %d ranks have about %" PRId64
                           " pieces; at most %" PRId64 " can be listed",
                           i + 1, size, pieces, RS_PIECES_LISTED_MAX);
        reshard_status status = rs_regular_shard(layout, reshard_layout_rank_at(layout, i),
                                                 INT64_MAX, arena, &shards[count], &found);
        if (status != RESHARD_OK)
            return status;
        count += found;
    }
    *out_shards = shards;
    *out_count = count;
    return RESHARD_OK;
}

typedef struct shard_list {
    reshard_shards shown; /* must be first: reshard_shards_destroy casts it back */
    reshard_context *context;
    rs_arena arena;
} shard_list;

static shard_list *new_list(reshard_context *context)
{
    shard_list *list = rs_allocate_zeroed(context, sizeof *list);
    if (list != NULL) {
        list->context = context;
        rs_arena_init(&list->arena, context);
    }
    return list;
}

void reshard_shards_destroy(reshard_shards *shards)
{
    if (shards == NULL)
        return;
    shard_list *list = (shard_list *)(void *)shards;
    rs_arena_release(&list->arena);
    rs_release(list->context, list);
}

static reshard_status copy_listed(const reshard_layout *layout, int64_t first, int64_t count,
                                  shard_list *list)
{
    reshard_shard *items =
        rs_arena_copy(&list->arena, layout->shards + first, (size_t)count, sizeof *items);
    list->shown.items = items;
    list->shown.count = count;
    if (items == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < count; i++) {
        items[i].pieces = rs_arena_copy(&list->arena, items[i].pieces, (size_t)items[i].piece_count,
                                        sizeof *items[i].pieces);
        if (items[i].pieces == NULL)
            return rs_allocation_status();
    }
    return RESHARD_OK;
}

static reshard_status fill_rank(const reshard_layout *layout, int32_t rank, int64_t piece_max,
                                shard_list *list)
{
    if (!layout->listed) {
        reshard_shard *shard = rs_arena_allocate(&list->arena, sizeof *shard);
        list->shown.items = shard;
        return shard == NULL ? rs_allocation_status()
                             : rs_regular_shard(layout, rank, piece_max, &list->arena, shard,
                                                &list->shown.count);
    }
    int64_t first = rs_listed_first_shard(layout, rank);
    int64_t end = first;
    while (end < layout->shard_count && layout->shards[end].rank == rank)
        end++;
    return copy_listed(layout, first, end - first, list);
}

static reshard_status fill_all(const reshard_layout *layout, shard_list *list)
{
    if (layout->listed)
        return copy_listed(layout, 0, layout->shard_count, list);
    reshard_shard *shards = NULL;
    reshard_status status = rs_regular_shards(layout, &list->arena, &shards, &list->shown.count);
    list->shown.items = shards;
    return status;
}

static reshard_status list_shards(const reshard_layout *layout, int32_t rank, int64_t piece_max,
                                  reshard_shards **out_shards)
{
    shard_list *list = new_list(layout->context);
    if (list == NULL)
        return rs_allocation_status();
    reshard_status status = rank == RESHARD_ALL_RANKS ? fill_all(layout, list)
                                                      : fill_rank(layout, rank, piece_max, list);
    if (status != RESHARD_OK) {
        reshard_shards_destroy(&list->shown);
        return status;
    }
    *out_shards = &list->shown;
    return RESHARD_OK;
}

reshard_status reshard_layout_shards(const reshard_layout *layout, int32_t rank,
                                     reshard_shards **out_shards)
{
    return list_shards(layout, rank, INT64_MAX, out_shards);
}

reshard_status reshard_layout_shards_head(const reshard_layout *layout, int32_t rank,
                                          int64_t piece_max, int64_t *out_piece_count,
                                          reshard_shards **out_shards)
{
    if (rank == RESHARD_ALL_RANKS)
        return rs_fail(RESHARD_ERR_INVALID, "the first pieces of all ranks; choose one rank");
    reshard_status status = list_shards(layout, rank, piece_max, out_shards);
    if (status == RESHARD_OK)
        *out_piece_count = rs_layout_piece_estimate(layout, rank);
    return status;
}
