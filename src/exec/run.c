/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run.c - the states of a run. Start takes the buffers; test and wait go from stage to stage and
 * then, if requested, to the comparison of digests. A running exec is a task of its group, so it
 * makes progress whenever its rank waits for anything.
 */
#include "base/error.h"
#include "base/shorten.h"
#include "exec/exec.h"

#include <assert.h>

/* ---- states ---------------------------------------------------------------------------------- */

static void set_state(reshard_exec *exec, rs_exec_state state)
{
    exec->state = state;
    if (state == RS_EXEC_RUNNING)
        rs_group_add_task(exec->group, &exec->task);
    else
        rs_task_remove(&exec->task);
}

/* Ends a failed run: breaks the group, and returns once no peer uses this rank's buffers any
 * more. */
static reshard_status give_up(reshard_exec *exec, reshard_status status)
{
    assert(status != RESHARD_OK);
    set_state(exec, RS_EXEC_FAILED);
    rs_shorten(reshard_error_text(), exec->why, sizeof exec->why);
    reshard_group_break(exec->group, reshard_error_text());
    rs_group_quiesce(exec->group);
    return status;
}

static reshard_status fail_again(const reshard_exec *exec)
{
    return rs_fail(RESHARD_ERR_GROUP_BROKEN, "exec: a run failed: %s", exec->why);
}

/* Tells the caller, once, that the digests of the last run differ. */
static reshard_status tell_wrong(reshard_exec *exec)
{
    set_state(exec, RS_EXEC_RESTING);
    return rs_fail(RESHARD_ERR_CHECK, "%s", exec->why);
}

/* ---- buffers --------------------------------------------------------------------------------- */

static bool is_seen(const reshard_exec *exec, const void *memory)
{
    return memory == NULL || rs_group_is_shared(exec->group, memory);
}

/* Places the intermediate in the target, unless a source overlaps that place: the source of a
 * reduction in place is still read while the first contributions are written. */
static void place_alias(reshard_exec *exec)
{
    rs_exec_alias *alias = &exec->alias;
    if (alias->keep == NULL)
        return;
    void **slots = exec->addresses->slots;
    assert(alias->keep->target_slot < exec->slot_first[exec->source_count + exec->target_count]);
    char *place = (char *)slots[alias->keep->target_slot] + alias->keep->target_offset;
    alias->taken = true;
    for (int64_t i = 0; i < exec->slot_first[exec->source_count]; i++) {
        const char *source = slots[i];
        if (source != NULL && source < place + alias->bytes && place < source + exec->slot_bytes[i])
            alias->taken = false;
    }
    slots[alias->keep->source_slot] = alias->taken ? place : alias->own;
}

static void take_buffers(reshard_exec *exec, const void *const *sources, void *const *targets)
{
    void **slots = exec->addresses->slots;
    for (int32_t i = 0; i < exec->source_count; i++) {
        int64_t first = exec->source_first[i], count = exec->source_first[i + 1] - first;
        for (int64_t s = 0; s < count; s++)
            slots[exec->slot_first[i] + s] = (void *)(uintptr_t)sources[first + s];
    }
    for (int32_t i = 0; i < exec->target_count; i++) {
        int64_t first = exec->target_first[i], count = exec->target_first[i + 1] - first;
        for (int64_t s = 0; s < count; s++)
            slots[exec->slot_first[exec->source_count + i] + s] = targets[first + s];
    }
}

/* Finds out which tensors peers can map. */
static void find_shared(reshard_exec *exec)
{
    void *const *slots = exec->addresses->slots;
    if (!exec->shares)
        return;
    int32_t tensors = exec->source_count + exec->target_count + exec->intermediate_count;
    for (int32_t i = 0; i < tensors; i++) {
        exec->tensor_shared[i] = true;
        for (int64_t s = exec->slot_first[i]; s < exec->slot_first[i + 1]; s++)
            exec->tensor_shared[i] = exec->tensor_shared[i] && is_seen(exec, slots[s]);
    }
}

/* Every shard that has elements needs a buffer. */
static reshard_status check_buffers(const reshard_exec *exec)
{
    for (int32_t i = 0; i < exec->source_count + exec->target_count; i++) {
        for (int64_t s = exec->slot_first[i]; s < exec->slot_first[i + 1]; s++) {
            if (exec->slot_bytes[s] != 0 && exec->addresses->slots[s] == NULL) {
                bool source = i < exec->source_count;
                return rs_fail(RESHARD_ERR_INVALID,
                               "exec: shard %lld of %s %d has %zu bytes, and its buffer is NULL",
                               (long long)(s - exec->slot_first[i]), source ? "source" : "target",
                               source ? i : i - exec->source_count, exec->slot_bytes[s]);
            }
        }
    }
    return RESHARD_OK;
}

static void verify_sources(reshard_exec *exec)
{
    rs_trace_event event;
    if (exec->tracing != NULL)
        event = rs_tracing_begin(exec, RS_TRACE_VERIFY);
    rs_verify_sources(exec->verify);
    if (exec->tracing != NULL)
        rs_tracing_end(exec, &event);
}

reshard_status reshard_exec_start(reshard_exec *exec, const void *const *sources,
                                  void *const *targets)
{
    if (exec->state == RS_EXEC_FAILED)
        return fail_again(exec);
    if (exec->state == RS_EXEC_RUNNING)
        return rs_fail(RESHARD_ERR_INVALID, "exec: a run is under way");
    if (exec->state == RS_EXEC_WRONG)
        return tell_wrong(exec);
    assert(exec->state == RS_EXEC_RESTING);
    take_buffers(exec, sources, targets);
    set_state(exec, RS_EXEC_RUNNING);
    reshard_status status = check_buffers(exec);
    if (status != RESHARD_OK)
        return give_up(exec, status);
    place_alias(exec);
    find_shared(exec);
    exec->stage = 0;
    if (exec->tracing != NULL)
        exec->tracing->run++;
    if (exec->verify != NULL)
        verify_sources(exec);
    status = rs_stage_begin(exec);
    return status == RESHARD_OK ? status : give_up(exec, status);
}

/* ---- going on -------------------------------------------------------------------------------- */

static reshard_status verify_targets(reshard_exec *exec)
{
    rs_trace_event event;
    if (exec->tracing != NULL)
        event = rs_tracing_begin(exec, RS_TRACE_VERIFY);
    reshard_status status = rs_verify_targets(exec->verify);
    if (exec->tracing != NULL)
        rs_tracing_end(exec, &event);
    return status;
}

/* Begins what follows a stage: the next one, verification, or rest. */
static reshard_status begin_next(reshard_exec *exec)
{
    assert(exec->stage < exec->stage_count &&
           exec->done_count == exec->stages[exec->stage].peer_count);
    exec->stage++;
    if (exec->stage < exec->stage_count)
        return rs_stage_begin(exec);
    if (exec->verify != NULL)
        return verify_targets(exec);
    set_state(exec, RS_EXEC_RESTING);
    return RESHARD_OK;
}

/* All ranks come to the same verdict, so differing digests do not break the group. */
static reshard_status progress_verifying(reshard_exec *exec, bool *out_over)
{
    reshard_status status = rs_verify_progress(exec->verify, out_over);
    if (status == RESHARD_ERR_CHECK) {
        rs_shorten(reshard_error_text(), exec->why, sizeof exec->why);
        set_state(exec, RS_EXEC_WRONG);
        return RESHARD_OK;
    }
    if (status == RESHARD_OK && *out_over)
        set_state(exec, RS_EXEC_RESTING);
    return status;
}

/* Continues the run as far as it can go now. */
static reshard_status advance(reshard_exec *exec)
{
    bool over = true;
    while (exec->state == RS_EXEC_RUNNING && over) {
        reshard_status status = RESHARD_OK;
        if (exec->stage == exec->stage_count) {
            status = progress_verifying(exec, &over);
        } else {
            status = rs_stage_progress(exec, &over);
            if (status == RESHARD_OK && over)
                status = begin_next(exec);
        }
        if (status != RESHARD_OK)
            return give_up(exec, status);
    }
    return RESHARD_OK;
}

/* Called while the rank waits for something else. A failure is kept for the next call of test or
 * wait. */
void rs_exec_progress(rs_task *task)
{
    (void)advance((reshard_exec *)(void *)((char *)task - offsetof(reshard_exec, task)));
}

reshard_status reshard_exec_test(reshard_exec *exec, int *out_done)
{
    *out_done = 0;
    if (exec->state == RS_EXEC_FAILED)
        return fail_again(exec);
    reshard_status status = advance(exec);
    if (status == RESHARD_OK && exec->state == RS_EXEC_WRONG)
        status = tell_wrong(exec);
    *out_done = status == RESHARD_OK && exec->state == RS_EXEC_RESTING;
    return status;
}

reshard_status reshard_exec_wait(reshard_exec *exec)
{
    for (;;) {
        int done = 0;
        reshard_status status = reshard_exec_test(exec, &done);
        if (exec->tracing != NULL && (status != RESHARD_OK || done))
            rs_tracing_end_wait(exec);
        if (status != RESHARD_OK || done)
            return status;
        if (exec->tracing != NULL)
            rs_tracing_wait(exec);
        rs_group_idle(exec->group);
    }
}
