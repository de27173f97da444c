/* SPDX-License-Identifier: Apache-2.0 */
/*
 * comparison.h - a comparison, for the files of this folder. match_tensors.c pairs the tensors of
 * both sides by name. Each pair that can be equal becomes a route of the engine from A to B, and
 * sink_find.c notes the first differing element of each route. If asked, measure_tensors.c reads
 * what differs once more and measures how far it is apart. compare.c runs all this, and
 * difference.c describes what was found. If A and B are named differently, seen.c puts a view of A
 * in the place of A.
 */
#ifndef RS_CHECKPOINT_CHECK_COMPARISON_H
#define RS_CHECKPOINT_CHECK_COMPARISON_H

#include "checkpoint/engine/sink.h"
#include "checkpoint/view/mapped.h"
#include "kernel/values/measure.h"

#include <reshard/comparison.h>

#define RS_VALUE_BYTES 16 /* largest element */

/* A pair of tensors, or one that only one side has. */
typedef struct rs_compared {
    reshard_difference_kind kind; /* 0: no difference so far */
    bool dropped;                 /* only in A, and to be ignored */
    rs_slice name;
    int64_t a, b; /* indices of the tensors; -1: none */
    reshard_dtype dtype;
    int64_t first; /* the first differing element, counted in row-major order; -1: not known */
    unsigned char values[2][RS_VALUE_BYTES]; /* its value in A, converted, and in B */
    rs_measure *measure;                     /* NULL: not measured */
    bool is_within;                          /* the tolerance */
} rs_compared;

struct reshard_comparison {
    reshard_context *context;
    const reshard_checkpoint *a, *b;
    const reshard_checkpoint *opened; /* A as it was opened; `a` may be what a map makes of it */
    const rs_mapped *mapped;          /* that map's work; NULL: `a` is as it was opened */
    rs_notes notes;                   /* how names were matched, and what a map leaves out */
    rs_arena arena;                   /* of the items */
    int64_t count;
    rs_compared *items; /* sorted by name; in the end, those within the tolerance come last */
    reshard_comparison_stats stats;
};

/* Lists all tensors of both sides, with A's as the conversion leaves them, and with the differences
 * that can be found without reading them. Errors: those of the selection. */
reshard_status rs_comparison_match(reshard_comparison *comparison,
                                   const reshard_conversion_options *options, bool ignore_dropped);

/* The same, with A as a map sees it: the one that the options name or, if the two have different
 * names, those between their namings. Sets comparison->mapped. Errors: those of a map that the
 * options name. */
reshard_status rs_comparison_see(reshard_comparison *comparison,
                                 const reshard_conversion_options *options, bool ignore_dropped);

bool rs_compared_same_shape(const rs_stored_tensor *a, const rs_stored_tensor *b);

/* An engine with the sink that finds differences, and its findings. */
typedef struct rs_finding {
    rs_engine engine; /* must be first, because the sink casts it to rs_finding */
    const reshard_checkpoint *a, *b;
    /* By route: the lowest number of a differing element; UINT64_MAX: none. */
    atomic_uint_fast64_t *firsts;
} rs_finding;

extern const rs_sink rs_sink_find;

/* Measures the tensors that differ in bytes, or in dtype alone, and judges them by the tolerances
 * of the options. Collective. */
reshard_status rs_comparison_measure(reshard_comparison *comparison, const rs_team *team,
                                     const reshard_comparison_options *options, int32_t threads,
                                     size_t thread_bytes);

/* The index of an element, given its number in row-major order. */
void rs_element_index(const rs_stored_tensor *tensor, int64_t number,
                      int64_t out_index[RESHARD_NDIM_MAX]);

#endif
