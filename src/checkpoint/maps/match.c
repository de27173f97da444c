/* SPDX-License-Identifier: Apache-2.0 */
/*
 * match.c - matches names. A model has ten thousands of names, of which only hundreds differ in
 * more than their numbers; so a pattern is first tried on signatures, and then only on the names
 * whose signature can match.
 */
#include "checkpoint/maps/map.h"
#include "text/text.h"

#include <string.h>

size_t rs_map_signature(rs_slice text, char *out_signature)
{
    size_t length = 0;
    for (size_t i = 0; i < text.count; i++) {
        bool digit = rs_is_digit(text.bytes[i]);
        if (digit && length > 0 && out_signature[length - 1] == '#' && i > 0 &&
            rs_is_digit(text.bytes[i - 1]))
            continue;
        out_signature[length++] = digit ? '#' : text.bytes[i];
    }
    return length;
}

/* The same walk serves names and signatures. In a signature a number is #, and so is every run of
 * digits of a text; of two such in a row the second one is part of the first. */
typedef struct match {
    const rs_map_line *line;
    const rs_map_pattern *pattern;
    const int64_t *shifts;
    rs_map_values *values; /* NULL: signatures */
    const char *begin, *end;
} match;

static const char *match_text(const match *m, const char *at, rs_slice text)
{
    if (m->values != NULL) {
        bool same = (size_t)(m->end - at) >= text.count && memcmp(at, text.bytes, text.count) == 0;
        return same ? at + text.count : NULL;
    }
    for (size_t i = 0; i < text.count; i++) {
        if (at < m->end && *at == text.bytes[i])
            at++;
        else if (text.bytes[i] != '#' || at == m->begin || at[-1] != '#')
            return NULL;
    }
    return at;
}

static bool match_parts(const match *m, int32_t part, const char *at);

static bool match_number(const match *m, int32_t part, const char *at)
{
    const rs_map_part *given = &m->pattern->parts[part];
    if (m->values == NULL) {
        at = match_text(m, at, (rs_slice){"#", 1});
        return at != NULL && match_parts(m, part + 1, at);
    }
    int64_t number = 0;
    const char *start = at;
    for (; at < m->end && rs_is_digit(*at); at++) {
        if (number > (INT64_MAX - 9) / 10)
            return false;
        number = number * 10 + (*at - '0');
    }
    if (at == start || (*start == '0' && at - start > 1))
        return false;
    number -= m->shifts[part];
    m->values->values[given->capture] = number;
    return number >= 0 && match_parts(m, part + 1, at);
}

static bool match_choice(const match *m, int32_t part, const char *at)
{
    int32_t index = m->pattern->parts[part].capture;
    const rs_map_capture *capture = &m->line->captures[index];
    for (int32_t i = 0; i < capture->item_count; i++) {
        char signature[RS_MAP_ITEM_BYTES_MAX];
        rs_slice item = capture->items[i];
        if (m->values == NULL)
            item = (rs_slice){signature, rs_map_signature(item, signature)};
        const char *next = match_text(m, at, item);
        if (m->values != NULL)
            m->values->values[index] = i;
        if (next != NULL && match_parts(m, part + 1, next))
            return true;
    }
    return false;
}

/* As little text as possible, at least one byte. */
static bool match_any(const match *m, int32_t part, const char *at)
{
    int32_t index = m->pattern->parts[part].capture;
    bool word = m->line->captures[index].kind == RS_CAPTURE_WORD;
    for (const char *next = at + 1; next <= m->end && !(word && next[-1] == '.'); next++) {
        if (m->values != NULL)
            m->values->texts[index] = (rs_slice){at, (size_t)(next - at)};
        if (match_parts(m, part + 1, next))
            return true;
    }
    return false;
}

static bool match_parts(const match *m, int32_t part, const char *at)
{
    if (part == m->pattern->part_count)
        return at == m->end;
    const rs_map_part *given = &m->pattern->parts[part];
    if (given->capture < 0) {
        at = match_text(m, at, m->values != NULL ? given->text : given->signature);
        return at != NULL && match_parts(m, part + 1, at);
    }
    switch (m->line->captures[given->capture].kind) {
    case RS_CAPTURE_NUMBER:
        return match_number(m, part, at);
    case RS_CAPTURE_CHOICE:
        return match_choice(m, part, at);
    default:
        return match_any(m, part, at);
    }
}

bool rs_map_may_match(const rs_map_line *line, const rs_map_pattern *pattern, rs_slice signature)
{
    match m = {.line = line,
               .pattern = pattern,
               .begin = signature.bytes,
               .end = signature.bytes + signature.count};
    return match_parts(&m, 0, m.begin);
}

bool rs_map_match(const rs_map_line *line, const rs_map_pattern *pattern, const int64_t *shifts,
                  rs_slice text, rs_map_values *out_values)
{
    memset(out_values, 0, sizeof *out_values);
    match m = {.line = line,
               .pattern = pattern,
               .shifts = shifts,
               .values = out_values,
               .begin = text.bytes,
               .end = text.bytes + text.count};
    return match_parts(&m, 0, m.begin);
}
