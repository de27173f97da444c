/* SPDX-License-Identifier: Apache-2.0 */
/*
 * placement.c - turns a cut of a rule into the spec language: variables become numbers, and the
 * forms of A that only rules allow ("last", "3 of 32") become coordinates. So there is only one
 * grammar of placements, that of specs, and one parser.
 */
#include "base/checked.h"
#include "base/error.h"
#include "checkpoint/rules/model.h"
#include "spec/spec.h"
#include "text/text.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- A --------------------------------------------------------------------------------------- */

/* The coordinate that gets item i if n items are dealt out to k coordinates: shares differ by at
 * most one, and the larger ones come first. */
static int64_t deal(int64_t i, int64_t n, int64_t k)
{
    assert(k > 0 && i >= 0 && i < n);
    int64_t each = n / k, larger = n % k;
    int64_t in_larger = larger * (each + 1);
    return i < in_larger ? i / (each + 1) : larger + (i - in_larger) / each;
}

static reshard_status read_coordinate(const rs_number_scope *scope, rs_cursor *cursor,
                                      int64_t axis_size, int64_t *out_coordinate)
{
    int64_t item = 0, count = 0;
    if (rs_cursor_accept_word(cursor, "last")) {
        *out_coordinate = axis_size - 1;
        return RESHARD_OK;
    }
    reshard_status status = rs_number_read(scope, cursor, &item);
    *out_coordinate = item;
    if (status != RESHARD_OK || !rs_cursor_accept_word(cursor, "of"))
        return status;
    status = rs_number_read(scope, cursor, &count);
    if (status != RESHARD_OK || scope->form_only)
        return status;
    if (item >= count)
        return rs_fail(RESHARD_ERR_RANGE, "number %" PRId64 " of %" PRId64 " (they count from 0)",
                       item, count);
    *out_coordinate = deal(item, count, axis_size);
    if (scope->dealt != NULL)
        *scope->dealt = (rs_number_dealt){rs_max(item, scope->dealt->highest),
                                          rs_max(count, scope->dealt->count)};
    return RESHARD_OK;
}

static reshard_status write_coordinates(const rs_number_scope *scope, rs_cursor *cursor,
                                        int64_t axis_size, rs_text *text)
{
    int64_t listed[RESHARD_AXES_MAX * 16];
    int32_t count = 0;
    if (!rs_cursor_accept(cursor, '('))
        return rs_fail(RESHARD_ERR_SYNTAX, "expected ( after A");
    do {
        int64_t coordinate = 0;
        reshard_status status = read_coordinate(scope, cursor, axis_size, &coordinate);
        if (status != RESHARD_OK)
            return status;
        bool known = false; /* for "0, last" on an axis with one coordinate */
        for (int32_t i = 0; i < count; i++)
            known = known || listed[i] == coordinate;
        if (known)
            continue;
        if (count == (int32_t)(sizeof listed / sizeof *listed))
            return rs_fail(RESHARD_ERR_RANGE, "more than %" PRId32 " coordinates", count);
        listed[count++] = coordinate;
        rs_text_add(text, count == 1 ? "A(%" PRId64 : ",%" PRId64, coordinate);
    } while (rs_cursor_accept(cursor, ','));
    if (!rs_cursor_accept(cursor, ')'))
        return rs_fail(RESHARD_ERR_SYNTAX, "expected , or ) among the coordinates of A");
    rs_text_add(text, ")");
    return RESHARD_OK;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* The value of an option, after "unit=", may be any number. Elsewhere in a cut, a number has to
 * begin with a variable, because digits, * and / have other meanings there. */
static bool at_number(const rs_cursor *start, rs_cursor *cursor)
{
    bool is_value = cursor->at > start->at && cursor->at[-1] == '=';
    if (rs_cursor_at_variable(cursor))
        return true;
    return is_value && cursor->at < cursor->end && (*cursor->at == '(' || rs_is_digit(*cursor->at));
}

/* Copies the text, replacing every number that has variables by its value. */
static reshard_status replace_variables(const rs_number_scope *scope, rs_cursor *cursor,
                                        rs_text *text)
{
    const rs_cursor start = *cursor;
    const char *copied = cursor->at;
    while (cursor->at < cursor->end) {
        int64_t number = 0;
        if (!at_number(&start, cursor)) {
            cursor->at += cursor->at < cursor->end;
            continue;
        }
        rs_text_add(text, "%.*s", (int)(cursor->at - copied), copied);
        reshard_status status = rs_number_read(scope, cursor, &number);
        if (status != RESHARD_OK)
            return status;
        rs_text_add(text, "%" PRId64, number);
        copied = cursor->at;
    }
    rs_text_add(text, "%.*s", (int)(cursor->end - copied), copied);
    return RESHARD_OK;
}

reshard_status rs_rule_placement_text(const rs_number_scope *scope, rs_slice placement,
                                      int64_t axis_size, char out_text[RS_PLACEMENT_BYTES])
{
    rs_cursor cursor = {placement.bytes, placement.bytes + placement.count};
    rs_text text;
    reshard_status status;
    rs_text_init(&text, out_text, RS_PLACEMENT_BYTES);
    if (rs_cursor_accept_word(&cursor, "A"))
        status = write_coordinates(scope, &cursor, axis_size, &text);
    else
        status = replace_variables(scope, &cursor, &text);
    if (status == RESHARD_OK && text.length >= RS_PLACEMENT_BYTES)
        status = rs_fail(RESHARD_ERR_RANGE, "the cut has %zu bytes; at most %d are allowed",
                         text.length, RS_PLACEMENT_BYTES - 1);
    return status;
}

reshard_status rs_rule_placement_read(reshard_context *context, const char *text, const char *axis,
                                      int64_t axis_size, reshard_spec **out_spec)
{
    int32_t size = (int32_t)axis_size;
    reshard_mesh *mesh = NULL;
    reshard_status status = reshard_mesh_create(context, 1, &axis, &size, NULL, &mesh);
    if (status == RESHARD_OK)
        status = rs_cut_parse(context, mesh, text, out_spec);
    reshard_mesh_release(mesh);
    return status;
}

reshard_status rs_rule_placement_parse(reshard_context *context, const rs_number_scope *scope,
                                       const rs_rule_cut *cut, int64_t axis_size,
                                       reshard_spec **out_spec)
{
    char placement[RS_PLACEMENT_BYTES];
    reshard_status status = rs_rule_placement_text(scope, cut->placement, axis_size, placement);
    if (status == RESHARD_OK)
        status = rs_rule_placement_read(context, placement, cut->axis, axis_size, out_spec);
    return status;
}

reshard_status rs_rule_new_name(const rs_number_scope *scope, rs_slice new_name, char *buffer,
                                size_t capacity, size_t *out_length)
{
    size_t length = 0;
    for (size_t i = 0; i < new_name.count; i++) {
        const char *bytes = new_name.bytes + i;
        size_t count = 1;
        if (*bytes == '{') {
            int64_t index = 0;
            for (i++; i < new_name.count && new_name.bytes[i] >= '0' && new_name.bytes[i] <= '9';
                 i++)
                index = index < 1000 ? index * 10 + (new_name.bytes[i] - '0') : index;
            if (i == new_name.count || new_name.bytes[i] != '}' || index < 1 ||
                index > scope->span_count)
                return rs_fail(RESHARD_ERR_SYNTAX,
                               "a { in the new name needs the number of one of %" PRId32
                               " wildcards and }",
                               scope->span_count);
            rs_glob_span span = {0, 0};
            if (!scope->form_only)
                span = scope->spans[index - 1];
            bytes = scope->form_only ? "" : scope->name + span.start;
            count = span.end - span.start;
        } else if (*bytes == '\\' && i + 1 < new_name.count) {
            bytes++;
            i++;
        }
        if (count > RS_GLOB_NAME_MAX - length)
            return rs_fail(RESHARD_ERR_RANGE, "the new name has more than %d bytes",
                           RS_GLOB_NAME_MAX);
        for (size_t j = 0; j < count; j++, length++) {
            if (length < capacity)
                buffer[length] = bytes[j];
        }
    }
    *out_length = length;
    return RESHARD_OK;
}
