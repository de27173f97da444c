/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_files.c - opens the safetensors files of a checkpoint, and reads metadata and
 * documents from their headers. */
#include "base/context.h"
#include "base/error.h"
#include "base/sort.h"
#include "checkpoint/format/file_names.h"
#include "checkpoint/format/safetensors.h"

#include <assert.h>
#include <string.h>

/* ---- files ----------------------------------------------------------------------------------- */

static void destroy_header(void *body)
{
    rs_header_destroy(body);
}

reshard_status rs_safetensors_open_file(reshard_checkpoint *checkpoint, int32_t index)
{
    rs_stored_file *file = &checkpoint->files[index];
    rs_header *header = NULL;
    reshard_status status = rs_header_read(checkpoint->context, file->file, &header);
    file->body = header;
    file->body_destroy = destroy_header;
    return status;
}

reshard_status rs_safetensors_open_named(reshard_checkpoint *checkpoint, int64_t count,
                                         char *const *names)
{
    return rs_store_open_each(checkpoint, count, names, rs_safetensors_open_file);
}

/* Does the file begin with a length that fits it, followed by a "{"? */
static reshard_status looks_like_one(reshard_checkpoint *checkpoint, bool *out_does)
{
    rs_file *file = NULL;
    unsigned char bytes[9];
    uint64_t size = 0, length = 0;
    reshard_status status = rs_file_open(checkpoint->context, checkpoint->path, &file);
    if (status == RESHARD_OK)
        status = rs_file_size(file, &size);
    if (status == RESHARD_OK && size >= sizeof bytes)
        status = rs_file_read(file, bytes, sizeof bytes, 0);
    for (int i = 7; status == RESHARD_OK && size >= sizeof bytes && i >= 0; i--)
        length = length << 8 | bytes[i];
    *out_does = status == RESHARD_OK && length != 0 && length <= size - 8 && bytes[8] == '{';
    rs_file_close(file);
    return status;
}

/* Keeps the names of the model's files, and leaves the others out. */
static reshard_status keep_model(reshard_checkpoint *checkpoint, const rs_opening *opening,
                                 char **names, int64_t *count)
{
    rs_slice stem = rs_file_names_model(*count, names), first = {NULL, 0};
    int64_t kept = 0, left_out = 0;
    if (stem.count == 0 || opening->unlisted == RS_UNLISTED_TAKE)
        return RESHARD_OK;
    for (int64_t i = 0; i < *count; i++) {
        rs_file_name name;
        if (rs_file_name_read(names[i], &name) && rs_slice_compare(name.stem, stem) == 0)
            names[kept++] = names[i];
        else if (left_out++ == 0)
            first = rs_slice_of(names[i]);
    }
    *count = kept;
    return rs_opening_leave_out(checkpoint, opening, left_out,
                                left_out == 1 ? "file with another name than the model's"
                                              : "files with other names than the model's",
                                first);
}

reshard_status rs_safetensors_open(reshard_checkpoint *checkpoint, const rs_opening *opening,
                                   bool *out_any)
{
    int64_t count = 0;
    reshard_status status = RESHARD_OK;
    size_t bytes = (size_t)opening->name_count * sizeof(char *);
    if (checkpoint->file_count != 0) {
        *out_any = true;
        return RESHARD_OK;
    }
    char **names = rs_allocate(checkpoint->context, bytes);
    if (names == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < opening->name_count; i++) {
        rs_file_name name;
        bool is = rs_file_name_read(opening->names[i], &name);
        if (!is && !opening->is_folder)
            status = looks_like_one(checkpoint, &is);
        if (is)
            names[count++] = opening->names[i];
    }
    if (status == RESHARD_OK && opening->is_folder)
        status = keep_model(checkpoint, opening, names, &count);
    if (status == RESHARD_OK && count != 0)
        status = rs_safetensors_open_named(checkpoint, count, names);
    rs_release(checkpoint->context, names);
    *out_any = count != 0;
    return status;
}

/* ---- metadata -------------------------------------------------------------------------------- */

typedef struct said {
    rs_metadatum item;
    int32_t file;
    int64_t index;
} said;

/* Sorts by key, then by file; within a file the last one first, because that is the one readers
 * see. */
static int compare_said(const void *a, const void *b)
{
    const said *x = a, *y = b;
    int order = rs_slice_compare(x->item.key, y->item.key);
    if (order != 0)
        return order;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return (x->index < y->index) - (x->index > y->index);
}

static bool is_own_key(rs_slice key)
{
    return (key.count >= 4 && memcmp(key.bytes, "DCP_", 4) == 0) ||
           (key.count >= 8 && memcmp(key.bytes, "RESHARD_", 8) == 0);
}

static reshard_status keep_said(reshard_checkpoint *checkpoint, said *list, int64_t count)
{
    int64_t differing = 0;
    rs_sort(list, (size_t)count, sizeof *list, compare_said);
    checkpoint->metadata =
        rs_arena_allocate_array(&checkpoint->arena, (size_t)count, sizeof(rs_metadatum));
    if (checkpoint->metadata == NULL)
        return rs_allocation_status();
    for (int64_t i = 0, first = 0; i < count; i++) {
        if (i == 0 || rs_slice_compare(list[i].item.key, list[i - 1].item.key) != 0) {
            checkpoint->metadata[checkpoint->metadata_count++] = list[i].item;
            first = i;
        } else if (list[i].file != list[i - 1].file) {
            differing += rs_slice_compare(list[i].item.value, list[first].item.value) != 0;
        }
    }
    if (differing == 0)
        return RESHARD_OK;
    return rs_store_note(
        checkpoint,
        "values of the metadata that differ between files: %lld; the first file's are kept",
        (long long)differing);
}

/* Keeps the stem of the file names if loaders know it. */
static reshard_status keep_stem(reshard_checkpoint *checkpoint)
{
    const rs_metadatum *said_name = rs_header_metadata(checkpoint->files[0].body, RS_NAME_KEY);
    rs_file_name name = {.stem = {NULL, 0}};
    (void)rs_file_name_read(checkpoint->files[0].name, &name);
    rs_slice stem = said_name != NULL ? said_name->value : name.stem;
    if (!rs_stem_is_known(stem))
        return RESHARD_OK;
    char *copy = rs_arena_allocate(&checkpoint->arena, stem.count + 1);
    if (copy == NULL)
        return rs_allocation_status();
    memcpy(copy, stem.bytes, stem.count);
    copy[stem.count] = '\0';
    checkpoint->stem = copy;
    return RESHARD_OK;
}

static reshard_status keep_metadata(reshard_checkpoint *checkpoint)
{
    int64_t most = 0, count = 0;
    for (int32_t i = 0; i < checkpoint->file_count; i++)
        most += rs_safetensors_header(checkpoint, i)->metadata_count;
    said *list = rs_allocate_array(checkpoint->context, (size_t)most, sizeof *list);
    if (list == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < checkpoint->file_count; i++) {
        const rs_header *header = rs_safetensors_header(checkpoint, i);
        for (int64_t j = 0; j < header->metadata_count; j++) {
            if (!is_own_key(header->metadata[j].key))
                list[count++] = (said){header->metadata[j], i, j};
        }
    }
    reshard_status status = keep_said(checkpoint, list, count);
    rs_release(checkpoint->context, list);
    return status == RESHARD_OK && checkpoint->file_count != 0 ? keep_stem(checkpoint) : status;
}

reshard_status rs_safetensors_finish(reshard_checkpoint *checkpoint)
{
    for (int32_t i = 0; i < checkpoint->file_count; i++)
        rs_header_drop_entries(checkpoint->files[i].body);
    return keep_metadata(checkpoint);
}

/* ---- entries --------------------------------------------------------------------------------- */

const rs_header *rs_safetensors_header(const reshard_checkpoint *checkpoint, int32_t file)
{
    assert(file >= 0 && file < checkpoint->file_count && checkpoint->files[file].body != NULL);
    return checkpoint->files[file].body;
}

rs_occurrence rs_safetensors_occurrence(const reshard_checkpoint *checkpoint, int32_t file,
                                        const rs_header_entry *entry)
{
    return (rs_occurrence){.name = entry->name,
                           .file = file,
                           .dtype = entry->dtype,
                           .ndim = entry->ndim,
                           .shape = entry->shape,
                           .at =
                               rs_safetensors_header(checkpoint, file)->data_begin + entry->begin};
}

/* ---- documents ------------------------------------------------------------------------------- */

reshard_status rs_safetensors_numbers(rs_arena *arena, rs_json *json, int32_t count,
                                      const int64_t **out_numbers)
{
    rs_json_token token;
    int64_t *numbers = rs_arena_allocate_array(arena, (size_t)count, sizeof(int64_t));
    if (numbers == NULL)
        return rs_allocation_status();
    reshard_status status =
        rs_json_expect(json, RS_JSON_LIST_BEGIN, "expected a list of numbers", &token);
    for (int32_t d = 0; status == RESHARD_OK; d++) {
        uint64_t number = 0;
        status = rs_json_next(json, &token);
        if (status == RESHARD_OK && (token.kind == RS_JSON_LIST_END) != (d == count))
            return rs_json_fail(json, &token, "expected one number for each dimension");
        if (status == RESHARD_OK && d == count)
            break;
        if (status == RESHARD_OK)
            status = rs_json_unsigned(json, &token, &number);
        if (status == RESHARD_OK && number > INT64_MAX)
            return rs_json_fail(json, &token, "the number is beyond 2^63-1");
        if (status == RESHARD_OK)
            numbers[d] = (int64_t)number;
    }
    if (status == RESHARD_OK)
        *out_numbers = numbers;
    return status;
}

static reshard_status read_members(rs_arena *arena, const rs_header *header, rs_json *json,
                                   char *scratch, rs_member_fn *read, void *user)
{
    rs_json_token token;
    reshard_status status =
        rs_json_expect(json, RS_JSON_OBJECT_BEGIN, "expected an object", &token);
    while (rs_json_next_member(json, &token, &status)) {
        rs_slice key = {scratch, rs_json_decode(&token, scratch)};
        int64_t index = rs_header_find(header, key);
        if (index < 0)
            return rs_json_fail(json, &token, "the file does not hold this tensor");
        status = read(arena, json, &token, index, user);
    }
    return status == RESHARD_OK ? rs_json_next(json, &token) : status;
}

reshard_status rs_header_document(rs_arena *arena, const rs_header *header, const char *key,
                                  rs_member_fn *read, void *user)
{
    const rs_metadatum *item = rs_header_metadata(header, key);
    rs_json json;
    if (item == NULL)
        return RESHARD_OK;
    char *scratch = rs_allocate(arena->context, item->value.count);
    if (scratch == NULL)
        return rs_allocation_status();
    rs_json_init(&json, key, item->value.bytes, item->value.count);
    reshard_status status = read_members(arena, header, &json, scratch, read, user);
    rs_release(arena->context, scratch);
    return status;
}

reshard_status rs_safetensors_document(reshard_checkpoint *checkpoint, int32_t file,
                                       const char *key, rs_member_fn *read, void *user)
{
    reshard_status status = rs_header_document(
        &checkpoint->arena, rs_safetensors_header(checkpoint, file), key, read, user);
    return rs_fail_within(status, "%s", checkpoint->files[file].name);
}

reshard_status rs_safetensors_gather(reshard_checkpoint *checkpoint, rs_occurrences *list)
{
    reshard_status status = RESHARD_OK;
    for (int32_t file = 0; file < checkpoint->file_count; file++) {
        const rs_header *header = rs_safetensors_header(checkpoint, file);
        for (int64_t i = 0; status == RESHARD_OK && i < header->entry_count; i++) {
            const rs_occurrence item =
                rs_safetensors_occurrence(checkpoint, file, header->by_name[i]);
            status = rs_occurrences_add(checkpoint->context, list, &item);
        }
    }
    return status;
}
