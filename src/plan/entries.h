/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entries.h - one dim of a link by itself: where this rank's line meets the lines of the other
 * side's ranks. What is mine is on this rank's side of the link, what is theirs on the other one. A
 * line is what a shard has of one dim.
 */
#ifndef RS_PLAN_ENTRIES_H
#define RS_PLAN_ENTRIES_H

#include "base/arena.h"
#include "plan/family.h"
#include "plan/link.h"

typedef struct rs_grid_side {
    const rs_link_side *link;
    const reshard_layout *layout;
    bool taking_part; /* this rank is one of this side's ranks */
    int32_t coordinates[RESHARD_AXES_MAX];
} rs_grid_side;

/* What differs between the members of a family of entries. */
typedef struct rs_entry_place {
    int64_t position;        /* what this dim's cuts contribute to the peer's mesh position */
    int64_t start;           /* in link space */
    int64_t my_at, their_at; /* offsets in my and their line */
} rs_entry_place;

/* A range of the dim that this rank shares with a peer or, with loops, a regular family of such
 * ranges. */
typedef struct rs_grid_entry {
    int64_t size;
    int64_t their_line;   /* length of their line, on which their shard's strides depend */
    int32_t holder_count; /* adjacent coordinates that hold the same piece of theirs (max=) */
    bool own;             /* this rank is one of these holders */
    rs_entry_place first;
    int32_t loop_count;
    struct rs_entry_loop {
        int64_t count;
        rs_entry_place step;
    } loops[RS_LOOPS_MAX]; /* outermost first */
} rs_grid_entry;

typedef struct rs_grid_entries {
    int64_t my_line; /* length of this rank's line */
    int64_t count;
    const rs_grid_entry *items;
} rs_grid_entries;

/* Whether their line is cut into plain chunks, which can be found many at a time. */
bool rs_grid_chain_is_chunks(const rs_chain *chain);
/* How many times my line is walked if their line's cuts return to each peer: once per peer.
 * 0 if one walk finds the entries of all peers. */
int64_t rs_grid_chain_turns(const rs_chain *chain);

/* Lists the entries of link dim `along`, in the arena. My side must be taking part. */
reshard_status rs_grid_entries_make(rs_arena *arena, const rs_link *link, const rs_grid_side *mine,
                                    const rs_grid_side *theirs, int32_t along,
                                    rs_grid_entries *out_entries);

#endif
