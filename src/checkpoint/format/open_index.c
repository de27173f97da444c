/* SPDX-License-Identifier: Apache-2.0 */
/*
 * open_index.c - Hugging Face folders: {"metadata": .., "weight_map": {"tensor": "file"}}.
 *
 * The index rules: its files are read and no others, and a tensor is the one of the file it names,
 * whatever names files have. total_size is informational, and written wrongly by old tools, so it
 * is not looked at. Files lie beside the index: a name with a slash is refused.
 */
#include "base/context.h"
#include "base/json.h"
#include "checkpoint/store/store.h"

#include <stdlib.h>
#include <string.h>

typedef struct mapping {
    rs_slice tensor;
    const char *file;
    int32_t file_index;
} mapping;

typedef struct mappings {
    int64_t count, capacity;
    mapping *items;
} mappings;

/* The decoded string in the checkpoint's arena, with a NUL behind it. */
static reshard_status keep_string(reshard_checkpoint *checkpoint, const rs_json_token *token,
                                  rs_slice *out_string)
{
    char *bytes = rs_arena_allocate(&checkpoint->arena, token->count + 1);
    if (bytes == NULL)
        return rs_allocation_status();
    out_string->bytes = bytes;
    out_string->count = rs_json_decode(token, bytes);
    bytes[out_string->count] = '\0';
    return RESHARD_OK;
}

static reshard_status read_mapping(reshard_checkpoint *checkpoint, rs_json *json,
                                   const rs_json_token *key, mappings *list)
{
    mapping item = {.file_index = -1};
    rs_slice file = {0};
    rs_json_token token;
    void *items = list->items;
    reshard_status status = keep_string(checkpoint, key, &item.tensor);
    if (status == RESHARD_OK)
        status =
            rs_json_expect(json, RS_JSON_STRING, "weight_map holds names of files only", &token);
    if (status == RESHARD_OK)
        status = keep_string(checkpoint, &token, &file);
    if (status != RESHARD_OK)
        return status;
    if (file.count == 0 || strlen(file.bytes) != file.count || strchr(file.bytes, '/') != NULL ||
        file.bytes[0] == '.')
        return rs_json_fail(json, &token, "not the name of a file beside the index");
    item.file = file.bytes;
    status = rs_grow(checkpoint->context, &items, &list->capacity, list->count + 1, sizeof item);
    list->items = items;
    if (status == RESHARD_OK)
        list->items[list->count++] = item;
    return status;
}

static reshard_status read_weight_map(reshard_checkpoint *checkpoint, rs_json *json, mappings *list)
{
    rs_json_token token;
    reshard_status status =
        rs_json_expect(json, RS_JSON_OBJECT_BEGIN, "weight_map is not an object", &token);
    while (status == RESHARD_OK) {
        status = rs_json_next(json, &token);
        if (status != RESHARD_OK || token.kind == RS_JSON_OBJECT_END)
            return status;
        status = read_mapping(checkpoint, json, &token, list);
    }
    return status;
}

static reshard_status read_text(reshard_checkpoint *checkpoint, const char *name, const char *text,
                                size_t text_bytes, mappings *list)
{
    rs_json json;
    rs_json_token token;
    bool seen = false;
    rs_json_init(&json, name, text, text_bytes);
    reshard_status status =
        rs_json_expect(&json, RS_JSON_OBJECT_BEGIN, "the index is not an object", &token);
    while (status == RESHARD_OK) {
        status = rs_json_next(&json, &token);
        if (status != RESHARD_OK || token.kind == RS_JSON_OBJECT_END)
            break;
        bool is_map = rs_json_token_is(&token, "weight_map");
        if (is_map && seen)
            return rs_json_fail(&json, &token, "weight_map occurs twice");
        seen = seen || is_map;
        status = is_map ? read_weight_map(checkpoint, &json, list) : rs_json_skip(&json);
    }
    if (status == RESHARD_OK)
        status = rs_json_next(&json, &token);
    if (status == RESHARD_OK && !seen)
        status = rs_fail(RESHARD_ERR_SYNTAX, "%s: has no weight_map", name);
    return status;
}

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const mapping *)a)->file, ((const mapping *)b)->file);
}

/* Opens the files that the mappings, sorted by file, name. */
static reshard_status open_files(reshard_checkpoint *checkpoint, mappings *list)
{
    int32_t count = 0;
    size_t bytes = (size_t)list->count * sizeof(char *);
    char **names = rs_allocate_array(checkpoint->context, (size_t)list->count, sizeof(char *));
    if (names == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < list->count; i++) {
        if (count == 0 || strcmp(names[count - 1], list->items[i].file) != 0)
            names[count++] = (char *)(uintptr_t)list->items[i].file;
        list->items[i].file_index = count - 1;
    }
    reshard_status status = rs_store_open_files(checkpoint, count, names);
    rs_release(checkpoint->context, names, bytes);
    return status;
}

static reshard_status find_entries(reshard_checkpoint *checkpoint, const char *name,
                                   const mappings *list, rs_occurrences *found)
{
    for (int64_t i = 0; i < list->count; i++) {
        const mapping *item = &list->items[i];
        const rs_entry *entry =
            rs_header_find(checkpoint->files[item->file_index].header, item->tensor);
        if (entry == NULL)
            return rs_fail(RESHARD_ERR_CORRUPT,
                           "%s: says that %s holds tensor \"%.*s\", but it "
                           "does not",
                           name, item->file, rs_slice_shown(item->tensor), item->tensor.bytes);
        rs_occurrence occurrence = {.name = entry->name, .file = item->file_index, .entry = entry};
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
        held += checkpoint->files[i].header->entry_count;
    if (held == mapped)
        return RESHARD_OK;
    return rs_store_note(checkpoint, "%lld tensors in the files are not in the index: left out",
                         (long long)(held - mapped));
}

static reshard_status fail_double(const reshard_checkpoint *checkpoint, const char *name,
                                  const rs_occurrences *found)
{
    (void)checkpoint;
    for (int64_t i = 1; i < found->count; i++) {
        rs_slice tensor = found->items[i].name;
        if (rs_slice_compare(found->items[i - 1].name, tensor) == 0)
            return rs_fail(RESHARD_ERR_SYNTAX, "%s: maps tensor \"%.*s\" twice", name,
                           rs_slice_shown(tensor), tensor.bytes);
    }
    return RESHARD_OK;
}

reshard_status rs_store_read_index(reshard_checkpoint *checkpoint, const char *index_name,
                                   const char *text, size_t text_bytes)
{
    mappings list = {0};
    rs_occurrences found = {0};
    reshard_status status = read_text(checkpoint, index_name, text, text_bytes, &list);
    if (status == RESHARD_OK && list.count > 1)
        qsort(list.items, (size_t)list.count, sizeof(mapping), compare_files);
    if (status == RESHARD_OK)
        status = open_files(checkpoint, &list);
    if (status == RESHARD_OK)
        status = find_entries(checkpoint, index_name, &list, &found);
    if (status == RESHARD_OK)
        status = rs_store_join(checkpoint, &found);
    if (found.count != checkpoint->tensor_count) {
        reshard_status doubled = fail_double(checkpoint, index_name, &found);
        status = doubled != RESHARD_OK ? doubled : status;
    }
    if (status == RESHARD_OK)
        status = note_left_out(checkpoint, list.count);
    if (list.items != NULL)
        rs_release(checkpoint->context, list.items, (size_t)list.capacity * sizeof(mapping));
    rs_occurrences_release(checkpoint->context, &found);
    return status;
}
