/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weight_map.c - reads {"metadata": .., "weight_map": {"tensor": "file", ..}}. The metadata is
 * ignored: its total_size is wrong in many files. The text stays, with the names decoded where they
 * stand, because copies of a million names take longer than everything else here.
 */
#include "checkpoint/format/weight_map.h"

#include "base/context.h"
#include "base/sort.h"
#include "base/table.h"
#include "text/json.h"

#include <string.h>

#define INDEX_BYTES_MAX ((size_t)256 << 20)

/* What is kept while an index is read. */
typedef struct reading {
    reshard_context *context;
    rs_weight_map *map;
    rs_table numbers; /* by file name: its place in map->files, in the order of the index, plus 1 */
} reading;

/* Decodes a string where it stands: it does not become longer. */
static rs_slice decode(const rs_json_token *token)
{
    char *bytes = (char *)(uintptr_t)token->bytes; /* in map->text */
    return (rs_slice){bytes, token->escaped ? rs_json_decode(token, bytes) : token->count};
}

static reshard_status add_file(reading *r, const rs_json *json, const rs_json_token *token,
                               rs_slice name)
{
    rs_weight_map *map = r->map;
    void *files = map->files;
    if (name.count == 0 || memchr(name.bytes, '\0', name.count) != NULL ||
        memchr(name.bytes, '/', name.count) != NULL || name.bytes[0] == '.')
        return rs_json_fail(json, token, "expected the name of a file beside the index");
    if (map->file_count == INT32_MAX)
        return rs_json_fail(json, token, "there are too many files");
    reshard_status status =
        rs_grow(r->context, &files, &map->file_capacity, map->file_count + 1, sizeof(char *));
    map->files = files;
    char *copy = status == RESHARD_OK ? rs_allocate(r->context, name.count + 1) : NULL;
    if (copy == NULL)
        return status != RESHARD_OK ? status : rs_allocation_status();
    memcpy(copy, name.bytes, name.count);
    copy[name.count] = '\0';
    map->files[map->file_count++] = copy;
    return RESHARD_OK;
}

/* Finds the number of a file, which most often is that of the tensor before. */
static reshard_status find_file(reading *r, const rs_json *json, const rs_json_token *token,
                                int32_t *out_file)
{
    rs_weight_map *map = r->map;
    rs_slice name = decode(token);
    int32_t last = map->count != 0 ? map->items[map->count - 1].file : -1;
    if (last >= 0 && rs_slice_equals(name, map->files[last])) {
        *out_file = last;
        return RESHARD_OK;
    }
    void **place = rs_table_at(&r->numbers, name.bytes, name.count);
    if (place == NULL)
        return rs_allocation_status();
    if (*place == NULL) {
        reshard_status status = add_file(r, json, token, name);
        if (status != RESHARD_OK)
            return status;
        *place = (void *)(uintptr_t)map->file_count;
    }
    *out_file = (int32_t)(uintptr_t)*place - 1;
    return RESHARD_OK;
}

static reshard_status read_mapping(reading *r, rs_json *json, const rs_json_token *key)
{
    rs_weight_map *map = r->map;
    rs_weight_mapping item = {.tensor = decode(key)};
    rs_json_token token;
    reshard_status status =
        rs_json_expect(json, RS_JSON_STRING, "weight_map holds names of files only", &token);
    if (status == RESHARD_OK)
        status = find_file(r, json, &token, &item.file);
    if (status == RESHARD_OK)
        status = rs_grow(r->context, &map->items, &map->capacity, map->count + 1, sizeof item);
    if (status == RESHARD_OK)
        map->items[map->count++] = item;
    return status;
}

static reshard_status read_weight_map(reading *r, rs_json *json)
{
    rs_json_token token;
    reshard_status status =
        rs_json_expect(json, RS_JSON_OBJECT_BEGIN, "weight_map is not an object", &token);
    while (status == RESHARD_OK) {
        status = rs_json_next(json, &token);
        if (status != RESHARD_OK || token.kind == RS_JSON_OBJECT_END)
            return status;
        status = read_mapping(r, json, &token);
    }
    return status;
}

static reshard_status read_text(reading *r, const char *name)
{
    rs_json json;
    rs_json_token token;
    bool seen = false;
    rs_json_init(&json, name, r->map->text, r->map->text_bytes);
    reshard_status status =
        rs_json_expect(&json, RS_JSON_OBJECT_BEGIN, "the index is not an object", &token);
    while (rs_json_next_member(&json, &token, &status)) {
        bool is_map = rs_json_token_is(&token, "weight_map");
        if (is_map && seen)
            return rs_json_fail(&json, &token, "weight_map occurs twice");
        seen = seen || is_map;
        status = is_map ? read_weight_map(r, &json) : rs_json_skip(&json);
    }
    if (status == RESHARD_OK)
        status = rs_json_next(&json, &token);
    if (status == RESHARD_OK && !seen)
        status = rs_fail_about(RESHARD_ERR_SYNTAX, name, "has no weight_map");
    return status;
}

/* ---- order ----------------------------------------------------------------------------------- */

typedef struct numbered_name {
    char *name;
    int32_t number;
} numbered_name;

static int compare_files(const void *a, const void *b)
{
    return strcmp(((const numbered_name *)a)->name, ((const numbered_name *)b)->name);
}

static int compare_mappings(const void *a, const void *b)
{
    const rs_weight_mapping *x = a, *y = b;
    if (x->file != y->file)
        return x->file < y->file ? -1 : 1;
    return rs_slice_compare(x->tensor, y->tensor);
}

/* Numbers the files in the order of their names, and sorts the mappings. */
static reshard_status sort_map(reshard_context *context, rs_weight_map *map)
{
    size_t count = (size_t)map->file_count;
    numbered_name *names = rs_allocate_array(context, count, sizeof *names);
    int32_t *numbers = rs_allocate_array(context, count, sizeof *numbers);
    if (names != NULL && numbers != NULL) {
        for (size_t i = 0; i < count; i++)
            names[i] = (numbered_name){map->files[i], (int32_t)i};
        rs_sort(names, count, sizeof *names, compare_files);
        for (size_t i = 0; i < count; i++) {
            map->files[i] = names[i].name;
            numbers[names[i].number] = (int32_t)i;
        }
        for (int64_t i = 0; i < map->count; i++)
            map->items[i].file = numbers[map->items[i].file];
        rs_sort(map->items, (size_t)map->count, sizeof(rs_weight_mapping), compare_mappings);
    }
    reshard_status status = names != NULL && numbers != NULL ? RESHARD_OK : rs_allocation_status();
    rs_release(context, names);
    rs_release(context, numbers);
    return status;
}

/* ---- the whole ------------------------------------------------------------------------------- */

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
    reshard_context *context = checkpoint->context;
    reading r = {.context = context, .map = map};
    char *path = rs_path_join(context, checkpoint->folder, name);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status =
        rs_file_read_all(context, path, INDEX_BYTES_MAX, &map->text, &map->text_bytes);
    rs_release(context, path);
    rs_table_init(&r.numbers, context);
    if (status == RESHARD_OK)
        status = read_text(&r, name);
    rs_table_release(&r.numbers);
    return status == RESHARD_OK ? sort_map(context, map) : status;
}

void rs_weight_map_release(reshard_context *context, rs_weight_map *map)
{
    rs_release(context, map->items);
    for (int64_t i = 0; i < map->file_count; i++)
        rs_release(context, map->files[i]);
    rs_release(context, map->files);
    rs_release(context, map->text);
    *map = (rs_weight_map){0};
}

reshard_status rs_weight_map_fail_double(const char *name, rs_slice tensor)
{
    return rs_fail_about(RESHARD_ERR_SYNTAX, name, "maps tensor \"%.*s\" twice",
                         rs_slice_shown(tensor), tensor.bytes);
}

reshard_status rs_weight_map_fail_missing(const char *name, const rs_weight_map *map,
                                          const rs_weight_mapping *item)
{
    return rs_fail_about(RESHARD_ERR_CORRUPT, name,
                         "says that %s holds tensor \"%.*s\", but it does not",
                         map->files[item->file], rs_slice_shown(item->tensor), item->tensor.bytes);
}
