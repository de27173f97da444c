/* SPDX-License-Identifier: Apache-2.0 */
/*
 * target_boxes.c - places the boxes of a tensor for formats that store each of them once: an entry
 * is one box, dense and without padding, in the file that has the least so far among those whose
 * ranks hold it.
 */
#include "checkpoint/body/target.h"

#include <assert.h>

/* Of the candidates for each box (they are sorted by it) keeps the one whose file has the least so
 * far; returns how many are left. */
static int64_t choose_holders(const rs_laying *laying, const rs_stored_tensor *tensor,
                              rs_candidate *items, int64_t count)
{
    int64_t kept = 0;
    for (int64_t first = 0, next; first < count; first = next) {
        int64_t best = first;
        for (next = first + 1; next < count; next++) {
            if (rs_box_compare(&items[first].box, &items[next].box) != 0)
                break;
            if (laying->loads[items[next].file] < laying->loads[items[best].file])
                best = next;
        }
        assert(items[best].file >= 0 && items[best].file < laying->target->file_count);
        laying->loads[items[best].file] += rs_stored_box_bytes(tensor, &items[best].box);
        items[kept++] = items[best];
    }
    return kept;
}

static reshard_status add_boxes(const rs_laying *laying, rs_stored_tensor *tensor,
                                rs_candidate *items, int64_t count, rs_box_name_fn *name)
{
    rs_target *target = laying->target;
    int64_t index = target->tensor_count, next_k = 0;
    count = choose_holders(laying, tensor, items, count);
    rs_candidates_sort(items, count);
    for (int64_t i = 0; i < count; i++) {
        bool same_as_last = i > 0 && items[i - 1].file == items[i].file;
        bool several = same_as_last || (i + 1 < count && items[i + 1].file == items[i].file);
        if (!same_as_last)
            next_k = 0;
        rs_target_entry entry = {.tensor = index,
                                 .file = items[i].file,
                                 .ndim = tensor->carried_ndim,
                                 .piece_first = i,
                                 .piece_count = 1,
                                 .bytes = rs_stored_box_bytes(tensor, &items[i].box),
                                 .hides_shape = true};
        reshard_status status =
            rs_target_keep_piece(target, &items[i], false, tensor, &tensor->pieces[i]);
        entry.key = tensor->name;
        if (status == RESHARD_OK && name != NULL)
            status = name(laying, tensor->name, several, &next_k, &entry.key);
        entry.shape = tensor->pieces[i].size;
        if (tensor->opaque) {
            entry.ndim = tensor->ndim;
            entry.shape = tensor->shape;
        }
        if (status == RESHARD_OK)
            status = rs_target_add_entry(target, &entry);
        if (status != RESHARD_OK)
            return status;
    }
    tensor->piece_count = count;
    return RESHARD_OK;
}

/* A tensor without elements has no boxes, but still an entry: in the file of its first rank. */
static reshard_status add_empty(const rs_laying *laying, rs_stored_tensor *tensor,
                                const reshard_shards *shards)
{
    rs_target_entry entry = {.key = tensor->name,
                             .tensor = laying->target->tensor_count,
                             .file = rs_laying_file(laying, shards->items[0].rank),
                             .ndim = tensor->ndim,
                             .shape = tensor->shape,
                             .hides_shape = true};
    return rs_target_add_entry(laying->target, &entry);
}

reshard_status rs_target_place_boxes(const rs_laying *laying, const rs_cut_tensor *cut,
                                     rs_box_name_fn *name)
{
    if (cut->tensor->bytes == 0 && cut->shards->count > 0)
        return add_empty(laying, cut->tensor, cut->shards);
    return add_boxes(laying, cut->tensor, cut->items, cut->count, name);
}
