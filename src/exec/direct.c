/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct.c - a stage between ranks that see each other's memory. No packing, no staging: one copy
 * for each byte.
 *
 *  1. Every rank sends each of its peers its table of addresses: what it has is ready to be read,
 *     and to be written.
 *  2. When all its peers are ready, a rank walks: it reads from peers, or writes to them, as was
 *     decided.
 *  3. It then tells each peer that it is done with its memory. When all peers have said so, the
 *     stage is over.
 *
 * A peer's done follows its copies: the message is sent after them, and its receipt comes before
 * anything that this rank does next. So a rank that has heard from all of its peers has its targets
 * complete and its sources to itself.
 */
#include "exec/exec.h"

#include <string.h>

static int32_t channel(const reshard_exec *exec, int32_t which)
{
    return exec->channel - exec->group->channel + which;
}

/* ---- running operations ---------------------------------------------------------------------- */

/* Addresses of the two ends: mine from my slots, the peer's from its table, as seen from here. */
static const rs_exec_peer *find_peer(const rs_exec_stage *stage, int32_t rank)
{
    for (int64_t i = 0; i < stage->peer_count; i++) {
        if (stage->peers[i].rank == rank)
            return &stage->peers[i];
    }
    return NULL;
}

static void *address_of(reshard_exec *exec, const rs_exec_stage *stage, int32_t rank, int64_t slot)
{
    if (slot < 0)
        return NULL;
    if (rank == exec->part->rank)
        return exec->slots[slot];
    return rs_group_map(exec->group, rank, find_peer(stage, rank)->table[slot], 1);
}

static const void *source_of(reshard_exec *exec, const rs_exec_stage *stage,
                             const rs_operation *operation)
{
    int32_t rank = operation->pushing ? exec->part->rank : operation->peer;
    if (operation->source_slot < 0)
        return NULL;
    return (const char *)address_of(exec, stage, rank, operation->source_slot) +
           operation->source_offset;
}

static void *target_of(reshard_exec *exec, const rs_exec_stage *stage,
                       const rs_operation *operation)
{
    int32_t rank = operation->pushing ? operation->peer : exec->part->rank;
    return (char *)address_of(exec, stage, rank, operation->target_slot) + operation->target_offset;
}

#define TOGETHER_MAX 64

/* Copies of one link that share the lines of their short side go together, so that it passes
 * through the cache once. */
static int64_t run_together(reshard_exec *exec, const rs_exec_stage *stage,
                            const rs_operation *first, int64_t count)
{
    const rs_copy *copies[TOGETHER_MAX];
    const void *sources[TOGETHER_MAX];
    void *targets[TOGETHER_MAX];
    int32_t taken = 0;
    while (taken < count && taken < TOGETHER_MAX && first[taken].together &&
           first[taken].link == first->link) {
        copies[taken] = &first[taken].copy;
        sources[taken] = source_of(exec, stage, &first[taken]);
        targets[taken] = target_of(exec, stage, &first[taken]);
        taken++;
    }
    rs_copy_run_together(taken, copies, sources, targets);
    return taken;
}

/* How many operations from `first` on combine one box each for contributor 0, the same boxes again
 * for contributor 1, and so on to the last, all of them in one run of memory on both sides. Gives
 * the boxes, or 0. */
static int64_t count_stacked(const rs_operation *first, int64_t count)
{
    int64_t boxes = 0;
    while (boxes < count && first[boxes].kind == RESHARD_MOVE_COMBINE &&
           first[boxes].contributor == 0)
        boxes++;
    if (boxes == 0 || boxes * first->contributor_count != count)
        return 0;
    for (int64_t i = 0; i < count; i++) {
        const rs_operation *o = &first[i], *below = &first[i % boxes];
        if (o->kind != RESHARD_MOVE_COMBINE || o->contributor != i / boxes ||
            o->contributor_count != first->contributor_count ||
            o->target_slot != below->target_slot || o->target_offset != below->target_offset ||
            rs_copy_bytes(&o->copy) != rs_copy_bytes(&below->copy) || !rs_operation_is_one_run(o))
            return 0;
    }
    return boxes;
}

#define STACK_BYTES ((size_t)16 << 10)
#define STACK_MAX 64

/* Combines piece by piece, so that the target stays in the nearest cache until all contributions
 * are in. The order of contributions is the same for every element as it would be one operation
 * after another. */
static void run_stacked(reshard_exec *exec, const rs_exec_stage *stage, const rs_operation *first,
                        int64_t boxes)
{
    int32_t height = first->contributor_count;
    for (int64_t box = 0; box < boxes; box++) {
        const char *sources[STACK_MAX];
        char *target = target_of(exec, stage, &first[box]);
        size_t bytes = rs_copy_bytes(&first[box].copy);
        for (int32_t c = 0; c < height; c++)
            sources[c] = source_of(exec, stage, &first[c * boxes + box]);
        for (size_t at = 0; at < bytes; at += STACK_BYTES) {
            size_t part = bytes - at < STACK_BYTES ? bytes - at : STACK_BYTES;
            for (int32_t c = 0; c < height; c++)
                rs_operation_run_bytes(&first[c * boxes + box], sources[c] + at, target + at, part);
        }
    }
}

static void walk(reshard_exec *exec, const rs_exec_stage *stage)
{
    for (int64_t i = 0; i < stage->walk_count;) {
        const rs_operation *operation = &stage->walks[i];
        int64_t left = stage->walk_count - i;
        int64_t boxes =
            operation->kind == RESHARD_MOVE_COMBINE && operation->contributor_count <= STACK_MAX
                ? count_stacked(operation, left)
                : 0;
        if (boxes != 0) {
            run_stacked(exec, stage, operation, boxes);
            return;
        }
        if (operation->together) {
            i += run_together(exec, stage, operation, left);
            continue;
        }
        rs_operation_run(operation, source_of(exec, stage, operation),
                         target_of(exec, stage, operation));
        i++;
    }
}

/* ---- the stage ------------------------------------------------------------------------------- */

reshard_status rs_direct_begin(reshard_exec *exec)
{
    rs_exec_stage *stage = &exec->stages[exec->stage];
    exec->ready_count = exec->done_count = 0;
    exec->walked = false;
    reshard_status status = RESHARD_OK;
    size_t bytes = (size_t)exec->slot_count * sizeof *exec->slots;
    for (int64_t i = 0; i < stage->peer_count && status == RESHARD_OK; i++) {
        rs_exec_peer *peer = &stage->peers[i];
        status = rs_group_receive(exec->group, peer->rank, channel(exec, RS_CHANNEL_READY),
                                  peer->table, bytes, &peer->ready_received);
        if (status == RESHARD_OK)
            status = rs_group_receive(exec->group, peer->rank, channel(exec, RS_CHANNEL_DONE), NULL,
                                      0, &peer->done_received);
        if (status == RESHARD_OK)
            status = rs_group_send(exec->group, peer->rank, channel(exec, RS_CHANNEL_READY),
                                   exec->slots, bytes, &peer->ready_sent);
    }
    /* While the others get ready. */
    for (int64_t i = 0; i < stage->keep_count && status == RESHARD_OK; i++) {
        const rs_operation *keep = &stage->keeps[i];
        rs_operation_run(keep, source_of(exec, stage, keep), target_of(exec, stage, keep));
    }
    return status;
}

/* How many of the peers, from `count` on in their order, have completed a request. */
static reshard_status count_completed(reshard_exec *exec, size_t request, int64_t *count)
{
    rs_exec_stage *stage = &exec->stages[exec->stage];
    while (*count < stage->peer_count) {
        bool done = false;
        char *at = (char *)&stage->peers[*count] + request;
        reshard_status status = rs_group_test(exec->group, (reshard_request *)(void *)at, &done);
        if (status != RESHARD_OK || !done)
            return status;
        ++*count;
    }
    return RESHARD_OK;
}

static reshard_status walk_and_tell(reshard_exec *exec)
{
    rs_exec_stage *stage = &exec->stages[exec->stage];
    reshard_status status = rs_group_touch(exec->group, true);
    if (status != RESHARD_OK)
        return status;
    walk(exec, stage);
    rs_copy_fence();
    status = rs_group_touch(exec->group, false);
    exec->walked = true;
    for (int64_t i = 0; i < stage->peer_count && status == RESHARD_OK; i++) {
        rs_exec_peer *peer = &stage->peers[i];
        status = rs_group_send(exec->group, peer->rank, channel(exec, RS_CHANNEL_DONE), NULL, 0,
                               &peer->done_sent);
    }
    return status;
}

/* Requests are used again in the next run, so those that were sent must have arrived too. */
static reshard_status wait_for_sent(reshard_exec *exec, bool *out_done)
{
    rs_exec_stage *stage = &exec->stages[exec->stage];
    *out_done = true;
    for (int64_t i = 0; i < stage->peer_count && *out_done; i++) {
        reshard_status status = rs_group_test(exec->group, &stage->peers[i].ready_sent, out_done);
        if (status == RESHARD_OK && *out_done)
            status = rs_group_test(exec->group, &stage->peers[i].done_sent, out_done);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

reshard_status rs_direct_progress(reshard_exec *exec, bool *out_done)
{
    rs_exec_stage *stage = &exec->stages[exec->stage];
    *out_done = false;
    reshard_status status =
        count_completed(exec, offsetof(rs_exec_peer, ready_received), &exec->ready_count);
    if (status != RESHARD_OK || exec->ready_count < stage->peer_count)
        return status;
    if (!exec->walked)
        status = walk_and_tell(exec);
    if (status == RESHARD_OK)
        status = count_completed(exec, offsetof(rs_exec_peer, done_received), &exec->done_count);
    if (status != RESHARD_OK || exec->done_count < stage->peer_count)
        return status;
    return wait_for_sent(exec, out_done);
}
