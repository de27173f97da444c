/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planning.h - from a case of two specs to a plan, and the plan carried out and compared with the
 * oracle.
 */
#ifndef TESTS_SUPPORT_PLANNING_H
#define TESTS_SUPPORT_PLANNING_H

#include "tests/support/harness.h"
#include "tests/support/simulate.h"

typedef struct planning {
    oracle_layout *source, *target; /* as given, before any relabelling */
    reshard_layout *source_layout, *target_layout;
    reshard_plan *plan;
    reshard_dtype dtype;
    uint64_t item_bytes;
} planning;

typedef enum planning_state {
    PLANNING_READY,
    PLANNING_SKIPPED, /* a spec does not suit the shape, which shrinking may bring about */
    PLANNING_REFUSED  /* with words */
} planning_state;

planning_state planning_init(planning *made, const harness_case *given, reshard_dtype dtype,
                             const reshard_plan_options *options, words *said);
void planning_free(planning *made);

/* Runs the plan by its receives and by its sends, and checks that both fill the targets with the
 * right values. out_run, unless NULL, is filled in from the first and must be released. */
bool planning_run(const planning *made, uint64_t seed, simulate_watch_fn watch, void *user,
                  simulate_run *out_run, words *said);

/* Whether the layout has partial values, and whether they are sums beside averages. */
bool planning_is_partial(const oracle_layout *layout);
bool planning_is_mixed(const oracle_layout *layout);

/* Bytes of a stage matrix over all stages, from rank to rank. */
uint64_t planning_traffic(const planning *made, const simulate_run *run, int32_t from, int32_t to);

/* One cut of one dim over k ranks; ranks NULL: 0 .. k-1. */
void planning_set_chunks(oracle_spec *spec, int32_t k, const int32_t *ranks, int32_t dim);
/* k ranks that do what `kind` says: R, or P(sum). */
void planning_set_whole(oracle_spec *spec, int32_t k, int32_t first, reshard_placement_kind kind);
void planning_set_shape(harness_case *made, int32_t ndim, const int64_t *shape);

#endif
