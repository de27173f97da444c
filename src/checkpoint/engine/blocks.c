/* SPDX-License-Identifier: Apache-2.0 */
/* blocks.c - cuts routes into blocks, and divides blocks among ranks. */
#include "checkpoint/engine/blocks.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/search.h"

#include <assert.h>

/* Direct blocks take no memory, so they may be larger than others. */
#define DIRECT_BLOCK_BYTES ((size_t)64 << 20)
#define PAGE_BYTES 4096
#define SLOW_BYTES 32

static const rs_stored_tensor *written(const rs_route *route)
{
    return route->target != NULL ? route->target : route->source;
}

size_t rs_blocks_gap(const rs_route *route, size_t thread_bytes)
{
    size_t gaps = RS_BLOCK_ALIGNMENT * (size_t)(route->source->piece_count + 2);
    return gaps <= thread_bytes / 2 ? RS_BLOCK_ALIGNMENT : 0;
}

static bool is_slow(uint64_t source, uint64_t target)
{
    uint64_t behind = (target - source) % PAGE_BYTES;
    return behind != 0 && behind < SLOW_BYTES;
}

/* Reading and writing each rule out at most one of the three shifts, so one is always left. */
char *rs_blocks_place(char *memory, uint64_t source, uint64_t target)
{
    for (size_t shift = 0; shift < RS_BLOCK_SHIFT_MAX; shift += SLOW_BYTES) {
        uint64_t place = (uintptr_t)memory + shift;
        if (!is_slow(source, place) && !is_slow(place, target))
            return memory + shift;
    }
    return memory + RS_BLOCK_SHIFT_MAX;
}

/* The source and the target of a block share a thread's memory, and both begin on the alignment. */
static rs_tiles cut_route(const rs_route *route, size_t thread_bytes, bool is_direct)
{
    int64_t each = route->source->element_bytes + written(route)->element_bytes;
    size_t gaps = rs_blocks_gap(route, thread_bytes) * (size_t)route->source->piece_count;
    size_t room = is_direct ? DIRECT_BLOCK_BYTES : thread_bytes - gaps - 2 * RS_BLOCK_ALIGNMENT;
    return rs_tiles_cut(route->source->carried_ndim, route->size, rs_max(1, (int64_t)room / each));
}

reshard_status rs_blocks_cut(rs_blocks *blocks, rs_arena *arena, int64_t route_count,
                             const rs_route *routes, size_t thread_bytes, bool are_direct)
{
    size_t count = (size_t)route_count;
    rs_blocks made = {.route_count = route_count,
                      .routes = routes,
                      .thread_bytes = thread_bytes,
                      .are_direct = are_direct};
    made.tiles = rs_arena_allocate_array(arena, count, sizeof *made.tiles);
    made.firsts = rs_arena_allocate_array(arena, count + 1, sizeof *made.firsts);
    if (made.tiles == NULL || made.firsts == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < route_count; i++) {
        const rs_route *route = &routes[i];
        made.tiles[i] = cut_route(route, thread_bytes, are_direct && route->direct);
        made.firsts[i] = made.count;
        made.count += made.tiles[i].count;
        made.bytes += route->target != NULL ? rs_route_target_bytes(route) : route->source->bytes;
    }
    made.firsts[route_count] = made.count;
    *blocks = made;
    return RESHARD_OK;
}

int64_t rs_blocks_route(const rs_blocks *blocks, int64_t block)
{
    assert(block >= 0 && block < blocks->count);
    int64_t next;
    RS_FIND_FIRST(next, blocks->route_count, blocks->firsts[next] > block);
    return next - 1;
}

void rs_blocks_box(const rs_blocks *blocks, int64_t route, int64_t block,
                   int64_t out_offset[RESHARD_NDIM_MAX], int64_t out_size[RESHARD_NDIM_MAX])
{
    const rs_route *of = &blocks->routes[route];
    rs_tiles_at(&blocks->tiles[route], block - blocks->firsts[route], out_offset, out_size);
    for (int32_t d = 0; d < of->source->carried_ndim; d++)
        out_offset[d] += of->offset[d];
}

uint64_t rs_blocks_bytes(const rs_blocks *blocks, int64_t route, int64_t block)
{
    int64_t offset[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX];
    const rs_stored_tensor *tensor = written(&blocks->routes[route]);
    rs_blocks_box(blocks, route, block, offset, size);
    return (uint64_t)(rs_volume(tensor->carried_ndim, size) * tensor->element_bytes);
}

uint64_t rs_block_walk_next(rs_block_walk *walk)
{
    int64_t block = walk->block++;
    assert(block < walk->blocks->count);
    while (block >= walk->blocks->firsts[walk->route + 1])
        walk->route++;
    if (walk->ledger != NULL && rs_ledger_is_done(walk->ledger, block))
        return 0;
    return rs_blocks_bytes(walk->blocks, walk->route, block);
}

void rs_block_walk_deal(rs_block_walk *walk, const rs_team *team, uint64_t bytes_max,
                        int64_t *out_begin, int64_t *out_end)
{
    rs_block_walk at = *walk;
    uint64_t total = 0, before = 0, rank = (uint64_t)team->rank;
    while (walk->block < walk->blocks->count && total < bytes_max)
        total += rs_block_walk_next(walk);
    /* A block belongs to the rank whose share contains its first byte. */
    uint64_t share = total / (uint64_t)team->rank_count + 1;
    int64_t begin = walk->block, end = walk->block;
    while (at.block < walk->block && before / share <= rank) {
        if (before / share == rank && begin == walk->block)
            begin = at.block;
        before += rs_block_walk_next(&at);
    }
    if (begin < walk->block)
        end = at.block;
    *out_begin = begin;
    *out_end = end;
}
