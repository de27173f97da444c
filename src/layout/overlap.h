/* SPDX-License-Identifier: Apache-2.0 */
/* overlap.h - do any two of n boxes share an element? */
#ifndef RS_LAYOUT_OVERLAP_H
#define RS_LAYOUT_OVERLAP_H

#include <reshard/spec.h>

#include "base/arena.h"

#include <stdbool.h>

/* boxes: for each box ndim starts, then ndim ends. Finds two boxes that share an element, the lower
 * number first; empty boxes share nothing. Scratch memory, O(n), comes from the arena. Time O(n
 * log^d n) for the d dims in which the boxes differ, in whatever order they come. */
reshard_status rs_overlap_find(rs_arena *arena, int32_t ndim, int64_t count, const int64_t *boxes,
                               bool *out_found, int64_t out_pair[2]);

#endif
