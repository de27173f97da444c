/* SPDX-License-Identifier: Apache-2.0 */
/*
 * match_tensors.c - pairs the tensors of two checkpoints. A's tensors first get the names and
 * dtypes that a conversion would give them. Both lists are then sorted by name, and one pass over
 * both finds the tensors that only one of them has.
 */
#include "base/context.h"
#include "checkpoint/check/comparison.h"
#include "checkpoint/select/cuts.h"

#include <string.h>

bool rs_compared_same_shape(const rs_stored_tensor *a, const rs_stored_tensor *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

static void judge_pair(const reshard_comparison *comparison, rs_compared *item)
{
    const rs_stored_tensor *a = &comparison->a->tensors[item->a];
    const rs_stored_tensor *b = &comparison->b->tensors[item->b];
    if (item->dtype != b->dtype)
        item->kind = RESHARD_DIFFERENCE_DTYPE;
    else if (!rs_compared_same_shape(a, b))
        item->kind = RESHARD_DIFFERENCE_SHAPE;
}

/* The next name in either list. */
static rs_compared take_next(const rs_selected *from_a, const rs_stored_tensor *from_b,
                             int64_t index_b)
{
    int order = from_a == NULL   ? 1
                : from_b == NULL ? -1
                                 : rs_slice_compare(from_a->name, from_b->name);
    rs_compared item = {.a = -1, .b = -1, .first = -1};
    if (order <= 0) {
        item.name = from_a->name;
        item.a = from_a->origin;
        item.dtype = from_a->dtype;
    }
    if (order >= 0) {
        item.name = from_b->name;
        item.b = index_b;
    }
    return item;
}

static reshard_status pair(reshard_comparison *comparison, const rs_selection *selection,
                           bool ignore_dropped)
{
    const reshard_checkpoint *b = comparison->b;
    comparison->count = 0;
    comparison->stats.tensors_left_out = comparison->a->tensor_count - selection->count;
    if (comparison->mapped != NULL)
        comparison->stats.tensors_left_out +=
            comparison->opened->tensor_count - comparison->mapped->selection.count;
    comparison->items = rs_arena_allocate_array(
        &comparison->arena, (size_t)(selection->count + b->tensor_count), sizeof(rs_compared));
    if (comparison->items == NULL)
        return rs_allocation_status();
    for (int64_t i = 0, j = 0; i < selection->count || j < b->tensor_count;) {
        rs_compared item = take_next(i < selection->count ? &selection->items[i] : NULL,
                                     j < b->tensor_count ? &b->tensors[j] : NULL, j);
        if (item.a >= 0 && item.b >= 0)
            judge_pair(comparison, &item);
        else
            item.kind = item.a >= 0 ? RESHARD_DIFFERENCE_ONLY_IN_A : RESHARD_DIFFERENCE_ONLY_IN_B;
        item.dropped = ignore_dropped && item.kind == RESHARD_DIFFERENCE_ONLY_IN_A;
        i += item.a >= 0;
        j += item.b >= 0;
        /* What B keeps aside is there once more, in another dtype. */
        if (item.kind == RESHARD_DIFFERENCE_ONLY_IN_B && b->tensors[item.b].is_aside)
            continue;
        comparison->items[comparison->count++] = item;
    }
    return RESHARD_OK;
}

/* A's tensors are taken as the conversion makes them. Whole tensors are compared, so a mesh of one
 * rank will do. */
reshard_status rs_comparison_match(reshard_comparison *comparison,
                                   const reshard_conversion_options *options, bool ignore_dropped)
{
    rs_cuts cuts;
    reshard_mesh *mesh = NULL;
    reshard_status status = rs_cuts_init(&cuts, &comparison->arena, comparison->a, options, false);
    if (status == RESHARD_OK && comparison->mapped != NULL)
        rs_mapped_select(comparison->mapped, &cuts.selection);
    if (status == RESHARD_OK)
        status = reshard_mesh_parse(comparison->context, "1", &mesh);
    if (status == RESHARD_OK)
        status = rs_cuts_read_rules(&cuts, comparison->a, mesh, options, false);
    if (status == RESHARD_OK)
        status = pair(comparison, &cuts.selection, ignore_dropped);
    rs_cuts_release(&cuts);
    reshard_mesh_release(mesh);
    return status;
}
