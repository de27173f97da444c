/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format_dcp_safetensors.c - PyTorch's distributed checkpoints as safetensors. Each file holds
 * boxes of tensors, and its `__metadata__` has
 *   DCP_SHARDING_INFO  a JSON document as a string: {"key": {"saved_offsets": [..],
 *                      "logical_fqn": "name"}}; a key without an entry here is a whole tensor
 * Our own files add, so that a missing piece or file is noticed,
 *   RESHARD_SHAPES     also a document: {"key": [full shape]}
 *   RESHARD_FILES      how many files there are
 *
 * When written, an entry is one box of its tensor, dense and without padding. A box that several
 * ranks hold is stored once, by the rank whose file has the fewest bytes so far.
 */
#include "base/context.h"
#include "checkpoint/format/file_names.h"
#include "checkpoint/format/plain_formats.h"
#include "checkpoint/format/safetensors.h"
#include "checkpoint/target/target.h"
#include "text/json.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define INFO_KEY "DCP_SHARDING_INFO"

/* ---- reading --------------------------------------------------------------------------------- */

/* What the metadata of one file says, by index into header->by_name. */
typedef struct sharding {
    const rs_header *header;
    rs_slice *names; /* logical names; bytes NULL: the same as the key */
    const int64_t **offsets;
    const int64_t **shapes;
} sharding;

static reshard_status read_logical_name(rs_arena *arena, rs_json *json, rs_slice *out_name)
{
    rs_json_token token;
    reshard_status status =
        rs_json_expect(json, RS_JSON_STRING, "logical_fqn is not a string", &token);
    return status == RESHARD_OK ? rs_json_copy(&token, arena, out_name) : status;
}

/* Reads {"saved_offsets": [..], "logical_fqn": ".."} of one entry. */
static reshard_status read_info(rs_arena *arena, rs_json *json, const rs_json_token *key,
                                int64_t index, void *user)
{
    sharding *found = user;
    rs_json_token token;
    bool has_offset = false, has_name = false;
    if (found->offsets[index] != NULL)
        return rs_json_fail(json, key, "the tensor occurs twice");
    reshard_status status =
        rs_json_expect(json, RS_JSON_OBJECT_BEGIN, "expected an object", &token);
    while (status == RESHARD_OK) {
        status = rs_json_next(json, &token);
        if (status != RESHARD_OK)
            return status;
        if (token.kind == RS_JSON_OBJECT_END)
            return has_offset ? RESHARD_OK
                              : rs_json_fail(json, &token, "saved_offsets are missing");
        bool is_offset = rs_json_token_is(&token, "saved_offsets");
        bool is_name = rs_json_token_is(&token, "logical_fqn");
        if ((is_offset && has_offset) || (is_name && has_name))
            return rs_json_fail(json, &token, "the field occurs twice");
        has_offset = has_offset || is_offset;
        has_name = has_name || is_name;
        status = is_offset
                     ? rs_safetensors_numbers(arena, json, found->header->by_name[index]->ndim,
                                              &found->offsets[index])
                 : is_name ? read_logical_name(arena, json, &found->names[index])
                           : rs_json_skip(json);
    }
    return status;
}

static reshard_status read_shape(rs_arena *arena, rs_json *json, const rs_json_token *key,
                                 int64_t index, void *user)
{
    sharding *found = user;
    if (found->shapes[index] != NULL)
        return rs_json_fail(json, key, "the tensor occurs twice");
    return rs_safetensors_numbers(arena, json, found->header->by_name[index]->ndim,
                                  &found->shapes[index]);
}

static reshard_status add_file(reshard_checkpoint *checkpoint, int32_t file, rs_occurrences *list)
{
    reshard_context *context = checkpoint->context;
    const rs_header *header = rs_safetensors_header(checkpoint, file);
    size_t count = (size_t)header->entry_count;
    size_t bytes = count * (sizeof(rs_slice) + 2 * sizeof(int64_t *));
    char *memory = rs_allocate_zeroed(context, bytes);
    if (memory == NULL)
        return rs_allocation_status();
    sharding found = {.header = header, .names = (void *)memory};
    found.offsets = (void *)(memory + count * sizeof(rs_slice));
    found.shapes = found.offsets + count;
    reshard_status status = rs_safetensors_document(checkpoint, file, INFO_KEY, read_info, &found);
    if (status == RESHARD_OK)
        status = rs_safetensors_document(checkpoint, file, RS_SHAPES_KEY, read_shape, &found);
    for (size_t i = 0; status == RESHARD_OK && i < count; i++) {
        rs_occurrence item = rs_safetensors_occurrence(checkpoint, file, header->by_name[i]);
        item.offset = found.offsets[i];
        item.full = found.shapes[i];
        if (found.names[i].bytes != NULL)
            item.name = found.names[i];
        status = rs_occurrences_add(context, list, &item);
    }
    rs_release(context, memory);
    return status;
}

/* Files that would hold nothing are not written, so a gap in the numbers is only a hint. */
static reshard_status fail_file_count(const reshard_checkpoint *checkpoint, const char *name,
                                      uint64_t expected)
{
    int32_t count = checkpoint->file_count;
    char missing[64] = "";
    int64_t number = -1;
    if (expected > (uint64_t)count && expected <= INT32_MAX)
        number = rs_file_names_missing_number(count, checkpoint->files, 1, (int64_t)expected);
    if (number >= 0)
        (void)snprintf(missing, sizeof missing, "; is shard %lld missing?", (long long)number);
    return rs_fail_about(RESHARD_ERR_GAP, name, "is one of %llu files, but there %s %d here%s",
                         (unsigned long long)expected, count == 1 ? "is" : "are", (int)count,
                         missing);
}

/* Our own files say how many files there are. */
static reshard_status check_file_count(const reshard_checkpoint *checkpoint)
{
    for (int32_t i = 0; i < checkpoint->file_count; i++) {
        const rs_stored_file *file = &checkpoint->files[i];
        const rs_metadatum *item = rs_header_metadata(file->body, "RESHARD_FILES");
        uint64_t expected = 0;
        rs_json json;
        rs_json_token token;
        if (item == NULL)
            continue;
        rs_json_init(&json, "RESHARD_FILES", item->value.bytes, item->value.count);
        reshard_status status = rs_json_next(&json, &token);
        if (status == RESHARD_OK)
            status = rs_json_unsigned(&json, &token, &expected);
        if (status != RESHARD_OK)
            return rs_fail_within(status, "%s", file->name);
        if (expected != (uint64_t)checkpoint->file_count)
            return fail_file_count(checkpoint, file->name, expected);
    }
    return RESHARD_OK;
}

static reshard_status note_unknown(reshard_checkpoint *checkpoint, const rs_occurrences *list)
{
    int64_t unknown = 0;
    for (int64_t i = 0; i < list->count; i++) {
        bool is_first =
            i == 0 || rs_slice_compare(list->items[i - 1].name, list->items[i].name) != 0;
        unknown += is_first && list->items[i].offset != NULL && list->items[i].full == NULL;
    }
    if (unknown == 0)
        return RESHARD_OK;
    return rs_store_note(checkpoint,
                         "the files do not give the full shape of %lld tensor%s: a missing last "
                         "piece would look like a smaller tensor",
                         (long long)unknown, unknown == 1 ? "" : "s");
}

static reshard_status probe(reshard_checkpoint *checkpoint, const rs_opening *opening, bool *out_is)
{
    bool any = false;
    reshard_status status = rs_safetensors_open(checkpoint, opening, &any);
    *out_is = false;
    for (int32_t i = 0; status == RESHARD_OK && i < checkpoint->file_count; i++) {
        if (rs_header_metadata(rs_safetensors_header(checkpoint, i), INFO_KEY) != NULL)
            *out_is = true;
    }
    return status;
}

static reshard_status read_files(reshard_checkpoint *checkpoint, const rs_opening *opening)
{
    rs_occurrences list = {0};
    reshard_status status = check_file_count(checkpoint);
    (void)opening;
    for (int32_t i = 0; status == RESHARD_OK && i < checkpoint->file_count; i++)
        status = add_file(checkpoint, i, &list);
    if (status == RESHARD_OK)
        status = rs_store_join(checkpoint, &list);
    if (status == RESHARD_OK)
        status = note_unknown(checkpoint, &list);
    if (status == RESHARD_OK)
        status = rs_safetensors_finish(checkpoint);
    rs_occurrences_release(checkpoint->context, &list);
    return status;
}

/* ---- laying out ------------------------------------------------------------------------------ */

/* Does some tensor have this name? */
static bool is_taken(const rs_laying *laying, rs_slice key)
{
    if (laying->source != NULL)
        return rs_selection_has(&laying->cuts->selection, key);
    for (int64_t i = 0; i < laying->target->name_count; i++) {
        if (rs_slice_compare(laying->target->names[i], key) == 0)
            return true;
    }
    return false;
}

/* An rs_box_name_fn: makes name.__dcp_shard_k with the next free k. */
static reshard_status name_box(const rs_laying *laying, rs_slice name, int64_t *next_k,
                               rs_slice *out_key)
{
    char *key = rs_arena_allocate(&laying->target->arena, name.count + 40);
    if (key == NULL)
        return rs_allocation_status();
    do {
        memcpy(key, name.bytes, name.count);
        int length = snprintf(key + name.count, 40, ".__dcp_shard_%lld", (long long)(*next_k)++);
        *out_key = (rs_slice){key, name.count + (size_t)length};
    } while (is_taken(laying, *out_key));
    return RESHARD_OK;
}

static reshard_status place_tensor(const rs_laying *laying, const rs_cut_tensor *cut)
{
    return rs_target_place_boxes(laying, cut, name_box);
}

static reshard_status lay_out(rs_laying *laying)
{
    return rs_target_cut(laying, place_tensor);
}

static void name_file(const rs_target *target, int32_t file, int32_t rank,
                      char out_name[RS_FILE_NAME_BYTES])
{
    (void)target;
    (void)file;
    (void)snprintf(out_name, RS_FILE_NAME_BYTES, "shard-%05d-model-00001-of-00001.safetensors",
                   (int)rank + 1);
}

/* ---- writing --------------------------------------------------------------------------------- */

static void write_offsets(rs_json_writer *writer, const rs_target *target,
                          const rs_target_entry *entry)
{
    const rs_stored_tensor *tensor = &target->tensors[entry->tensor];
    const rs_target_array *array = rs_target_array_of(target, entry);
    const int64_t *offset =
        array->piece_count != 0 ? tensor->pieces[entry->piece_first].offset : NULL;
    rs_json_writer_add(writer, "[", 1);
    for (int32_t d = 0; d < array->ndim; d++) {
        if (d != 0)
            rs_json_writer_add(writer, ",", 1);
        rs_json_writer_unsigned(writer,
                                offset != NULL && !tensor->opaque ? (uint64_t)offset[d] : 0);
    }
    rs_json_writer_add(writer, "]", 1);
}

/* Writes which box of its tensor each entry is. */
static void write_sharding(rs_json_writer *writer, const rs_target *target, int32_t index)
{
    const rs_target_file *file = &target->files[index];
    rs_json_writer_add(writer, "{", 1);
    for (int64_t i = 0; i < file->entry_count; i++) {
        const rs_target_entry *entry = &target->entries[file->entry_first + i];
        rs_slice name = target->tensors[entry->tensor].name;
        rs_slice key = rs_target_key(target, entry);
        if (i != 0)
            rs_json_writer_add(writer, ",", 1);
        rs_target_write_key(writer, target, entry);
        rs_json_writer_text(writer, ":{\"saved_offsets\":");
        write_offsets(writer, target, entry);
        if (rs_slice_compare(name, key) != 0) {
            rs_json_writer_text(writer, ",\"logical_fqn\":");
            rs_json_writer_string(writer, name);
        }
        rs_json_writer_add(writer, "}", 1);
    }
    rs_json_writer_add(writer, "}", 1);
}

static void write_metadata(rs_json_writer *writer, const rs_target *target, int32_t file)
{
    char count[24];
    (void)snprintf(count, sizeof count, "%d", (int)target->written_count);
    rs_safetensors_write_document(writer, INFO_KEY, write_sharding, target, file);
    rs_json_writer_text(writer, ",\"DCP_VERSION\":\"1.0\",");
    rs_safetensors_write_document(writer, RS_SHAPES_KEY, rs_safetensors_write_shapes, target, file);
    rs_json_writer_text(writer, ",\"RESHARD_FILES\":");
    rs_json_writer_string(writer, rs_slice_of(count));
    rs_json_writer_add(writer, ",", 1);
}

static reshard_status write_head(const rs_target *target, int32_t file, rs_json_writer *writer)
{
    return rs_safetensors_write_head(target, file, write_metadata, writer);
}

const rs_format rs_format_dcp_safetensors = {
    .name = "dcp-safetensors",
    .description = "PyTorch's distributed checkpoint in safetensors: each box once",
    .looks_for = "*.safetensors with " INFO_KEY,
    .probe = probe,
    .read = read_files,
    .is_split = true,
    .skips_empty = true,
    .lay_out = lay_out,
    .name_file = name_file,
    .place = rs_safetensors_place,
    .write_head = write_head,
};
