/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_hf.c - Hugging Face folders: safetensors files of whole tensors, and an index when there
 * are several, {"metadata": .., "weight_map": {"tensor": "file"}}.
 *
 * The index decides: its files are read and no others, and a tensor is the one in the file that the
 * index names, whatever other files hold. total_size is informational and written wrongly by old
 * tools, so it is ignored. Files lie beside the index: a name with a slash is refused.
 */
#include "base/context.h"
#include "base/sort.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/format/target.h"
#include "checkpoint/format/weight_map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define INDEX_NAME "model.safetensors.index.json"
#define INDEX_MIDDLE ".safetensors.index."
#define SHARD_BYTES_DEFAULT ((uint64_t)5000000000)

/* ---- reading --------------------------------------------------------------------------------- */

static reshard_status find_entries(reshard_checkpoint *checkpoint, const char *name,
                                   const rs_weight_map *map, rs_occurrences *found)
{
    for (int64_t i = 0; i < map->count; i++) {
        const rs_weight_mapping *item = &map->items[i];
        const rs_header *header = rs_safetensors_header(checkpoint, item->file_index);
        int64_t index = rs_header_find(header, item->tensor);
        if (index < 0)
            return rs_fail(RESHARD_ERR_CORRUPT,
                           "%s: says that %s holds tensor \"%.*s\", but it "
                           "does not",
                           name, item->file, rs_slice_shown(item->tensor), item->tensor.bytes);
        rs_occurrence occurrence =
            rs_safetensors_occurrence(checkpoint, item->file_index, header->by_name[index]);
        reshard_status status = rs_occurrences_add(checkpoint->context, found, &occurrence);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

static reshard_status note_left_out(reshard_checkpoint *checkpoint, int64_t mapped)
{
    int64_t held = 0;
    for (int32_t i = 0; i < checkpoint->file_count; i++)
        held += rs_safetensors_header(checkpoint, i)->entry_count;
    if (held == mapped)
        return RESHARD_OK;
    return rs_store_note(checkpoint, "%lld tensors in the files are not in the index: left out",
                         (long long)(held - mapped));
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
        status = rs_weight_map_open(checkpoint, &map, rs_safetensors_open_named);
    if (status == RESHARD_OK)
        status = find_entries(checkpoint, name, &map, &found);
    if (status == RESHARD_OK)
        status = rs_store_join(checkpoint, &found);
    if (found.count != checkpoint->tensor_count) {
        reshard_status doubled = rs_weight_map_check(name, &found);
        status = doubled != RESHARD_OK ? doubled : status;
    }
    if (status == RESHARD_OK)
        status = note_left_out(checkpoint, map.count);
    rs_weight_map_release(checkpoint->context, &map);
    rs_occurrences_release(checkpoint->context, &found);
    return status;
}

/* ---- laying out ------------------------------------------------------------------------------ */

/* Deals out tensors in the order of names; one that does not fit begins another file. */
static reshard_status lay_out(rs_laying *laying)
{
    rs_target *target = laying->target;
    const rs_selection *selection = laying->selection;
    uint64_t limit = laying->file_bytes_max != 0 ? laying->file_bytes_max : SHARD_BYTES_DEFAULT;
    uint64_t used = 0;
    target->file_count = 1;
    for (int64_t i = 0; i < selection->count; i++) {
        const rs_selected *selected = &selection->items[i];
        const rs_stored_tensor *stored = &laying->source->tensors[selected->origin];
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
        (void)snprintf(out_name, RS_FILE_NAME_BYTES, "model.safetensors");
    else
        (void)snprintf(out_name, RS_FILE_NAME_BYTES, "model-%05d-of-%05d.safetensors",
                       (int)file + 1, (int)target->file_count);
}

/* ---- writing --------------------------------------------------------------------------------- */

static reshard_status write_head(const rs_target *target, int32_t file, rs_json_writer *writer)
{
    return rs_safetensors_write_head(target, file, NULL, writer);
}

static int compare_keys(const void *a, const void *b)
{
    return rs_slice_compare((*(const rs_target_entry *const *)a)->key,
                            (*(const rs_target_entry *const *)b)->key);
}

static void write_weight_map(rs_json_writer *writer, const rs_target *target,
                             const rs_target_entry *const *sorted)
{
    for (int64_t i = 0; i < target->entry_count; i++) {
        rs_json_writer_text(writer, i == 0 ? "\n    " : ",\n    ");
        rs_json_writer_string(writer, sorted[i]->key);
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
        total += sorted[i]->bytes;
    }
    rs_sort((void *)sorted, count, sizeof *sorted, compare_keys);
    rs_json_writer_text(writer, "{\n  \"metadata\": {\n    \"total_size\": ");
    rs_json_writer_unsigned(writer, total);
    rs_json_writer_text(writer, "\n  },\n  \"weight_map\": {");
    write_weight_map(writer, target, sorted);
    rs_json_writer_text(writer, "\n  }\n}\n");
    rs_release(target->context, (void *)sorted, count * sizeof *sorted);
    return writer->status;
}

static reshard_status finish(const rs_target *target, const rs_finishing *finishing)
{
    rs_json_writer writer;
    if (target->file_count == 1)
        return RESHARD_OK;
    rs_json_writer_init(&writer, target->context);
    reshard_status status = write_index(target, &writer);
    if (status == RESHARD_OK)
        status = finishing->add(finishing->user, INDEX_NAME, writer.bytes, (size_t)writer.count);
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
    .lay_out = lay_out,
    .name_file = name_file,
    .place = rs_safetensors_place,
    .write_head = write_head,
    .finish = finish,
};
