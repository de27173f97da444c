/* SPDX-License-Identifier: Apache-2.0 */
/*
 * intern.h - numbers runs of bytes and keeps one copy of each, for runs that occur again and again.
 * Now and then two equal runs get different numbers: this bounds the cost of every lookup, whatever
 * the bytes are. A caller that needs exactly one number per run sorts the runs, which are few.
 */
#ifndef RS_BASE_INTERN_H
#define RS_BASE_INTERN_H

#include "base/arena.h"
#include "base/slice.h"

typedef struct rs_intern {
    rs_arena *arena; /* holds the bytes */
    int64_t count, capacity;
    rs_slice *items; /* indexed by number; each is followed by a NUL and aligned for any type */
    /* Indexed by hash: a number + 1, or 0 for none. A newer run overwrites an older one. */
    uint32_t *slots;
    size_t slot_count;
} rs_intern;

/* Returns the number of a run, copying its bytes if they are not known yet. An rs_intern that is
 * all zero except for its arena is ready for use. */
reshard_status rs_intern_add(rs_intern *intern, rs_slice bytes, int64_t *out_number);
/* Removes the run that was added last. That call must have given it a new number. */
void rs_intern_forget(rs_intern *intern);
/* Releases the table; the bytes stay in the arena. */
void rs_intern_release(rs_intern *intern);

#endif
