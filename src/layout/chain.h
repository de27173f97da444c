/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chain.h - a line of n elements that is cut by one or more mesh axes, one after another. This is
 * the one-dimensional arithmetic under every regular layout.
 *
 * A cut divides the line into pieces. Each coordinate of the cut's axis holds one piece, and
 * neighbouring coordinates may hold the same one. A piece is one or more intervals of the line,
 * laid end to end: the coordinate's own line, which the next cut of the chain cuts again. Nothing
 * is listed: each question costs one small computation per cut.
 */
#ifndef RS_LAYOUT_CHAIN_H
#define RS_LAYOUT_CHAIN_H

#include <reshard/spec.h>

#include <stdbool.h>

typedef struct rs_cut {
    int32_t axis;
    int32_t coordinate_count;
    int32_t piece_count; /* distinct pieces: coordinate_count, or fewer with max= */
    reshard_shard_rule rule;
    int64_t factor;
    int64_t unit;          /* at least 1 */
    int32_t value_count;   /* RAGGED, PACKED */
    const int64_t *values; /* RAGGED: sizes. PACKED: part lengths */
    /* RAGGED, PACKED: where each begins, and the end: value_count + 1 numbers */
    const int64_t *starts;
    const int64_t *part_max; /* PACKED: most distinct pieces of each part (0: no limit), or NULL */
} rs_cut;

typedef struct rs_chain {
    int32_t count;
    rs_cut *cuts;
} rs_chain;

/* An interval that one set of coordinates holds: first[i] .. first[i]+count[i]-1 at each level i of
 * the chain. */
typedef struct rs_span {
    int64_t start, length; /* in the whole line */
    int64_t local;         /* where it begins in its first holder's own line */
    int32_t first[RESHARD_AXES_MAX];
    int32_t count[RESHARD_AXES_MAX];
} rs_span;

/* Errors: INVALID if part lengths or sizes do not add up to n, or do not begin on multiples of the
 * unit. */
reshard_status rs_cut_check(const rs_cut *cut, int64_t n);

/* The length of a coordinate's own line, and the greatest such length of all coordinates. */
int64_t rs_cut_length(const rs_cut *cut, int64_t n, int32_t coordinate);
int64_t rs_cut_length_max(const rs_cut *cut, int64_t n);

/* The length of the own line at these coordinates (one for each level), and the greatest of all. */
int64_t rs_chain_length(const rs_chain *chain, int64_t n, const int32_t *coordinates);
int64_t rs_chain_length_max(const rs_chain *chain, int64_t n);

/* The span around `position`, 0 <= position < n. */
void rs_chain_find(const rs_chain *chain, int64_t n, int64_t position, rs_span *out_span);

/* Gives the next span of [*position, end), clipped to that range, and advances *position; false at
 * the end. */
bool rs_chain_next(const rs_chain *chain, int64_t n, int64_t end, int64_t *position,
                   rs_span *out_span);

/* The place of `position` in the own line at these coordinates, which must hold it. */
int64_t rs_chain_local(const rs_chain *chain, int64_t n, const int32_t *coordinates,
                       int64_t position);

/*
 * Goes along the spans that the given coordinates hold, in order. Start with rs_line_cursor_init
 * (and set `local` to begin further on), then call rs_line_cursor_next until it returns false. The
 * spans are those of rs_chain_find.
 */
typedef struct rs_line_cursor {
    const rs_chain *chain;
    int64_t n;
    const int32_t *coordinates;
    int64_t local;  /* the next place in the own line */
    int64_t length; /* of the own line */
} rs_line_cursor;

/* Estimates, computed without enumerating spans (estimate.c): how many spans these coordinates
 * hold, and into how many the chain cuts `runs` stretches that have `length` elements in all. */
int64_t rs_chain_held_estimate(const rs_chain *chain, int64_t n, const int32_t *by_level);
int64_t rs_chain_met_estimate(const rs_chain *chain, int64_t n, int64_t length, int64_t runs);

void rs_line_cursor_init(rs_line_cursor *cursor, const rs_chain *chain, int64_t n,
                         const int32_t *coordinates);
bool rs_line_cursor_next(rs_line_cursor *cursor, rs_span *out_span);

#endif
