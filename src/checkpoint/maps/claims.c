/* SPDX-License-Identifier: Apache-2.0 */
/*
 * claims.c - finds the line of every tensor that was read. Names are sorted into groups of equal
 * signature first (match.c), so that a pattern is tried only on names that it can match.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/sort.h"
#include "checkpoint/maps/condition.h"
#include "checkpoint/maps/resolve.h"
#include "text/text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

reshard_status rs_map_fail_line(const rs_map_line *line, reshard_status status, const char *format,
                                ...)
{
    char words[768];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    return rs_fail(status, RS_MAP_PLACE ": %s", RS_MAP_PLACE_OF(line), words);
}

reshard_status rs_map_hint_line(const rs_map_line *line, reshard_status status, reshard_hint hint,
                                const char *format, ...)
{
    char words[768];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(words, sizeof words, format, arguments);
    va_end(arguments);
    return rs_fail_hint(status, hint, "", RS_MAP_PLACE ": %s", RS_MAP_PLACE_OF(line), words);
}

/* ---- numbers and conditions ------------------------------------------------------------------ */

static bool find_word(void *user, rs_slice word, int64_t *out_value)
{
    const rs_map_words *words = user;
    for (int32_t i = 0; words->line != NULL && i < words->line->capture_count; i++) {
        if ((words->known >> i & 1) != 0 &&
            rs_slice_compare(words->line->captures[i].name, word) == 0) {
            *out_value = words->values[i];
            return words->line->captures[i].kind <= RS_CAPTURE_CHOICE;
        }
    }
    *out_value = rs_map_let(words->resolver, word);
    return *out_value >= 0;
}

rs_number_scope rs_map_scope(rs_map_words *words)
{
    return (rs_number_scope){.keys = words->resolver->keys, .find_word = find_word, .user = words};
}

static int64_t find_named(int32_t count, const rs_map_name *names, const int64_t *values,
                          rs_slice name)
{
    for (int32_t i = 0; i < count; i++) {
        if (rs_slice_compare(names[i].name, name) == 0)
            return values[i];
    }
    return -1;
}

int64_t rs_map_bound(const rs_map_resolver *r, rs_slice name)
{
    return find_named(r->map->bound_count, r->map->bounds, r->bounds, name);
}

int64_t rs_map_let(const rs_map_resolver *r, rs_slice name)
{
    return find_named(r->map->let_count, r->map->lets, r->lets, name);
}

static reshard_status ask_name(rs_map_resolver *r, const rs_map_line *line,
                               const rs_map_condition *condition, const int64_t *values,
                               bool *out_holds)
{
    rs_slice name;
    rs_arena_mark mark = rs_arena_mark_now(&r->result->arena);
    reshard_status status = rs_map_make_name(r, line, &condition->pattern, values, &name);
    if (status != RESHARD_OK)
        return status;
    void **found = rs_table_at(&r->names, name.bytes, name.count);
    rs_arena_return_to(&r->result->arena, mark);
    if (found == NULL)
        return rs_allocation_status();
    *out_holds = (*found != NULL) == (condition->kind == RS_CONDITION_WITH);
    return RESHARD_OK;
}

reshard_status rs_map_holds(rs_map_resolver *r, const rs_map_line *line, const rs_map_term *term,
                            uint32_t known, const int64_t *values, bool *out_holds,
                            bool *out_is_open)
{
    rs_map_words words = {r, line, known, values};
    rs_number_scope scope = rs_map_scope(&words);
    *out_holds = true;
    if (out_is_open != NULL)
        *out_is_open = false;
    for (int32_t i = 0; i < term->condition_count && *out_holds; i++) {
        const rs_map_condition *condition = &term->conditions[i];
        reshard_status status = RESHARD_OK;
        rs_map_verdict verdict = {.holds = false};
        if (condition->kind == RS_CONDITION_WHEN) {
            status = rs_map_condition_ask(&scope, condition->text, &verdict);
            *out_holds = verdict.holds;
            if (out_is_open != NULL)
                *out_is_open = *out_is_open || verdict.is_open;
        } else if ((condition->pattern.captures & ~known) != 0) {
            return rs_map_fail_line(line, RESHARD_ERR_INVALID,
                                    "with(%.*s): a capture that is stacked has no single value",
                                    rs_slice_shown(condition->text), condition->text.bytes);
        } else {
            status = ask_name(r, line, condition, values, out_holds);
        }
        if (status != RESHARD_OK)
            return rs_fail_within(status, RS_MAP_PLACE, RS_MAP_PLACE_OF(line));
    }
    return RESHARD_OK;
}

reshard_status rs_map_line_holds(rs_map_resolver *r, const rs_map_line *line, uint32_t known,
                                 const int64_t *values, bool *out_holds)
{
    *out_holds = true;
    for (int side = 0; side < 2; side++) {
        for (int32_t p = 0; p < line->place_counts[side] && *out_holds; p++) {
            const rs_map_place *place = &line->places[side][p];
            if (place->count > 1)
                continue;
            reshard_status status =
                rs_map_holds(r, line, &place->alternatives[0], known, values, out_holds, NULL);
            if (status != RESHARD_OK)
                return status;
        }
    }
    return RESHARD_OK;
}

/* ---- groups of names ------------------------------------------------------------------------- */

typedef struct name_key {
    rs_slice signature;
    int64_t source;
} name_key;

typedef struct name_groups {
    rs_arena arena;
    name_key *keys; /* sorted by signature */
} name_groups;

static int compare_keys(const void *a, const void *b)
{
    const name_key *x = a, *y = b;
    int order = rs_slice_compare(x->signature, y->signature);
    return order != 0 ? order : (x->source > y->source) - (x->source < y->source);
}

static reshard_status group_names(const rs_map_resolver *r, name_groups *groups)
{
    const reshard_map_result *result = r->result;
    groups->keys =
        rs_arena_allocate_array(&groups->arena, (size_t)result->source_count, sizeof *groups->keys);
    if (groups->keys == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < result->source_count; i++) {
        char *signature = rs_arena_allocate(&groups->arena, result->sources[i].name.count + 1);
        if (signature == NULL)
            return rs_allocation_status();
        size_t length = rs_map_signature(result->sources[i].name, signature);
        groups->keys[i] = (name_key){{signature, length}, i};
    }
    rs_sort(groups->keys, (size_t)result->source_count, sizeof *groups->keys, compare_keys);
    return RESHARD_OK;
}

/* ---- claims ---------------------------------------------------------------------------------- */

typedef struct claimant {
    rs_map_resolver *r;
    int32_t line_index, place, alternative;
    const rs_map_line *line;
    const rs_map_term *term;
    int64_t shifts[RS_MAP_PARTS_MAX];
    bool is_known; /* all shifts have a value */
} claimant;

static reshard_status read_shifts(claimant *c)
{
    const rs_map_pattern *pattern = &c->term->pattern;
    rs_map_words words = {c->r, NULL, 0, NULL};
    rs_number_scope scope = rs_map_scope(&words);
    c->is_known = true;
    for (int32_t i = 0; i < pattern->part_count; i++) {
        const rs_map_part *part = &pattern->parts[i];
        c->shifts[i] = 0;
        if (part->shift.count == 0)
            continue;
        rs_cursor cursor = {part->shift.bytes, part->shift.bytes + part->shift.count};
        reshard_status status = rs_number_read(&scope, &cursor, &c->shifts[i]);
        if (status == RESHARD_ERR_NOT_FOUND)
            c->is_known = false;
        else if (status != RESHARD_OK)
            return rs_fail_within(status, RS_MAP_PLACE, RS_MAP_PLACE_OF(c->line));
        if (part->shift_down)
            c->shifts[i] = -c->shifts[i];
    }
    return RESHARD_OK;
}

/* Numbers for texts, so that members can be compared by numbers alone. */
static reshard_status intern(rs_map_resolver *r, rs_slice text, int64_t *out_number)
{
    void **found = rs_table_at(&r->texts, text.bytes, text.count);
    if (found == NULL)
        return rs_allocation_status();
    if (*found == NULL) {
        reshard_status status = rs_grow(r->context, &r->text_values, &r->text_capacity,
                                        r->text_count + 1, sizeof *r->text_values);
        if (status != RESHARD_OK)
            return status;
        r->text_values[r->text_count++] = text;
        *found = (void *)(intptr_t)r->text_count;
    }
    *out_number = (int64_t)(intptr_t)*found - 1;
    return RESHARD_OK;
}

/* Whether numbers are below their bounds. Also gives texts their numbers. */
static reshard_status take_values(const claimant *c, rs_map_values *values, bool *out_fits)
{
    *out_fits = true;
    for (int32_t i = 0; i < c->line->capture_count; i++) {
        const rs_map_capture *capture = &c->line->captures[i];
        if ((c->term->pattern.captures >> i & 1) == 0)
            continue;
        int64_t bound = rs_map_bound(c->r, capture->name);
        if (capture->kind == RS_CAPTURE_NUMBER && bound >= 0 && values->values[i] >= bound)
            *out_fits = false;
        if (capture->kind < RS_CAPTURE_WORD)
            continue;
        reshard_status status = intern(c->r, values->texts[i], &values->values[i]);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

static reshard_status claim(const claimant *c, int64_t source, const rs_map_values *values)
{
    rs_map_claim *claim = &c->r->claims[source];
    rs_slice name = c->r->result->sources[source].name;
    if (claim->line >= 0) {
        const rs_map_line *other = &c->r->map->lines[claim->line];
        if (other->tier < c->line->tier)
            return RESHARD_OK;
        if (other == c->line && claim->place == c->place &&
            memcmp(claim->values, values->values, sizeof claim->values) == 0) {
            claim->alternatives |= (uint32_t)1 << c->alternative;
            return RESHARD_OK;
        }
        return rs_map_fail_line(c->line, RESHARD_ERR_INVALID,
                                "\"%.*s\" also belongs to line %d of %s; make one of them "
                                "narrower, or give it a when()",
                                rs_slice_shown(name), name.bytes, (int)other->number,
                                other->file_name);
    }
    claim->line = c->line_index;
    claim->place = c->place;
    claim->alternatives = (uint32_t)1 << c->alternative;
    memcpy(claim->values, values->values, sizeof claim->values);
    return RESHARD_OK;
}

static reshard_status try_name(const claimant *c, int64_t source)
{
    rs_map_values values;
    bool holds = true;
    if (rs_map_is_state(c->r, source) || !rs_map_match(c->line, &c->term->pattern, c->shifts,
                                                       c->r->result->sources[source].name, &values))
        return RESHARD_OK;
    reshard_status status = take_values(c, &values, &holds);
    if (status == RESHARD_OK && holds)
        status = rs_map_line_holds(c->r, c->line, c->term->pattern.captures, values.values, &holds);
    return status == RESHARD_OK && holds ? claim(c, source, &values) : status;
}

static reshard_status try_groups(const claimant *c, const name_groups *groups)
{
    const name_key *keys = groups->keys;
    int64_t count = c->r->result->source_count;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < count && status == RESHARD_OK;) {
        int64_t next = i + 1;
        while (next < count && rs_slice_compare(keys[next].signature, keys[i].signature) == 0)
            next++;
        bool may = rs_map_may_match(c->line, &c->term->pattern, keys[i].signature);
        for (; may && i < next && status == RESHARD_OK; i++)
            status = try_name(c, keys[i].source);
        i = next;
    }
    return status;
}

static reshard_status claim_line(rs_map_resolver *r, int32_t index, const name_groups *groups)
{
    const rs_map_line *line = &r->map->lines[index];
    reshard_status status = RESHARD_OK;
    for (int32_t p = 0; p < line->place_counts[r->from] && status == RESHARD_OK; p++) {
        const rs_map_place *place = &line->places[r->from][p];
        for (int32_t a = 0; a < place->count && status == RESHARD_OK; a++) {
            claimant c = {.r = r,
                          .line_index = index,
                          .place = p,
                          .alternative = a,
                          .line = line,
                          .term = &place->alternatives[a]};
            status = read_shifts(&c);
            if (status == RESHARD_OK && c.is_known)
                status = try_groups(&c, groups);
        }
    }
    return status;
}

/* Tensors that no line claims go to the line * = *, or are an error that names the first. */
static reshard_status claim_rest(rs_map_resolver *r)
{
    int32_t rest = -1;
    int64_t missing = 0, first = -1;
    for (int32_t i = 0; i < r->map->line_count && rest < 0; i++)
        rest = r->map->lines[i].is_rest ? i : -1;
    for (int64_t i = 0; i < r->result->source_count; i++) {
        if (r->claims[i].line >= 0 || rs_map_is_state(r, i))
            continue;
        r->claims[i].line = rest;
        first = first < 0 ? i : first;
        missing++;
    }
    if (missing == 0 || rest >= 0)
        return RESHARD_OK;
    char others[48] = "";
    rs_slice name = r->result->sources[first].name;
    if (missing > 1)
        (void)snprintf(others, sizeof others, " (or %" PRId64 " others)", missing - 1);
    return rs_fail_about(RESHARD_ERR_NOT_FOUND, r->map->lines[0].file_name,
                         "no line matches \"%.*s\"%s; `NAME drop =` would leave a tensor out, `* = "
                         "*` as the last line would pass the rest on",
                         rs_slice_shown(name), name.bytes, others);
}

reshard_status rs_map_find_claims(rs_map_resolver *r)
{
    name_groups groups = {.keys = NULL};
    rs_arena_init(&groups.arena, r->context);
    reshard_status status = group_names(r, &groups);
    for (int32_t i = 0; i < r->map->line_count && status == RESHARD_OK; i++)
        status = claim_line(r, i, &groups);
    rs_arena_release(&groups.arena);
    return status == RESHARD_OK ? claim_rest(r) : status;
}
