/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comparison.h - a comparison as the files of this folder see it. match_tensors.c pairs the tensors
 * of both sides by name; each pair that can be equal becomes a route of the engine from A to B, and
 * sink_find.c notes the first element of each route that differs. compare.c is all of it, and
 * difference.c tells about what was found.
 */
#ifndef RS_CHECKPOINT_COMPARE_COMPARISON_H
#define RS_CHECKPOINT_COMPARE_COMPARISON_H

#include "checkpoint/engine/sink.h"
#include "checkpoint/select/select.h"

#include <reshard/comparison.h>

#define RS_VALUE_BYTES 16 /* of one element, at most */

/* A tensor of either side, or a pair. */
typedef struct rs_compared {
    reshard_difference_kind kind; /* 0: no difference */
    bool dropped;                 /* only in A, and ignored */
    rs_slice name;
    int64_t a, b; /* -1: none */
    reshard_dtype dtype;
    int64_t first; /* the first element that differs, counted in row-major order; -1: unknown */
    unsigned char values[2][RS_VALUE_BYTES]; /* what A, converted, and B have there */
} rs_compared;

struct reshard_comparison {
    reshard_context *context;
    const reshard_checkpoint *a, *b;
    rs_arena arena; /* of what follows */
    int64_t count;
    rs_compared *items; /* by name */
    reshard_comparison_stats stats;
};

/* Lists all tensors of both sides, A's as the conversion leaves them, with what is known before
 * anything is read. Errors: those of selecting. */
reshard_status rs_comparison_match(reshard_comparison *comparison,
                                   const reshard_conversion_options *options, bool ignore_dropped);

/* An engine with the sink that finds differences, and what it has found. */
typedef struct rs_finding {
    rs_engine engine; /* first: the sink gets from there to the rest */
    const reshard_checkpoint *a, *b;
    /* By route: the least number of an element that differs; UINT64_MAX: none. */
    atomic_uint_fast64_t *firsts;
} rs_finding;

extern const rs_sink rs_sink_find;

/* The place of an element that is known by its number in row-major order. */
void rs_element_index(const rs_stored_tensor *tensor, int64_t number,
                      int64_t out_index[RESHARD_NDIM_MAX]);

#endif
