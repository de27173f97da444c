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

/* Without an index, only the names tell that a file is missing. A user who names one of several
 * files wants only that one. */
static reshard_status check_complete(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    const char *missing = NULL;
    uint64_t found = 0, count = 0;
    size_t files = (size_t)checkpoint->file_count;
    char **names = rs_arena_allocate_array(&checkpoint->arena, files, sizeof *names);
    if (names == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < files; i++)
        names[i] = (char *)(uintptr_t)checkpoint->files[i].name;
    reshard_status status = rs_file_names_find_missing(&checkpoint->arena, (int64_t)files, names,
                                                       &missing, &found, &count);
    if (status != RESHARD_OK || missing == NULL)
        return status;
    if (!opening->is_folder)
        return rs_store_note(checkpoint,
                             "%s is one of %llu files by its name; the others are ignored",
                             names[0], (unsigned long long)count);
    return rs_fail_about(RESHARD_ERR_GAP, checkpoint->path,
                         "%s is missing: by their names there are %llu files, and %llu are here",
                         missing, (unsigned long long)count, (unsigned long long)found);
}

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
    reshard_status status = check_complete(checkpoint, opening);
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
