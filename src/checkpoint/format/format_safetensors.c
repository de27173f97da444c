/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_safetensors.c - one safetensors file, or a folder of them without an index: whole tensors,
 * each name once. If names are numbered (model-00001-of-00004), all files must be there. The format
 * is only read; whole tensors are written as a Hugging Face folder.
 */
#include "base/context.h"
#include "base/error.h"
#include "checkpoint/format/file_names.h"
#include "checkpoint/format/plain_formats.h"
#include "checkpoint/format/safetensors.h"

/* How far next_entry has come. */
typedef struct walk {
    reshard_checkpoint *checkpoint;
    int32_t file;
    int64_t at;
} walk;

/* For rs_store_take_whole. The entries of a file are freed once they have been taken. */
static bool next_entry(void *user, rs_occurrence *out_item)
{
    walk *w = user;
    for (; w->file < w->checkpoint->file_count; w->file++) {
        rs_header *header = w->checkpoint->files[w->file].body;
        if (w->at < header->entry_count) {
            *out_item = rs_safetensors_occurrence(w->checkpoint, w->file, header->by_name[w->at++]);
            return true;
        }
        rs_header_drop_entries(header);
        w->at = 0;
    }
    return false;
}

static reshard_status read_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    walk w = {.checkpoint = checkpoint};
    int64_t count = 0, doubled = -1;
    reshard_status status = rs_file_names_check_complete(checkpoint, opening, rs_file_name_read);
    for (int32_t i = 0; i < checkpoint->file_count; i++)
        count += rs_safetensors_header(checkpoint, i)->entry_count;
    if (status == RESHARD_OK)
        status = rs_store_take_whole(checkpoint, count, next_entry, &w, &doubled);
    if (status == RESHARD_OK && doubled >= 0)
        status = rs_store_fail_double(checkpoint, doubled, RESHARD_HINT_SOURCE_MESH,
                                      "; if they are the files of ranks, give their mesh");
    return status == RESHARD_OK ? rs_safetensors_finish(checkpoint) : status;
}

const rs_format rs_format_safetensors = {
    .name = "safetensors",
    .description = "whole tensors in one safetensors file, or in a folder of them",
    .looks_for = "*.safetensors",
    .probe = rs_safetensors_open,
    .read = read_files,
};
