/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_safetensors.c - one safetensors file, or a folder of them without an index: whole tensors,
 * each name once. It is only read; whole tensors are written as a Hugging Face folder.
 */
#include "checkpoint/format/safetensors.h"

static reshard_status read_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    rs_occurrences list = {0};
    reshard_status status = RESHARD_OK;
    (void)opening;
    for (int32_t i = 0; status == RESHARD_OK && i < checkpoint->file_count; i++) {
        const rs_header *header = rs_safetensors_header(checkpoint, i);
        for (int64_t j = 0; status == RESHARD_OK && j < header->entry_count; j++) {
            rs_occurrence item = rs_safetensors_occurrence(checkpoint, i, &header->entries[j]);
            status = rs_occurrences_add(checkpoint->context, &list, &item);
        }
    }
    if (status == RESHARD_OK)
        status = rs_store_join_whole(
            checkpoint, &list,
            "; for files of ranks the mesh they were split over has to be given");
    rs_occurrences_release(checkpoint->context, &list);
    return status;
}

const rs_format rs_format_safetensors = {
    .name = "safetensors",
    .description = "whole tensors in one safetensors file, or in a folder of them",
    .looks_for = "*.safetensors",
    .probe = rs_safetensors_open,
    .read = read_files,
};
