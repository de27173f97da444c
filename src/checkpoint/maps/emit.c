/* SPDX-License-Identifier: Apache-2.0 */
/*
 * emit.c - the targets and links of one member. First the tensors that were read are put in their
 * places, and the sizes of all axes are found; then each target of the other side is made, with a
 * link from each of these tensors.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/shape.h"
#include "checkpoint/maps/resolve.h"
#include "text/text.h"

#include <inttypes.h>
#include <string.h>

typedef struct emission {
    rs_map_resolver *r;
    const rs_map_member *member;
    const rs_map_line *line;
    rs_map_sizes sizes;
    /* By place of the read side: */
    const rs_map_term *read[RS_MAP_PLACES_MAX];
    int64_t first[RS_MAP_PLACES_MAX]; /* the first source; -1: none */
    /* While targets are made: */
    int32_t place; /* of the written side */
    const rs_map_term *written;
    int64_t values[RS_MAP_CAPTURES_MAX];
    const rs_map_axes *axes[RS_MAP_PLACES_MAX]; /* of the links from each place */
    rs_map_location from[RS_MAP_PLACES_MAX], to[RS_MAP_PLACES_MAX];
} emission;

static rs_slice name_of(const emission *e, int64_t source)
{
    return e->r->result->sources[source].name;
}

static int32_t axis_of_capture(const rs_map_line *line, int32_t capture)
{
    for (int32_t i = 0; i < line->axis_count; i++) {
        if (line->axes[i].capture == capture)
            return i;
    }
    return -1;
}

/* ---- places ---------------------------------------------------------------------------------- */

/* The names of a place that were found all belong to the same alternatives. */
static reshard_status find_alternatives(const emission *e, int32_t place, uint32_t *out_common)
{
    uint32_t common = UINT32_MAX;
    int64_t first = -1;
    for (int64_t i = e->member->first; i >= 0; i = e->r->claims[i].next) {
        const rs_map_claim *claim = &e->r->claims[i];
        if (claim->place != place)
            continue;
        if ((common & claim->alternatives) == 0)
            return rs_map_fail_line(e->line, RESHARD_ERR_INVALID,
                                    "\"%.*s\" and \"%.*s\" are alternatives, and both exist",
                                    rs_slice_shown(name_of(e, first)), name_of(e, first).bytes,
                                    rs_slice_shown(name_of(e, i)), name_of(e, i).bytes);
        common &= claim->alternatives;
        first = first < 0 ? i : first;
    }
    *out_common = common;
    return RESHARD_OK;
}

static reshard_status fail_missing(const emission *e, const rs_map_term *term,
                                   const int64_t *values)
{
    rs_slice name;
    int64_t first = e->member->first, known[RS_MAP_CAPTURES_MAX];
    /* If all of a stack are missing, the first of them is named. */
    for (int32_t i = 0; i < e->line->capture_count; i++)
        known[i] = values[i] < 0 ? 0 : values[i];
    reshard_status status = rs_map_make_name(e->r, e->line, &term->pattern, known, &name);
    if (status != RESHARD_OK)
        return status;
    return rs_map_fail_line(
        e->line, RESHARD_ERR_NOT_FOUND, "there is \"%.*s\", but no \"%.*s\", which belongs to it",
        rs_slice_shown(name_of(e, first)), name_of(e, first).bytes, RS_SHOWN(name));
}

/* Learns the lengths of axes that are stacked in the names of a place. */
static reshard_status learn_stacks(emission *e, int32_t place, const rs_map_term *term)
{
    uint32_t stacked = term->pattern.captures & ~e->member->family;
    for (int32_t c = 0; c < e->line->capture_count; c++) {
        int32_t axis = axis_of_capture(e->line, c);
        const rs_map_capture *capture = &e->line->captures[c];
        if ((stacked >> c & 1) == 0 || axis < 0)
            continue;
        int64_t length = capture->kind == RS_CAPTURE_CHOICE ? capture->item_count
                                                            : rs_map_bound(e->r, capture->name);
        for (int64_t i = e->member->first; i >= 0 && capture->kind == RS_CAPTURE_NUMBER;
             i = e->r->claims[i].next) {
            if (e->r->claims[i].place == place && rs_map_bound(e->r, capture->name) < 0)
                length = rs_max(length, e->r->claims[i].values[c] + 1);
        }
        if (e->sizes.axes[axis] >= 0 && e->sizes.axes[axis] != length && length >= 0)
            return rs_map_fail_line(e->line, RESHARD_ERR_INVALID,
                                    "{%.*s} has %" PRId64 " values in the names of %.*s, and "
                                    "%" PRId64 " are expected",
                                    RS_SHOWN(capture->name), length, RS_SHOWN(term->pattern.shown),
                                    e->sizes.axes[axis]);
        e->sizes.axes[axis] = length;
    }
    return RESHARD_OK;
}

/* The place of a source among those that are stacked together, row-major. */
static int64_t stack_place(const emission *e, const rs_map_term *term, const int64_t *values)
{
    int64_t place = 0;
    uint32_t stacked = term->pattern.captures & ~e->member->family;
    for (int32_t c = 0; c < e->line->capture_count; c++) {
        if ((stacked >> c & 1) != 0)
            place = place * e->sizes.axes[axis_of_capture(e->line, c)] + values[c];
    }
    return place;
}

/* Checks that all that are stacked are there: found in `seen`, a byte for each. */
static reshard_status check_stack(emission *e, int32_t place, const rs_map_term *term, char *seen,
                                  int64_t total)
{
    uint32_t stacked = term->pattern.captures & ~e->member->family;
    for (int64_t i = e->member->first; i >= 0; i = e->r->claims[i].next) {
        if (e->r->claims[i].place != place)
            continue;
        int64_t at = stack_place(e, term, e->r->claims[i].values);
        if (seen[at])
            return rs_map_fail_line(e->line, RESHARD_ERR_INVALID,
                                    "\"%.*s\" has the same place in the stack as another tensor",
                                    rs_slice_shown(name_of(e, i)), name_of(e, i).bytes);
        seen[at] = 1;
    }
    for (int64_t k = 0; k < total; k++) {
        if (seen[k])
            continue;
        int64_t values[RS_MAP_CAPTURES_MAX], rest = k;
        memcpy(values, e->member->values, sizeof values);
        for (int32_t c = e->line->capture_count - 1; c >= 0; c--) {
            if ((stacked >> c & 1) == 0)
                continue;
            int64_t size = e->sizes.axes[axis_of_capture(e->line, c)];
            values[c] = rest % size;
            rest /= size;
        }
        return fail_missing(e, term, values);
    }
    return RESHARD_OK;
}

static reshard_status check_place(emission *e, int32_t place, const rs_map_term *term)
{
    uint32_t stacked = term->pattern.captures & ~e->member->family;
    int64_t total = 1;
    for (int32_t c = 0; c < e->line->capture_count; c++) {
        if ((stacked >> c & 1) != 0)
            total = rs_multiply_up(total, e->sizes.axes[axis_of_capture(e->line, c)]);
    }
    if (total > RS_MAP_EXPANSION_MAX)
        return rs_map_fail_line(e->line, RESHARD_ERR_RANGE,
                                "%" PRId64 " tensors would be stacked: at most %" PRId64, total,
                                RS_MAP_EXPANSION_MAX);
    if (total == 1)
        return e->first[place] >= 0 ? RESHARD_OK : fail_missing(e, term, e->member->values);
    char *seen = rs_allocate_zeroed(e->r->context, (size_t)total);
    if (seen == NULL)
        return rs_allocation_status();
    reshard_status status = check_stack(e, place, term, seen, total);
    rs_release(e->r->context, seen);
    return status;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* The alternatives of a place that the shape of its tensors fits, as bits. If none does, the status
 * is that of the last one. */
static reshard_status find_fits(const emission *e, int32_t place, uint32_t common,
                                uint32_t *out_fit)
{
    const rs_map_place *given = &e->line->places[e->r->from][place];
    const rs_map_source *source = &e->r->result->sources[e->first[place]];
    reshard_status last = RESHARD_OK;
    *out_fit = 0;
    for (int32_t a = 0; a < given->count; a++) {
        rs_map_sizes trial = e->sizes;
        bool learned;
        if ((common >> a & 1) == 0)
            continue;
        reshard_status status =
            rs_map_sizes_learn(&trial, &given->alternatives[a], source, &learned);
        if (status == RESHARD_OK)
            *out_fit |= (uint32_t)1 << a;
        else if (status != RESHARD_ERR_INVALID)
            return status;
        last = status != RESHARD_OK ? status : last;
    }
    return *out_fit != 0 ? RESHARD_OK : last;
}

/* is_open: this thread's error says which number is missing, and how to give it. */
static reshard_status fail_alternatives(const emission *e, rs_slice name, bool is_open)
{
    if (!is_open)
        return rs_map_fail_line(e->line, RESHARD_ERR_INVALID,
                                "several alternatives fit the shape of \"%.*s\", and nothing "
                                "decides between them",
                                RS_SHOWN(name));
    return rs_fail_within(RESHARD_ERR_INVALID,
                          RS_MAP_PLACE ": several alternatives fit the shape of \"%.*s\", and "
                                       "nothing decides between them",
                          RS_MAP_PLACE_OF(e->line), RS_SHOWN(name));
}

/* Chooses between alternatives that all fit, by their conditions. The first one needs some: without
 * them nothing would ever decide. */
static reshard_status decide(const emission *e, int32_t place, uint32_t fit, int32_t *out_chosen)
{
    const rs_map_place *given = &e->line->places[e->r->from][place];
    const rs_map_source *source = &e->r->result->sources[e->first[place]];
    bool is_first = true;
    for (int32_t a = 0; a < given->count; a++) {
        bool holds = true, is_open = false;
        const rs_map_term *term = &given->alternatives[a];
        if ((fit >> a & 1) == 0)
            continue;
        reshard_status status =
            rs_map_holds(e->r, e->line, term, term->pattern.captures,
                         e->r->claims[e->first[place]].values, &holds, &is_open);
        if (status != RESHARD_OK)
            return status;
        if (is_open || (is_first && term->condition_count == 0))
            return fail_alternatives(e, source->name, is_open);
        if (holds) {
            *out_chosen = a;
            return RESHARD_OK;
        }
        is_first = false;
    }
    return rs_map_fail_line(e->line, RESHARD_ERR_INVALID,
                            "several alternatives fit the shape of \"%.*s\", but none of their "
                            "conditions holds",
                            RS_SHOWN(source->name));
}

/* Chooses between alternatives that share a name: by shape, and if several fit, by when(). */
static reshard_status choose_fit(const emission *e, int32_t place, uint32_t common,
                                 int32_t *out_chosen)
{
    uint32_t fit;
    reshard_status status = find_fits(e, place, common, &fit);
    if (status != RESHARD_OK || (fit & (fit - 1)) != 0)
        return status == RESHARD_OK ? decide(e, place, fit, out_chosen) : status;
    *out_chosen = 0;
    while ((fit >> *out_chosen & 1) == 0)
        ++*out_chosen;
    return RESHARD_OK;
}

/* All tensors of a place have one shape. */
static reshard_status check_shapes(const emission *e, int32_t place)
{
    const rs_map_source *first = &e->r->result->sources[e->first[place]];
    for (int64_t i = e->first[place]; i >= 0; i = e->r->claims[i].next) {
        const rs_map_source *source = &e->r->result->sources[i];
        if (e->r->claims[i].place != place)
            continue;
        if (source->ndim == first->ndim &&
            memcmp(source->shape, first->shape, (size_t)first->ndim * sizeof *first->shape) == 0)
            continue;
        char a[80], b[80];
        rs_text text;
        rs_text_init(&text, a, sizeof a);
        rs_text_add_shape(&text, first->ndim, first->shape);
        rs_text_init(&text, b, sizeof b);
        rs_text_add_shape(&text, source->ndim, source->shape);
        return rs_map_fail_line(e->line, RESHARD_ERR_INVALID,
                                "\"%.*s\" is %s and \"%.*s\" is %s: tensors that are stacked have "
                                "one shape",
                                RS_SHOWN(first->name), a, RS_SHOWN(source->name), b);
    }
    return RESHARD_OK;
}

static reshard_status learn_all(emission *e)
{
    int32_t places = e->line->place_counts[e->r->from];
    for (bool learned = true; learned;) {
        learned = false;
        for (int32_t p = 0; p < places; p++) {
            reshard_status status = rs_map_sizes_learn(
                &e->sizes, e->read[p], &e->r->result->sources[e->first[p]], &learned);
            if (status != RESHARD_OK)
                return status;
        }
    }
    return RESHARD_OK;
}

/* Lengths of axes that the written names count: by list, or by `for`. */
static void learn_written(emission *e)
{
    for (int32_t p = 0; p < e->line->place_counts[e->r->to]; p++) {
        const rs_map_term *term = &e->line->places[e->r->to][p].alternatives[e->member->chosen[p]];
        uint32_t unpacked = term->pattern.captures & ~e->member->family;
        for (int32_t c = 0; c < e->line->capture_count; c++) {
            int32_t axis = axis_of_capture(e->line, c);
            if ((unpacked >> c & 1) == 0 || axis < 0 || e->sizes.axes[axis] >= 0)
                continue;
            const rs_map_capture *capture = &e->line->captures[c];
            e->sizes.axes[axis] = capture->kind == RS_CAPTURE_CHOICE
                                      ? capture->item_count
                                      : rs_map_bound(e->r, capture->name);
        }
    }
}

static reshard_status read_places(emission *e)
{
    int32_t places = e->line->place_counts[e->r->from];
    reshard_status status = RESHARD_OK;
    for (int32_t p = 0; p < places; p++)
        e->first[p] = -1;
    for (int64_t i = e->member->first; i >= 0; i = e->r->claims[i].next) {
        int32_t p = e->r->claims[i].place;
        e->first[p] = e->first[p] < 0 ? i : e->first[p];
    }
    rs_map_sizes_init(&e->sizes, e->r, e->line);
    learn_written(e);
    for (int32_t p = 0; p < places && status == RESHARD_OK; p++) {
        uint32_t common = 0;
        int32_t chosen = 0;
        status = find_alternatives(e, p, &common);
        const rs_map_term *any = &e->line->places[e->r->from][p].alternatives[0];
        if (status == RESHARD_OK && e->first[p] < 0)
            return fail_missing(e, any, e->member->values);
        while (status == RESHARD_OK && (common >> chosen & 1) == 0)
            chosen++;
        any = &e->line->places[e->r->from][p].alternatives[chosen];
        if (status == RESHARD_OK)
            status = learn_stacks(e, p, any);
        if (status == RESHARD_OK && (common & (common - 1)) != 0)
            status = choose_fit(e, p, common, &chosen);
        e->read[p] = &e->line->places[e->r->from][p].alternatives[chosen];
        if (status == RESHARD_OK)
            status = check_place(e, p, e->read[p]);
        if (status == RESHARD_OK)
            status = check_shapes(e, p);
    }
    return status == RESHARD_OK ? learn_all(e) : status;
}

/* ---- links ----------------------------------------------------------------------------------- */

/* The axes of all links from place p to the current target place. */
static reshard_status make_axes(emission *e, int32_t p)
{
    int32_t from_count = e->line->place_counts[e->r->from];
    int32_t to_count = e->line->place_counts[e->r->to];
    rs_map_location *from = &e->from[p], *to = &e->to[p];
    rs_map_sizes_locate(&e->sizes, e->read[p], to_count > 1 ? e->place : -1, from);
    rs_map_sizes_locate(&e->sizes, e->written, from_count > 1 ? p : -1, to);
    reshard_link_axis axes[RS_MAP_AXES_MAX + RESHARD_NDIM_MAX];
    int32_t count = 0;
    rs_map_axes made = {.volume = 1};
    for (int32_t i = 0; i < e->line->axis_count; i++) {
        if (from->dim[i] < 0 || to->dim[i] < 0)
            continue;
        made.volume *= e->sizes.axes[i];
        if (e->sizes.axes[i] != 1)
            rs_map_add_axis(axes, &count,
                            (reshard_link_axis){e->sizes.axes[i], from->dim[i], to->dim[i],
                                                from->step[i], to->step[i]});
    }
    for (int32_t i = 0; i < e->sizes.rest_count && from->rest_dim >= 0; i++) {
        made.volume *= e->sizes.rest[i];
        if (e->sizes.rest[i] != 1)
            rs_map_add_axis(
                axes, &count,
                (reshard_link_axis){e->sizes.rest[i], from->rest_dim + i, to->rest_dim + i, 1, 1});
    }
    made.count = rs_map_join_axes(axes, count);
    if (made.count > RESHARD_FACTORS_MAX)
        return rs_map_fail_line(e->line, RESHARD_ERR_RANGE,
                                "a tensor is moved along %d axes; at most %d are possible",
                                (int)made.count, RESHARD_FACTORS_MAX);
    made.axes = rs_arena_copy(&e->r->result->arena, axes, (size_t)made.count, sizeof *axes);
    e->axes[p] = rs_arena_copy(&e->r->result->arena, &made, 1, sizeof made);
    return made.axes != NULL && e->axes[p] != NULL ? RESHARD_OK : rs_allocation_status();
}

/* Where a link begins on one side: at its block, moved by what the other side's name fixes. */
static reshard_status make_start(emission *e, const rs_map_location *location, uint32_t fixed,
                                 const int64_t *values, int32_t ndim, const int64_t **out_at)
{
    int64_t at[RESHARD_NDIM_MAX];
    memcpy(at, location->at, sizeof at);
    for (int32_t c = 0; c < e->line->capture_count; c++) {
        int32_t axis = axis_of_capture(e->line, c);
        if ((fixed >> c & 1) != 0 && axis >= 0 && location->dim[axis] >= 0)
            at[location->dim[axis]] += values[c] * location->step[axis];
    }
    *out_at = rs_arena_copy(&e->r->result->arena, at, (size_t)ndim, sizeof *at);
    return *out_at != NULL ? RESHARD_OK : rs_allocation_status();
}

static reshard_status link_source(emission *e, int64_t source, int64_t target, int32_t target_ndim)
{
    rs_map_source *read = &e->r->result->sources[source];
    const rs_map_claim *claim = &e->r->claims[source];
    int32_t p = claim->place;
    uint32_t family = e->member->family;
    rs_map_link link = {.source = source, .target = target, .axes = e->axes[p]};
    if (link.axes->volume == 0)
        return RESHARD_OK;
    reshard_status status = make_start(e, &e->from[p], e->written->pattern.captures & ~family,
                                       e->values, read->ndim, &link.source_at);
    if (status == RESHARD_OK)
        status = make_start(e, &e->to[p], e->read[p]->pattern.captures & ~family, claim->values,
                            target_ndim, &link.target_at);
    if (status == RESHARD_OK)
        status = rs_map_add_link(e->r, &link);
    read->used += status == RESHARD_OK ? link.axes->volume : 0;
    return status;
}

/* ---- targets --------------------------------------------------------------------------------- */

static reshard_status find_dtype(const emission *e, reshard_dtype *out_dtype)
{
    const rs_map_source *first = &e->r->result->sources[e->member->first];
    *out_dtype = e->written->has_dtype ? e->written->dtype : first->dtype;
    for (int64_t i = e->member->first; i >= 0 && !e->written->has_dtype; i = e->r->claims[i].next) {
        const rs_map_source *source = &e->r->result->sources[i];
        if (source->dtype != first->dtype)
            return rs_map_hint_line(e->line, RESHARD_ERR_INVALID, RESHARD_HINT_DTYPE,
                                    "\"%.*s\" is %s and \"%.*s\" is %s: tensors that are joined "
                                    "have one dtype",
                                    RS_SHOWN(first->name), reshard_dtype_name(first->dtype),
                                    RS_SHOWN(source->name), reshard_dtype_name(source->dtype));
    }
    return RESHARD_OK;
}

static reshard_status emit_target(void *user, const int64_t *values)
{
    emission *e = user;
    reshard_map_result *result = e->r->result;
    int64_t shape[RESHARD_NDIM_MAX];
    rs_slice name;
    reshard_map_target target = {.size = sizeof target,
                                 .link_first = result->link_count,
                                 .line = e->line->number,
                                 .added = e->written->added - e->read[0]->added};
    memcpy(e->values, values, sizeof e->values);
    reshard_status status = rs_map_make_name(e->r, e->line, &e->written->pattern, values, &name);
    if (status == RESHARD_OK)
        status = rs_map_sizes_shape(&e->sizes, e->written, &target.ndim, shape);
    if (status == RESHARD_OK)
        status = find_dtype(e, &target.dtype);
    if (status != RESHARD_OK)
        return status;
    target.name = name.bytes;
    target.shape = rs_arena_copy(&result->arena, shape, (size_t)target.ndim, sizeof *shape);
    if (target.shape == NULL)
        return rs_allocation_status();
    for (int64_t i = e->member->first; i >= 0 && status == RESHARD_OK; i = e->r->claims[i].next)
        status = link_source(e, i, result->target_count, target.ndim);
    target.link_count = result->link_count - target.link_first;
    return status == RESHARD_OK ? rs_map_add_target(e->r, e->line, &target) : status;
}

/* Goes through the values of captures that only the written names have. Their numbers come from
 * sizes here, and not only from `for`. */
static reshard_status emit_place(emission *e, int32_t place)
{
    e->place = place;
    e->written = &e->line->places[e->r->to][place].alternatives[e->member->chosen[place]];
    uint32_t unpacked = e->written->pattern.captures & ~e->member->family;
    int64_t values[RS_MAP_CAPTURES_MAX], total = 1;
    memcpy(values, e->member->values, sizeof values);
    for (int32_t c = 0; c < e->line->capture_count; c++) {
        if ((unpacked >> c & 1) == 0)
            continue;
        int64_t size = e->sizes.axes[axis_of_capture(e->line, c)];
        if (size < 0)
            return rs_map_fail_line(e->line, RESHARD_ERR_NOT_FOUND,
                                    "nothing says how many {%.*s} there are",
                                    RS_SHOWN(e->line->captures[c].name));
        total = rs_multiply_up(total, size);
    }
    if (total > RS_MAP_EXPANSION_MAX)
        return rs_map_fail_line(e->line, RESHARD_ERR_RANGE,
                                "the line makes %" PRId64 " tensors: at most %" PRId64, total,
                                RS_MAP_EXPANSION_MAX);
    reshard_status status = RESHARD_OK;
    for (int32_t p = 0; p < e->line->place_counts[e->r->from] && status == RESHARD_OK; p++)
        status = make_axes(e, p);
    for (int64_t k = 0; k < total && status == RESHARD_OK; k++) {
        int64_t rest = k;
        for (int32_t c = e->line->capture_count - 1; c >= 0; c--) {
            if ((unpacked >> c & 1) == 0)
                continue;
            int64_t size = e->sizes.axes[axis_of_capture(e->line, c)];
            values[c] = rest % size;
            rest /= size;
        }
        status = emit_target(e, values);
    }
    return status;
}

/* What pad() cuts off is no error, and said. */
static void count_surplus(emission *e)
{
    for (int64_t i = e->member->first; i >= 0; i = e->r->claims[i].next) {
        rs_map_source *source = &e->r->result->sources[i];
        const rs_map_term *term = e->read[e->r->claims[i].place];
        source->use = (reshard_map_use){.fate = RESHARD_MAP_USED, .line = e->line->number};
        if (term->pad_axis >= 0)
            source->use.surplus = source->volume - source->used;
    }
}

reshard_status rs_map_emit_member(rs_map_resolver *r, const rs_map_member *member)
{
    emission e = {.r = r, .member = member, .line = &r->map->lines[member->line]};
    reshard_status status = read_places(&e);
    for (int32_t p = 0; p < e.line->place_counts[r->to] && status == RESHARD_OK; p++)
        status = emit_place(&e, p);
    if (status == RESHARD_OK)
        count_surplus(&e);
    return status;
}

/* A tensor of the line * = *: the same name, the same shape, one link. */
reshard_status rs_map_emit_rest(rs_map_resolver *r, int64_t source)
{
    reshard_map_result *result = r->result;
    rs_map_source *read = &result->sources[source];
    const rs_map_line *line = &r->map->lines[r->claims[source].line];
    reshard_map_target target = {.size = sizeof target,
                                 .name = read->name.bytes,
                                 .dtype = read->dtype,
                                 .ndim = read->ndim,
                                 .shape = read->shape,
                                 .link_first = result->link_count,
                                 .link_count = read->volume != 0,
                                 .line = line->number};
    static const int64_t zeros[RESHARD_NDIM_MAX] = {0};
    reshard_link_axis axes[RESHARD_NDIM_MAX];
    rs_map_axes made = {.count = read->ndim, .volume = read->volume};
    for (int32_t d = 0; d < read->ndim; d++)
        axes[d] = (reshard_link_axis){read->shape[d], d, d, 1, 1};
    made.axes = rs_arena_copy(&result->arena, axes, (size_t)read->ndim, sizeof *axes);
    rs_map_link link = {.source = source,
                        .target = result->target_count,
                        .axes = rs_arena_copy(&result->arena, &made, 1, sizeof made),
                        .source_at = zeros,
                        .target_at = zeros};
    if (made.axes == NULL || link.axes == NULL)
        return rs_allocation_status();
    reshard_status status = read->volume != 0 ? rs_map_add_link(r, &link) : RESHARD_OK;
    read->used = read->volume;
    read->use = (reshard_map_use){.fate = RESHARD_MAP_USED, .line = line->number};
    return status == RESHARD_OK ? rs_map_add_target(r, line, &target) : status;
}
