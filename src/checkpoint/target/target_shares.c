/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target_shares.c - tells the user about shares that are smaller than expected: coordinates of an
 * axis that get nothing of what is cut over it, as when there are more stages than layers; and
 * layers or experts that the configuration counts but that have no tensors.
 */
#include "base/context.h"
#include "checkpoint/rules/memo.h"
#include "checkpoint/target/target.h"
#include "layout/layout.h"
#include "spec/spec.h"

#include <string.h>

reshard_status rs_shares_init(rs_shares *shares, const rs_laying *laying, rs_arena *arena)
{
    *shares = (rs_shares){.mesh = laying->cuts->book.mesh, .file_of = laying->file_of};
    size_t coordinates = 0;
    for (int32_t axis = 0; axis < shares->mesh->axis_count; axis++)
        coordinates += (size_t)shares->mesh->sizes[axis];
    shares->file_count = laying->target->file_count;
    shares->file_holds = rs_arena_allocate_array(arena, (size_t)shares->file_count, sizeof(bool));
    bool *holds = rs_arena_allocate_array(arena, coordinates, sizeof(bool));
    if (holds == NULL || shares->file_holds == NULL)
        return rs_allocation_status();
    memset(holds, 0, coordinates * sizeof(bool));
    for (int32_t axis = 0; axis < shares->mesh->axis_count; axis++) {
        shares->axes[axis].holds = holds;
        holds += shares->mesh->sizes[axis];
    }
    return RESHARD_OK;
}

static void add_to_axis(rs_shares *shares, int32_t axis)
{
    const reshard_mesh *mesh = shares->mesh;
    rs_axis_shares *counted = &shares->axes[axis];
    counted->is_cut = true;
    for (int32_t position = 0; position < mesh->size; position++) {
        int32_t coordinate = position / mesh->strides[axis] % mesh->sizes[axis];
        if (counted->holds[coordinate] || !shares->file_holds[shares->file_of[position]])
            continue;
        counted->holds[coordinate] = true;
        counted->count++;
    }
}

void rs_shares_add(rs_shares *shares, const rs_rank_holding *holding)
{
    const reshard_spec *spec = holding->layout->spec;
    bool is_known = false; /* file_holds has been filled in for this holding */
    for (int32_t i = 0; holding->count != 0 && i < spec->cut_count; i++) {
        const reshard_cut *cut = &spec->cuts[i];
        bool is_cut = cut->placement.kind == RESHARD_SHARD || cut->placement.kind == RESHARD_AT;
        if (!is_cut || shares->axes[cut->axis].count == shares->mesh->sizes[cut->axis])
            continue;
        if (!is_known) {
            memset(shares->file_holds, 0, (size_t)shares->file_count * sizeof(bool));
            for (int64_t j = 0; j < holding->count; j++)
                shares->file_holds[holding->by_buffer[j]->file] = true;
            is_known = true;
        }
        add_to_axis(shares, cut->axis);
    }
}

/* If the configuration counts more layers or experts than there are, some ranks get too little. */
static reshard_status say_missing(rs_target *target, const rs_memo_dealt *dealt)
{
    if (dealt->items.highest + 1 >= dealt->items.count)
        return RESHARD_OK;
    return rs_target_say(target,
                         "layers or experts dealt to %s by the model's numbers: %lld; there are "
                         "tensors of the first %lld only",
                         dealt->axis, (long long)dealt->items.count,
                         (long long)dealt->items.highest + 1);
}

static reshard_status say_few(rs_target *target, const rs_memo_dealt *dealt, int32_t size)
{
    long long count = (long long)dealt->items.count;
    return rs_target_say(
        target, "layers or experts dealt to %s=%d: %lld; %lld of its coordinates get%s none",
        dealt->axis, (int)size, count, size - count, size - count == 1 ? "s" : "");
}

reshard_status rs_shares_say(const rs_shares *shares, const rs_rule_memo *memo, rs_target *target)
{
    bool is_said[RESHARD_AXES_MAX] = {false};
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; status == RESHARD_OK && i < memo->dealt_count; i++) {
        const rs_memo_dealt *dealt = &memo->dealt[i];
        int32_t axis = rs_mesh_find_axis(shares->mesh, dealt->axis);
        status = say_missing(target, dealt);
        if (status != RESHARD_OK || dealt->items.count == 0 || axis < 0 ||
            dealt->items.count >= shares->mesh->sizes[axis])
            continue;
        status = say_few(target, dealt, shares->mesh->sizes[axis]);
        is_said[axis] = true;
    }
    for (int32_t i = 0; status == RESHARD_OK && i < shares->mesh->axis_count; i++) {
        int32_t empty = shares->mesh->sizes[i] - shares->axes[i].count;
        if (shares->axes[i].is_cut && empty != 0 && !is_said[i])
            status = rs_target_say(target,
                                   "%d of the coordinates of %s=%d hold%s no part of any tensor "
                                   "that is cut over it",
                                   (int)empty, shares->mesh->names[i], (int)shares->mesh->sizes[i],
                                   empty == 1 ? "s" : "");
    }
    return status;
}
