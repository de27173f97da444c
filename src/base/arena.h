/* SPDX-License-Identifier: Apache-2.0 */
/*
 * arena.h - memory that is freed as a whole. For results made of many small arrays that live and
 * die together, such as the records of one rank's part of a plan.
 */
#ifndef RS_BASE_ARENA_H
#define RS_BASE_ARENA_H

#include <reshard/base.h>

#include "base/export.h"

typedef struct rs_arena_block rs_arena_block;

typedef struct rs_arena {
    reshard_context *context;
    rs_arena_block *blocks; /* newest first; only the newest has room */
} rs_arena;

RS_EXPORT void rs_arena_init(rs_arena *arena, reshard_context *context);
/* NULL with the error text set on failure (rs_allocation_status). Aligned for any type. */
RS_EXPORT void *rs_arena_allocate(rs_arena *arena, size_t bytes);
void *rs_arena_allocate_array(rs_arena *arena, size_t count, size_t item_bytes);
/* Copies count items into the arena. */
void *rs_arena_copy(rs_arena *arena, const void *items, size_t count, size_t item_bytes);

/* A moment in an arena's life. */
typedef struct rs_arena_mark {
    rs_arena_block *block;
    size_t used;
} rs_arena_mark;
rs_arena_mark rs_arena_mark_now(const rs_arena *arena);
/* Frees what was allocated since then. Marks made since then are void. */
void rs_arena_return_to(rs_arena *arena, rs_arena_mark mark);
/* Frees everything; the arena is then as after init. */
RS_EXPORT void rs_arena_release(rs_arena *arena);

#endif
