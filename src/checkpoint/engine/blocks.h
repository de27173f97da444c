/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.h - routes cut into blocks that fit into memory. A block is a tile (shape.h) of the box
 * that a route carries. It lies together in every dense piece, however the pieces are cut, so reads
 * and writes are long, whatever the two layouts are.
 *
 * Blocks are numbered through all routes. The same routes and the same bytes for each thread give
 * the same blocks, so ranks and later runs can name them by their numbers.
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
    rs_tiles *tiles;        /* of each route */
    int64_t *firsts;        /* of each route, its first block; then the number of all blocks */
    int64_t count;
    size_t thread_bytes; /* that the two ends of any block fit into */
    bool are_direct;     /* routes that are direct have blocks that need no such memory */
    uint64_t bytes;      /* that go to targets, or that are read where there is no target */
} rs_blocks;

/* In the arena, which must outlive the blocks; so must the routes. are_direct: see above; false
 * where everything shall pass through memory. */
reshard_status rs_blocks_cut(rs_blocks *blocks, rs_arena *arena, int64_t route_count,
                             const rs_route *routes, size_t thread_bytes, bool are_direct);

/* What a block has of each source piece begins on a multiple of the alignment in memory, a cache
 * line: string moves, which kernels and C libraries copy with, are several times slower on some
 * processors when the target lies a few bytes behind the source, modulo a page. */
#define RS_BLOCK_ALIGNMENT ((size_t)64)
/* From where on in memory bytes are best read from one place of a file and written to another:
 * neither way may the target lie 1 to 31 bytes behind the source, modulo a page, which was seen to
 * be five times slower. Up to RS_BLOCK_SHIFT_MAX bytes behind `memory`. */
#define RS_BLOCK_SHIFT_MAX ((size_t)64)
char *rs_blocks_place(char *memory, uint64_t source, uint64_t target);
/* The most bytes that this leaves unused behind a piece. 0 for a route of so many pieces that the
 * gaps would take half of the memory: then pieces follow each other. */
size_t rs_blocks_gap(const rs_route *route, size_t thread_bytes);

/* The route of a block, by index. */
int64_t rs_blocks_route(const rs_blocks *blocks, int64_t block);
/* The box of a block, in the tensor. */
void rs_blocks_box(const rs_blocks *blocks, int64_t route, int64_t block,
                   int64_t out_offset[RESHARD_NDIM_MAX], int64_t out_size[RESHARD_NDIM_MAX]);
/* The bytes of that box in the target's dtype: about what the block costs. */
uint64_t rs_blocks_bytes(const rs_blocks *blocks, int64_t route, int64_t block);

/* Goes through blocks in order. Start from {.blocks = ..}. */
typedef struct rs_block_walk {
    const rs_blocks *blocks;
    const rs_ledger *ledger; /* NULL: nothing is done yet */
    int64_t block, route;
} rs_block_walk;

/* The bytes that the block still has to do; then goes on to the next block. */
uint64_t rs_block_walk_next(rs_block_walk *walk);
/* Takes blocks with about bytes_max still to do, and moves the walk behind them. This rank's share
 * of them are the blocks from *out_begin to before *out_end. All ranks must know alike what is
 * done. */
void rs_block_walk_deal(rs_block_walk *walk, const rs_team *team, uint64_t bytes_max,
                        int64_t *out_begin, int64_t *out_end);

#endif
