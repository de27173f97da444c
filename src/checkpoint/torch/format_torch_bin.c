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
#include "base/sort.h"

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

/* What is known while a folder is read. */
typedef struct reading {
    rs_torch_whole whole;
    const rs_opening *opening;
    const char *index; /* its name; NULL: there is only the one file */
    rs_weight_map map;
    rs_occurrences picked;
} reading;

/* ---- files ----------------------------------------------------------------------------------- */

static bool is_listed(const reading *r, const char *name)
{
    for (int64_t i = 0; i < r->map.file_count; i++) {
        if (strcmp(r->map.files[i], name) == 0)
            return true;
    }
    return r->index == NULL && strcmp(name, SINGLE_NAME) == 0;
}

/* Is it called like a file that the index lists? */
static bool is_alike(const reading *r, const char *name)
{
    rs_file_name one, listed;
    return r->map.file_count != 0 && rs_torch_name_read(r->map.files[0], &listed) &&
           rs_torch_name_read(name, &one) && rs_slice_compare(one.stem, listed.stem) == 0;
}

/* Looks at PyTorch's files beside the model, which have the same endings: adds those that are to be
 * taken to the names, and notes or refuses the others. */
static reshard_status consider_files(const reading *r, char **names, int64_t *count)
{
    const rs_opening *opening = r->opening;
    rs_slice first = {NULL, 0};
    int64_t left_out = 0;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && opening->is_folder && i < opening->name_count;
         i++) {
        char *name = opening->names[i];
        if (!rs_torch_name_is(name) || is_listed(r, name))
            continue;
        if (opening->unlisted == RS_UNLISTED_TAKE && is_alike(r, name)) {
            names[(*count)++] = name;
            continue;
        }
        first = left_out++ == 0 ? rs_slice_of(name) : first;
        if (opening->unlisted != RS_UNLISTED_REFUSE)
            status = rs_store_note(r->whole.checkpoint,
                                   "%s is not part of the model, and is left out", name);
    }
    if (status != RESHARD_OK || opening->unlisted != RS_UNLISTED_REFUSE)
        return status;
    return rs_opening_leave_out(r->whole.checkpoint, opening, left_out,
                                left_out == 1 ? "file of PyTorch that is not the model's"
                                              : "files of PyTorch that are not the model's",
                                first);
}

/* Opens the files of the index, followed by unlisted files that are taken. */
static reshard_status open_files(reading *r)
{
    reshard_checkpoint *checkpoint = r->whole.checkpoint;
    int64_t count = r->index != NULL ? r->map.file_count : 1;
    char **names = rs_allocate_array(checkpoint->context, (size_t)(count + r->opening->name_count),
                                     sizeof *names);
    if (names == NULL)
        return rs_allocation_status();
    names[0] = (char *)(uintptr_t)SINGLE_NAME;
    for (int64_t i = 0; i < r->map.file_count; i++)
        names[i] = r->map.files[i];
    reshard_status status = consider_files(r, names, &count);
    if (status == RESHARD_OK)
        status = rs_torch_open_named(checkpoint, count, names);
    rs_release(checkpoint->context, names);
    return status;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* Picks the tensors that the index names. */
static reshard_status pick_listed(reading *r)
{
    const rs_occurrences *list = &r->whole.list;
    for (int64_t i = 0; i < r->map.count; i++) {
        const rs_weight_mapping *item = &r->map.items[i];
        const rs_occurrence wanted = {.name = item->tensor, .file = item->file};
        const rs_occurrence *found = NULL;
        if (list->count != 0)
            found = bsearch(&wanted, list->items, (size_t)list->count, sizeof wanted,
                            rs_compare_occurrences);
        if (found == NULL)
            return rs_weight_map_fail_missing(r->index, &r->map, item);
        reshard_status status = rs_occurrences_add(r->whole.checkpoint->context, &r->picked, found);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

/* Takes, leaves out or refuses the tensors that the index does not name, or places elsewhere. */
static reshard_status consider_tensors(reading *r)
{
    reshard_checkpoint *checkpoint = r->whole.checkpoint;
    rs_weight_map *map = &r->map;
    const bool takes = r->opening->unlisted == RS_UNLISTED_TAKE;
    int64_t unnamed = 0, moved = 0;
    rs_slice first = {NULL, 0}, first_moved = {NULL, 0};
    reshard_status status = RESHARD_OK;
    rs_sort(map->items, (size_t)map->count, sizeof *map->items, rs_compare_slices);
    for (int64_t i = 0; status == RESHARD_OK && i < r->whole.list.count; i++) {
        const rs_occurrence *item = &r->whole.list.items[i];
        const rs_weight_mapping key = {.tensor = item->name};
        const rs_weight_mapping *named =
            map->count == 0
                ? NULL
                : bsearch(&key, map->items, (size_t)map->count, sizeof key, rs_compare_slices);
        if (named != NULL && named->file != item->file)
            first_moved = moved++ == 0 ? item->name : first_moved;
        else if (named == NULL && takes)
            status = rs_occurrences_add(checkpoint->context, &r->picked, item);
        else if (named == NULL)
            first = unnamed++ == 0 ? item->name : first;
    }
    if (status == RESHARD_OK)
        status = rs_opening_leave_out(checkpoint, r->opening, unnamed,
                                      unnamed == 1 ? "tensor that the index does not name"
                                                   : "tensors that the index does not name",
                                      first);
    if (status == RESHARD_OK)
        status = rs_opening_leave_out(checkpoint, r->opening, moved,
                                      moved == 1 ? "tensor that the index places in another file"
                                                 : "tensors that the index places in other files",
                                      first_moved);
    return status;
}

/* A tensor that the index names twice deserves a better error text than joining gives. */
static reshard_status check_twice(const reading *r)
{
    for (int64_t i = 1; i < r->map.count; i++) {
        if (rs_slice_compare(r->map.items[i - 1].tensor, r->map.items[i].tensor) == 0)
            return rs_weight_map_fail_double(r->index, r->map.items[i].tensor);
    }
    return RESHARD_OK;
}

static reshard_status read_indexed(reading *r)
{
    reshard_status status = pick_listed(r);
    if (status == RESHARD_OK)
        status = consider_tensors(r);
    if (status == RESHARD_OK)
        status = check_twice(r);
    return status == RESHARD_OK ? rs_store_join_whole(r->whole.checkpoint, &r->picked, 0, "")
                                : status;
}

static reshard_status read_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    reading r = {.whole = {.checkpoint = checkpoint},
                 .opening = opening,
                 .index = rs_weight_map_find(opening, INDEX_MIDDLE, INDEX_NAME)};
    reshard_status status = RESHARD_OK;
    if (r.index != NULL)
        status = rs_weight_map_read(checkpoint, r.index, &r.map);
    if (status == RESHARD_OK)
        status = open_files(&r);
    for (; status == RESHARD_OK && r.whole.file < checkpoint->named_count; r.whole.file++)
        status = rs_torch_walk_file(checkpoint, r.whole.file, NULL, rs_torch_take_whole, &r.whole);
    if (status == RESHARD_OK)
        status = rs_torch_check_names(checkpoint, &r.whole.list);
    if (status == RESHARD_OK)
        status = r.index != NULL ? read_indexed(&r) : rs_store_join(checkpoint, &r.whole.list);
    if (status == RESHARD_OK)
        status = rs_torch_note_globals(checkpoint);
    rs_weight_map_release(checkpoint->context, &r.map);
    rs_occurrences_release(checkpoint->context, &r.picked);
    rs_occurrences_release(checkpoint->context, &r.whole.list);
    return status;
}

const rs_format rs_format_torch_bin = {
    .name = "torch-bin",
    .description = "a folder of transformers with PyTorch's .bin files",
    .looks_for = INDEX_NAME,
    .probe = probe,
    .read = read_files,
};
