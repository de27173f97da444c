/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weight_map.c - reads {"metadata": .., "weight_map": {"tensor": "file", ..}}. The metadata is
 * ignored: its total_size is wrong in many files.
 */
#include "checkpoint/format/weight_map.h"

#include "base/context.h"
#include "base/sort.h"
#include "text/json.h"

#include <string.h>

#define INDEX_BYTES_MAX ((size_t)256 << 20)

/* Decodes a string into the checkpoint's arena, with a NUL after it. */
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
                                   const rs_json_token *key, rs_weight_map *map)
{
    rs_weight_mapping item = {.file_index = -1};
    rs_slice file = {0};
    rs_json_token token;
    void *items = map->items;
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
    status = rs_grow(checkpoint->context, &items, &map->capacity, map->count + 1, sizeof item);
    map->items = items;
    if (status == RESHARD_OK)
        map->items[map->count++] = item;
    return status;
}

static reshard_status read_weight_map(reshard_checkpoint *checkpoint, rs_json *json,
                                      rs_weight_map *map)
{
    rs_json_token token;
    reshard_status status =
        rs_json_expect(json, RS_JSON_OBJECT_BEGIN, "weight_map is not an object", &token);
    while (status == RESHARD_OK) {
        status = rs_json_next(json, &token);
        if (status != RESHARD_OK || token.kind == RS_JSON_OBJECT_END)
            return status;
        status = read_mapping(checkpoint, json, &token, map);
    }
    return status;
}

static reshard_status read_text(reshard_checkpoint *checkpoint, const char *name, const char *text,
                                size_t text_bytes, rs_weight_map *map)
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
        status = is_map ? read_weight_map(checkpoint, &json, map) : rs_json_skip(&json);
    }
    if (status == RESHARD_OK)
        status = rs_json_next(&json, &token);
    if (status == RESHARD_OK && !seen)
        status = rs_fail_about(RESHARD_ERR_SYNTAX, name, "has no weight_map");
    return status;
}

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const rs_weight_mapping *)a)->file, ((const rs_weight_mapping *)b)->file);
}

/* Numbers the files in the order of their names. */
static void number_files(rs_weight_map *map)
{
    rs_sort(map->items, (size_t)map->count, sizeof(rs_weight_mapping), compare_files);
    for (int64_t i = 0; i < map->count; i++) {
        bool is_new = i == 0 || strcmp(map->items[i - 1].file, map->items[i].file) != 0;
        map->file_count += is_new;
        map->items[i].file_index = map->file_count - 1;
    }
}

reshard_status rs_weight_map_open(reshard_checkpoint *checkpoint, const rs_weight_map *map,
                                  rs_open_named_fn *open)
{
    size_t bytes = (size_t)map->count * sizeof(char *);
    char **names = rs_allocate_array(checkpoint->context, (size_t)map->count, sizeof(char *));
    if (names == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < map->count; i++)
        names[map->items[i].file_index] = (char *)(uintptr_t)map->items[i].file;
    reshard_status status = open(checkpoint, map->file_count, names);
    rs_release(checkpoint->context, names, bytes);
    return status;
}

const char *rs_weight_map_find(const rs_opening *opening, const char *middle, const char *first)
{
    const char *found = NULL;
    if (opening->index != NULL)
        return strstr(opening->index, middle) != NULL ? opening->index : NULL;
    for (int64_t i = 0; i < opening->name_count; i++) {
        const char *name = opening->names[i];
        size_t length = strlen(name);
        if (strstr(name, middle) != NULL && length > 5 && strcmp(name + length - 5, ".json") == 0 &&
            (found == NULL || strcmp(name, first) == 0))
            found = name;
    }
    return found;
}

reshard_status rs_weight_map_read(reshard_checkpoint *checkpoint, const char *name,
                                  rs_weight_map *map)
{
    char *text = NULL;
    size_t text_bytes = 0;
    char *path = rs_path_join(checkpoint->context, checkpoint->folder, name);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status =
        rs_file_read_all(checkpoint->context, path, INDEX_BYTES_MAX, &text, &text_bytes);
    rs_release(checkpoint->context, path, strlen(path) + 1);
    if (status == RESHARD_OK)
        status = read_text(checkpoint, name, text, text_bytes, map);
    if (text != NULL)
        rs_release(checkpoint->context, text, text_bytes + 1);
    if (status == RESHARD_OK)
        number_files(map);
    return status;
}

void rs_weight_map_release(reshard_context *context, rs_weight_map *map)
{
    if (map->items != NULL)
        rs_release(context, map->items, (size_t)map->capacity * sizeof(rs_weight_mapping));
    *map = (rs_weight_map){0};
}

reshard_status rs_weight_map_check(const char *name, const rs_occurrences *found)
{
    for (int64_t i = 1; i < found->count; i++) {
        rs_slice tensor = found->items[i].name;
        if (rs_slice_compare(found->items[i - 1].name, tensor) == 0)
            return rs_fail_about(RESHARD_ERR_SYNTAX, name, "maps tensor \"%.*s\" twice",
                                 rs_slice_shown(tensor), tensor.bytes);
    }
    return RESHARD_OK;
}
