/* SPDX-License-Identifier: Apache-2.0 */
/* overlap.h - checks whether any two of n boxes share an element. */
#ifndef RS_LAYOUT_OVERLAP_H
#define RS_LAYOUT_OVERLAP_H

#include <reshard/spec.h>

#include "base/arena.h"

#include <stdbool.h>

/* Finds two boxes that share an element, and returns the lower number first. boxes holds, for each
 * box, ndim starts and then ndim ends; empty boxes share nothing. Scratch memory, O(n), comes from
 * the arena. Takes O(n log^d n) time for any input, where d is the number of dims in which the
 * boxes differ. */
reshard_status rs_overlap_find(rs_arena *arena, int32_t ndim, int64_t count, const int64_t *boxes,
                               bool *out_found, int64_t out_pair[2]);

#endif
