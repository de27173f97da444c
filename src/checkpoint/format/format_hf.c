/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_hf.c - Hugging Face folders: safetensors files of whole tensors and, if there are several,
 * an index: {"metadata": .., "weight_map": {"tensor": "file"}}.
 *
 * The index decides: its files are read and no others, and a tensor is taken from the file that the
 * index names, whatever other files hold. Tensors and files that it does not name are left out with
 * a note, taken, or refused, as the caller wishes. total_size is informational, and old tools write
 * it wrongly, so it is ignored. Files must be beside the index: a name with a slash is refused.
 */
#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/format/file_names.h"
#include "checkpoint/format/plain_formats.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/weight_map.h"
#include "checkpoint/target/target.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_NAME "model.safetensors.index.json"
#define INDEX_MIDDLE ".safetensors.index."
#define SHARD_BYTES_DEFAULT ((uint64_t)5000000000)

/* ---- reading --------------------------------------------------------------------------------- */

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const rs_weight_mapping *)a)->file, ((const rs_weight_mapping *)b)->file);
}

static int compare_tensors(const void *a, const void *b)
{
    return rs_slice_compare(((const rs_weight_mapping *)a)->tensor,
                            ((const rs_weight_mapping *)b)->tensor);
}

/* Looks at files beside the index that it does not list. If they are to be taken, and are named
 * like a listed file, they are added to the names; the others are left out. */
static reshard_status consider_files(reshard_checkpoint *checkpoint, const rs_opening *opening,
                                     const rs_weight_map *list, char **names, int32_t *count)
{
    rs_file_name name, listed = {.stem = {NULL, 0}};
    rs_slice first = {NULL, 0};
    int64_t left_out = 0;
    if (*count != 0)
        (void)rs_file_name_read(names[0], &listed);
    for (int64_t i = 0; i < opening->name_count; i++) {
        rs_weight_mapping key = {.file = opening->names[i]};
        if (!rs_file_name_read(opening->names[i], &name) ||
            (list->count != 0 &&
             bsearch(&key, list->items, (size_t)list->count, sizeof key, compare_files) != NULL))
            continue;
        if (opening->unlisted == RS_UNLISTED_TAKE && rs_slice_compare(name.stem, listed.stem) == 0)
            names[(*count)++] = opening->names[i];
        else if (left_out++ == 0)
            first = rs_slice_of(opening->names[i]);
    }
    return rs_safetensors_leave_out(checkpoint, opening, left_out,
                                    left_out == 1 ? "file that the index does not list"
                                                  : "files that the index does not list",
                                    first);
}

/* Opens the files of the index, followed by unlisted files that are taken. */
static reshard_status open_files(reshard_checkpoint *checkpoint, const rs_opening *opening,
                                 const rs_weight_map *list)
{
    int32_t count = list->file_count;
    size_t most = (size_t)list->count + (size_t)opening->name_count;
    char **names = rs_allocate_array(checkpoint->context, most, sizeof(char *));
    if (names == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < list->count; i++)
        names[list->items[i].file_index] = (char *)(uintptr_t)list->items[i].file;
    reshard_status status = consider_files(checkpoint, opening, list, names, &count);
    if (status == RESHARD_OK)
        status = rs_safetensors_open_named(checkpoint, count, names);
    rs_release(checkpoint->context, names, most * sizeof(char *));
    return status;
}

static reshard_status find_entries(reshard_checkpoint *checkpoint, const char *name,
                                   const rs_weight_map *map, rs_occurrences *found)
{
    for (int64_t i = 0; i < map->count; i++) {
        const rs_weight_mapping *item = &map->items[i];
        const rs_header *header = rs_safetensors_header(checkpoint, item->file_index);
        int64_t index = rs_header_find(header, item->tensor);
        if (index < 0)
            return rs_fail_about(RESHARD_ERR_CORRUPT, name,
                                 "says that %s holds tensor \"%.*s\", but it "
                                 "does not",
                                 item->file, rs_slice_shown(item->tensor), item->tensor.bytes);
        rs_occurrence occurrence =
            rs_safetensors_occurrence(checkpoint, item->file_index, header->by_name[index]);
        reshard_status status = rs_occurrences_add(checkpoint->context, found, &occurrence);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

/* Tensors in the files that the index does not name, or places in another file. */
typedef struct unnamed {
    int64_t count, moved; /* numbers of unnamed tensors, and of tensors placed elsewhere */
    rs_slice first, first_moved;
} unnamed;

/* Compares the entries of one file with the index, whose mappings are sorted by tensor. */
static reshard_status consider_file(reshard_checkpoint *checkpoint, const rs_opening *opening,
                                    const rs_weight_map *list, int32_t file, unnamed *seen,
                                    rs_occurrences *found)
{
    const rs_header *header = rs_safetensors_header(checkpoint, file);
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < header->entry_count; i++) {
        rs_weight_mapping key = {.tensor = header->by_name[i]->name};
        const rs_weight_mapping *item = NULL;
        if (list->count != 0)
            item = bsearch(&key, list->items, (size_t)list->count, sizeof key, compare_tensors);
        if (item != NULL && item->file_index == file)
            continue;
        if (item != NULL) {
            seen->first_moved = seen->moved++ == 0 ? key.tensor : seen->first_moved;
        } else if (opening->unlisted == RS_UNLISTED_TAKE) {
            rs_occurrence taken = rs_safetensors_occurrence(checkpoint, file, header->by_name[i]);
            status = rs_occurrences_add(checkpoint->context, found, &taken);
        } else {
            seen->first = seen->count++ == 0 ? key.tensor : seen->first;
        }
    }
    return status;
}

/* Takes, leaves out or refuses the tensors that the index does not name. */
static reshard_status consider_tensors(reshard_checkpoint *checkpoint, const rs_opening *opening,
                                       rs_weight_map *list, rs_occurrences *found)
{
    unnamed seen = {0};
    reshard_status status = RESHARD_OK;
    rs_sort(list->items, (size_t)list->count, sizeof(rs_weight_mapping), compare_tensors);
    for (int32_t i = 0; status == RESHARD_OK && i < checkpoint->file_count; i++)
        status = consider_file(checkpoint, opening, list, i, &seen, found);
    if (status == RESHARD_OK)
        status = rs_safetensors_leave_out(checkpoint, opening, seen.count,
                                          seen.count == 1 ? "tensor that the index does not name"
                                                          : "tensors that the index does not name",
                                          seen.first);
    if (status == RESHARD_OK)
        status = rs_safetensors_leave_out(checkpoint, opening, seen.moved,
                                          seen.moved == 1
                                              ? "tensor that the index places in another file"
                                              : "tensors that the index places in other files",
                                          seen.first_moved);
    return status;
}

/* A tensor that was taken may be in two files. */
static reshard_status check_double(const reshard_checkpoint *checkpoint, const rs_opening *opening,
                                   const char *name, const rs_occurrences *found)
{
    for (int64_t i = 1; opening->unlisted == RS_UNLISTED_TAKE && i < found->count; i++) {
        const rs_occurrence *a = &found->items[i - 1], *b = &found->items[i];
        if (rs_slice_compare(a->name, b->name) == 0 && a->file != b->file)
            return rs_fail_about(RESHARD_ERR_SYNTAX, name, "tensor \"%.*s\" is in %s and in %s",
                                 rs_slice_shown(a->name), a->name.bytes,
                                 checkpoint->files[a->file].name, checkpoint->files[b->file].name);
    }
    return rs_weight_map_check(name, found);
}

static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    (void)checkpoint;
    *out_is = rs_weight_map_find(opening, INDEX_MIDDLE, INDEX_NAME) != NULL;
    return RESHARD_OK;
}

static reshard_status read_folder(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    const char *name = rs_weight_map_find(opening, INDEX_MIDDLE, INDEX_NAME);
    rs_weight_map map = {0};
    rs_occurrences found = {0};
    reshard_status status = rs_weight_map_read(checkpoint, name, &map);
    if (status == RESHARD_OK)
        status = open_files(checkpoint, opening, &map);
    if (status == RESHARD_OK)
        status = find_entries(checkpoint, name, &map, &found);
    if (status == RESHARD_OK)
        status = consider_tensors(checkpoint, opening, &map, &found);
    if (status == RESHARD_OK)
        status = rs_store_join(checkpoint, &found);
    if (found.count != checkpoint->tensor_count) {
        reshard_status doubled = check_double(checkpoint, opening, name, &found);
        status = doubled != RESHARD_OK ? doubled : status;
    }
    if (status == RESHARD_OK)
        status = rs_safetensors_finish(checkpoint);
    rs_weight_map_release(checkpoint->context, &map);
    rs_occurrences_release(checkpoint->context, &found);
    return status;
}

/* ---- laying out ------------------------------------------------------------------------------ */

/* Distributes tensors over files in the order of names. One that does not fit begins another
 * file. */
static reshard_status lay_out(rs_laying *laying)
{
    rs_target *target = laying->target;
    const rs_selection *selection = &laying->cuts->selection;
    uint64_t limit = laying->file_bytes_max != 0 ? laying->file_bytes_max : SHARD_BYTES_DEFAULT;
    uint64_t used = 0;
    target->file_count = 1;
    for (int64_t i = 0; i < selection->count; i++) {
        const rs_selected *selected = &selection->items[i];
        const rs_stored_tensor *stored = selected->stored;
        uint64_t bytes = stored->bytes / (uint64_t)stored->element_bytes *
                         (stored->opaque ? 1 : (uint64_t)reshard_dtype_bits(selected->dtype) / 8);
        if (used != 0 && (bytes > limit || used > limit - bytes)) {
            target->file_count++;
            used = 0;
        }
        used += bytes;
        reshard_status status = rs_target_add_whole(laying, selected, target->file_count - 1);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

static void name_file(const rs_target *target, int32_t file, int32_t rank,
                      char out_name[RS_FILE_NAME_BYTES])
{
    (void)rank;
    if (target->file_count == 1)
        (void)snprintf(out_name, RS_FILE_NAME_BYTES, "%s.safetensors", target->stem);
    else
        (void)snprintf(out_name, RS_FILE_NAME_BYTES, "%s-%05d-of-%05d.safetensors", target->stem,
                       (int)file + 1, (int)target->file_count);
}

/* ---- writing --------------------------------------------------------------------------------- */

static reshard_status write_head(const rs_target *target, int32_t file, rs_json_writer *writer)
{
    return rs_safetensors_write_head(target, file, NULL, writer);
}

/* Tensors are numbered in the order of their names. */
static int compare_by_tensor(const void *a, const void *b)
{
    int32_t x = (*(const rs_target_entry *const *)a)->tensor;
    int32_t y = (*(const rs_target_entry *const *)b)->tensor;
    return (x > y) - (x < y);
}

static void write_weight_map(rs_json_writer *writer, const rs_target *target,
                             const rs_target_entry *const *sorted)
{
    for (int64_t i = 0; i < target->entry_count; i++) {
        rs_json_writer_text(writer, i == 0 ? "\n    " : ",\n    ");
        rs_json_writer_string(writer, rs_target_key(target, sorted[i]));
        rs_json_writer_text(writer, ": ");
        rs_json_writer_string(writer, rs_slice_of(target->files[sorted[i]->file].name));
    }
}

static reshard_status write_index(const rs_target *target, rs_json_writer *writer)
{
    size_t count = (size_t)target->entry_count;
    uint64_t total = 0;
    const rs_target_entry **sorted = rs_allocate_array(target->context, count, sizeof *sorted);
    if (sorted == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++) {
        sorted[i] = &target->entries[i];
        total += rs_target_array_of(target, sorted[i])->bytes;
    }
    rs_sort((void *)sorted, count, sizeof *sorted, compare_by_tensor);
    rs_json_writer_text(writer, "{\n  \"metadata\": {\n    \"total_size\": ");
    rs_json_writer_unsigned(writer, total);
    rs_json_writer_text(writer, "\n  },\n  \"weight_map\": {");
    write_weight_map(writer, target, sorted);
    rs_json_writer_text(writer, "\n  }\n}\n");
    rs_release(target->context, (void *)sorted, count * sizeof *sorted);
    return writer->status;
}

/* Makes model.safetensors.index.json. For the stem "model.fp16" the variant follows "index". */
static void name_index(const char *stem, char out_name[RS_FILE_NAME_BYTES])
{
    const char *variant = strchr(stem, '.');
    int base = variant != NULL ? (int)(variant - stem) : (int)strlen(stem);
    (void)snprintf(out_name, RS_FILE_NAME_BYTES, "%.*s.safetensors.index%s.json", base, stem,
                   variant != NULL ? variant : "");
}

static reshard_status finish(const rs_target *target, const rs_finishing *finishing)
{
    char name[RS_FILE_NAME_BYTES];
    rs_json_writer writer;
    if (target->file_count == 1)
        return RESHARD_OK;
    name_index(target->stem, name);
    rs_json_writer_init(&writer, target->context);
    reshard_status status = write_index(target, &writer);
    if (status == RESHARD_OK)
        status = finishing->add(finishing->user, name, writer.bytes, (size_t)writer.count);
    rs_json_writer_release(&writer);
    return status;
}

const rs_format rs_format_hf = {
    .name = "hf",
    .description = "a Hugging Face folder: whole tensors, an index when there are several files",
    .looks_for = INDEX_NAME,
    .probe = probe,
    .read = read_folder,
    .takes_model = true,
    .limits_files = true,
    .lay_out = lay_out,
    .name_file = name_file,
    .place = rs_safetensors_place,
    .write_head = write_head,
    .finish = finish,
};
