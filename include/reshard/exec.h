/* SPDX-License-Identifier: Apache-2.0 */
/*
 * exec.h - a plan meets a group and moves bytes.
 *
 * An exec is made once from a plan and a group, and run as often as wanted on buffers that are
 * given at each start. Ranks of the plan are ranks of the group. Peers whose memory can be seen are
 * read or written directly, one copy for each byte; others get messages through staging that the
 * exec owns.
 *
 *     reshard_exec_create(context, plan, group, NULL, &exec);       collective
 *     reshard_exec_start(exec, sources, targets);                   all ranks, in the same order
 *     reshard_exec_wait(exec);
 *
 * The contract of a run: buffers given to start belong to the exec until wait returns, on failure
 * too. When it returns RESHARD_OK my targets are complete and no peer will touch my buffers again.
 * start, test and wait allocate nothing. They fail as errors of the group, with RESHARD_ERR_CHECK
 * when asked to verify, and start with RESHARD_ERR_INVALID when the last run is not over. Several
 * execs may be under way on one group, if all ranks start them in the same order; they may be
 * waited for in any: a rank that waits, in whatever call on the group, goes on with all that it has
 * under way.
 */
#ifndef RESHARD_EXEC_H
#define RESHARD_EXEC_H

#include <reshard/group.h>
#include <reshard/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct reshard_exec reshard_exec;

typedef struct reshard_exec_options {
    size_t size;       /* sizeof(reshard_exec_options) */
    int messages_only; /* non-zero: never touch a peer's memory directly */
    /* Non-zero on any rank: every run compares digests of its sources and targets, worked out from
     * the layouts alone, and wait (or the test that says done) gives RESHARD_ERR_CHECK on all ranks
     * when something has not arrived as it was. Reads all buffers once more. Of reductions only the
     * copies of the result are compared; of adjoint plans nothing is. */
    int verify;
} reshard_exec_options;

/* Collective. The plan is retained, the group too. Errors, agreed by all ranks: MISMATCH naming a
 * rank whose plan is another one, RANGE when the plan has ranks that the group lacks, UNSUPPORTED
 * (a cast or reduction that dtypes do not have), NO_MEMORY. */
RESHARD_API reshard_status reshard_exec_create(reshard_context *context, reshard_plan *plan,
                                               reshard_group *group,
                                               const reshard_exec_options *options,
                                               reshard_exec **out_exec);
/* Local. Not while a run is under way. */
RESHARD_API void reshard_exec_destroy(reshard_exec *exec);

/* How many buffers start wants: my shards of all source (target) tensors of the plan, tensor by
 * tensor, then by index; and which is the first of a tensor. Of an adjoint plan, sources are the
 * targets of the plan it transposes. */
RESHARD_API int64_t reshard_exec_source_count(const reshard_exec *exec);
RESHARD_API int64_t reshard_exec_target_count(const reshard_exec *exec);
RESHARD_API int64_t reshard_exec_source_first(const reshard_exec *exec, int32_t tensor);
RESHARD_API int64_t reshard_exec_target_first(const reshard_exec *exec, int32_t tensor);

/* Buffers are dense shards, aligned to their element; those of empty shards may be NULL. The
 * pointers are copied. Beside errors of the group: INVALID while a run of this exec is under way,
 * which is not disturbed by it. */
RESHARD_API reshard_status reshard_exec_start(reshard_exec *exec, const void *const *sources,
                                              void *const *targets);
/* Makes progress. *out_done: the run is complete, as after wait. */
RESHARD_API reshard_status reshard_exec_test(reshard_exec *exec, int *out_done);
RESHARD_API reshard_status reshard_exec_wait(reshard_exec *exec);

#ifdef __cplusplus
}
#endif
#endif
