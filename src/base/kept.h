/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kept.h - keeps large blocks that were released, for the next request of the same size. Getting
 * fresh memory costs more than filling it, because the kernel clears every page at its first touch.
 *
 * There are a few slots. Each is guarded by its own size field: EMPTY, the size of the block in it,
 * or BUSY while a thread is changing the slot. No thread waits for another one, except in
 * rs_kept_drop.
 */
#ifndef RS_BASE_KEPT_H
#define RS_BASE_KEPT_H

#include <reshard/base.h>

#include <stdatomic.h>
#include <stdbool.h>

enum { RS_KEPT_SLOTS = 32 };

typedef struct rs_kept_slot {
    atomic_size_t bytes;
    atomic_uint_least64_t since; /* rs_kept.count when the block arrived: smaller is older */
    void *memory;
} rs_kept_slot;

/* All zero is a valid empty state. */
typedef struct rs_kept {
    rs_kept_slot slots[RS_KEPT_SLOTS];
    atomic_size_t bytes; /* in all slots; never less than what is really kept */
    /* Of the blocks in slots and of those that were taken out or are to be put in. Taking and
     * putting do not change it, so other threads never see a block twice in it. Whoever allocates
     * a block adds it first; dropping one subtracts it. */
    atomic_size_t held;
    atomic_uint_least64_t count;
} rs_kept;

/* Takes a block of exactly this size, or returns NULL if there is none. */
void *rs_kept_take(rs_kept *kept, size_t bytes);
/* Returns false if all slots are full; the block then still belongs to the caller. */
bool rs_kept_put(rs_kept *kept, void *memory, size_t bytes);
/* Frees the block that has been kept longest, or lets another thread that is freeing one make
 * progress. Returns false if nothing is kept. */
bool rs_kept_drop(rs_kept *kept, const reshard_allocator *allocator);

#endif
