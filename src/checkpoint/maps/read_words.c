/* SPDX-License-Identifier: Apache-2.0 */
/*
 * read_words.c - the words behind a tensor:
 *
 *   word := dtype | "pad(" axis ")" | "add(" number ")" | "optional"
 *         | "drop" | "fill(" number ")" | "copy(" name ")" | "object(none)"
 *         | "when(" condition ")" | "with(" name ")" | "without(" name ")"
 */
#include "base/error.h"
#include "checkpoint/maps/condition.h"
#include "checkpoint/maps/map.h"
#include "text/decimal.h"
#include "text/nearest.h"
#include "text/text.h"

#include <string.h>

typedef struct word {
    const char *at;
    rs_slice letters;
    bool has_inside;
    rs_slice inside; /* what stands in the parentheses */
} word;

/* Consumes letters and digits, and parentheses with everything inside. */
static reshard_status read_word(rs_map_reader *reader, word *out_word)
{
    rs_cursor *cursor = &reader->cursor;
    const char *start = cursor->at;
    while (cursor->at < cursor->end && (rs_is_letter(*cursor->at) || rs_is_digit(*cursor->at)))
        cursor->at++;
    *out_word = (word){.at = start, .letters = {start, (size_t)(cursor->at - start)}};
    if (out_word->letters.count == 0)
        return rs_map_fail(reader, start, RESHARD_ERR_SYNTAX,
                           "expected a word, =, | or the next tensor, found \"%.10s\"", start);
    if (cursor->at == cursor->end || *cursor->at != '(')
        return RESHARD_OK;
    int depth = 0;
    const char *inside = ++cursor->at;
    for (; cursor->at < cursor->end && (*cursor->at != ')' || depth > 0); cursor->at++) {
        depth += *cursor->at == '(';
        depth -= *cursor->at == ')';
    }
    if (cursor->at == cursor->end)
        return rs_map_fail(reader, start, RESHARD_ERR_SYNTAX, "there is a ( without its )");
    out_word->has_inside = true;
    out_word->inside = (rs_slice){inside, (size_t)(cursor->at - inside)};
    cursor->at++;
    return RESHARD_OK;
}

static reshard_status fail_word(const rs_map_reader *reader, const word *found)
{
    static const char *const words[] = {"pad",  "add",    "optional", "drop", "fill",
                                        "copy", "object", "when",     "with", "without"};
    const char *nearest =
        rs_nearest(found->letters.bytes, found->letters.count, words, sizeof words / sizeof *words);
    return rs_map_fail(reader, found->at, RESHARD_ERR_SYNTAX,
                       "\"%.*s\" is not a word of maps (a dtype, pad(), add(), optional, drop, "
                       "fill(), copy(), object(none), when(), with(), without())%s%s%s",
                       RS_SHOWN(found->letters), nearest != NULL ? "; did you mean " : "",
                       nearest != NULL ? nearest : "", nearest != NULL ? "?" : "");
}

/* A finite decimal number, as C writes it in every locale. */
static reshard_status read_real(const rs_map_reader *reader, const word *given, double *out_value)
{
    char text[64], *end = NULL;
    if (given->inside.count == 0 || given->inside.count >= sizeof text ||
        strspn(given->inside.bytes, "0123456789+-.eE") < given->inside.count)
        return rs_map_fail(reader, given->at, RESHARD_ERR_SYNTAX, "%.*s() needs a number",
                           RS_SHOWN(given->letters));
    memcpy(text, given->inside.bytes, given->inside.count);
    text[given->inside.count] = '\0';
    *out_value = rs_parse_double(text, &end);
    if (*end != '\0' || !(*out_value >= -1e308 && *out_value <= 1e308))
        return rs_map_fail(reader, given->at, RESHARD_ERR_SYNTAX, "\"%s\" is not a number", text);
    return RESHARD_OK;
}

static reshard_status read_inner_name(rs_map_reader *reader, const word *given,
                                      rs_map_pattern *out_pattern)
{
    rs_map_reader inner = *reader;
    int32_t count;
    inner.cursor = (rs_cursor){given->inside.bytes, given->inside.bytes + given->inside.count};
    reshard_status status = rs_map_read_name(&inner, false, out_pattern, &count);
    if (status == RESHARD_OK && inner.cursor.at != inner.cursor.end)
        status = rs_map_fail(reader, inner.cursor.at, RESHARD_ERR_SYNTAX,
                             "expected ) after the name of a tensor");
    return status;
}

static reshard_status add_condition(rs_map_reader *reader, rs_map_term *term, const word *given,
                                    rs_map_condition_kind kind)
{
    if (term->condition_count == RS_MAP_CONDITIONS_MAX)
        return rs_map_fail(reader, given->at, RESHARD_ERR_RANGE,
                           "there are more than %d conditions", RS_MAP_CONDITIONS_MAX);
    rs_map_condition *condition = &term->conditions[term->condition_count++];
    *condition = (rs_map_condition){.kind = kind, .text = given->inside};
    if (kind != RS_CONDITION_WHEN)
        return read_inner_name(reader, given, &condition->pattern);
    reshard_status status = rs_map_condition_check(given->inside);
    return status == RESHARD_OK ? status
                                : rs_map_fail(reader, given->at, status, "when(%.*s): %s",
                                              RS_SHOWN(given->inside), reshard_error_text());
}

static reshard_status read_pad(rs_map_reader *reader, rs_map_term *term, const word *given)
{
    for (int32_t d = 0; d < term->dim_count; d++) {
        const rs_map_node *dim = &term->dims[d];
        if (dim->kind == RS_NODE_AXIS &&
            rs_slice_compare(reader->line->axes[dim->axis].name, given->inside) == 0) {
            term->pad_axis = dim->axis;
            return RESHARD_OK;
        }
    }
    return rs_map_fail(reader, given->at, RESHARD_ERR_SYNTAX,
                       "pad(%.*s): expected an axis that is a whole dimension of this tensor",
                       RS_SHOWN(given->inside));
}

/* Words that stand instead of a tensor on the other side. */
static reshard_status read_kind(rs_map_reader *reader, rs_map_term *term, const word *given,
                                rs_map_word kind)
{
    if (term->word != RS_TERM_PLAIN)
        return rs_map_fail(reader, given->at, RESHARD_ERR_SYNTAX,
                           "only one of drop, fill(), copy() and object() may be given");
    term->word = kind;
    if (kind == RS_TERM_FILL) {
        term->number = given->inside;
        return read_real(reader, given, &term->value);
    }
    if (kind == RS_TERM_COPY)
        return read_inner_name(reader, given, &term->copied);
    if (kind == RS_TERM_OBJECT && !rs_slice_equals(given->inside, "none"))
        return rs_map_fail(reader, given->at, RESHARD_ERR_SYNTAX,
                           "the only object is object(none)");
    return RESHARD_OK;
}

static reshard_status read_dtype(rs_map_reader *reader, rs_map_term *term, const word *given)
{
    char name[16];
    if (given->has_inside || given->letters.count >= sizeof name)
        return fail_word(reader, given);
    memcpy(name, given->letters.bytes, given->letters.count);
    name[given->letters.count] = '\0';
    if (reshard_dtype_parse(name, &term->dtype) != RESHARD_OK ||
        strcmp(reshard_dtype_name(term->dtype), name) != 0)
        return fail_word(reader, given);
    term->has_dtype = true;
    return RESHARD_OK;
}

static reshard_status take_word(rs_map_reader *reader, rs_map_term *term, const word *given)
{
    rs_slice letters = given->letters;
    if (!given->has_inside) {
        if (rs_slice_equals(letters, "drop"))
            return read_kind(reader, term, given, RS_TERM_DROP);
        if (!rs_slice_equals(letters, "optional"))
            return read_dtype(reader, term, given);
        term->is_optional = true;
        return RESHARD_OK;
    }
    if (rs_slice_equals(letters, "fill"))
        return read_kind(reader, term, given, RS_TERM_FILL);
    if (rs_slice_equals(letters, "copy"))
        return read_kind(reader, term, given, RS_TERM_COPY);
    if (rs_slice_equals(letters, "object"))
        return read_kind(reader, term, given, RS_TERM_OBJECT);
    if (rs_slice_equals(letters, "pad"))
        return read_pad(reader, term, given);
    if (rs_slice_equals(letters, "add")) {
        term->add_number = given->inside;
        return read_real(reader, given, &term->added);
    }
    if (rs_slice_equals(letters, "when"))
        return add_condition(reader, term, given, RS_CONDITION_WHEN);
    if (rs_slice_equals(letters, "with"))
        return add_condition(reader, term, given, RS_CONDITION_WITH);
    if (rs_slice_equals(letters, "without"))
        return add_condition(reader, term, given, RS_CONDITION_WITHOUT);
    return fail_word(reader, given);
}

reshard_status rs_map_read_words(rs_map_reader *reader, rs_map_term *term)
{
    reshard_status status = RESHARD_OK;
    term->pad_axis = -1;
    for (rs_map_skip_spaces(reader); status == RESHARD_OK; rs_map_skip_spaces(reader)) {
        rs_cursor *cursor = &reader->cursor;
        if (cursor->at == cursor->end || strchr(",|=", *cursor->at) != NULL)
            break;
        word given;
        status = read_word(reader, &given);
        if (status == RESHARD_OK)
            status = take_word(reader, term, &given);
    }
    return status;
}
