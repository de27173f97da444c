/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.h - finds which of n boxes touch a given box, by a binary tree of bounding boxes that are
 * split at the median of the widest dimension. Building takes O(n log n). A query takes about O(log
 * n + answers) if the boxes do not overlap each other. Empty boxes touch nothing.
 */
#ifndef RS_LAYOUT_INDEX_H
#define RS_LAYOUT_INDEX_H

#include <reshard/spec.h>

#include "base/arena.h"

#include <stdbool.h>

typedef struct rs_index {
    int32_t ndim;
    int64_t count;        /* number of boxes that are not empty */
    int64_t *order;       /* box numbers, grouped by leaf */
    const int64_t *boxes; /* for each box, ndim starts and then ndim ends */
    int64_t *bounds;      /* the bounding box of each node, in the same form */
    int64_t node_count;
} rs_index;

/* boxes are count * 2 * ndim numbers, which must stay where they are. The tree is allocated in the
 * arena. */
reshard_status rs_index_build(rs_index *index, rs_arena *arena, int32_t ndim, int64_t count,
                              const int64_t *boxes);

/* Calls fn for each box that shares an element with [start, end), in tree order. Stops at the first
 * status that is not RESHARD_OK and returns it. */
typedef reshard_status (*rs_index_fn)(void *user, int64_t box);
reshard_status rs_index_visit(const rs_index *index, const int64_t *start, const int64_t *end,
                              rs_index_fn fn, void *user);

#endif
