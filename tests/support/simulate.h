/* SPDX-License-Identifier: Apache-2.0 */
/*
 * simulate.h - carries a plan out on arrays of double, one element at a time, with no code of the
 * library's executor and none of its expansion of records.
 *
 * Pulling obeys the lists of receives, pushing those of sends; both obey the keeps. The two must
 * come to the same arrays, because the two ends of a pair never talk about what they are going to
 * do.
 */
#ifndef TESTS_SUPPORT_SIMULATE_H
#define TESTS_SUPPORT_SIMULATE_H

#include "tests/support/words.h"

#include <reshard/plan_inspect.h>

enum { SIMULATE_PARTS_MAX = 24 }; /* contributors */

typedef struct simulate_buffer {
    int32_t rank, index;
    int32_t partial;
    reshard_reduction reduction;
    int32_t contributor, contributor_count, divisor;
    int64_t count;
    double *values;  /* begin as NaN */
    int32_t *writes; /* of each element: copies, fills and whole combinations */
    /* What COMBINE brought so far: [element * SIMULATE_PARTS_MAX + contributor], and of how
     * many. */
    double *parts;
    uint8_t *part_writes;
    int32_t *part_counts;
    reshard_reduction *part_reductions;
    int32_t *part_divisors;
} simulate_buffer;

typedef struct simulate_tensor {
    int64_t count;
    simulate_buffer *buffers; /* by rank, then by index */
} simulate_tensor;

simulate_tensor *simulate_tensor_create(const reshard_layout *layout);
void simulate_tensor_destroy(simulate_tensor *tensor);
/* NULL when the rank has no such shard. */
simulate_buffer *simulate_find(const simulate_tensor *tensor, int32_t rank, int32_t index);
/* Everything becomes 0, as the targets of an adjoint plan begin. */
void simulate_clear(simulate_tensor *tensor);
/* The same values, NaN equal to NaN. */
bool simulate_equal(const simulate_tensor *a, const simulate_tensor *b);

typedef enum simulate_direction { SIMULATE_PULL, SIMULATE_PUSH } simulate_direction;

/* Hears of each element that is copied, combined or added; `move` is a single one. */
typedef void (*simulate_watch_fn)(void *user, int32_t stage, const reshard_move *move,
                                  int64_t source_place, int64_t target_place);

typedef struct simulate_run {
    reshard_plan *plan;
    simulate_direction direction;
    simulate_tensor *const *sources; /* as given to the plan; in adjoint plans its targets */
    simulate_tensor *const *targets;
    simulate_watch_fn watch; /* may be NULL */
    void *user;
    /* Results. The matrix has rank_count * rank_count numbers for each stage, [s * rank_count + t];
     * fills do not count. To be freed by simulate_release. */
    int32_t rank_count;
    uint64_t *matrix;
    uint64_t moves; /* single ones: keeps, and receives or sends */
} simulate_run;

/* False, with words, when a move is unsound or an element is not written exactly once. */
bool simulate(simulate_run *run, words *said);
void simulate_release(simulate_run *run);

/* Bytes of one element as it travels on a link: of the narrower type. */
uint64_t simulate_item_bytes(const reshard_stage_link *link);
/* divisor: what the sum is divided by when the reduction is an average. */
double simulate_reduce(reshard_reduction reduction, int32_t divisor, int32_t count,
                       const double *values);

#endif
