/* SPDX-License-Identifier: Apache-2.0 */
/* exec.c - makes execs: the ranks agree on the plan and on their options, each builds its part
 * (build.c), and they agree that all have what they need; run.c runs them. */
#include "exec/exec.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/options.h"
#include "plan/plan.h"
#include "transport/agree.h"
#include "transport/group.h"

#include <assert.h>
#include <string.h>

#define BUFFER_ALIGNMENT 64

/* ---- slots and buffers ----------------------------------------------------------------------- */

const reshard_layout *rs_exec_layout(const reshard_exec *exec, int32_t index)
{
    const reshard_plan *forward = rs_plan_forward(exec->plan);
    bool adjoint = exec->plan->transposed != NULL;
    if (index < exec->source_count)
        return adjoint ? forward->targets[index].layout : forward->sources[index].layout;
    index -= exec->source_count;
    if (index < exec->target_count)
        return adjoint ? forward->sources[index].layout : forward->targets[index].layout;
    return forward->intermediates[index - exec->target_count];
}

int64_t rs_exec_tensor(const reshard_exec *exec, const reshard_stage_link *link, bool source)
{
    int32_t index = source ? link->source : link->target;
    if (source ? link->source_is_intermediate : link->target_is_intermediate)
        return (int64_t)exec->source_count + exec->target_count + index;
    return source ? index : (int64_t)exec->source_count + index;
}

int64_t rs_exec_slot(const reshard_exec *exec, const reshard_stage_link *link, bool source,
                     int32_t shard)
{
    int64_t tensor = rs_exec_tensor(exec, link, source);
    assert(shard >= 0 && shard < exec->slot_first[tensor + 1] - exec->slot_first[tensor]);
    return exec->slot_first[tensor] + shard;
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

rs_exec_addresses *rs_exec_make_addresses(reshard_exec *exec)
{
    size_t bytes =
        sizeof *exec->addresses + (size_t)exec->slot_count * sizeof *exec->addresses->slots;
    rs_exec_addresses *addresses = rs_arena_allocate(&exec->arena, bytes);
    if (addresses != NULL)
        memset(addresses, 0, bytes);
    return addresses;
}

static void measure_slots(reshard_exec *exec)
{
    const reshard_plan *forward = rs_plan_forward(exec->plan);
    bool adjoint = exec->plan->transposed != NULL;
    for (int32_t i = 0; i < exec->source_count + exec->target_count; i++) {
        bool source = i < exec->source_count;
        const reshard_plan_tensor *tensors =
            source == adjoint ? forward->targets : forward->sources;
        const reshard_plan_tensor *tensor = &tensors[source ? i : i - exec->source_count];
        int64_t mine = rs_layout_shard_count(tensor->layout, exec->part->rank);
        for (int64_t s = 0; s < exec->slot_first[i + 1] - exec->slot_first[i]; s++)
            exec->slot_bytes[exec->slot_first[i] + s] =
                s < mine ? (size_t)rs_layout_one_shard_volume(tensor->layout, exec->part->rank,
                                                              (int32_t)s) *
                               rs_element_bytes(tensor->dtype)
                         : 0;
    }
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
        const reshard_layout *layout = rs_exec_layout(exec, i);
        int64_t mine = rs_layout_shard_count(layout, exec->part->rank);
        exec->slot_first[i + 1] = exec->slot_first[i] + shards_max(layout);
        assert(mine <= exec->slot_first[i + 1] - exec->slot_first[i]); /* a slot for each shard */
        if (i < exec->source_count)
            exec->source_first[i + 1] = exec->source_first[i] + mine;
        else if (i < exec->source_count + exec->target_count)
            exec->target_first[i - exec->source_count + 1] =
                exec->target_first[i - exec->source_count] + mine;
    }
    exec->slot_count = exec->slot_first[tensors];
    exec->addresses = rs_exec_make_addresses(exec);
    exec->slot_bytes = rs_arena_allocate_array(
        &exec->arena, (size_t)exec->slot_first[exec->source_count + exec->target_count],
        sizeof(size_t));
    exec->tensor_shared = rs_arena_allocate_array(&exec->arena, (size_t)tensors, sizeof(bool));
    if (exec->addresses == NULL || exec->slot_bytes == NULL || exec->tensor_shared == NULL)
        return rs_allocation_status();
    measure_slots(exec);
    return RESHARD_OK;
}

/* An intermediate has the dtype of the stage links that write it. */
static reshard_status find_intermediate_dtypes(reshard_exec *exec)
{
    size_t count = (size_t)exec->intermediate_count;
    exec->intermediate_dtypes =
        rs_arena_allocate_array(&exec->arena, count, sizeof *exec->intermediate_dtypes);
    if (exec->intermediate_dtypes == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++)
        exec->intermediate_dtypes[i] = RESHARD_U8;
    for (int32_t s = 0; s < exec->stage_count; s++) {
        for (int32_t l = 0; l < reshard_plan_stage_link_count(exec->plan, s); l++) {
            reshard_stage_link link = rs_plan_stage_link(exec->plan, s, l);
            /* Stages come in order, so what is read has been written, in the same dtype. */
            assert(!link.source_is_intermediate ||
                   exec->intermediate_dtypes[link.source] == link.source_dtype);
            if (link.target_is_intermediate)
                exec->intermediate_dtypes[link.target] = link.target_dtype;
        }
    }
    return RESHARD_OK;
}

static size_t align(size_t bytes)
{
    return (bytes + BUFFER_ALIGNMENT - 1) / BUFFER_ALIGNMENT * BUFFER_ALIGNMENT;
}

static size_t intermediate_size(const reshard_exec *exec, int32_t index)
{
    const reshard_layout *layout =
        rs_exec_layout(exec, exec->source_count + exec->target_count + index);
    int64_t volume = rs_layout_shard_volume(layout, exec->part->rank);
    return align((size_t)volume * rs_element_bytes(exec->intermediate_dtypes[index]));
}

/* ---- memory ---------------------------------------------------------------------------------- */

static size_t intermediate_total(const reshard_exec *exec)
{
    size_t bytes = 0;
    for (int32_t i = 0; i < exec->intermediate_count; i++)
        bytes += intermediate_size(exec, i);
    return bytes;
}

/* Intermediate layouts are made of cuts, so each rank has one shard. */
static void place_intermediates(reshard_exec *exec)
{
    char *at = exec->memory;
    for (int32_t i = 0; i < exec->intermediate_count; i++) {
        int32_t tensor = exec->source_count + exec->target_count + i;
        assert(exec->slot_first[tensor + 1] == exec->slot_first[tensor] + 1);
        exec->addresses->slots[exec->slot_first[tensor]] = at;
        exec->tensor_shared[tensor] = rs_group_is_shared(exec->group, exec->memory);
        at += intermediate_size(exec, i);
    }
    assert(at == (char *)exec->memory + intermediate_total(exec)); /* staging follows */
    if (exec->traffic != NULL)
        rs_traffic_place(exec->traffic, at);
    rs_exec_find_alias(exec);
}

/* Collective. Allocates memory for intermediates and staging. `status` is what building came to on
 * this rank. */
static reshard_status allocate_memory(reshard_exec *exec, reshard_status status)
{
    bool needed = !exec->maps_all || exec->intermediate_count != 0; /* the same on all ranks */
    size_t bytes = status == RESHARD_OK ? intermediate_total(exec) : 0;
    if (status == RESHARD_OK && exec->traffic != NULL)
        bytes += rs_traffic_staging_bytes(exec->traffic);
    if (needed && exec->shares)
        status = rs_group_reserve(exec->group, status, bytes);
    if (needed && status == RESHARD_OK)
        status = rs_group_take(exec->group, bytes, &exec->memory);
    if (needed && status == RESHARD_OK)
        place_intermediates(exec);
    return reshard_group_agree(exec->group, status);
}

/* ---- making ---------------------------------------------------------------------------------- */

/* Makes an exec that has only what it is asked for. */
static reshard_status make_empty(reshard_context *context, reshard_plan *plan, reshard_group *group,
                                 reshard_trace *trace, reshard_exec **out_exec)
{
    const reshard_plan *forward = rs_plan_forward(plan);
    bool adjoint = plan->transposed != NULL;
    if (forward->rank_count > reshard_group_size(group))
        return rs_fail(RESHARD_ERR_RANGE, "exec: the plan has rank %d, the group only %d ranks",
                       forward->rank_count - 1, reshard_group_size(group));
    reshard_exec *exec = rs_allocate_zeroed(context, sizeof *exec);
    if (exec == NULL)
        return rs_allocation_status();
    exec->context = context;
    rs_arena_init(&exec->arena, context);
    exec->plan = reshard_plan_retain(plan);
    exec->group = reshard_group_retain(group);
    exec->task.progress = rs_exec_progress;
    exec->source_count = adjoint ? forward->target_count : forward->source_count;
    exec->target_count = adjoint ? forward->source_count : forward->target_count;
    exec->intermediate_count = forward->intermediate_count;
    exec->stage_count = forward->stage_count;
    *out_exec = exec; /* destroyed by the caller, even if the rest fails */
    return trace != NULL ? rs_tracing_create(exec, trace) : RESHARD_OK;
}

/* Collective. All ranks must have the same plan. They take the next channel that is free on all of
 * them. If one rank asks for messages only, or for verification, that applies to all ranks. */
static reshard_status agree_on_plan(reshard_exec *exec, reshard_group *group, reshard_status status,
                                    reshard_exec_options *options)
{
    rs_claim claim = {.what = "exec: the plan"};
    uint64_t numbers[RS_AGREE_NUMBERS] = {(uint64_t)group->root->last_channel,
                                          options->messages_only != 0, options->verify != 0};
    if (status == RESHARD_OK)
        rs_plan_digest(exec->plan, claim.digest);
    status = rs_group_agree_on(group, status, &claim, numbers);
    if (status != RESHARD_OK)
        return status;
    exec->channel = (int32_t)numbers[0] + RS_CHANNEL_COUNT;
    group->root->last_channel = exec->channel;
    assert(exec->channel > group->channel);
    exec->messages_only = numbers[1] != 0;
    exec->maps_all = !exec->messages_only && rs_group_can_map(group);
    exec->shares = !exec->messages_only && group->root->endpoint.share != NULL;
    options->verify = numbers[2] != 0;
    return RESHARD_OK;
}

static reshard_status build(reshard_exec *exec, bool verify)
{
    reshard_status status = reshard_part_create(exec->context, exec->plan,
                                                reshard_group_rank(exec->group), &exec->part);
    if (status == RESHARD_OK)
        status = number_slots(exec);
    if (status == RESHARD_OK)
        status = find_intermediate_dtypes(exec);
    if (status == RESHARD_OK && !exec->maps_all)
        status = rs_traffic_create(exec);
    if (status == RESHARD_OK)
        status = rs_exec_build(exec);
    if (status == RESHARD_OK && exec->traffic != NULL)
        status = rs_traffic_make_parcels(exec);
    if (status == RESHARD_OK && exec->tracing != NULL)
        status = rs_tracing_prepare(exec);
    if (status == RESHARD_OK && verify)
        status = rs_verify_create(exec, &exec->verify);
    return status;
}

reshard_status reshard_exec_create(reshard_context *context, reshard_plan *plan,
                                   reshard_group *group, const reshard_exec_options *options,
                                   reshard_exec **out_exec)
{
    reshard_exec *exec = NULL;
    reshard_exec_options chosen = {0};
    reshard_status status = rs_group_choose(&group);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "exec");
    status = rs_options_read("exec options", options, &chosen, sizeof chosen);
    if (status == RESHARD_OK)
        status = make_empty(context, plan, group, chosen.trace, &exec);
    status = agree_on_plan(exec, group, status, &chosen);
    if (status == RESHARD_OK)
        status = allocate_memory(exec, build(exec, chosen.verify != 0));
    if (status != RESHARD_OK) {
        reshard_exec_destroy(exec);
        return status;
    }
    if (exec->tracing != NULL)
        rs_tracing_planned(exec);
    *out_exec = exec;
    return RESHARD_OK;
}

void reshard_exec_destroy(reshard_exec *exec)
{
    if (exec == NULL)
        return;
    rs_task_remove(&exec->task);
    rs_tracing_destroy(exec);
    rs_verify_destroy(exec->verify);
    rs_traffic_destroy(exec);
    reshard_part_destroy(exec->part);
    reshard_plan_release(exec->plan);
    reshard_group_free(exec->group, exec->memory);
    reshard_group_release(exec->group);
    rs_arena_release(&exec->arena);
    rs_release(exec->context, exec);
}
