/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h - ranks that run one at a time, in an order drawn from a seed, so that a run can be
 * repeated exactly and faults can be injected. For testing code that uses groups; libreshard uses
 * it to test itself.
 */
#ifndef RESHARD_SIM_H
#define RESHARD_SIM_H

#include <reshard/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/* How to simulate. Messages and calls are counted from 1. */
typedef struct reshard_sim_options {
    size_t size; /* sizeof(reshard_sim_options) */
    uint64_t seed;
    int mapped;           /* non-zero: ranks see each other's memory, as threads do */
    int32_t node_size;    /* otherwise, ranks per node that shares memory; 0: none is shared */
    int64_t fail_message; /* this message breaks the group; 0: none does */
    int32_t stop_rank;    /* this rank leaves ... */
    int64_t stop_after;   /* ... at this call of the transport; 0: never */
    /* Counting the messages that both ends have started, this one arrives late, and so do all later
     * ones between the same ranks on the same channel; 0: none does. A delayed message arrives
     * after everything that can happen without it, or after 1000 calls of the transport. A
     * reordered one arrives 20 calls after the next message between other ranks or on another
     * channel, if one comes before then. */
    int64_t delay_message, reorder_message;
    /* Unless NULL: set when the run is over, to whether the faults asked for above did happen. */
    int *out_reached;
} reshard_sim_options;

/* As reshard_group_run (group.h), with one rank running at a time. Equal seeds give equal runs.
 * options NULL: seed 0, nothing mapped, no faults. Local. Errors: also INVALID. */
RESHARD_API reshard_status reshard_sim_run(reshard_context *context, int32_t size,
                                           const reshard_sim_options *options, reshard_rank_fn body,
                                           void *user);

#ifdef __cplusplus
}
#endif
#endif
