/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec.h - carries out a plan on a group: this is where bytes move.
 *
 * An exec is made once from a plan and a group, and can be run any number of times, on buffers that
 * are passed at each start. The plan's ranks are the group's ranks. If a peer's memory is visible,
 * it is read or written directly, with one copy for each byte; with other peers, bytes travel as
 * messages through staging memory that the exec owns.
 *
 *     reshard_exec_create(context, plan, group, NULL, &exec);       collective
 *     reshard_exec_start(exec, sources, targets);                   all ranks, in the same order
 *     reshard_exec_wait(exec);
 *
 * The contract of a run: buffers passed to start belong to the exec until wait returns, even if it
 * fails. When it returns RESHARD_OK, this rank's targets are complete and no peer will touch its
 * buffers again. start, test and wait allocate nothing. They fail with the group's errors, with
 * RESHARD_ERR_CHECK if verify was asked for, and start also with RESHARD_ERR_INVALID for its
 * arguments (below). Several execs may be under way on one group if all ranks start them in the
 * same order; they may be waited for in any order, because a rank that waits in any call on the
 * group makes progress on everything it has under way.
 */
#ifndef RESHARD_EXEC_H
#define RESHARD_EXEC_H

#include <reshard/group.h>
#include <reshard/plan.h>
#include <reshard/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * Bind a plan to a group, start it, wait.
 */

typedef struct reshard_exec reshard_exec;

typedef struct reshard_exec_options {
    size_t size;       /* sizeof(reshard_exec_options) */
    int messages_only; /* non-zero: never touch a peer's memory directly */
    /* Non-zero on any rank: every run compares digests of its sources and targets, computed from
     * the layouts alone, and wait (or the test that reports the run done) returns RESHARD_ERR_CHECK
     * on all ranks if anything changed on the way. This reads all buffers once more. Of reductions,
     * only the copies of the result are compared; of adjoint plans, nothing is. */
    int verify;
    /* Where this rank records what it does when, or NULL. Must outlive the exec. Ranks may differ
     * in this. */
    reshard_trace *trace;
} reshard_exec_options;

/* Collective. Retains the plan and the group. Errors, agreed by all ranks: MISMATCH (names a rank
 * with a different plan), RANGE (the plan has ranks that the group lacks), UNSUPPORTED (a cast or
 * reduction that the dtypes do not have), NO_MEMORY. */
RESHARD_API reshard_status reshard_exec_create(reshard_context *context, reshard_plan *plan,
                                               reshard_group *group,
                                               const reshard_exec_options *options,
                                               reshard_exec **out_exec);
/* Local. Must not be called while a run is under way. */
RESHARD_API void reshard_exec_destroy(reshard_exec *exec);

/* Buffers are this rank's shards of all source (or target) tensors of the plan, ordered by
 * tensor and then by shard index (reshard_layout_shards); in an adjoint plan, the sources are
 * the targets of the plan it transposes. They are dense, and aligned to their element; those of
 * empty shards may be NULL. No target may overlap another target or a source, because a peer may
 * still be reading a source while this rank writes its targets. The pointers are copied. Errors,
 * besides those of the group: INVALID if a run of this exec is already under way (that run is
 * not disturbed); INVALID if the buffer of a shard with elements is NULL (this breaks the
 * group); CHECK if the last run was verified and found wrong, but the caller has not been told
 * yet (nothing is started). */
RESHARD_API reshard_status reshard_exec_start(reshard_exec *exec, const void *const *sources,
                                              void *const *targets);
/* Returns when this rank's targets are complete. */
RESHARD_API reshard_status reshard_exec_wait(reshard_exec *exec);

/* ==== explicit ===================================================================================
 * Other work meanwhile.
 */

/* Makes progress. *out_done is set to whether the run is complete, as after wait. */
RESHARD_API reshard_status reshard_exec_test(reshard_exec *exec, int *out_done);

#ifdef __cplusplus
}
#endif
#endif
