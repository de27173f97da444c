/* SPDX-License-Identifier: Apache-2.0 */
/*
 * config.c - config.json or params.json, flattened into names with whole numbers (true is 1) and
 * short texts. Rules cannot use other values; they are kept as JSON only.
 */
#include "checkpoint/rules/config.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "checkpoint/rules/number.h"
#include "system/file.h"
#include "text/json.h"
#include "text/text.h"

#include <assert.h>
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
    const char *json; /* as in the file */
    bool is_number;
    bool asked; /* rs_config_find found it */
} rs_config_item;

/* Adds an item with a copy of its name. */
static reshard_status add_item(rs_config *config, const char *name, size_t length,
                               rs_config_item item)
{
    reshard_status status = rs_grow(config->arena.context, &config->items, &config->capacity,
                                    config->count + 1, sizeof(rs_config_item));
    if (status != RESHARD_OK)
        return status;
    char *copy = rs_arena_allocate(&config->arena, length + 1);
    if (copy == NULL)
        return rs_allocation_status();
    memcpy(copy, name, length);
    copy[length] = '\0';
    item.name = copy;
    config->items[config->count++] = item;
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
        const char *json = rs_arena_copy(&config->arena, equals + 1, strlen(equals), 1);
        if (json == NULL)
            return rs_allocation_status();
        reshard_status status =
            add_item(config, sets[i], length,
                     (rs_config_item){.value = value, .json = json, .is_number = true});
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

/* Copies the JSON of a scalar, with the quotes of a string. NULL if out of memory. */
static const char *copy_json(rs_arena *arena, const rs_json_token *token)
{
    size_t quotes = token->kind == RS_JSON_STRING;
    char *copy = rs_arena_allocate(arena, token->count + 2 * quotes + 1);
    if (copy == NULL)
        return NULL;
    memcpy(copy, token->bytes - quotes, token->count + 2 * quotes);
    copy[token->count + 2 * quotes] = '\0';
    return copy;
}

static reshard_status keep_value(rs_config *config, const rs_json_token *token, const char *name,
                                 size_t length)
{
    rs_config_item item = {.value = token->kind == RS_JSON_TRUE};
    if (length == UNNAMED || token->kind == RS_JSON_NULL || token->count > TEXT_BYTES_MAX)
        return RESHARD_OK;
    item.is_number =
        token->kind == RS_JSON_TRUE || token->kind == RS_JSON_FALSE ||
        (token->kind == RS_JSON_NUMBER && read_number(token->bytes, token->count, &item.value));
    item.json = copy_json(&config->arena, token);
    if (item.json == NULL)
        return rs_allocation_status();
    if (token->kind == RS_JSON_STRING) {
        rs_slice text;
        if (rs_json_copy(token, &config->arena, &text) != RESHARD_OK)
            return rs_allocation_status();
        item.text = text.bytes;
        if (strcmp(name, "model_type") == 0)
            config->model_type = text.bytes;
    }
    return add_item(config, name, length, item);
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
            return rs_fail(RESHARD_ERR_SYNTAX, "%s is not an object of keys and values",
                           json->what);
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

static reshard_status read_text(rs_config *config, const char *name, const char *text, size_t bytes)
{
    reshard_context *context = config->arena.context;
    flattening *flat = rs_allocate_zeroed(context, sizeof *flat);
    rs_json json;
    if (flat == NULL)
        return rs_allocation_status();
    rs_json_init(&json, name, text, bytes);
    json.is_python = true;
    reshard_status status = flatten(config, &json, flat);
    rs_release(context, flat);
    return status;
}

/* Reads a file of the folder. *out_is_there: it exists. */
static reshard_status read_file(rs_config *config, const char *folder, const char *name,
                                bool *out_is_there)
{
    reshard_context *context = config->arena.context;
    char *text = NULL;
    size_t text_bytes = 0;
    char *path = rs_path_join(context, folder, name);
    if (path == NULL)
        return rs_allocation_status();
    reshard_status status = rs_file_read_all(context, path, CONFIG_BYTES_MAX, &text, &text_bytes);
    *out_is_there = status != RESHARD_ERR_NOT_FOUND;
    if (!*out_is_there)
        status = RESHARD_OK;
    else if (status == RESHARD_OK)
        status = read_text(config, name, text, text_bytes);
    rs_release(context, text);
    rs_release(context, path);
    return status;
}

/* Takes the values of a params.json under the keys of config.json. */
static reshard_status take_params(rs_config *config, const rs_config *params,
                                  const char *model_type)
{
    reshard_status status = RESHARD_OK;
    config->model_type = rs_arena_copy(&config->arena, model_type, strlen(model_type) + 1, 1);
    if (config->model_type == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < params->count; i++) {
        rs_config_item item = params->items[i];
        const char *key = rs_params_config_key(item.name);
        /* Llama 1 and 2 have -1 for a size that is not known. */
        if (strcmp(key, "model_type") == 0 || (item.is_number && item.value < 0))
            continue;
        item.json = rs_arena_copy(&config->arena, item.json, strlen(item.json) + 1, 1);
        if (item.text != NULL)
            item.text = rs_arena_copy(&config->arena, item.text, strlen(item.text) + 1, 1);
        if (item.json == NULL || (item.text == NULL && params->items[i].text != NULL))
            return rs_allocation_status();
        status = add_item(config, key, strlen(key), item);
    }
    return status;
}

/* Looks for a params.json. One that is not valid JSON may be any program's. */
static reshard_status read_params(rs_config *config, const char *folder)
{
    rs_config params = {0};
    bool is_there = false;
    const char *model_type = NULL;
    rs_arena_init(&params.arena, config->arena.context);
    reshard_status status = read_file(&params, folder, "params.json", &is_there);
    if (status == RESHARD_OK && is_there)
        rs_params_recognise(&params, &config->dialect, &model_type);
    if (status == RESHARD_OK && config->dialect != NULL && !config->has_file)
        status = take_params(config, &params, model_type);
    rs_config_release(&params);
    return status == RESHARD_ERR_SYNTAX ? RESHARD_OK : status;
}

reshard_status rs_config_init(rs_config *config, reshard_context *context, const char *folder,
                              int32_t set_count, const char *const *sets)
{
    *config = (rs_config){0};
    rs_arena_init(&config->arena, context);
    reshard_status status = add_sets(config, set_count, sets);
    config->set_count = config->count;
    if (status == RESHARD_OK && folder != NULL)
        status = read_file(config, folder, "config.json", &config->has_file);
    return status == RESHARD_OK && folder != NULL ? read_params(config, folder) : status;
}

/* Takes what the files of tensors say. */
static reshard_status take_told(rs_config *config, const reshard_checkpoint *model)
{
    reshard_status status = RESHARD_OK;
    if (model->made_config != NULL)
        return read_text(config, "config.json", model->made_config, strlen(model->made_config));
    for (int64_t i = 0; status == RESHARD_OK && i < model->key_count; i++) {
        rs_config_item item = {.value = model->keys[i].value, .is_number = true};
        char text[24];
        (void)snprintf(text, sizeof text, "%lld", (long long)item.value);
        item.json = rs_arena_copy(&config->arena, text, strlen(text) + 1, 1);
        status = item.json != NULL
                     ? add_item(config, model->keys[i].name, strlen(model->keys[i].name), item)
                     : rs_allocation_status();
    }
    return status;
}

reshard_status rs_config_init_for(rs_config *config, const reshard_checkpoint *model,
                                  int32_t set_count, const char *const *sets)
{
    reshard_status status =
        rs_config_init(config, model->context, rs_store_config_folder(model), set_count, sets);
    bool has_config = config->count != config->set_count;
    return status == RESHARD_OK && !has_config ? take_told(config, model) : status;
}

reshard_status rs_config_init_own(rs_config *config, const reshard_checkpoint *model)
{
    *config = (rs_config){0};
    rs_arena_init(&config->arena, model->context);
    reshard_status status = model->record != NULL ? read_text(config, "the record", model->record,
                                                              strlen(model->record))
                                                  : take_told(config, model);
    bool is_silent = config->count == 0 && model->folder != NULL;
    return status == RESHARD_OK && is_silent ? read_params(config, model->folder) : status;
}

void rs_config_release(rs_config *config)
{
    rs_release(config->arena.context, config->items);
    rs_arena_release(&config->arena);
    config->items = NULL;
    config->count = config->capacity = 0;
}

void rs_config_forget_quantisation(rs_config *config)
{
    int64_t kept = config->set_count;
    for (int64_t i = config->set_count; i < config->count; i++) {
        if (strstr(config->items[i].name, "quantization_config.") == NULL)
            config->items[kept++] = config->items[i];
    }
    config->count = kept;
}

/* Whether an item serves who asks. */
typedef bool item_test(const rs_config_item *item);

static bool is_number(const rs_config_item *item)
{
    return item->is_number;
}

static bool is_text(const rs_config_item *item)
{
    return item->text != NULL;
}

static bool is_any(const rs_config_item *item)
{
    (void)item;
    return true;
}

/* What was set comes first, unless it is not wanted. In the file, the last of equal keys counts, as
 * for Python, so that rules see what the programs see that load the model. */
static rs_config_item *find_item(const rs_config *config, const char *key, bool with_sets,
                                 item_test *test)
{
    for (int64_t i = 0; with_sets && i < config->set_count; i++) {
        if (test(&config->items[i]) && strcmp(config->items[i].name, key) == 0)
            return &config->items[i];
    }
    for (int64_t i = config->count; i-- > config->set_count;) {
        if (test(&config->items[i]) && strcmp(config->items[i].name, key) == 0)
            return &config->items[i];
    }
    return NULL;
}

bool rs_config_find(void *user, const char *key, int64_t *out_value)
{
    rs_config_item *item = find_item(user, key, true, is_number);
    if (item == NULL)
        return false;
    *out_value = item->value;
    return item->asked = true;
}

const char *rs_config_find_text(void *user, const char *key)
{
    const rs_config_item *item = find_item(user, key, true, is_text);
    return item != NULL ? item->text : NULL;
}

const char *rs_config_find_json(const rs_config *config, const char *key)
{
    const rs_config_item *item = find_item(config, key, false, is_any);
    return item != NULL ? item->json : NULL;
}

const char *rs_config_find_nested(const rs_config *config, const char *key)
{
    char nested[RS_KEY_NESTED_BYTES];
    for (int place = 0; rs_key_nested(key, place, nested); place++) {
        const rs_config_item *item = find_item(config, nested, true, is_any);
        if (item != NULL)
            return item->json;
    }
    return NULL;
}

bool rs_config_is_set(const rs_config *config, const char *key)
{
    for (int64_t i = 0; i < config->set_count; i++) {
        if (strcmp(config->items[i].name, key) == 0)
            return true;
    }
    return false;
}

const char *rs_config_key_at(const rs_config *config, int64_t index)
{
    int64_t place = config->set_count + index;
    return place < config->count ? config->items[place].name : NULL;
}

const char *rs_config_idle_set(const rs_config *config, const rs_config *other)
{
    assert(other == NULL || config->set_count == 0 || other->set_count == config->set_count);
    for (int64_t i = 0; i < config->set_count; i++) {
        if (!config->items[i].asked && (other == NULL || !other->items[i].asked))
            return config->items[i].name;
    }
    return NULL;
}
