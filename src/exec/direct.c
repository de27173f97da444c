/* SPDX-License-Identifier: Apache-2.0 */
/*
 * direct.c - runs the operations of a stage over memory that can be mapped: no packing, no staging,
 * one copy of each byte. Copies and combinations that share cache lines run side by side, so that
 * each line passes through the cache once.
 */
#include "exec/exec.h"

#include "base/error.h"

#include <assert.h>

/* ---- addresses ------------------------------------------------------------------------------- */

/* The address of a slot. A peer's slot is looked up in its addresses and mapped; NULL if that
 * fails. */
static char *address_of(reshard_exec *exec, const rs_exec_stage *stage,
                        const rs_operation *operation, bool mine, int64_t slot)
{
    assert(slot >= 0 && slot < exec->slot_count);
    if (mine || operation->peer_index < 0)
        return exec->addresses->slots[slot];
    const rs_exec_peer *peer = &stage->peers[operation->peer_index];
    assert(operation->peer_index < stage->peer_count && peer->near && peer->addresses != NULL);
    return rs_group_map(exec->group, peer->rank, peer->addresses->slots[slot], 1);
}

static reshard_status fail_unseen(const reshard_exec *exec, const rs_exec_stage *stage,
                                  const rs_operation *operation)
{
    int32_t rank = operation->peer_index < 0 ? reshard_group_rank(exec->group)
                                             : stage->peers[operation->peer_index].rank;
    return rs_fail(RESHARD_ERR_GROUP_BROKEN,
                   "exec: a buffer of rank %d is NULL, or the transport cannot map it", rank);
}

/* Finds where an operation reads and writes. A fill has no source. */
static reshard_status find_ends(reshard_exec *exec, const rs_exec_stage *stage,
                                const rs_operation *operation, const char **out_source,
                                char **out_target)
{
    int64_t slot = operation->source_slot;
    const char *source = NULL;
    assert(slot != RS_SLOT_SCRATCH || operation->source_offset < exec->traffic->scratch_bytes);
    if (slot == RS_SLOT_SCRATCH)
        source = exec->traffic->scratch;
    else if (slot >= 0)
        source = address_of(exec, stage, operation, operation->pushing, slot);
    char *target = address_of(exec, stage, operation, !operation->pushing, operation->target_slot);
    if (target == NULL || (source == NULL && slot >= 0))
        return fail_unseen(exec, stage, operation);
    *out_source = source != NULL ? source + operation->source_offset : NULL;
    *out_target = target + operation->target_offset;
    return RESHARD_OK;
}

/* ---- copies that share lines ----------------------------------------------------------------- */

#define TOGETHER_MAX 64

/* Runs copies of one link that share cache lines of their short side together, so that each line
 * passes through the cache once. */
static reshard_status run_together(reshard_exec *exec, const rs_exec_stage *stage,
                                   const rs_operation *const *first, int64_t count,
                                   int64_t *out_taken)
{
    const rs_copy *copies[TOGETHER_MAX];
    const void *sources[TOGETHER_MAX];
    void *targets[TOGETHER_MAX];
    int32_t taken = 0;
    while (taken < count && taken < TOGETHER_MAX && first[taken]->together &&
           first[taken]->link == first[0]->link) {
        const char *source = NULL;
        char *target = NULL;
        reshard_status status = find_ends(exec, stage, first[taken], &source, &target);
        if (status != RESHARD_OK)
            return status;
        copies[taken] = &first[taken]->kernels->copy;
        sources[taken] = source;
        targets[taken] = target;
        taken++;
    }
    if (exec->tracing != NULL)
        rs_tracing_copies(exec, taken, first);
    rs_copy_run_together(taken, copies, sources, targets);
    *out_taken = taken;
    return RESHARD_OK;
}

/* ---- combining ------------------------------------------------------------------------------- */

/* Checks whether the operations from `first` on combine some boxes for contributor 0, the same
 * boxes for contributor 1 and so on to the last, each box being one run of memory on both sides.
 * Returns the number of boxes, or 0. */
static int64_t count_stacked(const rs_operation *const *first, int64_t count)
{
    int64_t boxes = 0;
    while (boxes < count && first[boxes]->kind == RESHARD_MOVE_COMBINE &&
           first[boxes]->contributor == 0)
        boxes++;
    if (boxes == 0 || boxes * first[0]->contributor_count != count)
        return 0;
    for (int64_t i = 0; i < count; i++) {
        const rs_operation *o = first[i], *below = first[i % boxes];
        if (o->kind != RESHARD_MOVE_COMBINE || o->contributor != i / boxes ||
            o->contributor_count != first[0]->contributor_count ||
            o->target_slot != below->target_slot || o->target_offset != below->target_offset ||
            rs_copy_bytes(&o->kernels->copy) != rs_copy_bytes(&below->kernels->copy) ||
            !rs_operation_is_one_run(o))
            return 0;
    }
    return boxes;
}

#define STACK_BYTES ((size_t)8 << 10)
#define STACK_MAX 64

/* Combines piece by piece, so that the target stays in the nearest cache until all contributions
 * are in. For every element, the order of contributions is the same as if one operation ran after
 * another. */
static reshard_status run_stacked(reshard_exec *exec, const rs_exec_stage *stage,
                                  const rs_operation *const *first, int64_t boxes)
{
    int32_t height = first[0]->contributor_count;
    assert(height <= STACK_MAX); /* the caller's choice */
    if (exec->tracing != NULL)
        rs_tracing_copies(exec, boxes * height, first);
    for (int64_t box = 0; box < boxes; box++) {
        const char *sources[STACK_MAX];
        char *target = NULL;
        size_t bytes = rs_copy_bytes(&first[box]->kernels->copy);
        for (int32_t c = 0; c < height; c++) {
            reshard_status status =
                find_ends(exec, stage, first[c * boxes + box], &sources[c], &target);
            if (status != RESHARD_OK)
                return status;
        }
        for (size_t at = 0; at < bytes; at += STACK_BYTES) {
            size_t part = bytes - at < STACK_BYTES ? bytes - at : STACK_BYTES;
            for (int32_t c = 0; c < height; c++)
                rs_operation_run_bytes(first[c * boxes + box], sources[c] + at, target + at, part);
        }
    }
    return RESHARD_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

static reshard_status run_alone(reshard_exec *exec, const rs_exec_stage *stage,
                                const rs_operation *operation)
{
    const char *source = NULL;
    char *target = NULL;
    reshard_status status = find_ends(exec, stage, operation, &source, &target);
    if (status != RESHARD_OK)
        return status;
    if (exec->tracing != NULL)
        rs_tracing_copies(exec, 1, &operation);
    rs_operation_run(operation, source, target);
    return RESHARD_OK;
}

reshard_status rs_exec_run_keeps(reshard_exec *exec, const rs_exec_stage *stage)
{
    reshard_status status = RESHARD_OK;
    if (exec->tracing != NULL)
        rs_tracing_begin_copies(exec, false);
    for (int64_t i = 0; i < stage->keep_count && status == RESHARD_OK; i++) {
        if (exec->alias.taken && &stage->keeps[i] == exec->alias.keep)
            continue; /* the intermediate already lies in the target */
        status = run_alone(exec, stage, &stage->keeps[i]);
    }
    if (exec->tracing != NULL)
        rs_tracing_end_copies(exec);
    return status;
}

#ifndef NDEBUG
/* The order that results depend on: copies and fills, then contributions in turn. */
static bool are_in_order(const rs_operation *const *operations, int64_t count)
{
    bool right = true;
    for (int64_t i = 1; i < count; i++) {
        const rs_operation *before = operations[i - 1], *o = operations[i];
        if (rs_move_is_ordered(before->kind))
            right = right && rs_move_is_ordered(o->kind) && before->contributor <= o->contributor;
    }
    return right;
}
#endif

static reshard_status run_direct(reshard_exec *exec, const rs_exec_stage *stage)
{
    assert(are_in_order(stage->direct, stage->direct_count));
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0, taken; i < stage->direct_count && status == RESHARD_OK; i += taken) {
        const rs_operation *const *first = &stage->direct[i];
        int64_t left = stage->direct_count - i, boxes = 0;
        taken = 1;
        if (first[0]->kind == RESHARD_MOVE_COMBINE && first[0]->contributor_count <= STACK_MAX)
            boxes = count_stacked(first, left);
        if (boxes != 0)
            return run_stacked(exec, stage, first, boxes);
        if (first[0]->together)
            status = run_together(exec, stage, first, left, &taken);
        else
            status = run_alone(exec, stage, first[0]);
    }
    return status;
}

reshard_status rs_exec_run_direct(reshard_exec *exec, const rs_exec_stage *stage)
{
    if (exec->tracing != NULL)
        rs_tracing_begin_copies(exec, true);
    reshard_status status = run_direct(exec, stage);
    if (exec->tracing != NULL)
        rs_tracing_end_copies(exec);
    return status;
}
