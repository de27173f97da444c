/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/maps/condition.h"

#include "base/error.h"
#include "text/text.h"

#include <string.h>

/* Whether a condition has the form $key=text; sets the key and what stands behind the = sign. */
static bool is_text(rs_cursor cursor, rs_slice *out_key, rs_slice *out_texts)
{
    if (!rs_cursor_accept(&cursor, '$'))
        return false;
    const char *start = cursor.at;
    while (cursor.at < cursor.end &&
           (rs_is_letter(*cursor.at) || rs_is_digit(*cursor.at) || *cursor.at == '.'))
        cursor.at++;
    *out_key = (rs_slice){start, (size_t)(cursor.at - start)};
    if (!rs_cursor_accept(&cursor, '=') || cursor.at == cursor.end || *cursor.at == '=')
        return false;
    *out_texts = (rs_slice){cursor.at, (size_t)(cursor.end - cursor.at)};
    return true;
}

static reshard_status ask_text(const rs_number_scope *scope, rs_slice key, rs_slice texts,
                               rs_map_verdict *verdict)
{
    char name[RS_KEY_BYTES];
    if (key.count == 0 || key.count >= sizeof name)
        return rs_fail(RESHARD_ERR_SYNTAX, "expected a $key of 1 to %d bytes", RS_KEY_BYTES - 1);
    memcpy(name, key.bytes, key.count);
    name[key.count] = '\0';
    const char *value = scope->form_only ? "" : rs_key_text(scope->keys, name);
    const char *at = texts.bytes, *end = texts.bytes + texts.count;
    while (at < end && value != NULL && !verdict->holds) {
        const char *start = at;
        while (at < end && *at != '|')
            at++;
        verdict->holds = rs_slice_equals((rs_slice){start, (size_t)(at - start)}, value);
        at++;
    }
    if (value == NULL) {
        verdict->is_open = true;
        (void)rs_fail(RESHARD_ERR_NOT_FOUND, "$%s has no value in config.json", name);
    }
    return RESHARD_OK;
}

typedef enum comparison { NONE, LESS, LESS_EQUAL, MORE, MORE_EQUAL, EQUAL, UNEQUAL } comparison;

static comparison accept_comparison(rs_cursor *cursor)
{
    if (rs_cursor_accept(cursor, '<'))
        return rs_cursor_accept(cursor, '=') ? LESS_EQUAL : LESS;
    if (rs_cursor_accept(cursor, '>'))
        return rs_cursor_accept(cursor, '=') ? MORE_EQUAL : MORE;
    rs_cursor two = *cursor;
    comparison found = rs_cursor_accept(&two, '=')   ? EQUAL
                       : rs_cursor_accept(&two, '!') ? UNEQUAL
                                                     : NONE;
    if (found == NONE || !rs_cursor_accept(&two, '='))
        return NONE;
    *cursor = two;
    return found;
}

static bool compare(int64_t a, comparison how, int64_t b)
{
    switch (how) {
    case LESS:
        return a < b;
    case LESS_EQUAL:
        return a <= b;
    case MORE:
        return a > b;
    case MORE_EQUAL:
        return a >= b;
    case EQUAL:
        return a == b;
    case UNEQUAL:
        return a != b;
    default:
        return a != 0;
    }
}

static reshard_status ask_number(const rs_number_scope *scope, rs_cursor *cursor,
                                 rs_map_verdict *verdict)
{
    int64_t a = 0, b = 0;
    reshard_status status = rs_number_read(scope, cursor, &a);
    comparison how = status == RESHARD_OK ? accept_comparison(cursor) : NONE;
    if (status == RESHARD_OK && how != NONE)
        status = rs_number_read(scope, cursor, &b);
    if (status == RESHARD_ERR_NOT_FOUND) {
        verdict->is_open = true;
        return RESHARD_OK;
    }
    rs_cursor_skip_spaces(cursor);
    if (status == RESHARD_OK && cursor->at != cursor->end)
        return rs_fail(RESHARD_ERR_SYNTAX, "expected <, <=, >, >=, == or !=, and a number");
    verdict->holds = compare(a, how, b);
    return status;
}

reshard_status rs_map_condition_ask(const rs_number_scope *scope, rs_slice text,
                                    rs_map_verdict *out_verdict)
{
    rs_cursor cursor = {text.bytes, text.bytes + text.count};
    rs_slice key, texts;
    rs_map_verdict verdict = {.holds = false};
    bool negated = rs_cursor_accept(&cursor, '!');
    reshard_status status = is_text(cursor, &key, &texts) ? ask_text(scope, key, texts, &verdict)
                                                          : ask_number(scope, &cursor, &verdict);
    if (verdict.is_open)
        verdict.holds = false;
    if (negated)
        verdict.holds = !verdict.holds;
    *out_verdict = verdict;
    return status;
}

static bool find_any(void *user, rs_slice word, int64_t *out_value)
{
    (void)user;
    (void)word;
    *out_value = 1;
    return true;
}

reshard_status rs_map_condition_check(rs_slice text)
{
    rs_number_scope form = {.form_only = true, .find_word = find_any};
    rs_map_verdict verdict;
    return rs_map_condition_ask(&form, text, &verdict);
}
