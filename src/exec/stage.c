/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stage.c - one stage of a run.
 *
 *  1. Every rank sends each near peer its addresses. This says that its memory is ready to
 *     be read and written, and which of it is shared.
 *  2. When all near peers are ready, both ends of each pair know the way that bytes take between
 *     them. Everything that does not go directly is started as traffic.
 *  3. The rank copies: it reads from peers or writes to them, as decided when the exec was built.
 *     If contributions must be combined in order, it first waits for those that come as traffic.
 *  4. It then tells each near peer that it is done with that peer's memory. When all peers have
 *     said so, and all traffic has been sent and received, the stage is over.
 *
 * A peer sends "done" after its copies, and this rank receives it before it goes on. So a rank that
 * has heard from all of its peers has its targets complete and its sources to itself.
 */
#include "base/dtype.h"
#include "exec/exec.h"
#include "plan/plan.h"

#include <assert.h>
#include <string.h>

/* ---- ready ----------------------------------------------------------------------------------- */

/* Targets of additions start as zero. Peers do not write to them: the target does the adding. */
static void clear_targets(reshard_exec *exec)
{
    for (int32_t l = 0; l < reshard_plan_stage_link_count(exec->plan, exec->stage); l++) {
        reshard_stage_link link = rs_plan_stage_link(exec->plan, exec->stage, l);
        if (link.target < 0)
            continue; /* the adjoint of a fill has no target */
        int64_t shards = rs_layout_shard_count(link.target_layout, exec->part->rank);
        for (int32_t i = 0; i < shards; i++) {
            size_t bytes =
                (size_t)rs_layout_one_shard_volume(link.target_layout, exec->part->rank, i) *
                rs_element_bytes(link.target_dtype);
            if (bytes != 0)
                memset(exec->addresses->slots[rs_exec_slot(exec, &link, false, i)], 0, bytes);
        }
    }
}

/* Which memory of this rank near peers can map in this stage. */
static uint64_t find_shared(const reshard_exec *exec)
{
    uint64_t shared = RS_SHARED_SOURCES | RS_SHARED_TARGETS | RS_SHARED_STAGING;
    if (exec->maps_all)
        return shared;
    if (!exec->shares)
        return 0;
    if (!rs_group_is_shared(exec->group, exec->memory))
        shared &= ~(uint64_t)RS_SHARED_STAGING;
    for (int32_t l = 0; l < reshard_plan_stage_link_count(exec->plan, exec->stage); l++) {
        reshard_stage_link link = rs_plan_stage_link(exec->plan, exec->stage, l);
        if (link.source >= 0 && !exec->tensor_shared[rs_exec_tensor(exec, &link, true)])
            shared &= ~(uint64_t)RS_SHARED_SOURCES;
        if (link.target >= 0 && !exec->tensor_shared[rs_exec_tensor(exec, &link, false)])
            shared &= ~(uint64_t)RS_SHARED_TARGETS;
    }
    return shared;
}

static reshard_status tell_ready(reshard_exec *exec, rs_exec_peer *peer)
{
    size_t bytes =
        sizeof *exec->addresses + (size_t)exec->slot_count * sizeof *exec->addresses->slots;
    reshard_status status =
        rs_group_receive(exec->group, peer->rank, rs_exec_channel(exec, RS_CHANNEL_READY),
                         peer->addresses, bytes, &peer->ready_received);
    if (status == RESHARD_OK)
        status = rs_group_receive(exec->group, peer->rank, rs_exec_channel(exec, RS_CHANNEL_DONE),
                                  NULL, 0, &peer->done_received);
    if (status == RESHARD_OK)
        status = rs_group_send(exec->group, peer->rank, rs_exec_channel(exec, RS_CHANNEL_READY),
                               exec->addresses, bytes, &peer->ready_sent);
    return status;
}

static reshard_status tell_all_ready(reshard_exec *exec, rs_exec_stage *stage)
{
    reshard_status status = RESHARD_OK;
    rs_trace_event event;
    if (exec->tracing != NULL)
        event = rs_tracing_begin(exec, RS_TRACE_READY);
    for (int64_t i = 0; i < stage->peer_count && status == RESHARD_OK; i++) {
        if (stage->peers[i].near)
            status = tell_ready(exec, &stage->peers[i]);
    }
    if (exec->tracing != NULL)
        rs_tracing_ready(exec, &event);
    return status;
}

/* ---- ways ------------------------------------------------------------------------------------ */

/* The way from the rank with one list of addresses to the rank with the other. Both ends choose
 * alike. */
static rs_way choose_way(const rs_exec_stage *stage, const rs_exec_addresses *from,
                         const rs_exec_addresses *to)
{
    if ((!stage->pulls || (from->shared & RS_SHARED_SOURCES) != 0) &&
        (!stage->pushes || (to->shared & RS_SHARED_TARGETS) != 0))
        return RS_WAY_DIRECT;
    return (from->shared & RS_SHARED_STAGING) != 0 ? RS_WAY_STAGING : RS_WAY_MESSAGES;
}

static bool is_direct(const rs_exec_stage *stage, const rs_operation *operation)
{
    if (operation->peer_index < 0)
        return true;
    const rs_exec_peer *peer = &stage->peers[operation->peer_index];
    assert(peer->near || operation->source_slot == RS_SLOT_SCRATCH);
    bool direct = (operation->pushing ? peer->out : peer->in) == RS_WAY_DIRECT;
    return direct != (operation->source_slot == RS_SLOT_SCRATCH);
}

/* Called once all near peers are ready: settles the ways and starts the traffic. */
static reshard_status enter(reshard_exec *exec)
{
    rs_exec_stage *stage = &exec->stages[exec->stage];
    assert(!exec->entered && (exec->ready_count == stage->peer_count || stage->near_count == 0));
    exec->entered = true;
    if (exec->maps_all) { /* ways and direct copies never change */
        if (exec->tracing != NULL)
            rs_tracing_enter(exec);
        return RESHARD_OK;
    }
    for (int64_t i = 0; i < stage->peer_count; i++) {
        rs_exec_peer *peer = &stage->peers[i];
        if (!peer->near)
            continue;
        peer->in = choose_way(stage, peer->addresses, exec->addresses);
        peer->out = choose_way(stage, exec->addresses, peer->addresses);
    }
    if (exec->tracing != NULL)
        rs_tracing_enter(exec);
    stage->direct_count = 0;
    for (int64_t i = 0; i < stage->operation_count; i++) {
        if (is_direct(stage, &stage->operations[i]))
            stage->direct[stage->direct_count++] = &stage->operations[i];
    }
    return rs_traffic_begin(exec);
}

/* ---- the stage ------------------------------------------------------------------------------- */

reshard_status rs_stage_begin(reshard_exec *exec)
{
    assert(exec->stage >= 0 && exec->stage < exec->stage_count);
    rs_exec_stage *stage = &exec->stages[exec->stage];
    exec->ready_count = exec->done_count = 0;
    exec->entered = exec->copied = false;
    if (exec->plan->transposed != NULL)
        clear_targets(exec);
    exec->addresses->shared = find_shared(exec);
    reshard_status status = stage->near_count != 0 ? tell_all_ready(exec, stage) : RESHARD_OK;
    if (status == RESHARD_OK && stage->near_count == 0)
        status = enter(exec);
    if (status == RESHARD_OK)
        status = rs_exec_run_keeps(exec, stage); /* while the others get ready */
    return status;
}

/* Advances *count past all peers, in order, that have completed a request. */
static reshard_status count_completed(reshard_exec *exec, size_t request, int64_t *count)
{
    rs_exec_stage *stage = &exec->stages[exec->stage];
    while (*count < stage->peer_count) {
        bool done = true;
        char *at = (char *)&stage->peers[*count] + request;
        reshard_status status = RESHARD_OK;
        if (stage->peers[*count].near)
            status = rs_group_test(exec->group, (reshard_request *)(void *)at, &done);
        if (status != RESHARD_OK || !done)
            return status;
        ++*count;
    }
    return RESHARD_OK;
}

static reshard_status copy_and_tell(reshard_exec *exec)
{
    rs_exec_stage *stage = &exec->stages[exec->stage];
    assert(exec->entered && !exec->copied); /* peers are ready, and nothing is combined twice */
    reshard_status status = rs_group_touch(exec->group, true);
    if (status != RESHARD_OK)
        return status;
    reshard_status copied = rs_exec_run_direct(exec, stage);
    rs_copy_fence();
    status = rs_group_touch(exec->group, false);
    if (copied != RESHARD_OK)
        return copied;
    exec->copied = true;
    for (int64_t i = 0; i < stage->peer_count && status == RESHARD_OK; i++) {
        rs_exec_peer *peer = &stage->peers[i];
        if (peer->near)
            status = rs_group_send(exec->group, peer->rank, rs_exec_channel(exec, RS_CHANNEL_DONE),
                                   NULL, 0, &peer->done_sent);
    }
    return status;
}

/* Requests are reused in the next run, so sends must be complete too. */
static reshard_status wait_for_sent(reshard_exec *exec, bool *out_done)
{
    rs_exec_stage *stage = &exec->stages[exec->stage];
    *out_done = true;
    for (int64_t i = 0; i < stage->peer_count && *out_done; i++) {
        if (!stage->peers[i].near)
            continue;
        reshard_status status = rs_group_test(exec->group, &stage->peers[i].ready_sent, out_done);
        if (status == RESHARD_OK && *out_done)
            status = rs_group_test(exec->group, &stage->peers[i].done_sent, out_done);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

reshard_status rs_stage_progress(reshard_exec *exec, bool *out_done)
{
    rs_exec_stage *stage = &exec->stages[exec->stage];
    *out_done = false;
    reshard_status status =
        count_completed(exec, offsetof(rs_exec_peer, ready_received), &exec->ready_count);
    if (status != RESHARD_OK || exec->ready_count < stage->peer_count)
        return status;
    if (!exec->entered)
        status = enter(exec);
    bool received = true, sent = true;
    if (status == RESHARD_OK && exec->traffic != NULL)
        status = rs_traffic_progress(exec, &received, &sent);
    if (status == RESHARD_OK && !exec->copied && (received || !stage->ordered))
        status = copy_and_tell(exec);
    if (status != RESHARD_OK || !exec->copied || !received || !sent)
        return status;
    int64_t done_before = exec->done_count;
    status = count_completed(exec, offsetof(rs_exec_peer, done_received), &exec->done_count);
    if (exec->tracing != NULL)
        rs_tracing_done(exec, done_before, exec->done_count);
    if (status != RESHARD_OK || exec->done_count < stage->peer_count)
        return status;
    return wait_for_sent(exec, out_done);
}
