/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.h - ranks that run one at a time, in an order drawn from a seed, so that a run can be
 * repeated exactly and faults can be injected. It serves to test code that uses groups;
 * libreshard's own tests use it.
 */
#ifndef RESHARD_SIM_H
#define RESHARD_SIM_H

#include <reshard/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== advanced ===================================================================================
 * For tests: every order of messages, and every fault, can be had again from its seed.
 */

/* Messages and calls are counted from 1. */
typedef struct reshard_sim_options {
    size_t size; /* sizeof(reshard_sim_options) */
    uint64_t seed;
    int mapped;           /* non-zero: ranks see each other's memory, as threads do */
    int32_t node_size;    /* unless mapped: so many ranks share a node's memory; 0: none do */
    int64_t fail_message; /* the number of a message that breaks the group; 0: none does */
    int32_t stop_rank;    /* this rank leaves ... */
    int64_t stop_after;   /* ... at this call of the transport; 0: never */
    /* The numbers of messages that arrive late, counting those that both ends have started; 0: none
     * does. All later messages between the same ranks on the same channel are late with it. A
     * delayed message arrives after everything that can happen without it, or after 1000 calls of
     * the transport. A reordered one arrives 20 calls after the next message between other ranks or
     * on another channel, if one comes before then. */
    int64_t delay_message, reorder_message;
    /* May be NULL. Set at the end of the run to whether the faults asked for above happened. */
    int *out_reached;
} reshard_sim_options;

/* For programs that test themselves. Like reshard_group_run (group.h), but with one rank running at
 * a time. Equal seeds give equal runs. options NULL: seed 0, nothing mapped, no faults. Local.
 * Errors: also INVALID. */
RESHARD_API reshard_status reshard_sim_run(reshard_context *context, int32_t size,
                                           const reshard_sim_options *options, reshard_rank_fn body,
                                           void *user);

#ifdef __cplusplus
}
#endif
#endif
