/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chain.h - a line of n elements cut by one or more mesh axes, one after another: the
 * one-dimensional arithmetic under every regular layout.
 *
 * A cut deals the line out as pieces; a coordinate of its axis holds one piece, and neighbouring
 * coordinates may hold the same one. A piece is one or more intervals of the line, laid one after
 * another: the coordinate's own line, which the next cut of the chain cuts again. Nothing is
 * listed: each question costs one small computation for each cut.
 */
#ifndef RS_LAYOUT_CHAIN_H
#define RS_LAYOUT_CHAIN_H

#include <reshard/spec.h>

#include <stdbool.h>

typedef struct rs_cut {
    int32_t axis;
    int32_t coordinate_count;
    int32_t piece_count; /* distinct pieces: coordinate_count, or less with max= */
    reshard_shard_rule rule;
    int64_t factor;
    int64_t unit;            /* at least 1 */
    int32_t value_count;     /* RAGGED, PACKED */
    const int64_t *values;   /* RAGGED: sizes. PACKED: part lengths */
    const int64_t *starts;   /* RAGGED, PACKED: where each begins; one more than values */
    const int64_t *part_max; /* PACKED: distinct pieces of each part, or NULL */
} rs_cut;

typedef struct rs_chain {
    int32_t count;
    rs_cut *cuts;
} rs_chain;

/* An interval that one set of coordinates holds: at level i of the chain, first[i] ..
 * first[i]+count[i]-1. */
typedef struct rs_span {
    int64_t start, length; /* in the line */
    int64_t local;         /* where it begins in the own line of its first holder */
    int32_t first[RESHARD_AXES_MAX];
    int32_t count[RESHARD_AXES_MAX];
} rs_span;

/* Errors: INVALID when part lengths or sizes do not add up to n, or are not on multiples of the
 * unit. */
reshard_status rs_cut_check(const rs_cut *cut, int64_t n);

/* The length of a coordinate's own line, and the greatest of any coordinate. */
int64_t rs_cut_length(const rs_cut *cut, int64_t n, int32_t coordinate);
int64_t rs_cut_length_max(const rs_cut *cut, int64_t n);

/* The own line's length at these coordinates, one for each level. */
int64_t rs_chain_length(const rs_chain *chain, int64_t n, const int32_t *coordinates);
int64_t rs_chain_length_max(const rs_chain *chain, int64_t n);

/* The span around `position`, 0 <= position < n. */
void rs_chain_find(const rs_chain *chain, int64_t n, int64_t position, rs_span *out_span);

/* Walks the spans of [*position, end), clipped to it; false at the end. */
bool rs_chain_next(const rs_chain *chain, int64_t n, int64_t end, int64_t *position,
                   rs_span *out_span);

/* The place of `position` in the line of a coordinate that holds it. */
int64_t rs_chain_local(const rs_chain *chain, int64_t n, const int32_t *coordinates,
                       int64_t position);

/*
 * Walks the spans that the coordinates hold, in order: start a walk with rs_walk_init (and set
 * `local` to begin further on), then call rs_walk_next until it gives false. The spans are those of
 * rs_chain_find.
 */
typedef struct rs_walk {
    const rs_chain *chain;
    int64_t n;
    const int32_t *coordinates;
    int64_t local;  /* next place in the own line */
    int64_t length; /* of the own line */
} rs_walk;

/* About how many spans the coordinates hold, and into how many the chain cuts `runs` stretches of
 * `length` elements in all; at once, however many (estimate.c). */
int64_t rs_chain_held_estimate(const rs_chain *chain, int64_t n, const int32_t *by_level);
int64_t rs_chain_met_estimate(const rs_chain *chain, int64_t n, int64_t length, int64_t runs);

void rs_walk_init(rs_walk *walk, const rs_chain *chain, int64_t n, const int32_t *coordinates);
bool rs_walk_next(rs_walk *walk, rs_span *out_span);

#endif
