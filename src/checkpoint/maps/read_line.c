/* SPDX-License-Identifier: Apache-2.0 */
/* read_line.c - a line of a map: two sides, their tensors, and whether they can be equal. */
#include "base/context.h"
#include "base/error.h"
#include "checkpoint/maps/map.h"
#include "text/text.h"

#include <string.h>

/* ---- reading --------------------------------------------------------------------------------- */

/* Reads one tensor, which a list in its name turns into several with the same axes and words. */
static reshard_status read_terms(rs_map_reader *reader, rs_map_term *terms, int32_t *out_count)
{
    rs_map_pattern patterns[RS_MAP_PLACES_MAX];
    rs_map_term term;
    memset(&term, 0, sizeof term);
    reshard_status status = rs_map_read_name(reader, true, patterns, out_count);
    if (status == RESHARD_OK) {
        rs_map_skip_spaces(reader);
        status = rs_map_read_axes(reader, &term);
    }
    if (status == RESHARD_OK)
        status = rs_map_read_words(reader, &term);
    for (int32_t i = 0; i < *out_count && status == RESHARD_OK; i++) {
        terms[i] = term;
        terms[i].pattern = patterns[i];
    }
    return status;
}

/* Reads a tensor with its alternatives. */
static reshard_status read_places(rs_map_reader *reader, rs_map_place *places, int32_t *out_count)
{
    reshard_map *map = reader->map;
    rs_map_term terms[RS_MAP_PLACES_MAX];
    int32_t places_made = 0, alternative = 0;
    do {
        int32_t count = 0;
        rs_map_skip_spaces(reader);
        const char *start = reader->cursor.at;
        reshard_status status = read_terms(reader, terms, &count);
        if (status != RESHARD_OK)
            return status;
        if (alternative == RS_MAP_ALTERNATIVES_MAX)
            return rs_map_fail(reader, start, RESHARD_ERR_RANGE,
                               "there are more than %d alternatives", RS_MAP_ALTERNATIVES_MAX);
        if (alternative > 0 && count != places_made)
            return rs_map_fail(reader, start, RESHARD_ERR_SYNTAX,
                               "the alternative has %d tensors, the first one %d", count,
                               places_made);
        for (int32_t i = 0; i < count; i++) {
            if (alternative == 0)
                places[i].alternatives = rs_arena_allocate_array(
                    &map->arena, RS_MAP_ALTERNATIVES_MAX, sizeof *places[i].alternatives);
            if (places[i].alternatives == NULL)
                return rs_allocation_status();
            places[i].alternatives[alternative] = terms[i];
            places[i].count = alternative + 1;
        }
        places_made = count;
        alternative++;
    } while (rs_cursor_accept(&reader->cursor, '|'));
    *out_count = places_made;
    return RESHARD_OK;
}

static bool at_end(rs_map_reader *reader)
{
    rs_map_skip_spaces(reader);
    return reader->cursor.at == reader->cursor.end || *reader->cursor.at == '=';
}

static reshard_status read_side(rs_map_reader *reader, int side)
{
    rs_map_place places[2 * RS_MAP_PLACES_MAX];
    int32_t count = 0, more = 0;
    memset(places, 0, sizeof places);
    if (at_end(reader))
        return RESHARD_OK;
    do {
        const char *start = reader->cursor.at;
        reshard_status status = read_places(reader, places + count, &more);
        if (status != RESHARD_OK)
            return status;
        count += more;
        if (count > RS_MAP_PLACES_MAX)
            return rs_map_fail(reader, start, RESHARD_ERR_RANGE,
                               "one side of the line has %d tensors; at most %d are allowed", count,
                               RS_MAP_PLACES_MAX);
    } while (rs_cursor_accept(&reader->cursor, ','));
    reader->line->place_counts[side] = count;
    reader->line->places[side] =
        rs_arena_copy(&reader->map->arena, places, (size_t)count, sizeof *places);
    return reader->line->places[side] != NULL ? RESHARD_OK : rs_allocation_status();
}

static bool accept_rest_line(rs_map_reader *reader)
{
    rs_cursor cursor = reader->cursor;
    if (!rs_cursor_accept(&cursor, '*') || !rs_cursor_accept(&cursor, '=') ||
        !rs_cursor_accept(&cursor, '*'))
        return false;
    rs_map_reader behind = *reader;
    behind.cursor = cursor;
    rs_map_skip_spaces(&behind);
    if (behind.cursor.at != behind.cursor.end)
        return false;
    reader->cursor = behind.cursor;
    return true;
}

reshard_status rs_map_read_line(rs_map_reader *reader)
{
    const char *start = reader->cursor.at;
    reader->line->is_rest = accept_rest_line(reader);
    if (reader->line->is_rest)
        return RESHARD_OK;
    reshard_status status = read_side(reader, 0);
    if (status == RESHARD_OK && !rs_cursor_accept(&reader->cursor, '='))
        return rs_map_fail(reader, reader->cursor.at, RESHARD_ERR_SYNTAX,
                           "expected an = between two sides");
    if (status == RESHARD_OK)
        status = read_side(reader, 1);
    rs_map_skip_spaces(reader);
    if (status == RESHARD_OK && reader->cursor.at != reader->cursor.end)
        status = rs_map_fail(reader, reader->cursor.at, RESHARD_ERR_SYNTAX,
                             "expected the end of the line");
    return status == RESHARD_OK ? rs_map_check_line(reader, start) : status;
}

/* ---- checking -------------------------------------------------------------------------------- */

typedef struct line_check {
    const rs_map_reader *reader;
    const char *at;
    const rs_map_line *line;
    uint32_t *captures; /* of all names of the line */
} line_check;

#define FAIL(c, ...) rs_map_fail((c)->reader, (c)->at, RESHARD_ERR_INVALID, __VA_ARGS__)

static const char *axis_name(const rs_map_line *line, int32_t axis, char *buffer, size_t capacity)
{
    rs_text text;
    rs_text_init(&text, buffer, capacity);
    if (line->axes[axis].number != 0)
        rs_text_add(&text, "%lld", (long long)line->axes[axis].number);
    else
        rs_text_add(&text, "%.*s", RS_SHOWN(line->axes[axis].name));
    return buffer;
}

/* An axis of one term: it is an axis of the other, or a capture of its name. */
static reshard_status check_axes(const line_check *c, const rs_map_term *a, uint32_t a_axes,
                                 const rs_map_term *b, uint32_t b_axes)
{
    char name[64];
    for (int32_t i = 0; i < c->line->axis_count; i++) {
        int32_t capture = c->line->axes[i].capture;
        if ((a_axes >> i & 1) == 0)
            continue;
        if (capture >= 0 && (a->pattern.captures >> capture & 1) != 0)
            return FAIL(c, "{%s} is in the name of %.*s and also one of its axes",
                        axis_name(c->line, i, name, sizeof name), RS_SHOWN(a->pattern.shown));
        bool stacked = capture >= 0 && (b->pattern.captures >> capture & 1) != 0;
        if (!stacked && (b_axes >> i & 1) == 0)
            return FAIL(c, "axis %s of %.*s is not in %.*s",
                        axis_name(c->line, i, name, sizeof name), RS_SHOWN(a->pattern.shown),
                        RS_SHOWN(b->pattern.shown));
        if (stacked && c->line->captures[capture].kind >= RS_CAPTURE_WORD)
            return FAIL(c, "{%s} stands for any text: only numbers and lists can be stacked",
                        axis_name(c->line, i, name, sizeof name));
    }
    return RESHARD_OK;
}

/* A capture of one term: it is in the other's name, or one of its axes. */
static reshard_status check_captures(const line_check *c, const rs_map_term *a,
                                     const rs_map_term *b, uint32_t b_axes)
{
    for (int32_t i = 0; i < c->line->capture_count; i++) {
        if ((a->pattern.captures >> i & 1) == 0 || (b->pattern.captures >> i & 1) != 0)
            continue;
        bool found = false;
        for (int32_t k = 0; k < c->line->axis_count && !found; k++)
            found = c->line->axes[k].capture == i && (b_axes >> k & 1) != 0;
        if (!found)
            return FAIL(c, "{%.*s} of %.*s is neither in the name of %.*s nor one of its axes",
                        RS_SHOWN(c->line->captures[i].name), RS_SHOWN(a->pattern.shown),
                        RS_SHOWN(b->pattern.shown));
    }
    return RESHARD_OK;
}

/* block: the one of `one` that belongs to `other`; -1: there is no sum. */
static reshard_status check_pair(const line_check *c, const rs_map_term *one, int32_t block,
                                 const rs_map_term *other)
{
    uint32_t axes = block < 0 ? one->axes : one->outside | one->blocks[block];
    if ((one->rest_dim < 0) != (other->rest_dim < 0))
        return FAIL(c, "%.*s has further dimensions (..), but %.*s does not",
                    rs_slice_shown((one->rest_dim < 0 ? other : one)->pattern.shown),
                    (one->rest_dim < 0 ? other : one)->pattern.shown.bytes,
                    rs_slice_shown((one->rest_dim < 0 ? one : other)->pattern.shown),
                    (one->rest_dim < 0 ? one : other)->pattern.shown.bytes);
    reshard_status status = check_axes(c, one, axes, other, other->axes);
    if (status == RESHARD_OK)
        status = check_axes(c, other, other->axes, one, axes);
    if (status == RESHARD_OK)
        status = check_captures(c, one, other, other->axes);
    if (status == RESHARD_OK)
        status = check_captures(c, other, one, axes);
    return status;
}

static reshard_status check_sums(const line_check *c, const rs_map_place *place, int32_t blocks)
{
    for (int32_t i = 0; i < place->count; i++) {
        const rs_map_term *term = &place->alternatives[i];
        if (term->word != RS_TERM_PLAIN)
            return FAIL(c, "drop, fill(), copy() and object() need an empty other side");
        if (term->sum_count == blocks)
            continue;
        if (blocks == 0)
            return FAIL(c, "%.*s is a sum of %d blocks, and there is one tensor on the other side",
                        RS_SHOWN(term->pattern.shown), term->sum_count);
        return FAIL(c,
                    "%.*s needs a sum (a + b) of %d blocks, one for each tensor on the other "
                    "side; it has %d",
                    RS_SHOWN(term->pattern.shown), blocks, term->sum_count);
    }
    return RESHARD_OK;
}

static reshard_status check_two_sides(const line_check *c)
{
    const rs_map_line *line = c->line;
    int one = line->place_counts[0] == 1 ? 0 : 1;
    int32_t count = line->place_counts[1 - one];
    if (line->place_counts[one] != 1)
        return FAIL(c,
                    "%d tensors equal %d: one side has to be a single tensor, a sum. Lists that "
                    "go together have a name on both sides: {s:a,b}",
                    line->place_counts[0], line->place_counts[1]);
    const rs_map_place *single = &line->places[one][0];
    reshard_status status = check_sums(c, single, count > 1 ? count : 0);
    for (int32_t p = 0; p < count && status == RESHARD_OK; p++) {
        const rs_map_place *place = &line->places[1 - one][p];
        status = check_sums(c, place, 0);
        for (int32_t i = 0; i < single->count * place->count && status == RESHARD_OK; i++)
            status = check_pair(c, &single->alternatives[i / place->count], count > 1 ? p : -1,
                                &place->alternatives[i % place->count]);
    }
    return status;
}

static reshard_status check_one_side(const line_check *c)
{
    const rs_map_line *line = c->line;
    int side = line->place_counts[0] != 0 ? 0 : 1;
    if (line->place_counts[side] == 0)
        return FAIL(c, "the line has no tensors");
    for (int32_t p = 0; p < line->place_counts[side]; p++) {
        const rs_map_place *place = &line->places[side][p];
        const rs_map_term *term = &place->alternatives[0];
        if (place->count > 1)
            return FAIL(c, "alternatives need a tensor on the other side; write a line for each");
        if (term->word == RS_TERM_PLAIN)
            return FAIL(c, "the other side of %.*s is empty: say drop, fill(), copy() or object()",
                        RS_SHOWN(term->pattern.shown));
        if (term->word == RS_TERM_FILL && (!term->has_axes || term->rest_dim >= 0))
            return FAIL(c, "fill() needs axes: [] for a single number");
        if (term->sum_count > 0)
            return FAIL(c, "a sum needs tensors on the other side");
    }
    return RESHARD_OK;
}

/* Captures inside with(), without() and copy() are those of the line's tensors. */
static reshard_status check_inner(const line_check *c, const rs_map_pattern *pattern,
                                  uint32_t known)
{
    if ((pattern->captures & ~known) == 0)
        return RESHARD_OK;
    return FAIL(c, "%.*s has a capture that no tensor of the line has", RS_SHOWN(pattern->shown));
}

static reshard_status check_inners(const line_check *c, const rs_map_term *term, uint32_t known)
{
    reshard_status status = check_inner(c, &term->copied, term->pattern.captures);
    for (int32_t i = 0; i < term->condition_count && status == RESHARD_OK; i++)
        status = check_inner(c, &term->conditions[i].pattern, known);
    return status;
}

typedef reshard_status (*term_fn)(const line_check *c, const rs_map_term *term, uint32_t known);

/* Calls fn for every alternative of every place. */
static reshard_status each_term(const line_check *c, uint32_t known, term_fn fn)
{
    reshard_status status = RESHARD_OK;
    for (int side = 0; side < 2; side++) {
        for (int32_t p = 0; p < c->line->place_counts[side]; p++) {
            const rs_map_place *place = &c->line->places[side][p];
            for (int32_t i = 0; i < place->count && status == RESHARD_OK; i++)
                status = fn(c, &place->alternatives[i], known);
        }
    }
    return status;
}

/* What all terms say together: which captures occur, and whether the line is optional. */
static reshard_status gather(const line_check *c, const rs_map_term *term, uint32_t known)
{
    (void)known;
    *c->captures |= term->pattern.captures;
    c->reader->line->is_optional = c->reader->line->is_optional || term->is_optional;
    return RESHARD_OK;
}

reshard_status rs_map_check_line(const rs_map_reader *reader, const char *at)
{
    rs_map_line *line = reader->line;
    uint32_t captures = 0;
    line_check c = {reader, at, line, &captures};
    for (int32_t i = 0; i < line->axis_count; i++) {
        for (int32_t k = 0; k < line->capture_count; k++) {
            if (rs_slice_compare(line->axes[i].name, line->captures[k].name) == 0)
                line->axes[i].capture = k;
        }
    }
    reshard_status status = line->place_counts[0] != 0 && line->place_counts[1] != 0
                                ? check_two_sides(&c)
                                : check_one_side(&c);
    if (status == RESHARD_OK)
        status = each_term(&c, 0, gather);
    return status == RESHARD_OK ? each_term(&c, captures, check_inners) : status;
}
