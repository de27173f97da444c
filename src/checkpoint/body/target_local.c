/* SPDX-License-Identifier: Apache-2.0 */
/* target_local.c - files of ranks that hold what each rank has in memory: one entry for each shard,
 * with the pieces where they lie in the shard's buffer. */
#include "base/context.h"
#include "checkpoint/body/target.h"

static reshard_status add_buffer(const rs_laying *laying, const rs_cut_tensor *cut,
                                 const reshard_shard *shard, int64_t piece_first,
                                 int64_t piece_count)
{
    rs_target *target = laying->target;
    const rs_stored_tensor *tensor = cut->tensor;
    rs_target_entry entry = {.key = tensor->name,
                             .tensor = target->tensor_count,
                             .file = rs_laying_file(laying, shard->rank),
                             .ndim = tensor->opaque ? tensor->ndim : shard->ndim,
                             .piece_first = piece_first,
                             .piece_count = piece_count,
                             .hides_shape = rs_spec_cuts(reshard_layout_spec(cut->layout), true)};
    entry.shape = tensor->opaque ? tensor->shape
                                 : rs_arena_copy(&target->arena, shard->shape, (size_t)shard->ndim,
                                                 sizeof(int64_t));
    if (entry.shape == NULL)
        return rs_allocation_status();
    reshard_status status =
        rs_stored_bytes(tensor->name, tensor->dtype, entry.ndim, entry.shape, &entry.bytes);
    return status == RESHARD_OK ? rs_target_add_entry(target, &entry) : status;
}

reshard_status rs_target_place_local(const rs_laying *laying, const rs_cut_tensor *cut)
{
    rs_stored_tensor *tensor = cut->tensor;
    rs_candidates_sort(cut->items, cut->count);
    tensor->piece_count = cut->count;
    for (int64_t i = 0; i < cut->count; i++) {
        reshard_status status =
            rs_target_keep_piece(laying->target, &cut->items[i], true, tensor, &tensor->pieces[i]);
        if (status != RESHARD_OK)
            return status;
    }
    /* Shards are sorted by rank, and so are files. */
    for (int64_t i = 0, next = 0; i < cut->shards->count; i++) {
        int64_t first = next;
        while (next < cut->count && cut->items[next].shard == i)
            next++;
        reshard_status status = add_buffer(laying, cut, &cut->shards->items[i],
                                           first < cut->count ? first : 0, next - first);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}
