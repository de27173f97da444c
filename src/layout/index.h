/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.h - which of n boxes touch a given box: a binary tree of bounding boxes, split at the
 * median of the widest dimension. Building takes O(n log n); a question about boxes that do not
 * overlap each other takes about O(log n + answers). Empty boxes touch nothing.
 */
#ifndef RS_LAYOUT_INDEX_H
#define RS_LAYOUT_INDEX_H

#include <reshard/spec.h>

#include "base/arena.h"

#include <stdbool.h>

typedef struct rs_index {
    int32_t ndim;
    int64_t count;        /* boxes */
    int64_t *order;       /* box numbers, grouped by leaf */
    const int64_t *boxes; /* for each box ndim starts, then ndim ends */
    int64_t *bounds;      /* for each node likewise */
    int64_t node_count;
} rs_index;

/* boxes: count * 2 * ndim numbers that stay where they are; memory of the tree comes from the
 * arena. */
reshard_status rs_index_build(rs_index *index, rs_arena *arena, int32_t ndim, int64_t count,
                              const int64_t *boxes);

/* Calls fn for each box that shares an element with [start, end), in the order of the tree. Stops
 * at the first status that is not RESHARD_OK, and returns it. */
typedef reshard_status (*rs_index_fn)(void *user, int64_t box);
reshard_status rs_index_visit(const rs_index *index, const int64_t *start, const int64_t *end,
                              rs_index_fn fn, void *user);

#endif
