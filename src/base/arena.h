/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.h - memory that is freed all at once, for results made of many small arrays that live and
 * die together, such as the records of one rank's part of a plan.
 */
#ifndef RS_BASE_ARENA_H
#define RS_BASE_ARENA_H

#include <reshard/base.h>

#include "base/export.h"

typedef struct rs_arena_block rs_arena_block;

typedef struct rs_arena {
    reshard_context *context;
    rs_arena_block *blocks; /* newest first; only the newest is allocated from */
} rs_arena;

RS_EXPORT void rs_arena_init(rs_arena *arena, reshard_context *context);
/* Returns memory aligned for any type. On failure returns NULL with the error text set; the status
 * is rs_allocation_status(). */
RS_EXPORT void *rs_arena_allocate(rs_arena *arena, size_t bytes);
void *rs_arena_allocate_array(rs_arena *arena, size_t count, size_t item_bytes);
/* Copies count items into the arena. */
void *rs_arena_copy(rs_arena *arena, const void *items, size_t count, size_t item_bytes);

/* A point in the arena's history that rs_arena_return_to can roll back to. */
typedef struct rs_arena_mark {
    rs_arena_block *block;
    size_t used;
} rs_arena_mark;
rs_arena_mark rs_arena_mark_now(const rs_arena *arena);
/* Frees everything allocated since the mark was made. Marks made after it become invalid. */
void rs_arena_return_to(rs_arena *arena, rs_arena_mark mark);
/* Frees everything and leaves the arena as rs_arena_init left it. */
RS_EXPORT void rs_arena_release(rs_arena *arena);

#endif
