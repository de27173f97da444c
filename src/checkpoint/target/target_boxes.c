/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target_boxes.c - places boxes for formats that store each of them once. An entry is one box,
 * dense and without padding. Of the ranks that hold the box, the one whose file has the fewest
 * bytes so far stores it.
 */
#include "checkpoint/target/target.h"

#include "base/context.h"

#include <assert.h>

/* For each box, chooses the candidate whose file has the fewest bytes so far. Returns the number of
 * boxes. */
static int64_t choose_holders(const rs_laying *laying, const rs_rank_holding *holding)
{
    int64_t chosen = 0;
    for (int64_t first = 0, next; first < holding->count; first = next) {
        const rs_candidate *best = holding->by_box[first];
        for (next = first + 1; next < holding->count; next++) {
            const rs_candidate *other = holding->by_box[next];
            if (other->box != best->box)
                break;
            if (laying->loads[other->file] < laying->loads[best->file])
                best = other;
        }
        assert(best->file >= 0 && best->file < laying->target->file_count);
        laying->loads[best->file] += best->bytes;
        holding->chosen[chosen++] = best;
    }
    rs_candidates_sort(holding->chosen, chosen);
    return chosen;
}

/* Gives a box its own name, because its file has several boxes of the tensor. */
static reshard_status name_entry(const rs_laying *laying, const rs_stored_tensor *tensor,
                                 rs_box_name_fn *name, int64_t *next_k, rs_target_entry *entry)
{
    rs_target *target = laying->target;
    rs_target_array array = *rs_target_array_of(target, entry);
    rs_slice key;
    reshard_status status = name(laying, tensor->name, next_k, &key);
    if (status != RESHARD_OK)
        return status;
    array.key = rs_arena_copy(&target->arena, &key, 1, sizeof key);
    if (array.key == NULL)
        return rs_allocation_status();
    return rs_target_add_array(target, &array, &entry->array);
}

static reshard_status add_boxes(const rs_laying *laying, rs_stored_tensor *tensor,
                                const rs_rank_holding *holding, rs_box_name_fn *name)
{
    rs_target *target = laying->target;
    const rs_candidate **items = holding->chosen;
    int64_t next_k = 0, count = choose_holders(laying, holding);
    for (int64_t i = 0; i < count; i++) {
        bool same_as_last = i > 0 && items[i - 1]->file == items[i]->file;
        bool several = same_as_last || (i + 1 < count && items[i + 1]->file == items[i]->file);
        next_k = same_as_last ? next_k : 0;
        rs_target_entry entry = {.array = items[i]->array,
                                 .tensor = (int32_t)target->tensor_count,
                                 .file = items[i]->file,
                                 .piece_first = (int32_t)i};
        reshard_status status = RESHARD_OK;
        tensor->pieces[i] = (rs_stored_piece){
            .file = items[i]->file, .offset = items[i]->offset, .size = items[i]->size};
        if (several && name != NULL)
            status = name_entry(laying, tensor, name, &next_k, &entry);
        if (status == RESHARD_OK)
            status = rs_target_add_entry(target, &entry);
        if (status != RESHARD_OK)
            return status;
    }
    tensor->piece_count = count;
    return RESHARD_OK;
}

/* A tensor without elements has no boxes, but gets an entry in the file of its first rank. */
static reshard_status add_empty(const rs_laying *laying, const rs_stored_tensor *tensor,
                                const rs_rank_buffer *first)
{
    rs_target *target = laying->target;
    const rs_target_array array = {
        .ndim = tensor->ndim, .shape = tensor->shape, .hides_shape = true};
    rs_target_entry entry = {.tensor = (int32_t)target->tensor_count, .file = first->file};
    reshard_status status = rs_target_add_array(target, &array, &entry.array);
    return status == RESHARD_OK ? rs_target_add_entry(target, &entry) : status;
}

reshard_status rs_target_place_boxes(const rs_laying *laying, const rs_cut_tensor *cut,
                                     rs_box_name_fn *name)
{
    const rs_rank_holding *holding = cut->holding;
    if (cut->tensor->bytes == 0 && holding->buffer_count > 0)
        return add_empty(laying, cut->tensor, &holding->buffers[0]);
    return add_boxes(laying, cut->tensor, holding, name);
}
