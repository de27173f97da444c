/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.h - routes, cut into blocks that fit into memory. A block is a tile (shape.h) of the box
 * that a route carries. A tile is contiguous in every dense piece, however the pieces are cut, so
 * reads and writes are long for any pair of layouts.
 *
 * Blocks are numbered through all routes. Equal routes and an equal thread_bytes give the same
 * blocks, so other ranks and later runs can refer to a block by its number.
 */
#ifndef RS_CHECKPOINT_ENGINE_BLOCKS_H
#define RS_CHECKPOINT_ENGINE_BLOCKS_H

#include "base/shape.h"
#include "checkpoint/engine/file_route.h"
#include "checkpoint/engine/ledger.h"
#include "checkpoint/engine/team.h"

typedef struct rs_blocks {
    int64_t route_count;
    const rs_route *routes; /* not owned */
    rs_tiles *tiles;        /* one for each route */
    /* for each route its first block, and at the end the number of all blocks */
    int64_t *firsts;
    int64_t count;
    size_t thread_bytes; /* the source and target of any block fit into this together */
    bool are_direct;     /* blocks of direct routes need no buffer, and may be larger */
    uint64_t bytes;      /* to be written to targets; for routes without a target, to be read */
} rs_blocks;

/* Arrays are allocated in the arena, which must outlive the blocks; so must the routes. Pass false
 * for are_direct if all bytes have to pass through memory. */
reshard_status rs_blocks_cut(rs_blocks *blocks, rs_arena *arena, int64_t route_count,
                             const rs_route *routes, size_t thread_bytes, bool are_direct);

/* In memory, a block's share of each source piece begins on a cache line. String moves (rep movs),
 * which kernels and C libraries copy with, are several times slower on some processors if the
 * target lies a few bytes after the source, modulo a page. */
#define RS_BLOCK_ALIGNMENT ((size_t)64)
/* Returns the best place, at most RS_BLOCK_SHIFT_MAX bytes after `memory`, for bytes that are read
 * from offset `source` of one file and written to offset `target` of another. In neither of the two
 * copies may the destination lie 1 to 31 bytes after the origin, modulo a page: that was measured
 * to be five times slower. */
#define RS_BLOCK_SHIFT_MAX ((size_t)64)
char *rs_blocks_place(char *memory, uint64_t source, uint64_t target);
/* The most bytes that aligning a source piece can waste. 0 for a route with so many pieces that the
 * gaps would take up half of the memory: its pieces are packed without gaps. */
size_t rs_blocks_gap(const rs_route *route, size_t thread_bytes);

/* The index of a block's route. */
int64_t rs_blocks_route(const rs_blocks *blocks, int64_t block);
/* The box of the tensor that a block covers. */
void rs_blocks_box(const rs_blocks *blocks, int64_t route, int64_t block,
                   int64_t out_offset[RESHARD_NDIM_MAX], int64_t out_size[RESHARD_NDIM_MAX]);
/* The bytes of that box in the target's dtype, as a measure of what the block costs. */
uint64_t rs_blocks_bytes(const rs_blocks *blocks, int64_t route, int64_t block);

/* Iterates over blocks in order. Start with {.blocks = ..}. */
typedef struct rs_block_walk {
    const rs_blocks *blocks;
    const rs_ledger *ledger; /* may be NULL: nothing is done yet */
    int64_t block, route;
} rs_block_walk;

/* Returns how many bytes the block still has to do (0 if it is done), and steps to the next
 * block. */
uint64_t rs_block_walk_next(rs_block_walk *walk);
/* Takes blocks with about bytes_max still to do, and moves the walk past them. This rank's share of
 * them is the blocks *out_begin .. *out_end-1. All ranks must pass equal ledgers. */
void rs_block_walk_deal(rs_block_walk *walk, const rs_team *team, uint64_t bytes_max,
                        int64_t *out_begin, int64_t *out_end);

#endif
