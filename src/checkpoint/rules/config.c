/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c - config.json, flattened into names with whole numbers (true is 1) and short texts.
 * Rules cannot use other values, so these are skipped.
 */
#include "checkpoint/rules/config.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "system/file.h"
#include "text/json.h"
#include "text/text.h"

#include <stdio.h>
#include <string.h>

#define CONFIG_BYTES_MAX ((size_t)16 << 20)
#define NAME_BYTES 512
#define UNNAMED SIZE_MAX   /* the length of a name that no rule can write */
#define TEXT_BYTES_MAX 200 /* longest text that rules may compare */

typedef struct rs_config_item {
    const char *name;
    int64_t value;
    const char *text; /* NULL: a number */
    bool asked;       /* rs_config_find found it */
} rs_config_item;

static reshard_status add_item(rs_config *config, const char *name, size_t length, int64_t value,
                               const char *text)
{
    void *items = config->items;
    reshard_status status = rs_grow(config->arena.context, &items, &config->capacity,
                                    config->count + 1, sizeof(rs_config_item));
    config->items = items;
    if (status != RESHARD_OK)
        return status;
    char *copy = rs_arena_allocate(&config->arena, length + 1);
    if (copy == NULL)
        return rs_allocation_status();
    memcpy(copy, name, length);
    copy[length] = '\0';
    config->items[config->count++] = (rs_config_item){.name = copy, .value = value, .text = text};
    return RESHARD_OK;
}

/* Reads a whole number with an optional sign. Returns false for anything else. */
static bool read_number(const char *text, size_t length, int64_t *out_value)
{
    size_t sign = length > 0 && text[0] == '-';
    int64_t value = 0;
    if (length == sign)
        return false;
    for (size_t i = sign; i < length; i++) {
        if (!rs_is_digit(text[i]) || !rs_multiply(value, 10, &value) ||
            !rs_add(value, text[i] - '0', &value))
            return false;
    }
    *out_value = sign != 0 ? -value : value;
    return true;
}

static reshard_status add_sets(rs_config *config, int32_t count, const char *const *sets)
{
    for (int32_t i = 0; i < count; i++) {
        const char *equals = strchr(sets[i], '=');
        int64_t value = 0;
        if (equals == NULL || equals == sets[i] ||
            !read_number(equals + 1, strlen(equals + 1), &value))
            return rs_fail(RESHARD_ERR_SYNTAX, "set \"%.100s\": expected key=number", sets[i]);
        size_t length = (size_t)(equals - sets[i]);
        for (int32_t j = 0; j < i; j++) {
            if (strncmp(sets[j], sets[i], length + 1) == 0)
                return rs_fail(RESHARD_ERR_INVALID, "set \"%.100s\": the key is set twice",
                               sets[i]);
        }
        reshard_status status = add_item(config, sets[i], length, value, NULL);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

/* The name of the value being read: one part for each container around it, joined by dots. */
typedef struct flattening {
    char name[NAME_BYTES];
    size_t lengths[RS_JSON_DEPTH_MAX + 2];  /* of the name, up to each depth */
    int64_t indices[RS_JSON_DEPTH_MAX + 2]; /* of the next item, if the container is a list */
} flattening;

static size_t append_part(flattening *flat, int depth, const char *part, size_t length)
{
    size_t used = flat->lengths[depth];
    size_t dot = used != 0;
    if (used == UNNAMED || length == 0 || used + dot + length + 1 > NAME_BYTES)
        return UNNAMED;
    if (dot)
        flat->name[used] = '.';
    memcpy(flat->name + used + dot, part, length);
    flat->name[used + dot + length] = '\0';
    return used + dot + length;
}

static reshard_status keep_value(rs_config *config, const rs_json_token *token, const char *name,
                                 size_t length)
{
    int64_t value = token->kind == RS_JSON_TRUE;
    bool is_number =
        token->kind == RS_JSON_TRUE || token->kind == RS_JSON_FALSE ||
        (token->kind == RS_JSON_NUMBER && read_number(token->bytes, token->count, &value));
    if (length == UNNAMED)
        return RESHARD_OK;
    if (is_number)
        return add_item(config, name, length, value, NULL);
    if (token->kind != RS_JSON_STRING || token->count > TEXT_BYTES_MAX)
        return RESHARD_OK;
    char *text = rs_arena_allocate(&config->arena, token->count + 1);
    if (text == NULL)
        return rs_allocation_status();
    text[rs_json_decode(token, text)] = '\0';
    if (strcmp(name, "model_type") == 0)
        config->model_type = text;
    return add_item(config, name, length, 0, text);
}

static reshard_status flatten(rs_config *config, rs_json *json, flattening *flat)
{
    size_t length = 0;
    rs_json_token token;
    for (;;) {
        int depth = json->depth;
        reshard_status status = rs_json_next(json, &token);
        if (status != RESHARD_OK || token.kind == RS_JSON_END)
            return status;
        if (token.kind == RS_JSON_KEY) {
            char part[NAME_BYTES];
            size_t count = token.count < NAME_BYTES ? rs_json_decode(&token, part) : NAME_BYTES;
            length = append_part(flat, depth, part, count);
            continue;
        }
        if (token.kind == RS_JSON_OBJECT_END || token.kind == RS_JSON_LIST_END)
            continue;
        if (depth == 0 && token.kind != RS_JSON_OBJECT_BEGIN)
            return rs_fail(RESHARD_ERR_SYNTAX, "config.json: is no object of keys and values");
        if (depth > 0 && !json->is_object[depth - 1]) {
            char part[24];
            int count = snprintf(part, sizeof part, "%lld", (long long)flat->indices[depth]++);
            length = append_part(flat, depth, part, (size_t)count);
        }
        if (token.kind == RS_JSON_OBJECT_BEGIN || token.kind == RS_JSON_LIST_BEGIN) {
            flat->lengths[depth + 1] = depth == 0 ? 0 : length;
            flat->indices[depth + 1] = 0;
            continue;
        }
        status = keep_value(config, &token, flat->name, length);
        if (status != RESHARD_OK)
            return status;
    }
}

static reshard_status read_config(rs_config *config, const char *folder)
{
    reshard_context *context = config->arena.context;
    char *text = NULL;
    size_t text_bytes = 0;
    flattening *flat = NULL;
    char *path = rs_path_join(context, folder, "config.json");
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_file_read_all(context, path, CONFIG_BYTES_MAX, &text, &text_bytes);
    if (status == RESHARD_ERR_NOT_FOUND) {
        status = RESHARD_OK;
        goto out;
    }
    if (status == RESHARD_OK && (flat = rs_allocate_zeroed(context, sizeof *flat)) == NULL)
        status = rs_allocation_status();
    if (status == RESHARD_OK) {
        rs_json json;
        rs_json_init(&json, "config.json", text, text_bytes);
        json.is_python = true;
        status = flatten(config, &json, flat);
    }
out:
    if (flat != NULL)
        rs_release(context, flat, sizeof *flat);
    if (text != NULL)
        rs_release(context, text, text_bytes + 1);
    rs_release(context, path, strlen(path) + 1);
    return status;
}

reshard_status rs_config_init(rs_config *config, reshard_context *context, const char *folder,
                              int32_t set_count, const char *const *sets)
{
    *config = (rs_config){0};
    rs_arena_init(&config->arena, context);
    reshard_status status = add_sets(config, set_count, sets);
    config->set_count = config->count;
    return status == RESHARD_OK ? read_config(config, folder) : status;
}

void rs_config_release(rs_config *config)
{
    if (config->items != NULL)
        rs_release(config->arena.context, config->items,
                   (size_t)config->capacity * sizeof(rs_config_item));
    rs_arena_release(&config->arena);
    config->items = NULL;
    config->count = config->capacity = 0;
}

bool rs_config_find(void *user, const char *key, int64_t *out_value)
{
    rs_config *config = user;
    for (int64_t i = 0; i < config->count; i++) {
        if (config->items[i].text == NULL && strcmp(config->items[i].name, key) == 0) {
            *out_value = config->items[i].value;
            config->items[i].asked = true;
            return true;
        }
    }
    return false;
}

const char *rs_config_find_text(void *user, const char *key)
{
    const rs_config *config = user;
    for (int64_t i = 0; i < config->count; i++) {
        if (config->items[i].text != NULL && strcmp(config->items[i].name, key) == 0)
            return config->items[i].text;
    }
    return NULL;
}

const char *rs_config_idle_set(const rs_config *config)
{
    for (int64_t i = 0; i < config->set_count; i++) {
        if (!config->items[i].asked)
            return config->items[i].name;
    }
    return NULL;
}
