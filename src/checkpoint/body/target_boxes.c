/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target_boxes.c - places the boxes of a tensor for formats that store each of them once: an entry
 * is one box, dense and without padding, in the file that has the least so far among those whose
 * ranks hold it.
 */
#include "checkpoint/body/target.h"

#include "base/context.h"

#include <assert.h>

/* Of the candidates for each box chooses the one whose file has the least so far; returns how many
 * boxes there are. */
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

/* The key of a box: the tensor's name, unless the file holds several of its boxes. */
static reshard_status name_entry(const rs_laying *laying, const rs_stored_tensor *tensor,
                                 bool several, rs_box_name_fn *name, int64_t *next_k,
                                 rs_target_entry *entry)
{
    rs_slice key = tensor->name;
    entry->key = &tensor->name;
    if (name == NULL || !several)
        return RESHARD_OK;
    reshard_status status = name(laying, tensor->name, next_k, &key);
    if (status == RESHARD_OK)
        entry->key = rs_arena_copy(&laying->target->arena, &key, 1, sizeof key);
    return status == RESHARD_OK && entry->key == NULL ? rs_allocation_status() : status;
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
        rs_target_entry entry = {.tensor = (int32_t)target->tensor_count,
                                 .file = items[i]->file,
                                 .ndim = tensor->opaque ? tensor->ndim : tensor->carried_ndim,
                                 .shape = tensor->opaque ? tensor->shape : items[i]->size,
                                 .piece_first = (int32_t)i,
                                 .piece_count = 1,
                                 .bytes = items[i]->bytes,
                                 .hides_shape = true};
        tensor->pieces[i] = (rs_stored_piece){
            .file = items[i]->file, .offset = items[i]->offset, .size = items[i]->size};
        reshard_status status = name_entry(laying, tensor, several, name, &next_k, &entry);
        if (status == RESHARD_OK)
            status = rs_target_add_entry(target, &entry);
        if (status != RESHARD_OK)
            return status;
    }
    tensor->piece_count = count;
    return RESHARD_OK;
}

/* A tensor without elements has no boxes, but still an entry: in the file of its first rank. */
static reshard_status add_empty(const rs_laying *laying, const rs_stored_tensor *tensor,
                                const rs_rank_buffer *first)
{
    rs_target_entry entry = {.key = &tensor->name,
                             .tensor = (int32_t)laying->target->tensor_count,
                             .file = first->file,
                             .ndim = tensor->ndim,
                             .shape = tensor->shape,
                             .hides_shape = true};
    return rs_target_add_entry(laying->target, &entry);
}

reshard_status rs_target_place_boxes(const rs_laying *laying, const rs_cut_tensor *cut,
                                     rs_box_name_fn *name)
{
    const rs_rank_holding *holding = cut->holding;
    if (cut->tensor->bytes == 0 && holding->buffer_count > 0)
        return add_empty(laying, cut->tensor, &holding->buffers[0]);
    return add_boxes(laying, cut->tensor, holding, name);
}
