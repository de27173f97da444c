/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_torch_bin.c - a transformers folder with PyTorch's files: pytorch_model.bin, or
 * pytorch_model-00001-of-00002.bin, .. with an index. The index decides: of its files, the tensors
 * that it names are read. Other files in the folder (training_args.bin, optimizer.pt) are not part
 * of the model.
 */
#include "checkpoint/format/file_names.h"
#include "checkpoint/format/weight_map.h"
#include "checkpoint/torch/torch_files.h"
#include "checkpoint/torch/torch_formats.h"

#include "base/context.h"

#include <stdlib.h>
#include <string.h>

#define INDEX_NAME "pytorch_model.bin.index.json"
#define INDEX_MIDDLE ".bin.index."
#define SINGLE_NAME "pytorch_model.bin"

static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    bool has_index = rs_weight_map_find(opening, INDEX_MIDDLE, INDEX_NAME) != NULL;
    *out_is = checkpoint->file_count == 0 &&
              (has_index || (opening->is_folder && rs_opening_has(opening, SINGLE_NAME)));
    return RESHARD_OK;
}

/* Picks the tensors that the index names. */
static reshard_status pick(const rs_torch_whole *r, const char *name, const rs_weight_map *map,
                           rs_occurrences *picked)
{
    for (int64_t i = 0; i < map->count; i++) {
        const rs_weight_mapping *item = &map->items[i];
        const rs_occurrence wanted = {.name = item->tensor, .file = item->file};
        const rs_occurrence *found = NULL;
        if (r->list.count != 0)
            found = bsearch(&wanted, r->list.items, (size_t)r->list.count, sizeof wanted,
                            rs_compare_occurrences);
        if (found == NULL)
            return rs_weight_map_fail_missing(name, map, item);
        reshard_status status = rs_occurrences_add(r->checkpoint->context, picked, found);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

static reshard_status read_indexed(rs_torch_whole *r, const char *name, const rs_weight_map *map)
{
    reshard_checkpoint *checkpoint = r->checkpoint;
    rs_occurrences picked = {0};
    reshard_status status = pick(r, name, map, &picked);
    if (status == RESHARD_OK)
        status = rs_store_join(checkpoint, &picked);
    /* A tensor that the index names twice deserves a better error text than joining gives. */
    for (int64_t i = 1; picked.count != checkpoint->tensor_count && i < picked.count; i++) {
        if (rs_slice_compare(picked.items[i - 1].name, picked.items[i].name) == 0) {
            status = rs_weight_map_fail_double(name, picked.items[i].name);
            break;
        }
    }
    if (status == RESHARD_OK && r->list.count != picked.count)
        status = rs_store_note(checkpoint,
                               "left out: tensors in the files that are not in the index: %lld",
                               (long long)(r->list.count - picked.count));
    rs_occurrences_release(checkpoint->context, &picked);
    return status;
}

/* Notes PyTorch files that are not the model's, because their endings are the same. */
static reshard_status note_others(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && opening->is_folder && i < opening->name_count;
         i++) {
        bool is_read = !rs_torch_name_is(opening->names[i]);
        for (int32_t j = 0; !is_read && j < checkpoint->named_count; j++)
            is_read = strcmp(checkpoint->files[j].name, opening->names[i]) == 0;
        if (!is_read)
            status = rs_store_note(checkpoint, "%s is not part of the model, and is left out",
                                   opening->names[i]);
    }
    return status;
}

static reshard_status read_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    char *const single = (char *)(uintptr_t)SINGLE_NAME;
    const char *name = rs_weight_map_find(opening, INDEX_MIDDLE, INDEX_NAME);
    rs_torch_whole r = {.checkpoint = checkpoint};
    rs_weight_map map = {0};
    reshard_status status = RESHARD_OK;
    if (name != NULL)
        status = rs_weight_map_read(checkpoint, name, &map);
    if (status == RESHARD_OK)
        status = name != NULL ? rs_torch_open_named(checkpoint, map.file_count, map.files)
                              : rs_torch_open_named(checkpoint, 1, &single);
    for (; status == RESHARD_OK && r.file < checkpoint->named_count; r.file++)
        status = rs_torch_walk_file(checkpoint, r.file, NULL, rs_torch_take_whole, &r);
    if (status == RESHARD_OK)
        status = rs_torch_check_names(checkpoint, &r.list);
    if (status == RESHARD_OK)
        status = name != NULL ? read_indexed(&r, name, &map) : rs_store_join(checkpoint, &r.list);
    if (status == RESHARD_OK)
        status = note_others(checkpoint, opening);
    if (status == RESHARD_OK)
        status = rs_torch_note_globals(checkpoint);
    rs_weight_map_release(checkpoint->context, &map);
    rs_occurrences_release(checkpoint->context, &r.list);
    return status;
}

const rs_format rs_format_torch_bin = {
    .name = "torch-bin",
    .description = "a folder of transformers with PyTorch's .bin files",
    .looks_for = INDEX_NAME,
    .probe = probe,
    .read = read_files,
};
