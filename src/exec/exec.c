/* SPDX-License-Identifier: Apache-2.0 */
/* exec.c - making execs, agreeing on them, and the states of a run. */
#include "exec/exec.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>

#define BUFFER_ALIGNMENT 64

/* ---- slots and buffers ----------------------------------------------------------------------- */

static const reshard_layout *tensor_layout(const reshard_exec *exec, int32_t index)
{
    const reshard_plan *forward = rs_plan_forward(exec->plan);
    bool adjoint = reshard_plan_is_adjoint(exec->plan);
    if (index < exec->source_count)
        return adjoint ? forward->targets[index].layout : forward->sources[index].layout;
    index -= exec->source_count;
    if (index < exec->target_count)
        return adjoint ? forward->sources[index].layout : forward->targets[index].layout;
    return forward->intermediates[index - exec->target_count];
}

/* The most shards that any rank has of a tensor. */
static int64_t shards_max(const reshard_layout *layout)
{
    int64_t most = layout->listed ? 0 : 1, run = 0;
    for (int64_t i = 0; layout->listed && i < layout->shard_count; i++) {
        run = i > 0 && layout->shards[i].rank == layout->shards[i - 1].rank ? run + 1 : 1;
        most = rs_max(most, run);
    }
    return most;
}

rs_exec_table *rs_exec_make_table(reshard_exec *exec)
{
    size_t bytes = sizeof *exec->table + (size_t)exec->slot_count * sizeof *exec->table->slots;
    rs_exec_table *table = rs_arena_allocate(&exec->arena, bytes);
    if (table != NULL)
        memset(table, 0, bytes);
    return table;
}

static reshard_status number_slots(reshard_exec *exec)
{
    int32_t tensors = exec->source_count + exec->target_count + exec->intermediate_count;
    exec->slot_first = rs_arena_allocate_array(&exec->arena, (size_t)tensors + 1, sizeof(int64_t));
    exec->source_first =
        rs_arena_allocate_array(&exec->arena, (size_t)exec->source_count + 1, sizeof(int64_t));
    exec->target_first =
        rs_arena_allocate_array(&exec->arena, (size_t)exec->target_count + 1, sizeof(int64_t));
    if (exec->slot_first == NULL || exec->source_first == NULL || exec->target_first == NULL)
        return rs_allocation_status();
    exec->source_first[0] = exec->target_first[0] = exec->slot_first[0] = 0;
    for (int32_t i = 0; i < tensors; i++) {
        const reshard_layout *layout = tensor_layout(exec, i);
        int64_t mine = rs_layout_shard_count(layout, exec->part->rank);
        exec->slot_first[i + 1] = exec->slot_first[i] + shards_max(layout);
        if (i < exec->source_count)
            exec->source_first[i + 1] = exec->source_first[i] + mine;
        else if (i < exec->source_count + exec->target_count)
            exec->target_first[i - exec->source_count + 1] =
                exec->target_first[i - exec->source_count] + mine;
    }
    exec->slot_count = exec->slot_first[tensors];
    exec->table = rs_exec_make_table(exec);
    exec->tensor_shared = rs_arena_allocate_array(&exec->arena, (size_t)tensors, sizeof(bool));
    return exec->table == NULL || exec->tensor_shared == NULL ? rs_allocation_status() : RESHARD_OK;
}

/* The dtype of an intermediate is what the stage links that write it say. */
static reshard_dtype intermediate_dtype(const reshard_exec *exec, int32_t index)
{
    for (int32_t s = 0; s < exec->stage_count; s++) {
        for (int32_t l = 0; l < reshard_plan_stage_link_count(exec->plan, s); l++) {
            reshard_stage_link link;
            (void)reshard_plan_stage_link(exec->plan, s, l, &link);
            if (link.target_is_intermediate && link.target == index)
                return link.target_dtype;
        }
    }
    return RESHARD_U8;
}

static size_t align(size_t bytes)
{
    return (bytes + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT;
}

static size_t intermediate_size(const reshard_exec *exec, int32_t index)
{
    const reshard_layout *layout =
        tensor_layout(exec, exec->source_count + exec->target_count + index);
    int64_t volume = rs_layout_shard_volume(layout, exec->part->rank);
    return align((size_t)volume *
                 (size_t)(reshard_dtype_bits(intermediate_dtype(exec, index)) / 8));
}

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t intermediate_total(const reshard_exec *exec)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < exec->intermediate_count; i++)
        bytes += intermediate_size(exec, i);
    return bytes;
}

/* Intermediates are made from cuts, so each is one shard. */
static void place_intermediates(reshard_exec *exec)
{
    char *at = exec->memory;
    for (int32_t i = 0; i < exec->intermediate_count; i++) {
        int32_t tensor = exec->source_count + exec->target_count + i;
        exec->table->slots[exec->slot_first[tensor]] = at;
        exec->tensor_shared[tensor] = rs_group_is_shared(exec->group, exec->memory);
        at += intermediate_size(exec, i);
    }
    if (exec->messages != NULL)
        rs_messages_place(exec->messages, at);
}

/* Collective. Intermediates, and all that messages need. */
static reshard_status allocate_memory(reshard_exec *exec)
{
    reshard_status status = RESHARD_OK;
    size_t bytes = intermediate_total(exec);
    if (!exec->maps_all)
        status = rs_messages_create(exec, &exec->messages);
    if (status == RESHARD_OK && exec->messages != NULL)
        bytes += rs_messages_staging_bytes(exec->messages);
    if (exec->shares)
        status = rs_group_reserve(exec->group, status, bytes);
    if (status == RESHARD_OK)
        status = rs_group_take(exec->group, bytes, &exec->memory);
    if (status == RESHARD_OK)
        place_intermediates(exec);
    return reshard_group_agree(exec->group, status);
}

/* ---- agreeing -------------------------------------------------------------------------------- */

/* What ranks compare: their plans, and the channels they have used. */
typedef struct offer {
    uint64_t digest[2];
    int64_t channel;
    int64_t mapping; /* peers' memory may be touched */
    int64_t verify;
} offer;

static reshard_status compare_offers(reshard_exec *exec, const offer *all, bool *out_verify)
{
    int32_t size = reshard_group_size(exec->group);
    /* The odd one out is the one that fewest agree with; of two, the second. */
    int32_t odd = -1, fewest = size;
    bool mapping = true;
    for (int32_t i = 0; i < size; i++) {
        int32_t alike = 0;
        for (int32_t k = 0; k < size; k++)
            alike += memcmp(all[i].digest, all[k].digest, sizeof all[i].digest) == 0;
        if (alike <= fewest && alike < size) {
            fewest = alike;
            odd = i;
        }
        exec->channel = (int32_t)rs_max(exec->channel, all[i].channel + RS_CHANNEL_COUNT);
        mapping = mapping && all[i].mapping != 0;
        *out_verify = *out_verify || all[i].verify != 0;
    }
    if (odd >= 0)
        return rs_fail(RESHARD_ERR_MISMATCH,
                       "exec: the plan of rank %d is another one than those of the others", odd);
    exec->group->root->last_channel = exec->channel;
    exec->maps_all = mapping && rs_group_can_map(exec->group);
    exec->shares = mapping && exec->group->root->endpoint.share != NULL;
    if (!mapping)
        rs_exec_part_peers(exec);
    return RESHARD_OK;
}

static reshard_status agree_on_plan(reshard_exec *exec, const reshard_exec_options *options,
                                    bool *out_verify)
{
    offer mine = {.channel = exec->group->root->last_channel,
                  .mapping = options == NULL || !options->messages_only,
                  .verify = options != NULL && options->verify};
    reshard_plan_digest(exec->plan, mine.digest);
    size_t bytes = (size_t)reshard_group_size(exec->group) * sizeof mine;
    offer *all = rs_allocate(exec->context, bytes);
    reshard_status status =
        reshard_group_agree(exec->group, all == NULL ? rs_allocation_status() : RESHARD_OK);
    if (status == RESHARD_OK)
        status = reshard_group_gather_bytes(exec->group, &mine, sizeof mine, all);
    if (status == RESHARD_OK)
        status = compare_offers(exec, all, out_verify);
    rs_release(exec->context, all, bytes);
    return status;
}

/* ---- making ---------------------------------------------------------------------------------- */

static void progress_task(rs_task *task);

static reshard_status build(reshard_exec *exec)
{
    int32_t rank = reshard_group_rank(exec->group);
    if (reshard_plan_rank_count(exec->plan) > reshard_group_size(exec->group))
        return rs_fail(RESHARD_ERR_RANGE, "exec: the plan has rank %d, the group only %d ranks",
                       reshard_plan_rank_count(exec->plan) - 1, reshard_group_size(exec->group));
    const reshard_plan *forward = rs_plan_forward(exec->plan);
    bool adjoint = reshard_plan_is_adjoint(exec->plan);
    exec->source_count = adjoint ? forward->target_count : forward->source_count;
    exec->target_count = adjoint ? forward->source_count : forward->target_count;
    exec->intermediate_count = forward->intermediate_count;
    exec->stage_count = forward->stage_count;
    reshard_status status = reshard_part_create(exec->context, exec->plan, rank, &exec->part);
    if (status == RESHARD_OK)
        status = number_slots(exec);
    if (status == RESHARD_OK)
        status = rs_exec_build(exec);
    return status;
}

reshard_status reshard_exec_create(reshard_context *context, reshard_plan *plan,
                                   reshard_group *group, const reshard_exec_options *options,
                                   reshard_exec **out_exec)
{
    reshard_status status = RESHARD_OK;
    reshard_exec *exec = NULL;
    bool verify = false;
    if (options != NULL && options->size != sizeof *options)
        status = rs_fail(RESHARD_ERR_INVALID, "exec options: size is %zu, not %zu", options->size,
                         sizeof *options);
    if (status == RESHARD_OK) {
        exec = rs_allocate_zeroed(context, sizeof *exec);
        status = exec == NULL ? rs_allocation_status() : RESHARD_OK;
    }
    if (status == RESHARD_OK) {
        exec->context = context;
        rs_arena_init(&exec->arena, context);
        exec->plan = reshard_plan_retain(plan);
        exec->group = reshard_group_retain(group);
        exec->task.progress = progress_task;
        status = build(exec);
    }
    status = reshard_group_agree(group, status);
    if (status == RESHARD_OK)
        status = agree_on_plan(exec, options, &verify);
    if (status == RESHARD_OK && (!exec->maps_all || exec->intermediate_count != 0))
        status = allocate_memory(exec);
    if (status == RESHARD_OK && verify)
        status = reshard_group_agree(group, rs_verify_create(exec, &exec->verify));
    if (status != RESHARD_OK) {
        reshard_exec_destroy(exec);
        return status;
    }
    *out_exec = exec;
    return RESHARD_OK;
}

void reshard_exec_destroy(reshard_exec *exec)
{
    if (exec == NULL)
        return;
    rs_task_remove(&exec->task);
    rs_verify_destroy(exec->verify);
    rs_messages_destroy(exec->messages);
    reshard_part_destroy(exec->part);
    reshard_plan_release(exec->plan);
    reshard_group_free(exec->group, exec->memory);
    reshard_group_release(exec->group);
    rs_arena_release(&exec->arena);
    rs_release(exec->context, exec, sizeof *exec);
}

int64_t reshard_exec_source_count(const reshard_exec *exec)
{
    return exec->source_first[exec->source_count];
}

int64_t reshard_exec_target_count(const reshard_exec *exec)
{
    return exec->target_first[exec->target_count];
}

int64_t reshard_exec_source_first(const reshard_exec *exec, int32_t tensor)
{
    return exec->source_first[tensor];
}

int64_t reshard_exec_target_first(const reshard_exec *exec, int32_t tensor)
{
    return exec->target_first[tensor];
}

/* ---- running --------------------------------------------------------------------------------- */

static void set_state(reshard_exec *exec, rs_exec_state state)
{
    exec->state = state;
    if (state == RS_EXEC_RUNNING)
        rs_group_add_task(exec->group, &exec->task);
    else
        rs_task_remove(&exec->task);
}

/* A failed run: the group is broken, and nobody holds on to this rank's buffers when this
 * returns. */
static reshard_status give_up(reshard_exec *exec, reshard_status status)
{
    set_state(exec, RS_EXEC_FAILED);
    reshard_group_break(exec->group, reshard_error_text());
    rs_group_quiesce(exec->group);
    return status;
}

static bool is_seen(const reshard_exec *exec, const void *memory)
{
    return memory == NULL || rs_group_is_shared(exec->group, memory);
}

static void take_buffers(reshard_exec *exec, const void *const *sources, void *const *targets)
{
    void **slots = exec->table->slots;
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
    if (!exec->shares)
        return;
    for (int32_t i = 0; i < exec->source_count + exec->target_count; i++) {
        exec->tensor_shared[i] = true;
        for (int64_t s = exec->slot_first[i]; s < exec->slot_first[i + 1]; s++)
            exec->tensor_shared[i] = exec->tensor_shared[i] && is_seen(exec, slots[s]);
    }
}

reshard_status reshard_exec_start(reshard_exec *exec, const void *const *sources,
                                  void *const *targets)
{
    if (exec->state == RS_EXEC_RUNNING || exec->state == RS_EXEC_FAILED)
        return rs_fail(exec->state == RS_EXEC_FAILED ? RESHARD_ERR_GROUP_BROKEN
                                                     : RESHARD_ERR_INVALID,
                       exec->state == RS_EXEC_FAILED ? "exec: an earlier run failed"
                                                     : "exec: a run is under way");
    take_buffers(exec, sources, targets);
    set_state(exec, RS_EXEC_RUNNING);
    exec->stage = 0;
    if (exec->verify != NULL)
        rs_verify_sources(exec->verify);
    reshard_status status = rs_stage_begin(exec);
    return status == RESHARD_OK ? status : give_up(exec, status);
}

/* What comes when a stage is over. */
static reshard_status begin_next(reshard_exec *exec)
{
    exec->stage++;
    if (exec->stage < exec->stage_count)
        return rs_stage_begin(exec);
    if (exec->verify != NULL)
        return rs_verify_targets(exec->verify);
    set_state(exec, RS_EXEC_RESTING);
    return RESHARD_OK;
}

/* All ranks come to the same end: what the digests show does not break the group. */
static reshard_status progress_verifying(reshard_exec *exec, bool *out_over)
{
    reshard_status status = rs_verify_progress(exec->verify, out_over);
    if (status == RESHARD_ERR_CHECK) {
        (void)snprintf(exec->why, sizeof exec->why, "%s", reshard_error_text());
        set_state(exec, RS_EXEC_WRONG);
        return RESHARD_OK;
    }
    if (status == RESHARD_OK && *out_over)
        set_state(exec, RS_EXEC_RESTING);
    return status;
}

/* As far as the run can go now. */
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

/* While its rank waits for something else; who waits for the exec will hear of a failure. */
static void progress_task(rs_task *task)
{
    (void)advance((reshard_exec *)(void *)((char *)task - offsetof(reshard_exec, task)));
}

reshard_status reshard_exec_test(reshard_exec *exec, int *out_done)
{
    *out_done = 0;
    if (exec->state == RS_EXEC_FAILED)
        return rs_fail(RESHARD_ERR_GROUP_BROKEN, "exec: the run failed");
    reshard_status status = advance(exec);
    if (status == RESHARD_OK && exec->state == RS_EXEC_WRONG) {
        set_state(exec, RS_EXEC_RESTING);
        status = rs_fail(RESHARD_ERR_CHECK, "%s", exec->why);
    }
    *out_done = status == RESHARD_OK && exec->state == RS_EXEC_RESTING;
    return status;
}

reshard_status reshard_exec_wait(reshard_exec *exec)
{
    for (;;) {
        int done = 0;
        reshard_status status = reshard_exec_test(exec, &done);
        if (status != RESHARD_OK || done)
            return status;
        rs_group_idle(exec->group);
    }
}
