/* SPDX-License-Identifier: Apache-2.0 */
/*
 * intern.h - runs of bytes that occur again and again, each kept once. Mostly: now and then equal
 * runs get two numbers, so that no choice of bytes makes it slow. Whoever needs one number for one
 * run sorts the few that there are.
 */
#ifndef RS_BASE_INTERN_H
#define RS_BASE_INTERN_H

#include "base/arena.h"
#include "base/slice.h"

typedef struct rs_intern {
    rs_arena *arena; /* of the kept bytes */
    int64_t count, capacity;
    rs_slice *items; /* by number; a NUL follows each, and each is aligned for any type */
    /* numbers + 1 by hash, 0: none. A newer run takes the place of an older one. */
    uint32_t *slots;
    size_t slot_count;
} rs_intern;

/* All zero but the arena is a valid start. Keeps a copy unless there is one. */
reshard_status rs_intern_add(rs_intern *intern, rs_slice bytes, int64_t *out_number);
/* Forgets the run that was added last, which had no number before. */
void rs_intern_forget(rs_intern *intern);
/* Releases the numbers; the bytes stay in the arena. */
void rs_intern_release(rs_intern *intern);

#endif
