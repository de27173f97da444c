/* SPDX-License-Identifier: Apache-2.0 */
/*
 * walk.c - the operations of a stage over memory that is seen: no packing, no staging, one copy for
 * each byte. Copies and combinations that share cache lines are run side by side, so that each line
 * passes through the cache once.
 */
#include "exec/exec.h"

/* ---- addresses ------------------------------------------------------------------------------- */

/* A peer's slots are in its table, and seen from here elsewhere. */
static char *address_of(reshard_exec *exec, const rs_exec_stage *stage,
                        const rs_operation *operation, bool mine, int64_t slot)
{
    if (mine || operation->peer_index < 0)
        return exec->table->slots[slot];
    const rs_exec_peer *peer = &stage->peers[operation->peer_index];
    return rs_group_map(exec->group, peer->rank, peer->table->slots[slot], 1);
}

static const char *source_of(reshard_exec *exec, const rs_exec_stage *stage,
                             const rs_operation *operation)
{
    if (operation->source_slot == RS_SLOT_SCRATCH)
        return rs_messages_scratch(exec->messages) + operation->source_offset;
    if (operation->source_slot < 0)
        return NULL;
    return address_of(exec, stage, operation, operation->pushing, operation->source_slot) +
           operation->source_offset;
}

static char *target_of(reshard_exec *exec, const rs_exec_stage *stage,
                       const rs_operation *operation)
{
    return address_of(exec, stage, operation, !operation->pushing, operation->target_slot) +
           operation->target_offset;
}

/* ---- copies that share lines ----------------------------------------------------------------- */

#define TOGETHER_MAX 64

/* Copies of one link that share the lines of their short side go together, so that it passes
 * through the cache once. */
static int64_t run_together(reshard_exec *exec, const rs_exec_stage *stage,
                            const rs_operation *const *first, int64_t count)
{
    const rs_copy *copies[TOGETHER_MAX];
    const void *sources[TOGETHER_MAX];
    void *targets[TOGETHER_MAX];
    int32_t taken = 0;
    while (taken < count && taken < TOGETHER_MAX && first[taken]->together &&
           first[taken]->link == first[0]->link) {
        copies[taken] = &first[taken]->copy;
        sources[taken] = source_of(exec, stage, first[taken]);
        targets[taken] = target_of(exec, stage, first[taken]);
        taken++;
    }
    rs_copy_run_together(taken, copies, sources, targets);
    return taken;
}

/* ---- combining ------------------------------------------------------------------------------- */

/* How many operations from `first` on combine one box each for contributor 0, the same boxes again
 * for contributor 1, and so on to the last, all of them in one run of memory on both sides. Gives
 * the boxes, or 0. */
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
static void run_stacked(reshard_exec *exec, const rs_exec_stage *stage,
                        const rs_operation *const *first, int64_t boxes)
{
    int32_t height = first[0]->contributor_count;
    for (int64_t box = 0; box < boxes; box++) {
        const char *sources[STACK_MAX];
        char *target = target_of(exec, stage, first[box]);
        size_t bytes = rs_copy_bytes(&first[box]->copy);
        for (int32_t c = 0; c < height; c++)
            sources[c] = source_of(exec, stage, first[c * boxes + box]);
        for (size_t at = 0; at < bytes; at += STACK_BYTES) {
            size_t part = bytes - at < STACK_BYTES ? bytes - at : STACK_BYTES;
            for (int32_t c = 0; c < height; c++)
                rs_operation_run_bytes(first[c * boxes + box], sources[c] + at, target + at, part);
        }
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

void rs_exec_walk_keeps(reshard_exec *exec, const rs_exec_stage *stage)
{
    for (int64_t i = 0; i < stage->keep_count; i++) {
        const rs_operation *keep = &stage->keeps[i];
        rs_operation_run(keep, source_of(exec, stage, keep), target_of(exec, stage, keep));
    }
}

void rs_exec_walk(reshard_exec *exec, const rs_exec_stage *stage)
{
    for (int64_t i = 0; i < stage->walk_count;) {
        const rs_operation *const *first = &stage->walks[i];
        int64_t left = stage->walk_count - i;
        int64_t boxes =
            first[0]->kind == RESHARD_MOVE_COMBINE && first[0]->contributor_count <= STACK_MAX
                ? count_stacked(first, left)
                : 0;
        if (boxes != 0) {
            run_stacked(exec, stage, first, boxes);
            return;
        }
        if (first[0]->together) {
            i += run_together(exec, stage, first, left);
            continue;
        }
        rs_operation_run(first[0], source_of(exec, stage, first[0]),
                         target_of(exec, stage, first[0]));
        i++;
    }
}
