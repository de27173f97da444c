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
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* What is known while a folder is read. */
typedef struct reading {
    reshard_checkpoint *checkpoint;
    const rs_opening *opening;
    const char *index; /* the name of the index */
    rs_weight_map map;
    /* Whether an entry is one of the checkpoint's tensors: by file, then in the order of
     * by_name. */
    bool *taken;
    int64_t entry_count, taken_count;
    int32_t file;     /* for next_taken: how far it has come */
    int64_t at, base; /* entries of this file, and of those before it */
} reading;

/* Looks at files beside the index that it does not list. If they are to be taken, and are named
 * like a listed file, they are added to the names; the others are left out. */
static reshard_status consider_files(const reading *r, char **names, int64_t *count)
{
    const rs_opening *opening = r->opening;
    const rs_weight_map *map = &r->map;
    rs_file_name name, listed = {.stem = {NULL, 0}};
    rs_slice first = {NULL, 0};
    int64_t left_out = 0;
    if (*count != 0)
        (void)rs_file_name_read(names[0], &listed);
    for (int64_t i = 0; i < opening->name_count; i++) {
        if (!rs_file_name_read(opening->names[i], &name) ||
            (map->file_count != 0 &&
             bsearch(&opening->names[i], map->files, (size_t)map->file_count, sizeof(char *),
                     compare_files) != NULL))
            continue;
        if (opening->unlisted == RS_UNLISTED_TAKE && rs_slice_compare(name.stem, listed.stem) == 0)
            names[(*count)++] = opening->names[i];
        else if (left_out++ == 0)
            first = rs_slice_of(opening->names[i]);
    }
    return rs_opening_leave_out(r->checkpoint, opening, left_out,
                                left_out == 1 ? "file that the index does not list"
                                              : "files that the index does not list",
                                first);
}

/* Opens the files of the index, followed by unlisted files that are taken. */
static reshard_status open_files(reading *r)
{
    reshard_context *context = r->checkpoint->context;
    int64_t count = r->map.file_count;
    size_t most = (size_t)count + (size_t)r->opening->name_count;
    char **names = rs_allocate_array(context, most, sizeof(char *));
    if (names == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < count; i++)
        names[i] = r->map.files[i];
    reshard_status status = consider_files(r, names, &count);
    if (status == RESHARD_OK)
        status = rs_safetensors_open_named(r->checkpoint, count, names);
    rs_release(context, names);
    for (int32_t i = 0; status == RESHARD_OK && i < r->checkpoint->file_count; i++)
        r->entry_count += rs_safetensors_header(r->checkpoint, i)->entry_count;
    if (status == RESHARD_OK)
        r->taken = rs_allocate_zeroed(context, (size_t)r->entry_count);
    return status == RESHARD_OK && r->taken == NULL ? rs_allocation_status() : status;
}

/* Takes the entries that the index names. Both are sorted by file, then by name, so this is one
 * walk over both. */
static reshard_status take_listed(reading *r)
{
    const rs_weight_map *map = &r->map;
    int64_t item = 0, base = 0;
    for (int32_t file = 0; file < map->file_count; file++) {
        const rs_header *header = rs_safetensors_header(r->checkpoint, file);
        int64_t at = 0;
        for (; item < map->count && map->items[item].file == file; item++) {
            rs_slice wanted = map->items[item].tensor;
            int order = -1;
            while (at < header->entry_count &&
                   (order = rs_slice_compare(header->by_name[at]->name, wanted)) < 0)
                at++;
            if (order != 0 || at == header->entry_count)
                return rs_weight_map_fail_missing(r->index, map, &map->items[item]);
            if (r->taken[base + at])
                return rs_weight_map_fail_double(r->index, wanted);
            r->taken[base + at] = true;
            r->taken_count++;
        }
        base += header->entry_count;
    }
    return RESHARD_OK;
}

/* Tensors in the files that the index does not name, or places in another file. */
typedef struct unnamed {
    int64_t count, moved; /* numbers of unnamed tensors, and of tensors placed elsewhere */
    rs_slice first, first_moved;
} unnamed;

/* Looks for entries that were not taken in the index, whose mappings are sorted by tensor. */
static void consider_file(reading *r, int32_t file, int64_t base, unnamed *seen)
{
    const rs_header *header = rs_safetensors_header(r->checkpoint, file);
    const rs_weight_map *map = &r->map;
    for (int64_t i = 0; i < header->entry_count; i++) {
        rs_weight_mapping key = {.tensor = header->by_name[i]->name};
        if (r->taken[base + i])
            continue;
        if (map->count != 0 &&
            bsearch(&key, map->items, (size_t)map->count, sizeof key, rs_compare_slices) != NULL) {
            seen->first_moved = seen->moved++ == 0 ? key.tensor : seen->first_moved;
        } else if (r->opening->unlisted == RS_UNLISTED_TAKE) {
            r->taken[base + i] = true;
            r->taken_count++;
        } else {
            seen->first = seen->count++ == 0 ? key.tensor : seen->first;
        }
    }
}

/* Takes, leaves out or refuses the tensors that the index does not name. */
static reshard_status consider_tensors(reading *r)
{
    unnamed seen = {0};
    int64_t base = 0;
    rs_sort(r->map.items, (size_t)r->map.count, sizeof(rs_weight_mapping), rs_compare_slices);
    for (int32_t i = 0; i < r->checkpoint->file_count; i++) {
        consider_file(r, i, base, &seen);
        base += rs_safetensors_header(r->checkpoint, i)->entry_count;
    }
    reshard_status status =
        rs_opening_leave_out(r->checkpoint, r->opening, seen.count,
                             seen.count == 1 ? "tensor that the index does not name"
                                             : "tensors that the index does not name",
                             seen.first);
    if (status == RESHARD_OK)
        status =
            rs_opening_leave_out(r->checkpoint, r->opening, seen.moved,
                                 seen.moved == 1 ? "tensor that the index places in another file"
                                                 : "tensors that the index places in other files",
                                 seen.first_moved);
    return status;
}

/* For rs_store_take_whole. The entries of a file are freed once they have been taken. */
static bool next_taken(void *user, rs_occurrence *out_item)
{
    reading *r = user;
    for (; r->file < r->checkpoint->file_count; r->file++) {
        rs_header *header = r->checkpoint->files[r->file].body;
        int64_t count = header->entry_count;
        while (r->at < count && !r->taken[r->base + r->at])
            r->at++;
        if (r->at < count) {
            *out_item = rs_safetensors_occurrence(r->checkpoint, r->file, header->by_name[r->at++]);
            return true;
        }
        rs_header_drop_entries(header);
        r->base += count;
        r->at = 0;
    }
    return false;
}

static reshard_status fail_double(const reading *r, int64_t tensor)
{
    const reshard_checkpoint *checkpoint = r->checkpoint;
    const rs_stored_tensor *a = &checkpoint->tensors[tensor], *b = a + 1;
    if (r->opening->unlisted != RS_UNLISTED_TAKE) /* a duplicate that was taken is in two files */
        return rs_weight_map_fail_double(r->index, a->name);
    return rs_fail_about(RESHARD_ERR_SYNTAX, r->index, "tensor \"%.*s\" is in %s and in %s",
                         rs_slice_shown(a->name), a->name.bytes,
                         checkpoint->files[a->pieces[0].file].name,
                         checkpoint->files[b->pieces[0].file].name);
}

static reshard_status take_tensors(reading *r)
{
    int64_t doubled = -1;
    reshard_status status =
        rs_store_take_whole(r->checkpoint, r->taken_count, next_taken, r, &doubled);
    return status == RESHARD_OK && doubled >= 0 ? fail_double(r, doubled) : status;
}

static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    (void)checkpoint;
    *out_is = rs_weight_map_find(opening, INDEX_MIDDLE, INDEX_NAME) != NULL;
    return RESHARD_OK;
}

static reshard_status read_folder(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    reading r = {.checkpoint = checkpoint,
                 .opening = opening,
                 .index = rs_weight_map_find(opening, INDEX_MIDDLE, INDEX_NAME)};
    reshard_status status = rs_weight_map_read(checkpoint, r.index, &r.map);
    if (status == RESHARD_OK)
        status = open_files(&r);
    if (status == RESHARD_OK)
        status = take_listed(&r);
    if (status == RESHARD_OK && r.taken_count != r.entry_count)
        status = consider_tensors(&r);
    rs_weight_map_release(checkpoint->context, &r.map); /* before tensors need as much memory */
    if (status == RESHARD_OK)
        status = take_tensors(&r);
    if (status == RESHARD_OK)
        status = rs_safetensors_finish(checkpoint);
    rs_release(checkpoint->context, r.taken);
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
    rs_release(target->context, (void *)sorted);
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
