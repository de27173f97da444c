/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept.h - large blocks that nobody uses at the moment, kept for whoever next asks for a block of
 * the same size. Fresh memory costs more than filling it: the system clears every page when it is
 * first touched.
 *
 * A few slots, each guarded by its own size: EMPTY, the size of the block in it, or BUSY while one
 * thread has it in hand. No thread waits for another one, except in rs_kept_drop.
 */
#ifndef RS_BASE_KEPT_H
#define RS_BASE_KEPT_H

#include <reshard/base.h>

#include <stdatomic.h>
#include <stdbool.h>

enum { RS_KEPT_SLOTS = 32 };

typedef struct rs_kept_slot {
    atomic_size_t bytes;
    atomic_uint_least64_t since; /* when the block came, counted in blocks */
    void *memory;
} rs_kept_slot;

/* All zero: empty. */
typedef struct rs_kept {
    rs_kept_slot slots[RS_KEPT_SLOTS];
    atomic_size_t bytes; /* in all slots; never less than what is kept */
    atomic_uint_least64_t count;
} rs_kept;

/* NULL: there is no block of this size. */
void *rs_kept_take(rs_kept *kept, size_t bytes);
/* False: all slots are full, and the block still belongs to the caller. */
bool rs_kept_put(rs_kept *kept, void *memory, size_t bytes);
/* Releases the block that has been here longest, or lets another thread finish releasing one.
 * False: nothing is kept. */
bool rs_kept_drop(rs_kept *kept, const reshard_allocator *allocator);

#endif
