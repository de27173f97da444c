/* SPDX-License-Identifier: Apache-2.0 */
/*
 * number.c - parses and evaluates numbers in one pass, by recursive descent of bounded depth.
 *
 * Configurations leave out values that the model class would fill in, and families have different
 * names for the same thing. The table of substitutes says, in the language of numbers, how to
 * compute a key that the configuration does not have.
 */
#include "checkpoint/rules/number.h"
#include "base/checked.h"
#include "base/error.h"
#include "spec/spec.h"
#include "text/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DEPTH_MAX 32

static const struct {
    const char *key, *number;
} substitutes[] = {
    {"hidden_size", "$n_embd?$d_model?$n_embed"},
    {"num_attention_heads", "$n_head?$n_heads?$num_heads"},
    {"num_hidden_layers", "$n_layer?$n_layers?$num_layers"},
    {"num_key_value_heads", "$num_attention_heads"},
    {"head_dim", "$hidden_size/$num_attention_heads"},
    {"num_local_experts", "$num_experts?$n_routed_experts?$moe_num_experts"},
    /* Size of the blocks, or of the groups of inputs (GPTQ, AWQ), that share a scale; 1 x 1 if
     * unset. */
    {"weight_block_rows", "$quantization_config.weight_block_size.0?$block_structure.0?1"},
    {"weight_block_columns", "$quantization_config.weight_block_size.1?$block_structure.1?"
                             "$quantization_config.group_size?1"},
    {"block_structure.0", "$quantization_config.config_groups.group_0.weights.block_structure.0"},
    {"block_structure.1", "$quantization_config.config_groups.group_0.weights.block_structure.1"},
    /* Rows and columns of attention weights that must stay together. */
    {"head_rows", "lcm($head_dim, $weight_block_rows)"},
    {"head_columns", "lcm($head_dim, $weight_block_columns)"},
    {"query_rows", "$num_attention_heads*$head_dim"},
    {"key_rows", "$num_key_value_heads*$head_dim"},
    /* For a vision tower. embed_dim comes first: Qwen2-VL's hidden_size is that of the text. */
    {"tower_size", "$vision_config.embed_dim?$vision_config.hidden_size"},
    {"tower_head_dim", "$tower_size/$tower_heads"},
    {"tower_heads", "$vision_config.num_attention_heads?$vision_config.num_heads"},
};

/* ---- cursor ---------------------------------------------------------------------------------- */

void rs_cursor_skip_spaces(rs_cursor *cursor)
{
    while (cursor->at < cursor->end && (*cursor->at == ' ' || *cursor->at == '\t'))
        cursor->at++;
}

bool rs_cursor_accept(rs_cursor *cursor, char c)
{
    rs_cursor_skip_spaces(cursor);
    if (cursor->at == cursor->end || *cursor->at != c)
        return false;
    cursor->at++;
    return true;
}

/* The end of the word at the cursor, or the cursor itself if there is no word. */
static const char *find_word_end(const rs_cursor *cursor, bool dotted)
{
    const char *at = cursor->at;
    if (at < cursor->end && rs_is_letter(*at)) {
        while (at < cursor->end &&
               (rs_is_letter(*at) || rs_is_digit(*at) || (dotted && *at == '.')))
            at++;
    }
    return at;
}

bool rs_cursor_accept_word(rs_cursor *cursor, const char *word)
{
    rs_cursor_skip_spaces(cursor);
    size_t length = (size_t)(find_word_end(cursor, false) - cursor->at);
    if (length != strlen(word) || memcmp(cursor->at, word, length) != 0)
        return false;
    cursor->at += length;
    return true;
}

typedef enum function_kind { LEAST_MULTIPLE, LESSER, GREATER } function_kind;

typedef struct number_function {
    const char *name;
    function_kind kind;
} number_function;

static const number_function functions[] = {
    {"lcm", LEAST_MULTIPLE}, {"min", LESSER}, {"max", GREATER}};

/* Consumes the name of a function and the parenthesis after it. Returns NULL if there is none:
 * max=2, an option of cuts, is not a function. */
static const number_function *accept_function(rs_cursor *cursor)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        rs_cursor behind = *cursor;
        if (rs_cursor_accept_word(&behind, functions[i].name) && rs_cursor_accept(&behind, '(')) {
            *cursor = behind;
            return &functions[i];
        }
    }
    return NULL;
}

bool rs_cursor_at_variable(rs_cursor *cursor)
{
    rs_cursor_skip_spaces(cursor);
    if (cursor->at == cursor->end)
        return false;
    rs_cursor behind = *cursor;
    return strchr("$@{", *cursor->at) != NULL || accept_function(&behind) != NULL;
}

/* ---- keys ------------------------------------------------------------------------------------ */

static reshard_status read_sum(const rs_number_scope *scope, rs_cursor *cursor, int depth,
                               int64_t *out_number);

/* Models with a tower nest the keys of their text model in one of these. */
static const char *const text_models[] = {"", "text_config.", "llm_config.", "language_config.",
                                          "thinker_config.text_config."};
enum { TEXT_MODELS = sizeof text_models / sizeof *text_models };

bool rs_key_nested(const char *key, int place, char out_key[RS_KEY_NESTED_BYTES])
{
    if (place >= TEXT_MODELS)
        return false;
    (void)snprintf(out_key, RS_KEY_NESTED_BYTES, "%s%s", text_models[place], key);
    return true;
}

/* Finds the value of a key at the top level or in the part for the text model. */
static bool find_plain(const rs_number_scope *scope, const char *key, int64_t *out_value)
{
    char nested[RS_KEY_NESTED_BYTES];
    bool found = false, can_ask = scope->keys != NULL && scope->keys->find != NULL;
    for (int i = 0; can_ask && !found && rs_key_nested(key, i, nested); i++)
        found = scope->keys->find(scope->keys->user, nested, out_value);
    return found;
}

const char *rs_key_text(const rs_rules_keys *keys, const char *key)
{
    char nested[RS_KEY_NESTED_BYTES];
    const char *text = NULL;
    bool can_ask = keys != NULL && keys->find_text != NULL;
    for (int i = 0; can_ask && text == NULL && rs_key_nested(key, i, nested); i++)
        text = keys->find_text(keys->user, nested);
    return text;
}

/* The number that replaces a key that the configuration does not have; empty: none. If it is a
 * default, the scope loses its defaults, because chains of defaults could take forever. */
static rs_slice find_other(rs_number_scope *scope, const char *key)
{
    for (int64_t i = 0; i < scope->default_count; i++) {
        if (!rs_slice_equals(scope->defaults[i].key, key))
            continue;
        scope->default_count = 0;
        return scope->defaults[i].number;
    }
    for (size_t i = 0; i < sizeof substitutes / sizeof *substitutes; i++) {
        if (strcmp(substitutes[i].key, key) == 0)
            return rs_slice_of(substitutes[i].number);
    }
    return (rs_slice){NULL, 0};
}

/* Whether the key exists only here and in no configuration. An error then names the keys from which
 * it is computed, because these are what the user can set. */
static bool is_computed(const char *key)
{
    static const char *const keys[] = {"head_rows",      "head_columns", "query_rows", "key_rows",
                                       "tower_head_dim", "tower_size",   "tower_heads"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        if (strcmp(keys[i], key) == 0)
            return true;
    }
    return false;
}

/* has_other: there is a fallback, so a missing value needs no error text. */
static reshard_status find_key(const rs_number_scope *scope, const char *key, int depth,
                               bool has_other, int64_t *out_value)
{
    if (find_plain(scope, key, out_value)) {
        if (*out_value < 0 && has_other) /* -1 means none, as in group_size */
            return RESHARD_ERR_NOT_FOUND;
        if (*out_value < 0)
            return rs_fail(RESHARD_ERR_RANGE, "$%s is %" PRId64 ", which is negative", key,
                           *out_value);
        return RESHARD_OK;
    }
    rs_number_scope other_scope = *scope;
    rs_slice other = find_other(&other_scope, key);
    if (other.count != 0) {
        rs_cursor cursor = {other.bytes, other.bytes + other.count};
        reshard_status status = read_sum(&other_scope, &cursor, depth + 1, out_value);
        if (status != RESHARD_ERR_NOT_FOUND || is_computed(key))
            return status;
        return rs_fail_hint(RESHARD_ERR_NOT_FOUND, RESHARD_HINT_SET_KEY, key,
                            "$%s has no value in config.json, nor has %.*s", key, RS_SHOWN(other));
    }
    if (has_other)
        return RESHARD_ERR_NOT_FOUND;
    return rs_fail_hint(RESHARD_ERR_NOT_FOUND, RESHARD_HINT_SET_KEY, key,
                        "$%s has no value in config.json", key);
}

static reshard_status read_word(rs_cursor *cursor, bool dotted, const char *what,
                                char out_word[RS_KEY_BYTES])
{
    size_t length = (size_t)(find_word_end(cursor, dotted) - cursor->at);
    if (length == 0)
        return rs_fail(RESHARD_ERR_SYNTAX, "%s has no name", what);
    if (length >= RS_KEY_BYTES)
        return rs_fail(RESHARD_ERR_RANGE, "%s has more than %d bytes", what, RS_KEY_BYTES - 1);
    memcpy(out_word, cursor->at, length);
    out_word[length] = '\0';
    cursor->at += length;
    return RESHARD_OK;
}

/* ---- factors --------------------------------------------------------------------------------- */

static reshard_status read_digits(rs_cursor *cursor, int64_t *out_number)
{
    int64_t number = 0;
    for (; cursor->at < cursor->end && rs_is_digit(*cursor->at); cursor->at++) {
        if (!rs_multiply(number, 10, &number) || !rs_add(number, *cursor->at - '0', &number))
            return rs_fail(RESHARD_ERR_RANGE, "the number is beyond 2^63-1");
    }
    *out_number = number;
    return RESHARD_OK;
}

static reshard_status read_factor(const rs_number_scope *scope, rs_cursor *cursor, int depth,
                                  int64_t *out_number);

static reshard_status read_key(const rs_number_scope *scope, rs_cursor *cursor, int depth,
                               int64_t *out_number)
{
    char key[RS_KEY_BYTES];
    int64_t skipped;
    reshard_status status = read_word(cursor, true, "a $key", key);
    if (status != RESHARD_OK)
        return status;
    *out_number = 1;
    bool has_other = rs_cursor_accept(cursor, '?');
    if (!scope->form_only)
        status = find_key(scope, key, depth, has_other, out_number);
    if ((status != RESHARD_OK && status != RESHARD_ERR_NOT_FOUND) || !has_other)
        return status;
    if (status == RESHARD_ERR_NOT_FOUND)
        return read_factor(scope, cursor, depth + 1, out_number);
    rs_number_scope form = *scope;
    form.form_only = true;
    return read_factor(&form, cursor, depth + 1, &skipped);
}

static reshard_status read_axis(const rs_number_scope *scope, rs_cursor *cursor,
                                int64_t *out_number)
{
    char name[RS_KEY_BYTES];
    reshard_status status = read_word(cursor, false, "an @axis", name);
    if (status != RESHARD_OK)
        return status;
    if (scope->find_word != NULL)
        return rs_fail(RESHARD_ERR_SYNTAX, "\"@%s\": maps have no mesh, so there are no axes",
                       name);
    int32_t axis = scope->form_only ? -1 : rs_mesh_find_axis(scope->mesh, name);
    *out_number = axis >= 0 ? scope->mesh->sizes[axis] : 1;
    for (int32_t i = 0; !scope->form_only && i < scope->same_count; i++) {
        if (strcmp(scope->same[i].name, name) == 0)
            *out_number = scope->same[i].size;
    }
    return RESHARD_OK;
}

static reshard_status read_wildcard(const rs_number_scope *scope, rs_cursor *cursor,
                                    int64_t *out_number)
{
    int64_t index = 0;
    reshard_status status = read_digits(cursor, &index);
    if (status == RESHARD_OK && !rs_cursor_accept(cursor, '}'))
        status = rs_fail(RESHARD_ERR_SYNTAX, "expected a number and } after {");
    if (status == RESHARD_OK && (index < 1 || index > scope->span_count))
        status =
            rs_fail(RESHARD_ERR_SYNTAX, "{%" PRId64 "}, but the pattern has %" PRId32 " wildcards",
                    index, scope->span_count);
    *out_number = 1;
    if (status != RESHARD_OK || scope->form_only)
        return status;
    rs_glob_span span = scope->spans[index - 1];
    rs_cursor digits = {scope->name + span.start, scope->name + span.end};
    status = digits.at < digits.end ? read_digits(&digits, out_number) : RESHARD_ERR_INVALID;
    if (status == RESHARD_ERR_INVALID || digits.at != digits.end)
        return rs_fail(RESHARD_ERR_INVALID, "{%" PRId64 "} is \"%.*s\", which is not a number",
                       index, (int)rs_min((int64_t)(span.end - span.start), 40),
                       scope->name + span.start);
    return status;
}

static reshard_status read_named(const rs_number_scope *scope, rs_cursor *cursor,
                                 int64_t *out_number)
{
    char word[RS_KEY_BYTES];
    reshard_status status = read_word(cursor, false, "a word", word);
    *out_number = 1;
    if (status == RESHARD_OK && (!scope->form_only || scope->knows_words) &&
        !scope->find_word(scope->user, rs_slice_of(word), out_number))
        status = rs_fail(RESHARD_ERR_NOT_FOUND, "%s has no value", word);
    return status;
}

/* Reads the two arguments of a function, after its parenthesis. */
static reshard_status read_function(const rs_number_scope *scope, const number_function *function,
                                    rs_cursor *cursor, int depth, int64_t *out_number)
{
    const char *name = function->name;
    int64_t a = 0, b = 0;
    reshard_status status = read_sum(scope, cursor, depth + 1, &a);
    if (status == RESHARD_OK && !rs_cursor_accept(cursor, ','))
        status = rs_fail(RESHARD_ERR_SYNTAX, "%s takes two numbers: %s(a, b)", name, name);
    if (status == RESHARD_OK)
        status = read_sum(scope, cursor, depth + 1, &b);
    if (status == RESHARD_OK && !rs_cursor_accept(cursor, ')'))
        status = rs_fail(RESHARD_ERR_SYNTAX, "expected ) after the second number of %s", name);
    if (status != RESHARD_OK)
        return status;
    if (function->kind != LEAST_MULTIPLE) {
        *out_number = function->kind == LESSER ? rs_min(a, b) : rs_max(a, b);
        return RESHARD_OK;
    }
    if (a == 0 || b == 0)
        return rs_fail(RESHARD_ERR_RANGE, "lcm(%" PRId64 ", %" PRId64 ")", a, b);
    if (!rs_multiply(a / rs_greatest_common_divisor(a, b), b, out_number))
        return rs_fail(RESHARD_ERR_RANGE, "lcm(%" PRId64 ", %" PRId64 ") is beyond 2^63-1", a, b);
    return RESHARD_OK;
}

static reshard_status read_factor(const rs_number_scope *scope, rs_cursor *cursor, int depth,
                                  int64_t *out_number)
{
    if (depth > DEPTH_MAX)
        return rs_fail(RESHARD_ERR_SYNTAX, "a number is nested more than %d levels deep",
                       DEPTH_MAX);
    if (rs_cursor_accept(cursor, '$'))
        return read_key(scope, cursor, depth, out_number);
    if (rs_cursor_accept(cursor, '@'))
        return read_axis(scope, cursor, out_number);
    if (rs_cursor_accept(cursor, '{'))
        return read_wildcard(scope, cursor, out_number);
    const number_function *function = accept_function(cursor);
    if (function != NULL)
        return read_function(scope, function, cursor, depth, out_number);
    if (rs_cursor_accept(cursor, '(')) {
        reshard_status status = read_sum(scope, cursor, depth + 1, out_number);
        if (status == RESHARD_OK && !rs_cursor_accept(cursor, ')'))
            status = rs_fail(RESHARD_ERR_SYNTAX, "expected ) after a number");
        return status;
    }
    if (cursor->at < cursor->end && rs_is_digit(*cursor->at))
        return read_digits(cursor, out_number);
    if (cursor->at < cursor->end && rs_is_letter(*cursor->at) && scope->find_word != NULL)
        return read_named(scope, cursor, out_number);
    return rs_fail(RESHARD_ERR_SYNTAX, "expected a number or a $key");
}

/* ---- products and sums ----------------------------------------------------------------------- */

static reshard_status read_product(const rs_number_scope *scope, rs_cursor *cursor, int depth,
                                   int64_t *out_number)
{
    int64_t product = 0, factor = 0;
    reshard_status status = read_factor(scope, cursor, depth, &product);
    while (status == RESHARD_OK) {
        bool times = rs_cursor_accept(cursor, '*');
        if (!times && !rs_cursor_accept(cursor, '/')) {
            *out_number = product;
            return RESHARD_OK;
        }
        status = read_factor(scope, cursor, depth, &factor);
        if (status != RESHARD_OK)
            return status;
        if (times) {
            if (!rs_multiply(product, factor, &product))
                return rs_fail(RESHARD_ERR_RANGE, "a product is beyond 2^63-1");
        } else if (scope->form_only) {
            product = 1; /* in form_only everything is 1, and division means nothing */
        } else if (factor == 0 || product % factor != 0) {
            return rs_fail(RESHARD_ERR_INVALID, "%" PRId64 " / %" PRId64 " is not a whole number",
                           product, factor);
        } else {
            product /= factor;
        }
    }
    return status;
}

static reshard_status read_sum(const rs_number_scope *scope, rs_cursor *cursor, int depth,
                               int64_t *out_number)
{
    int64_t sum = 0, term = 0;
    reshard_status status = read_product(scope, cursor, depth, &sum);
    while (status == RESHARD_OK) {
        bool plus = rs_cursor_accept(cursor, '+');
        if (!plus && !rs_cursor_accept(cursor, '-')) {
            *out_number = sum;
            return RESHARD_OK;
        }
        status = read_product(scope, cursor, depth, &term);
        if (status != RESHARD_OK)
            return status;
        if (plus) {
            if (!rs_add(sum, term, &sum))
                return rs_fail(RESHARD_ERR_RANGE, "a sum is beyond 2^63-1");
        } else if (scope->form_only) {
            sum = 1; /* in form_only everything is 1 */
        } else if (term > sum) {
            return rs_fail(RESHARD_ERR_RANGE, "%" PRId64 " - %" PRId64 " is negative", sum, term);
        } else {
            sum -= term;
        }
    }
    return status;
}

reshard_status rs_number_read(const rs_number_scope *scope, rs_cursor *cursor, int64_t *out_number)
{
    return read_sum(scope, cursor, 0, out_number);
}
