/* SPDX-License-Identifier: Apache-2.0 */
/* target_local.c - files that hold what each rank has in memory: one entry for each shard, whose
 * pieces lie where they lie in the shard's buffer. */
#include "base/context.h"
#include "checkpoint/target/target.h"

reshard_status rs_target_place_local(const rs_laying *laying, const rs_cut_tensor *cut)
{
    rs_stored_tensor *tensor = cut->tensor;
    const rs_rank_holding *holding = cut->holding;
    reshard_status status = RESHARD_OK;
    tensor->piece_count = holding->count;
    for (int64_t i = 0; i < holding->count; i++) {
        const rs_candidate *item = holding->by_buffer[i];
        tensor->pieces[i] = (rs_stored_piece){.file = item->file,
                                              .at = (uint64_t)(item->at * tensor->element_bytes),
                                              .offset = item->offset,
                                              .size = item->size,
                                              .strides = item->strides};
    }
    for (int64_t i = 0; status == RESHARD_OK && i < holding->buffer_count; i++) {
        const rs_rank_buffer *buffer = &holding->buffers[i];
        const rs_target_entry entry = {.array = buffer->array,
                                       .tensor = (int32_t)laying->target->tensor_count,
                                       .file = buffer->file,
                                       .piece_first = (int32_t)buffer->first};
        status = rs_target_add_entry(laying->target, &entry);
    }
    return status;
}
