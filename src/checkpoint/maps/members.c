/* SPDX-License-Identifier: Apache-2.0 */
/*
 * members.c - sorts claims into members: what one line says for one value of each capture that both
 * sides have in their names. Names are made here too, and values gone through.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "checkpoint/maps/resolve.h"
#include "text/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- names ----------------------------------------------------------------------------------- */

static reshard_status add_number(rs_map_resolver *r, const rs_map_line *line,
                                 const rs_map_part *part, int64_t value, rs_text *text)
{
    int64_t shift = 0;
    if (part->shift.count != 0) {
        rs_map_words words = {r, NULL, 0, NULL};
        rs_number_scope scope = rs_map_scope(&words);
        rs_cursor cursor = {part->shift.bytes, part->shift.bytes + part->shift.count};
        reshard_status status = rs_number_read(&scope, &cursor, &shift);
        if (status != RESHARD_OK)
            return rs_fail_within(status, RS_MAP_PLACE, RS_MAP_PLACE_OF(line));
    }
    if (!rs_add(value, part->shift_down ? -shift : shift, &value) || value < 0)
        return rs_map_fail_line(line, RESHARD_ERR_RANGE, "a number in a name would be negative");
    rs_text_add(text, "%" PRId64, value);
    return RESHARD_OK;
}

static reshard_status write_name(rs_map_resolver *r, const rs_map_line *line,
                                 const rs_map_pattern *pattern, const int64_t *values,
                                 rs_text *text)
{
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < pattern->part_count && status == RESHARD_OK; i++) {
        const rs_map_part *part = &pattern->parts[i];
        rs_slice slice = part->text;
        if (part->capture >= 0) {
            const rs_map_capture *capture = &line->captures[part->capture];
            int64_t value = values[part->capture];
            if (capture->kind == RS_CAPTURE_NUMBER) {
                status = add_number(r, line, part, value, text);
                continue;
            }
            slice =
                capture->kind == RS_CAPTURE_CHOICE ? capture->items[value] : r->text_values[value];
        }
        rs_text_add(text, "%.*s", (int)slice.count, slice.bytes);
    }
    return status;
}

reshard_status rs_map_make_name(rs_map_resolver *r, const rs_map_line *line,
                                const rs_map_pattern *pattern, const int64_t *values,
                                rs_slice *out_name)
{
    char buffer[RS_MAP_NAME_BYTES_MAX];
    rs_text text;
    rs_text_init(&text, buffer, sizeof buffer);
    reshard_status status = write_name(r, line, pattern, values, &text);
    if (status == RESHARD_OK && text.length >= sizeof buffer)
        return rs_map_fail_line(line, RESHARD_ERR_RANGE,
                                "the name has %zu bytes; at most %d are allowed", text.length,
                                RS_MAP_NAME_BYTES_MAX - 1);
    if (status != RESHARD_OK)
        return status;
    char *copy = rs_arena_copy(&r->result->arena, buffer, text.length + 1, 1);
    *out_name = (rs_slice){copy, text.length};
    return copy != NULL ? RESHARD_OK : rs_allocation_status();
}

/* ---- values ---------------------------------------------------------------------------------- */

/* How many values a capture has; -1: nothing says so. */
static int64_t value_count(const rs_map_resolver *r, const rs_map_capture *capture)
{
    if (capture->kind == RS_CAPTURE_CHOICE)
        return capture->item_count;
    return capture->kind == RS_CAPTURE_NUMBER ? rs_map_bound(r, capture->name) : -1;
}

reshard_status rs_map_each_value(const rs_map_resolver *r, const rs_map_line *line,
                                 uint32_t captures, int64_t *values, rs_map_values_fn fn,
                                 void *user)
{
    int64_t counts[RS_MAP_CAPTURES_MAX], total = 1;
    for (int32_t i = 0; i < line->capture_count; i++) {
        counts[i] = (captures >> i & 1) != 0 ? value_count(r, &line->captures[i]) : 1;
        if (counts[i] < 0)
            return rs_map_fail_line(
                line, RESHARD_ERR_NOT_FOUND,
                "nothing says how many {%.*s} there are; `for %.*s < ..` "
                "would",
                rs_slice_shown(line->captures[i].name), line->captures[i].name.bytes,
                rs_slice_shown(line->captures[i].name), line->captures[i].name.bytes);
        total = rs_multiply_up(total, counts[i]);
    }
    if (total > RS_MAP_EXPANSION_MAX)
        return rs_map_fail_line(line, RESHARD_ERR_RANGE,
                                "the line stands for %" PRId64 " tensors: at most %" PRId64, total,
                                RS_MAP_EXPANSION_MAX);
    reshard_status status = RESHARD_OK;
    for (int64_t k = 0; k < total && status == RESHARD_OK; k++) {
        int64_t rest = k;
        for (int32_t i = line->capture_count - 1; i >= 0; i--) {
            if ((captures >> i & 1) == 0)
                continue;
            values[i] = rest % counts[i];
            rest /= counts[i];
        }
        status = fn(user, values);
    }
    return status;
}

/* ---- members --------------------------------------------------------------------------------- */

/* Chooses what is written, for each place of the other side: the first alternative whose conditions
 * hold. */
static reshard_status choose(rs_map_resolver *r, const rs_map_line *line, const rs_map_term *read,
                             const rs_map_claim *claim, rs_map_member *member)
{
    uint32_t written = UINT32_MAX;
    for (int32_t p = 0; p < line->place_counts[r->to]; p++) {
        const rs_map_place *place = &line->places[r->to][p];
        bool holds = place->count == 1; /* its conditions are those of the line */
        int32_t a = 0;
        while (!holds) {
            reshard_status status =
                rs_map_holds(r, line, &place->alternatives[a], read->pattern.captures,
                             claim->values, &holds, NULL);
            if (status != RESHARD_OK)
                return status;
            if (!holds && ++a == place->count)
                return rs_map_fail_line(line, RESHARD_ERR_INVALID, "no alternative for %.*s holds",
                                        rs_slice_shown(place->alternatives[0].pattern.shown),
                                        place->alternatives[0].pattern.shown.bytes);
        }
        member->chosen[p] = (uint8_t)a;
        written &= place->alternatives[a].pattern.captures;
    }
    member->family = read->pattern.captures & written;
    return RESHARD_OK;
}

typedef struct member_key {
    int64_t line, family;
    uint8_t chosen[RS_MAP_PLACES_MAX];
    int64_t values[RS_MAP_CAPTURES_MAX];
} member_key;

static reshard_status find_member(rs_map_resolver *r, int64_t source, rs_map_member **out_member)
{
    const rs_map_claim *claim = &r->claims[source];
    const rs_map_line *line = &r->map->lines[claim->line];
    const rs_map_place *place = &line->places[r->from][claim->place];
    int32_t alternative = 0;
    while ((claim->alternatives >> alternative & 1) == 0)
        alternative++;
    rs_map_member made = {.line = claim->line, .first = -1, .last = -1};
    reshard_status status = choose(r, line, &place->alternatives[alternative], claim, &made);
    if (status != RESHARD_OK)
        return status;
    member_key key;
    memset(&key, 0, sizeof key);
    key.line = made.line;
    key.family = made.family;
    memcpy(key.chosen, made.chosen, sizeof key.chosen);
    for (int32_t i = 0; i < RS_MAP_CAPTURES_MAX; i++)
        key.values[i] = made.values[i] = (made.family >> i & 1) != 0 ? claim->values[i] : -1;
    void **found = rs_table_at(&r->keyed, &key, sizeof key);
    if (found == NULL)
        return rs_allocation_status();
    if (*found == NULL) {
        status = rs_grow(r->context, &r->members, &r->member_capacity, r->member_count + 1,
                         sizeof *r->members);
        if (status != RESHARD_OK)
            return status;
        r->members[r->member_count++] = made;
        *found = (void *)(intptr_t)r->member_count;
    }
    *out_member = &r->members[(intptr_t)*found - 1];
    return RESHARD_OK;
}

reshard_status rs_map_find_members(rs_map_resolver *r)
{
    for (int64_t i = 0; i < r->result->source_count; i++) {
        rs_map_claim *claim = &r->claims[i];
        claim->next = -1;
        if (rs_map_is_state(r, i))
            continue;
        const rs_map_line *line = &r->map->lines[claim->line];
        if (line->is_rest || line->place_counts[r->to] == 0)
            continue;
        rs_map_member *member = NULL;
        reshard_status status = find_member(r, i, &member);
        if (status != RESHARD_OK)
            return status;
        if (member->last >= 0)
            r->claims[member->last].next = i;
        else
            member->first = i;
        member->last = i;
    }
    return RESHARD_OK;
}

/* ---- what is missing ------------------------------------------------------------------------- */

/* The numbers of a line that have to be there, for one value of its other captures. */
typedef struct completeness {
    rs_map_resolver *r;
    const rs_map_line *line;
    const rs_map_term *term;
    uint32_t known;
} completeness;

static reshard_status expect_name(void *user, const int64_t *values)
{
    const completeness *c = user;
    bool holds;
    reshard_status status = rs_map_line_holds(c->r, c->line, c->known, values, &holds);
    if (status != RESHARD_OK || !holds)
        return status;
    const rs_map_place *place = &c->line->places[c->r->from][0];
    rs_slice first = {"", 0};
    for (int32_t a = 0; a < place->count; a++) {
        rs_slice name;
        const rs_map_pattern *pattern = &place->alternatives[a].pattern;
        if ((pattern->captures & ~c->known) != 0)
            return RESHARD_OK; /* stacked: emit.c finds what is missing */
        rs_arena_mark mark = rs_arena_mark_now(&c->r->result->arena);
        status = rs_map_make_name(c->r, c->line, pattern, values, &name);
        void **found =
            status == RESHARD_OK ? rs_table_at(&c->r->names, name.bytes, name.count) : NULL;
        if (status == RESHARD_OK && found == NULL)
            status = rs_allocation_status();
        if (status != RESHARD_OK)
            return status;
        if (*found != NULL) {
            rs_arena_return_to(&c->r->result->arena, mark);
            return RESHARD_OK;
        }
        first = a == 0 ? name : first;
    }
    return rs_map_fail_line(c->line, RESHARD_ERR_NOT_FOUND,
                            "there is no \"%.*s\"; `optional` would allow that",
                            rs_slice_shown(first), first.bytes);
}

static uint32_t captures_of_kind(const rs_map_line *line, uint32_t captures, bool numbers)
{
    uint32_t found = 0;
    for (int32_t i = 0; i < line->capture_count; i++) {
        bool number = line->captures[i].kind == RS_CAPTURE_NUMBER;
        if ((captures >> i & 1) != 0 && number == numbers)
            found |= (uint32_t)1 << i;
    }
    return found;
}

/* A line that says nothing for any tensor: fine if its conditions never hold. */
static reshard_status check_idle(rs_map_resolver *r, const rs_map_line *line)
{
    const rs_map_term *term = &line->places[r->from][0].alternatives[0];
    int64_t values[RS_MAP_CAPTURES_MAX] = {0};
    bool holds;
    for (int32_t i = 0; i < line->capture_count; i++) {
        if ((term->pattern.captures >> i & 1) != 0 && value_count(r, &line->captures[i]) == 0)
            return RESHARD_OK;
    }
    if (captures_of_kind(line, term->pattern.captures, false) == 0) {
        completeness c = {r, line, term, term->pattern.captures};
        bool bounded = true;
        for (int32_t i = 0; i < line->capture_count; i++)
            bounded = bounded && ((term->pattern.captures >> i & 1) == 0 ||
                                  value_count(r, &line->captures[i]) >= 0);
        if (bounded)
            return rs_map_each_value(r, line, term->pattern.captures, values, expect_name, &c);
    }
    reshard_status status = rs_map_line_holds(r, line, 0, values, &holds);
    if (status != RESHARD_OK || !holds)
        return status;
    return rs_map_fail_line(line, RESHARD_ERR_NOT_FOUND,
                            "no tensor is called %.*s; `optional` would allow that",
                            rs_slice_shown(term->pattern.shown), term->pattern.shown.bytes);
}

/* Goes through the members of a line, and for each new value of its texts through all numbers. */
static reshard_status check_line(rs_map_resolver *r, const rs_map_line *line, const int64_t *first,
                                 const int64_t *next)
{
    rs_table seen;
    rs_table_init(&seen, r->context);
    reshard_status status = RESHARD_OK;
    const rs_map_term *term = &line->places[r->from][0].alternatives[0];
    for (int64_t m = *first; m >= 0 && status == RESHARD_OK; m = next[m]) {
        const rs_map_member *member = &r->members[m];
        uint32_t numbers = captures_of_kind(line, member->family, true);
        int64_t values[RS_MAP_CAPTURES_MAX];
        bool bounded = numbers != 0;
        memcpy(values, member->values, sizeof values);
        for (int32_t i = 0; i < line->capture_count; i++) {
            if ((numbers >> i & 1) == 0)
                continue;
            values[i] = -1;
            bounded = bounded && value_count(r, &line->captures[i]) >= 0;
        }
        void **found = bounded ? rs_table_at(&seen, values, sizeof values) : NULL;
        if (bounded && found == NULL)
            status = rs_allocation_status();
        if (!bounded || found == NULL || *found != NULL)
            continue;
        *found = r;
        completeness c = {r, line, term, member->family};
        status = rs_map_each_value(r, line, numbers, values, expect_name, &c);
    }
    rs_table_release(&seen);
    return status;
}

/* The members of each line as a list, in the order in which they were found. */
reshard_status rs_map_check_members(rs_map_resolver *r)
{
    size_t lines = (size_t)r->map->line_count, count = (size_t)r->member_count;
    int64_t *first = rs_allocate_array(r->context, lines, sizeof *first);
    int64_t *next = rs_allocate_array(r->context, count, sizeof *next);
    reshard_status status = first == NULL || next == NULL ? rs_allocation_status() : RESHARD_OK;
    for (size_t i = 0; i < lines && status == RESHARD_OK; i++)
        first[i] = -1;
    for (int64_t m = r->member_count - 1; m >= 0 && status == RESHARD_OK; m--) {
        next[m] = first[r->members[m].line];
        first[r->members[m].line] = m;
    }
    for (int32_t i = 0; i < r->map->line_count && status == RESHARD_OK; i++) {
        const rs_map_line *line = &r->map->lines[i];
        if (line->is_rest || line->is_optional || line->place_counts[0] == 0 ||
            line->place_counts[1] == 0)
            continue;
        if (first[i] >= 0)
            status = check_line(r, line, &first[i], next);
        else if (line->tier == 0)
            status = check_idle(r, line);
    }
    rs_release(r->context, first);
    rs_release(r->context, next);
    return status;
}
