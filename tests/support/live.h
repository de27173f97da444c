/* SPDX-License-Identifier: Apache-2.0 */
/*
 * live.h - plans carried out by live ranks, and what their targets then hold compared with the
 * oracle. A way says how ranks come to life: threads, the simulation, MPI's processes. Ranks only
 * run; the caller of these checks looks at what they have done.
 *
 * Where ranks are processes each of them calls the same checks on the same cases, holds the buffers
 * of all ranks, and moves into and out of its own; `collect` then brings the others' here. So all
 * come to the same verdict, and shrink a failing case alike.
 */
#ifndef TESTS_SUPPORT_LIVE_H
#define TESTS_SUPPORT_LIVE_H

#include "tests/support/planning.h"

#include <reshard/exec.h>

/* What each rank needs to know; user data of live_run_rank. */
typedef struct live {
    reshard_plan *plan;
    const simulate_tensor *from, *to;
    reshard_exec_options options;
    int runs;
    reshard_context *context; /* of context_rank's exec; others have the default one */
    int32_t context_rank;
    /* bits by rank: its buffers are in memory of the group meanwhile */
    uint64_t shared_sources, shared_targets;
} live;

/* Makes an exec, runs it `runs` times on this rank's buffers and destroys it. */
reshard_status live_run_rank(void *user, reshard_group *group);
/* This rank's buffers of a tensor, by index; returns how many. */
int64_t live_list_buffers(const simulate_tensor *tensor, int32_t rank, void **out);

typedef struct live_way {
    const char *name;
    /* Runs the body on at least `size` ranks. */
    reshard_status (*run)(const struct live_way *way, uint64_t seed, int32_t size,
                          reshard_rank_fn body, void *user);
    void (*collect)(simulate_tensor *tensor); /* NULL: all ranks are here */
    int messages_only;
    int mapped;                                          /* of the simulation */
    int32_t node_size;                                   /* likewise */
    enum { LIVE_PLAIN, LIVE_SHARED, LIVE_MIXED } memory; /* of none, all, or some ranks */
} live_way;

/* Threads and the simulation, each with memory that is seen and memory that is not, or in part. */
extern const live_way live_ways[];
extern const int live_way_count;

/* The case's plan fills its targets as the oracle says. */
bool live_check_there(const harness_case *given, const live_way *way, words *said);
/* From source to target and back: every source buffer holds its own bits again. True for partial
 * sources, which do not come back. */
bool live_check_back(const harness_case *given, const live_way *way, words *said);

/* Two specs of any kind for one shape; ranks_max: of each, and one past the highest. 0: as the
 * generator likes. */
void live_generate_pair(draw_state *draw, int32_t ranks_max, harness_case *made);
/* The same tensor, cut over 5 owners, and over the index-th (of 120) order of the same 5. */
void live_set_permutation(int index, harness_case *made);

/* ---- a plan to try things with --------------------------------------------------------------- */

typedef struct live_fixture {
    reshard_layout *source, *target;
    reshard_plan *plan;
    simulate_tensor *from, *to;
    simulate_tensor *wanted; /* what `to` is to hold, by the simulator */
    live l;                  /* two runs */
} live_fixture;

/* 12x10 doubles; staging is small, so that messages are many. Asserts. */
void live_fixture_init(live_fixture *fixture, const char *from, const char *to, int messages);
void live_fixture_release(live_fixture *fixture);
/* Multiples of 360360 (of all numbers up to 15), so that averages are exact and order does not
 * matter. */
void live_fill_with_integers(simulate_tensor *tensor, uint64_t seed);

#endif
