/* SPDX-License-Identifier: Apache-2.0 */
/* read_name.c - names with captures: layers.{n}.{s:weight,bias}, and short lists: {k,v}_proj. */
#include "base/context.h"
#include "base/error.h"
#include "checkpoint/maps/map.h"
#include "text/text.h"

#include <string.h>

/* A name while it is read. A list such as {k,v} makes one variant for each of its texts. */
typedef struct variants {
    int32_t count;
    int32_t part_counts[RS_MAP_PLACES_MAX];
    rs_map_part parts[RS_MAP_PLACES_MAX][RS_MAP_PARTS_MAX];
    uint32_t captures;
    int32_t open_count; /* captures of any text */
} variants;

static bool ends_name(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n' || c == '[' || c == ',' || c == '=' ||
           c == '|' || c == ')';
}

static reshard_status keep_text(reshard_map *map, rs_slice text, rs_slice *out_text)
{
    char *copy = rs_arena_copy(&map->arena, text.bytes, text.count + (text.count == 0), 1);
    *out_text = (rs_slice){copy, text.count};
    return copy != NULL ? RESHARD_OK : rs_allocation_status();
}

static reshard_status add_part(rs_map_reader *reader, variants *v, int32_t variant,
                               const rs_map_part *part)
{
    if (v->part_counts[variant] == RS_MAP_PARTS_MAX)
        return rs_map_fail(reader, reader->cursor.at, RESHARD_ERR_RANGE,
                           "the name has more than %d parts", RS_MAP_PARTS_MAX);
    v->parts[variant][v->part_counts[variant]++] = *part;
    return RESHARD_OK;
}

static reshard_status add_text(rs_map_reader *reader, variants *v, int32_t variant, rs_slice text)
{
    rs_map_part part = {.capture = -1};
    char *signature = rs_arena_allocate(&reader->map->arena, text.count + 1);
    if (signature == NULL)
        return rs_allocation_status();
    part.signature = (rs_slice){signature, rs_map_signature(text, signature)};
    reshard_status status = keep_text(reader->map, text, &part.text);
    return status == RESHARD_OK ? add_part(reader, v, variant, &part) : status;
}

/* Reads literal text up to a brace or the end of the name, and takes escapes out. */
static reshard_status read_text(rs_map_reader *reader, variants *v)
{
    rs_cursor *cursor = &reader->cursor;
    const char *start = cursor->at;
    char *text = rs_arena_allocate(&reader->map->arena, (size_t)(cursor->end - cursor->at) + 1);
    size_t count = 0;
    if (text == NULL)
        return rs_allocation_status();
    for (; cursor->at < cursor->end && !ends_name(*cursor->at) && *cursor->at != '{';
         cursor->at++) {
        if (*cursor->at == '}')
            return rs_map_fail(reader, cursor->at, RESHARD_ERR_SYNTAX,
                               "there is a } without its {");
        if (*cursor->at == '*' || *cursor->at == '?')
            return rs_map_fail(reader, cursor->at, RESHARD_ERR_SYNTAX,
                               "%c has no meaning in a name: {x:*} stands for any text without a "
                               "dot, {x:**} for any text, \\%c for itself",
                               *cursor->at, *cursor->at);
        if (*cursor->at == '\\' && ++cursor->at == cursor->end)
            return rs_map_fail(reader, start, RESHARD_ERR_SYNTAX, "nothing follows the \\");
        text[count++] = *cursor->at;
    }
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < v->count && status == RESHARD_OK; i++)
        status = add_text(reader, v, i, (rs_slice){text, count});
    return status;
}

/* ---- captures -------------------------------------------------------------------------------- */

static int32_t find_capture(const rs_map_line *line, rs_slice name)
{
    for (int32_t i = 0; i < line->capture_count; i++) {
        if (rs_slice_compare(line->captures[i].name, name) == 0)
            return i;
    }
    return -1;
}

/* Splits "a,b,c" into slices of the text. */
static reshard_status read_items(rs_map_reader *reader, const char *at, const char *end,
                                 int32_t *out_count, rs_slice **out_items)
{
    int32_t count = 1;
    for (const char *c = at; c < end; c++)
        count += *c == ',';
    if (count > RS_MAP_ITEMS_MAX)
        return rs_map_fail(reader, at, RESHARD_ERR_RANGE,
                           "the list has %d texts; at most %d are allowed", count,
                           RS_MAP_ITEMS_MAX);
    rs_slice *items = rs_arena_allocate_array(&reader->map->arena, (size_t)count, sizeof *items);
    if (items == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < count; i++) {
        const char *start = at;
        while (at < end && *at != ',')
            at++;
        items[i] = (rs_slice){start, (size_t)(at - start)};
        if (items[i].count > RS_MAP_ITEM_BYTES_MAX)
            return rs_map_fail(reader, start, RESHARD_ERR_RANGE,
                               "a text of the list has %zu bytes; at most %d are allowed",
                               items[i].count, RS_MAP_ITEM_BYTES_MAX);
        for (int32_t k = 0; k < i; k++) {
            if (rs_slice_compare(items[k], items[i]) == 0)
                return rs_map_fail(reader, start, RESHARD_ERR_SYNTAX,
                                   "\"%.*s\" is in the list twice", RS_SHOWN(items[i]));
        }
        at++;
    }
    *out_count = count;
    *out_items = items;
    return RESHARD_OK;
}

static bool is_word(rs_slice text)
{
    bool word = text.count > 0 && rs_is_letter(text.bytes[0]);
    for (size_t i = 1; i < text.count && word; i++)
        word = rs_is_letter(text.bytes[i]) || rs_is_digit(text.bytes[i]);
    return word;
}

static bool same_capture(const rs_map_capture *a, const rs_map_capture *b)
{
    bool same = a->kind == b->kind && a->item_count == b->item_count;
    for (int32_t i = 0; i < a->item_count && same; i++)
        same = rs_slice_compare(a->items[i], b->items[i]) == 0;
    return same;
}

/* Finds the capture, or makes it. A reference {s} takes over what {s:a,b} said. */
static reshard_status take_capture(rs_map_reader *reader, const char *at,
                                   const rs_map_capture *given, bool says_kind,
                                   int32_t *out_capture)
{
    rs_map_line *line = reader->line;
    if (!is_word(given->name))
        return rs_map_fail(
            reader, at, RESHARD_ERR_SYNTAX,
            "{%.*s}: the name of a capture is a word, as in {n}, {n+1}, {s:a,b}, {x:*}, {x:**}",
            RS_SHOWN(given->name));
    int32_t found = find_capture(line, given->name);
    if (found >= 0 && says_kind && !same_capture(&line->captures[found], given))
        return rs_map_fail(
            reader, at, RESHARD_ERR_SYNTAX,
            "{%.*s} meant something else before; say what it stands for where it first occurs",
            RS_SHOWN(given->name));
    if (found < 0) {
        if (line->capture_count == RS_MAP_CAPTURES_MAX)
            return rs_map_fail(reader, at, RESHARD_ERR_RANGE, "the line has more than %d captures",
                               RS_MAP_CAPTURES_MAX);
        found = line->capture_count++;
        line->captures[found] = *given;
    }
    *out_capture = found;
    return RESHARD_OK;
}

/* Every variant is repeated for each text of the list; variants of the first list change
 * slowest. */
static reshard_status multiply(rs_map_reader *reader, variants *v, const char *at, int32_t count,
                               const rs_slice *items)
{
    if (v->count * count > RS_MAP_PLACES_MAX)
        return rs_map_fail(reader, at, RESHARD_ERR_RANGE,
                           "one side of the line has %d tensors; at most %d are allowed",
                           v->count * count, RS_MAP_PLACES_MAX);
    for (int32_t i = v->count * count - 1; i >= 0; i--) {
        if (i / count != i) {
            v->part_counts[i] = v->part_counts[i / count];
            memcpy(v->parts[i], v->parts[i / count], sizeof v->parts[i]);
        }
    }
    v->count *= count;
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < v->count && status == RESHARD_OK; i++)
        status = add_text(reader, v, i, items[i % count]);
    return status;
}

static reshard_status add_capture(rs_map_reader *reader, variants *v, const char *at,
                                  const rs_map_capture *capture, bool says_kind, rs_map_part part)
{
    reshard_status status = take_capture(reader, at, capture, says_kind, &part.capture);
    if (status == RESHARD_OK && part.shift.count != 0 &&
        reader->line->captures[part.capture].kind != RS_CAPTURE_NUMBER)
        return rs_map_fail(reader, at, RESHARD_ERR_SYNTAX, "only numbers can be shifted");
    if (status == RESHARD_OK && (v->captures >> part.capture & 1) != 0)
        return rs_map_fail(reader, at, RESHARD_ERR_SYNTAX, "{%.*s} occurs twice in one name",
                           RS_SHOWN(capture->name));
    if (status == RESHARD_OK && reader->line->captures[part.capture].kind >= RS_CAPTURE_WORD &&
        ++v->open_count > RS_MAP_OPEN_MAX)
        return rs_map_fail(reader, at, RESHARD_ERR_RANGE,
                           "the name has more than %d captures of any text", RS_MAP_OPEN_MAX);
    v->captures |= status == RESHARD_OK ? (uint32_t)1 << part.capture : 0;
    for (int32_t i = 0; i < v->count && status == RESHARD_OK; i++)
        status = add_part(reader, v, i, &part);
    return status;
}

/* Reads what stands in braces; the cursor is behind the {. */
static reshard_status read_braces(rs_map_reader *reader, bool lists, variants *v)
{
    rs_cursor *cursor = &reader->cursor;
    const char *start = cursor->at, *colon = NULL, *comma = NULL, *sign = NULL;
    for (; cursor->at < cursor->end && *cursor->at != '}' && *cursor->at != '\n'; cursor->at++) {
        if (*cursor->at == ':' && colon == NULL)
            colon = cursor->at;
        else if (*cursor->at == ',' && comma == NULL)
            comma = cursor->at;
        else if ((*cursor->at == '+' || *cursor->at == '-') && sign == NULL)
            sign = cursor->at;
    }
    if (cursor->at == cursor->end || *cursor->at != '}')
        return rs_map_fail(reader, start, RESHARD_ERR_SYNTAX, "there is a { without its }");
    const char *end = cursor->at++;
    int32_t count = 0;
    rs_slice *items = NULL;
    reshard_status status = RESHARD_OK;
    if (colon == NULL && comma != NULL) {
        if (!lists)
            return rs_map_fail(reader, start, RESHARD_ERR_SYNTAX,
                               "the list needs a name, as in {s:a,b}");
        status = read_items(reader, start, end, &count, &items);
        return status == RESHARD_OK ? multiply(reader, v, start, count, items) : status;
    }
    rs_map_capture capture = {.kind = RS_CAPTURE_NUMBER};
    rs_map_part part = {.capture = -1};
    if (colon != NULL) {
        capture.name = (rs_slice){start, (size_t)(colon - start)};
        rs_slice kind = {colon + 1, (size_t)(end - colon - 1)};
        capture.kind = rs_slice_equals(kind, "*")    ? RS_CAPTURE_WORD
                       : rs_slice_equals(kind, "**") ? RS_CAPTURE_TEXT
                                                     : RS_CAPTURE_CHOICE;
        if (capture.kind == RS_CAPTURE_CHOICE)
            status = read_items(reader, colon + 1, end, &capture.item_count, &capture.items);
    } else {
        capture.name = (rs_slice){start, (size_t)((sign != NULL ? sign : end) - start)};
        if (sign != NULL) {
            part.shift = (rs_slice){sign + 1, (size_t)(end - sign - 1)};
            part.shift_down = *sign == '-';
            rs_number_scope form = {.form_only = true};
            rs_cursor number = {sign + 1, end};
            int64_t value;
            status = rs_number_read(&form, &number, &value);
            if (status != RESHARD_OK || number.at != end)
                return rs_map_fail(reader, sign, RESHARD_ERR_SYNTAX,
                                   "expected {n+k}, where k is a number or a $key");
        }
    }
    return status == RESHARD_OK ? add_capture(reader, v, start, &capture, colon != NULL, part)
                                : status;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Whether one text of a list makes a name of no bytes. */
static bool any_is_empty(const variants *v)
{
    bool found = false;
    for (int32_t i = 0; i < v->count && !found; i++) {
        found = true;
        for (int32_t k = 0; k < v->part_counts[i]; k++)
            found = found && v->parts[i][k].capture < 0 && v->parts[i][k].text.count == 0;
    }
    return found;
}

static reshard_status keep_variants(rs_map_reader *reader, const variants *v, rs_slice shown,
                                    rs_map_pattern *patterns)
{
    for (int32_t i = 0; i < v->count; i++) {
        rs_map_pattern *made = &patterns[i];
        made->shown = shown;
        made->captures = v->captures;
        made->part_count = v->part_counts[i];
        made->parts = rs_arena_copy(&reader->map->arena, v->parts[i], (size_t)v->part_counts[i],
                                    sizeof *made->parts);
        if (made->parts == NULL)
            return rs_allocation_status();
    }
    return RESHARD_OK;
}

reshard_status rs_map_read_name(rs_map_reader *reader, bool lists, rs_map_pattern *patterns,
                                int32_t *out_count)
{
    rs_cursor *cursor = &reader->cursor;
    const char *start = cursor->at;
    variants *v = rs_allocate_zeroed(reader->map->context, sizeof *v);
    if (v == NULL)
        return rs_allocation_status();
    v->count = 1;
    reshard_status status = RESHARD_OK;
    while (status == RESHARD_OK && cursor->at < cursor->end && !ends_name(*cursor->at))
        status =
            rs_cursor_accept(cursor, '{') ? read_braces(reader, lists, v) : read_text(reader, v);
    rs_slice shown = {start, (size_t)(cursor->at - start)};
    if (status == RESHARD_OK && shown.count == 0)
        status = rs_map_fail(reader, start, RESHARD_ERR_SYNTAX, "expected the name of a tensor");
    if (status == RESHARD_OK && any_is_empty(v))
        status = rs_map_fail(reader, start, RESHARD_ERR_SYNTAX,
                             "one of the names that %.*s stands for is empty", RS_SHOWN(shown));
    if (status == RESHARD_OK)
        status = keep_variants(reader, v, shown, patterns);
    *out_count = v->count;
    rs_release(reader->map->context, v);
    return status;
}
