/* SPDX-License-Identifier: Apache-2.0 */
/*
 * index.c - a binary tree over ranges of `order`. A node with more than LEAF boxes has the lower
 * half of its boxes on the left and the rest on the right. Nodes are numbered in preorder (parent,
 * left subtree, right subtree), so no child pointers are needed: the left child is the next node,
 * and the number of nodes in a subtree depends only on its number of boxes.
 */
#include "layout/index.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/sort.h"

#include <assert.h>
#include <string.h>

#define LEAF 8

/* The number of nodes of a tree over `count` boxes. Halving keeps the sizes at one depth within one
 * of each other: at depth k they are a = count / 2^k or a + 1. At the first depth where a <= LEAF,
 * all nodes are leaves, except that nodes of size LEAF + 1 have two leaves below them. */
static int64_t nodes_below(int64_t count)
{
    int64_t width = 1;
    while (count / width > LEAF)
        width *= 2;
    int64_t larger = count % width;
    return 2 * width - 1 + (count / width == LEAF ? 2 * larger : 0);
}

static const int64_t *box_at(const rs_index *index, int64_t box)
{
    return index->boxes + box * 2 * index->ndim;
}

static bool box_is_empty(const rs_index *index, int64_t box)
{
    const int64_t *b = box_at(index, box);
    for (int32_t d = 0; d < index->ndim; d++) {
        if (b[d] >= b[index->ndim + d])
            return true;
    }
    return false;
}

/* A tree under construction. */
typedef struct builder {
    rs_index *index;
    int64_t *middles, *boxes; /* scratch arrays, one item for each box */
} builder;

static int64_t middle_of(const rs_index *index, int64_t box, int32_t dim)
{
    const int64_t *b = box_at(index, box);
    return b[dim] + (b[index->ndim + dim] - b[dim]) / 2;
}

/* Moves the `left` boxes with the smallest middles to the front. Boxes keep their order
 * otherwise. */
static void select_lower(const builder *b, int64_t *order, int64_t count, int64_t left, int32_t dim)
{
    for (int64_t i = 0; i < count; i++)
        b->middles[i] = middle_of(b->index, order[i], dim);
    int64_t border = rs_select(b->middles, count, left);
    int64_t at_border = left; /* how many of the boxes at the border go left */
    for (int64_t i = 0; i < count; i++)
        at_border -= b->middles[i] < border;
    memcpy(b->boxes, order, (size_t)count * sizeof *order);
    int64_t next[2] = {0, left};
    for (int64_t i = 0; i < count; i++) {
        int64_t middle = middle_of(b->index, b->boxes[i], dim);
        bool goes_left = middle < border || (middle == border && at_border-- > 0);
        order[next[!goes_left]++] = b->boxes[i];
    }
    assert(next[0] == left && next[1] == count);
}

static void bound(const rs_index *index, const int64_t *order, int64_t count, int64_t *bounds)
{
    int32_t ndim = index->ndim;
    assert(count >= 1);
    memcpy(bounds, box_at(index, order[0]), (size_t)(2 * ndim) * sizeof *bounds);
    for (int64_t i = 1; i < count; i++) {
        const int64_t *b = box_at(index, order[i]);
        for (int32_t d = 0; d < ndim; d++) {
            bounds[d] = rs_min(bounds[d], b[d]);
            bounds[ndim + d] = rs_max(bounds[ndim + d], b[ndim + d]);
        }
    }
}

static int32_t widest_dim(const rs_index *index, const int64_t *bounds)
{
    int32_t widest = 0;
    for (int32_t d = 1; d < index->ndim; d++) {
        if (bounds[index->ndim + d] - bounds[d] > bounds[index->ndim + widest] - bounds[widest])
            widest = d;
    }
    return widest;
}

static void build(const builder *b, int64_t node, int64_t *order, int64_t count)
{
    int64_t *bounds = b->index->bounds + node * 2 * b->index->ndim;
    bound(b->index, order, count, bounds);
    if (count <= LEAF)
        return;
    int64_t left = count / 2;
    if (b->index->ndim != 0)
        select_lower(b, order, count, left, widest_dim(b->index, bounds));
    build(b, node + 1, order, left);
    build(b, node + 1 + nodes_below(left), order + left, count - left);
}

reshard_status rs_index_build(rs_index *index, rs_arena *arena, int32_t ndim, int64_t count,
                              const int64_t *boxes)
{
    memset(index, 0, sizeof *index);
    index->ndim = ndim;
    index->boxes = boxes;
    index->order = rs_arena_allocate_array(arena, (size_t)count, sizeof *index->order);
    if (index->order == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < count; i++) {
        if (!box_is_empty(index, i))
            index->order[index->count++] = i;
    }
    if (index->count == 0)
        return RESHARD_OK;
    index->node_count = nodes_below(index->count);
    index->bounds = rs_arena_allocate_array(arena, (size_t)index->node_count,
                                            (size_t)(2 * ndim) * sizeof *index->bounds);
    size_t scratch_count = 2 * (size_t)index->count;
    int64_t *scratch = rs_allocate_array(arena->context, scratch_count, sizeof *scratch);
    reshard_status status =
        index->bounds == NULL || scratch == NULL ? rs_allocation_status() : RESHARD_OK;
    if (status == RESHARD_OK)
        build(&(builder){index, scratch, scratch + index->count}, 0, index->order, index->count);
    rs_release(arena->context, scratch);
    return status;
}

static bool touches(int32_t ndim, const int64_t *bounds, const int64_t *start, const int64_t *end)
{
    for (int32_t d = 0; d < ndim; d++) {
        if (bounds[d] >= end[d] || bounds[ndim + d] <= start[d])
            return false;
    }
    return true;
}

typedef struct question {
    const rs_index *index;
    const int64_t *start, *end;
    rs_index_fn fn;
    void *user;
} question;

static reshard_status visit(const question *q, int64_t node, const int64_t *order, int64_t count)
{
    int32_t ndim = q->index->ndim;
    if (!touches(ndim, q->index->bounds + node * 2 * ndim, q->start, q->end))
        return RESHARD_OK;
    reshard_status status = RESHARD_OK;
    if (count <= LEAF) {
        for (int64_t i = 0; i < count && status == RESHARD_OK; i++) {
            if (touches(ndim, box_at(q->index, order[i]), q->start, q->end))
                status = q->fn(q->user, order[i]);
        }
        return status;
    }
    int64_t left = count / 2;
    status = visit(q, node + 1, order, left);
    if (status == RESHARD_OK)
        status = visit(q, node + 1 + nodes_below(left), order + left, count - left);
    return status;
}

reshard_status rs_index_visit(const rs_index *index, const int64_t *start, const int64_t *end,
                              rs_index_fn fn, void *user)
{
    for (int32_t d = 0; d < index->ndim; d++) {
        if (start[d] >= end[d])
            return RESHARD_OK;
    }
    question q = {index, start, end, fn, user};
    return index->count == 0 ? RESHARD_OK : visit(&q, 0, index->order, index->count);
}
