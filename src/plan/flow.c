/* SPDX-License-Identifier: Apache-2.0 */
/*
 * flow.c - a binary search over the load L that no member may exceed. Each trial is a maximum flow
 * from the groups (limited by their amounts) through their members (limited by L), found by Dinic's
 * method: breadth-first levels, then depth-first augmentation along them. Whole capacities give
 * whole flows.
 *
 * Nodes 0 .. group_count - 1 are the groups; members, source and sink follow. Edges come in pairs,
 * an edge and its reverse.
 */
#include "plan/flow.h"

#include "base/arena.h"
#include "base/checked.h"
#include "base/context.h"
#include "base/search.h"

#include <assert.h>
#include <stdbool.h>
#include <string.h>

typedef struct network {
    const rs_flow_problem *problem;
    int64_t edge_count;
    int64_t total; /* sum of all amounts; an edge of this capacity has no limit */
    int32_t node_count, source, sink;
    int32_t *head;    /* the node that an edge leads to */
    int64_t *room;    /* capacity left */
    int64_t *next;    /* next edge of the same node, -1 at the end */
    int64_t *first;   /* first edge of a node */
    int64_t *current; /* the edge at which the depth-first search continues */
    int32_t *level;
    int32_t *queue;
    int64_t *path; /* edges of the depth-first search */
} network;

static void add_edge(network *n, int32_t from, int32_t to)
{
    assert(from != to && from < n->node_count && to < n->node_count);
    int32_t ends[2] = {from, to};
    for (int i = 0; i < 2; i++) {
        n->head[n->edge_count] = ends[1 - i];
        n->next[n->edge_count] = n->first[ends[i]];
        n->first[ends[i]] = n->edge_count++;
    }
}

/* The edges are, in this order: source to group, group to member for each element of the list,
 * member to sink. Reverse edges have odd numbers. */
static void set_room(network *n, int64_t load)
{
    const rs_flow_problem *p = n->problem;
    int64_t places = p->first[p->group_count];
    for (int64_t e = 0; e < n->edge_count; e += 2) {
        int64_t index = e / 2;
        n->room[e] = index < p->group_count            ? p->amounts[index]
                     : index < p->group_count + places ? n->total
                                                       : load;
        n->room[e + 1] = 0;
    }
}

static void build(network *n)
{
    const rs_flow_problem *p = n->problem;
    for (int32_t v = 0; v < n->node_count; v++)
        n->first[v] = -1;
    for (int32_t g = 0; g < p->group_count; g++)
        add_edge(n, n->source, g);
    for (int32_t g = 0; g < p->group_count; g++) {
        for (int64_t i = p->first[g]; i < p->first[g + 1]; i++)
            add_edge(n, g, p->group_count + p->list[i]);
    }
    for (int32_t m = 0; m < p->member_count; m++)
        add_edge(n, p->group_count + m, n->sink);
}

static bool find_levels(network *n)
{
    memset(n->level, 0xff, (size_t)n->node_count * sizeof *n->level);
    int32_t begin = 0, end = 0;
    n->queue[end++] = n->source;
    n->level[n->source] = 0;
    while (begin < end) {
        int32_t at = n->queue[begin++];
        for (int64_t e = n->first[at]; e >= 0; e = n->next[e]) {
            if (n->room[e] > 0 && n->level[n->head[e]] < 0) {
                n->level[n->head[e]] = n->level[at] + 1;
                n->queue[end++] = n->head[e];
            }
        }
    }
    return n->level[n->sink] >= 0;
}

/* Pushes as much as possible along one path through the levels. Returns 0 if none is left. */
static int64_t push_path(network *n)
{
    int64_t length = 0;
    int32_t at = n->source;
    while (at != n->sink) {
        int64_t *e = &n->current[at];
        while (*e >= 0 && (n->room[*e] == 0 || n->level[n->head[*e]] != n->level[at] + 1))
            *e = n->next[*e];
        if (*e >= 0) {
            n->path[length++] = *e;
            at = n->head[*e];
        } else {
            if (length == 0)
                return 0;
            n->level[at] = -1; /* a dead end */
            at = n->head[n->path[--length] ^ 1];
        }
    }
    int64_t amount = INT64_MAX;
    for (int64_t i = 0; i < length; i++)
        amount = rs_min(amount, n->room[n->path[i]]);
    assert(amount > 0 && length < n->node_count);
    for (int64_t i = 0; i < length; i++) {
        n->room[n->path[i]] -= amount;
        n->room[n->path[i] ^ 1] += amount;
    }
    return amount;
}

static int64_t maximum_flow(network *n, int64_t load)
{
    int64_t total = 0;
    set_room(n, load);
    while (find_levels(n)) {
        memcpy(n->current, n->first, (size_t)n->node_count * sizeof *n->current);
        int64_t pushed;
        while ((pushed = push_path(n)) != 0)
            total += pushed;
    }
    assert(total <= n->total);
    return total;
}

static reshard_status allocate(network *n, rs_arena *arena)
{
    const rs_flow_problem *p = n->problem;
    size_t edges =
        2 * ((size_t)p->group_count + (size_t)p->first[p->group_count] + (size_t)p->member_count);
    size_t nodes = (size_t)p->group_count + (size_t)p->member_count + 2;
    n->node_count = (int32_t)nodes;
    n->source = n->node_count - 2;
    n->sink = n->node_count - 1;
    n->head = rs_arena_allocate_array(arena, edges, sizeof *n->head);
    n->room = rs_arena_allocate_array(arena, edges, sizeof *n->room);
    n->next = rs_arena_allocate_array(arena, edges, sizeof *n->next);
    n->first = rs_arena_allocate_array(arena, nodes, sizeof *n->first);
    n->current = rs_arena_allocate_array(arena, nodes, sizeof *n->current);
    n->level = rs_arena_allocate_array(arena, nodes, sizeof *n->level);
    n->queue = rs_arena_allocate_array(arena, nodes, sizeof *n->queue);
    n->path = rs_arena_allocate_array(arena, nodes, sizeof *n->path);
    bool failed = n->head == NULL || n->room == NULL || n->next == NULL || n->first == NULL ||
                  n->current == NULL || n->level == NULL || n->queue == NULL || n->path == NULL;
    return failed ? rs_allocation_status() : RESHARD_OK;
}

reshard_status rs_flow_share(reshard_context *context, const rs_flow_problem *problem,
                             int64_t *out_shares)
{
    rs_arena arena;
    rs_arena_init(&arena, context);
    network n = {.problem = problem};
    reshard_status status = allocate(&n, &arena);
    if (status == RESHARD_OK) {
        build(&n);
        for (int32_t g = 0; g < problem->group_count; g++)
            n.total += problem->amounts[g];
        int64_t limit; /* n.total always suffices */
        RS_FIND_FIRST(limit, n.total, maximum_flow(&n, limit) == n.total);
        (void)maximum_flow(&n, limit);
        int64_t places = problem->first[problem->group_count];
        assert(n.edge_count == 2 * (problem->group_count + places + problem->member_count));
        for (int64_t i = 0; i < places; i++)
            out_shares[i] = n.room[2 * (problem->group_count + i) + 1];
    }
    rs_arena_release(&arena);
    return status;
}
