/* SPDX-License-Identifier: Apache-2.0 */
/* target_tied.c - finds tensors that share their bytes in the source, such as an embedding and the
 * output head tied to it, so that a format can let them share them again. */
#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/target/target.h"

#include <assert.h>
#include <string.h>

/* A selected tensor that may share its pieces of the source. */
typedef struct placed {
    const rs_stored_tensor *stored;
    reshard_dtype dtype; /* as written */
    int64_t index;
} placed;

static int compare_numbers(const int64_t *a, const int64_t *b, int32_t count)
{
    if (a == NULL || b == NULL)
        return (a != NULL) - (b != NULL);
    for (int32_t i = 0; i < count; i++) {
        if (a[i] != b[i])
            return a[i] < b[i] ? -1 : 1;
    }
    return 0;
}

/* 0 if both have the same elements at the same place. */
static int compare_places(const placed *a, const placed *b)
{
    const rs_stored_tensor *x = a->stored, *y = b->stored;
    const rs_stored_piece *from = &x->pieces[0], *to = &y->pieces[0];
    if (x->piece_count != y->piece_count)
        return x->piece_count < y->piece_count ? -1 : 1;
    /* A tensor in several pieces is another one's only if a reader gave it the other's pieces. */
    if (x->piece_count > 1 && from != to)
        return (uintptr_t)from < (uintptr_t)to ? -1 : 1;
    if (from->file != to->file)
        return from->file < to->file ? -1 : 1;
    if (from->at != to->at)
        return from->at < to->at ? -1 : 1;
    if (x->dtype != y->dtype)
        return x->dtype < y->dtype ? -1 : 1;
    if (a->dtype != b->dtype)
        return a->dtype < b->dtype ? -1 : 1;
    if (x->ndim != y->ndim)
        return x->ndim < y->ndim ? -1 : 1;
    int order = compare_numbers(x->shape, y->shape, x->ndim);
    return order != 0 ? order : compare_numbers(from->strides, to->strides, x->carried_ndim);
}

static int compare_placed(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    int order = compare_places(x, y);
    return order != 0 ? order : (x->index > y->index) - (x->index < y->index);
}

reshard_status rs_target_find_tied(const rs_laying *laying)
{
    rs_target *target = laying->target;
    const rs_selection *selection = &laying->cuts->selection;
    size_t count = (size_t)selection->count, kept = 0;
    placed *items = rs_allocate_array(target->context, count, sizeof *items);
    target->owners = rs_arena_allocate_array(&target->arena, count, sizeof(int64_t));
    if (items == NULL || target->owners == NULL) {
        rs_release(target->context, items);
        return rs_allocation_status();
    }
    for (int64_t i = 0; i < selection->count; i++) {
        const rs_selected *selected = &selection->items[i];
        const rs_stored_tensor *stored = selected->stored;
        target->owners[i] = -1;
        /* Tensors that are computed have the place of their codes, but scales of their own. */
        bool is_one = stored->piece_count == 1 && rs_piece_is_whole(stored, &stored->pieces[0]);
        if (stored->formula == NULL && (is_one || stored->piece_count > 1) && stored->bytes != 0)
            items[kept++] = (placed){stored, selected->dtype, i};
    }
    rs_sort(items, kept, sizeof *items, compare_placed);
    for (size_t i = 1, first = 0; i < kept; i++) {
        if (compare_places(&items[first], &items[i]) != 0)
            first = i;
        else
            target->owners[items[i].index] = items[first].index;
    }
    rs_release(target->context, items);
    return RESHARD_OK;
}

reshard_status rs_target_add_tied(const rs_laying *laying, const rs_selected *selected)
{
    rs_target *target = laying->target;
    int64_t index = target->tensor_count, owner = target->owners[index];
    const rs_stored_tensor *stored = selected->stored;
    rs_stored_tensor *tensor = &target->tensors[index];
    assert(owner >= 0 && owner < index);
    reshard_status status = rs_store_describe(tensor, &target->arena, selected->name,
                                              selected->dtype, stored->ndim, stored->shape);
    if (status != RESHARD_OK)
        return status;
    tensor->pieces = target->tensors[owner].pieces;
    tensor->piece_count = target->tensors[owner].piece_count;
    target->origins[index] = selected->origin;
    target->tensor_count++;
    return RESHARD_OK;
}
