/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entries.h - one dim of a link, seen alone: where this rank's line meets the lines of the other
 * side. "Near" is the side of this rank, "far" the other one; a line is what a shard has of one
 * dim.
 */
#ifndef RS_PLAN_ENTRIES_H
#define RS_PLAN_ENTRIES_H

#include "base/arena.h"
#include "plan/family.h"
#include "plan/link.h"

typedef struct rs_grid_side {
    const rs_link_side *link;
    const reshard_layout *layout;
    bool taking_part; /* this rank holds something there */
    int32_t coordinates[RESHARD_AXES_MAX];
} rs_grid_side;

/* What differs between the members of a run of entries. */
typedef struct rs_entry_place {
    int64_t position;        /* what the dim's cuts add to the peer's position in its mesh */
    int64_t start;           /* in link space */
    int64_t near_at, far_at; /* in the two lines */
} rs_entry_place;

/* A piece of the dim that this rank and a peer have in common, or with loops a regular family of
 * them. */
typedef struct rs_grid_entry {
    int64_t size;
    int64_t far_line;     /* length of the far line, which the far shard's strides depend on */
    int32_t holder_count; /* neighbours that hold the same far piece (max=) */
    bool own;             /* this rank is among them */
    rs_entry_place first;
    int32_t loop_count;
    struct rs_entry_loop {
        int64_t count;
        rs_entry_place step;
    } loops[RS_LOOPS_MAX]; /* outermost first */
} rs_grid_entry;

typedef struct rs_grid_entries {
    int64_t near_line; /* length of this rank's line */
    int64_t count;
    const rs_grid_entry *items;
} rs_grid_entries;

/* Whether a far line is plain chunks, which are found many at a time. */
bool rs_grid_chain_is_chunks(const rs_chain *chain);
/* How often a line is walked for a far line whose cuts come back to each peer; 0: once. */
int64_t rs_grid_chain_turns(const rs_chain *chain);

/* The entries of link dim `along`, in the arena. The near side takes part. */
reshard_status rs_grid_entries_make(rs_arena *arena, const rs_link *link, const rs_grid_side *near,
                                    const rs_grid_side *far, int32_t along,
                                    rs_grid_entries *out_entries);

#endif
