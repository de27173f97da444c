/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec.h - carries out a plan on a group: this is where bytes move.
 *
 * An exec is made once from a plan and a group, and can be run any number of times on buffers given
 * at each start. The plan's ranks are the group's ranks. If a peer's memory is visible, it is read
 * or written directly, with one copy for each byte; other peers get messages through staging that
 * the exec owns.
 *
 *     reshard_exec_create(context, plan, group, NULL, &exec);       collective
 *     reshard_exec_start(exec, sources, targets);                   all ranks, in the same order
 *     reshard_exec_wait(exec);
 *
 * The contract of a run: buffers given to start belong to the exec until wait returns, even if it
 * fails. When it returns RESHARD_OK, this rank's targets are complete and no peer will touch its
 * buffers again. start, test and wait allocate nothing. They fail with errors of the group, with
 * RESHARD_ERR_CHECK when asked to verify, and start with RESHARD_ERR_INVALID for what it is given
 * (below). Several execs may be under way on one group if all ranks start them in the same
 * order; they may be waited for in any: a rank that waits in any call on the group makes progress
 * on everything it has under way.
 */
#ifndef RESHARD_EXEC_H
#define RESHARD_EXEC_H

#include <reshard/group.h>
#include <reshard/plan.h>
#include <reshard/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct reshard_exec reshard_exec;

typedef struct reshard_exec_options {
    size_t size;       /* sizeof(reshard_exec_options) */
    int messages_only; /* non-zero: never touch a peer's memory directly */
    /* Non-zero on any rank: every run compares digests of its sources and targets, worked out from
     * the layouts alone, and wait (or the test that reports it done) returns RESHARD_ERR_CHECK on
     * all ranks if anything arrived changed. Reads all buffers once more. For reductions only the
     * copies of the result are compared; for adjoint plans nothing is. */
    int verify;
    /* Where this rank records what it does, and when; it must outlive the exec. NULL: nowhere.
     * Ranks may differ in this. */
    reshard_trace *trace;
} reshard_exec_options;

/* Collective. Retains the plan and the group. Errors, agreed by all ranks: MISMATCH naming a rank
 * with a different plan, RANGE when the plan has ranks that the group lacks, UNSUPPORTED (a cast or
 * reduction that the dtypes do not have), NO_MEMORY. */
RESHARD_API reshard_status reshard_exec_create(reshard_context *context, reshard_plan *plan,
                                               reshard_group *group,
                                               const reshard_exec_options *options,
                                               reshard_exec **out_exec);
/* Local. Must not be called while a run is under way. */
RESHARD_API void reshard_exec_destroy(reshard_exec *exec);

/* How many buffers start takes: this rank's shards of all source (target) tensors of the plan, by
 * tensor and then by index; and which one is a tensor's first. In an adjoint plan, the sources are
 * the targets of the plan it transposes. */
RESHARD_API int64_t reshard_exec_source_count(const reshard_exec *exec);
RESHARD_API int64_t reshard_exec_target_count(const reshard_exec *exec);
RESHARD_API int64_t reshard_exec_source_first(const reshard_exec *exec, int32_t tensor);
RESHARD_API int64_t reshard_exec_target_first(const reshard_exec *exec, int32_t tensor);

/* Buffers are dense shards, aligned to their element; those of empty shards may be NULL. No target
 * may overlap another target or a source: a peer may still read what this rank writes. The pointers
 * are copied. Errors, besides those of the group: INVALID while a run of this exec is under way,
 * which is not disturbed; INVALID for a NULL where a shard has elements, which breaks the group. */
RESHARD_API reshard_status reshard_exec_start(reshard_exec *exec, const void *const *sources,
                                              void *const *targets);
/* Makes progress. *out_done: the run is complete, as after wait. */
RESHARD_API reshard_status reshard_exec_test(reshard_exec *exec, int *out_done);
RESHARD_API reshard_status reshard_exec_wait(reshard_exec *exec);

#ifdef __cplusplus
}
#endif
#endif
