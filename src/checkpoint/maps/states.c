/* SPDX-License-Identifier: Apache-2.0 */
/*
 * states.c - states of optimizers go where their parameters go. Each target that links fill is made
 * once more for each kind of state (exp_avg, step) that its parameters have, by the same links from
 * the states. All parameters of a target must have the same kinds: half of a joined moment cannot
 * be made up.
 */
#include "base/context.h"
#include "base/error.h"
#include "checkpoint/maps/resolve.h"

#include <inttypes.h>
#include <string.h>

/* The states of each parameter, as lists. */
typedef struct state_lists {
    rs_map_resolver *r;
    int64_t *first; /* by source; -1: none */
    int64_t *next;
} state_lists;

bool rs_map_is_state(const rs_map_resolver *r, int64_t source)
{
    return r->states != NULL && r->states[source].parameter >= 0;
}

static bool same_kind(const rs_map_state *a, const rs_map_state *b)
{
    return rs_slice_compare(a->front, b->front) == 0 && rs_slice_compare(a->back, b->back) == 0 &&
           a->same_shape == b->same_shape;
}

/* The state of a parameter that is of the same kind as another state; -1: none. */
static int64_t find_state(const state_lists *lists, int64_t parameter, const rs_map_state *kind)
{
    int64_t found = lists->first[parameter];
    while (found >= 0 && !same_kind(&lists->r->states[found], kind))
        found = lists->next[found];
    return found;
}

static rs_slice name_of(const state_lists *lists, int64_t source)
{
    return lists->r->result->sources[source].name;
}

static int64_t count_states(const state_lists *lists, int64_t parameter)
{
    int64_t count = 0;
    for (int64_t i = lists->first[parameter]; i >= 0; i = lists->next[i])
        count++;
    return count;
}

static reshard_status fail_kinds(const state_lists *lists, const reshard_map_target *target,
                                 int64_t with, int64_t without)
{
    return rs_fail_hint(
        RESHARD_ERR_INVALID, RESHARD_HINT_EXCLUDE, target->name,
        "\"%.200s\" is joined from \"%.*s\", which has optimizer state, and \"%.*s\", which has "
        "other state or none: was it frozen? Leave the state out",
        target->name, rs_slice_shown(name_of(lists, with)), name_of(lists, with).bytes,
        rs_slice_shown(name_of(lists, without)), name_of(lists, without).bytes);
}

/* front + the target's name + back. If states lack the first bytes of their parameter's name
 * ("model."), they lack the same bytes of the target's. */
static reshard_status make_name(const state_lists *lists, const rs_map_state *state,
                                const char *target, const char **out_name)
{
    rs_slice parameter = name_of(lists, state->parameter);
    size_t length = strlen(target), skipped = 0;
    if (state->skipped <= parameter.count && state->skipped <= length &&
        memcmp(parameter.bytes, target, state->skipped) == 0)
        skipped = state->skipped;
    size_t bytes = state->front.count + length - skipped + state->back.count;
    char *name = rs_arena_allocate(&lists->r->result->arena, bytes + 1);
    if (name == NULL)
        return rs_allocation_status();
    memcpy(name, state->front.bytes, state->front.count);
    memcpy(name + state->front.count, target + skipped, length - skipped);
    memcpy(name + bytes - state->back.count, state->back.bytes, state->back.count);
    name[bytes] = '\0';
    *out_name = name;
    return RESHARD_OK;
}

/* One number for a target: that of its first parameter, which those of the others must equal. */
static reshard_status link_number(const state_lists *lists, const reshard_map_target *of,
                                  int64_t first, reshard_map_target *made)
{
    static const int64_t zeros[RESHARD_NDIM_MAX] = {0};
    static const rs_map_axes one = {.volume = 1};
    rs_map_resolver *r = lists->r;
    for (int64_t l = 0; l < of->link_count; l++) {
        int64_t source = r->result->links[of->link_first + l].source;
        int64_t other = find_state(lists, source, &r->states[first]);
        rs_map_source *read = &r->result->sources[other];
        if (read->volume != 1)
            return rs_fail(RESHARD_ERR_INVALID,
                           "\"%.*s\" is neither a single number nor of the same shape as \"%.*s\"",
                           RS_SHOWN(read->name), rs_slice_shown(name_of(lists, source)),
                           name_of(lists, source).bytes);
        if (other != first && read->use.fate == RESHARD_MAP_USED && read->used == 0) {
            read->use.fate = RESHARD_MAP_REPEATED;
            read->use.same_as = first;
        }
    }
    rs_map_source *read = &r->result->sources[first];
    made->ndim = read->ndim;
    made->shape = read->shape;
    made->link_count = 1;
    read->use.fate = RESHARD_MAP_USED;
    read->used = read->volume; /* however often it is used */
    rs_map_link link = {.source = first,
                        .target = r->result->target_count,
                        .axes = &one,
                        .source_at = zeros,
                        .target_at = zeros};
    return rs_map_add_link(r, &link);
}

static reshard_status link_states(const state_lists *lists, const reshard_map_target *of,
                                  int64_t first)
{
    rs_map_resolver *r = lists->r;
    reshard_status status = RESHARD_OK;
    for (int64_t l = 0; l < of->link_count && status == RESHARD_OK; l++) {
        rs_map_link link = r->result->links[of->link_first + l];
        link.source = find_state(lists, link.source, &r->states[first]);
        link.target = r->result->target_count;
        rs_map_source *read = &r->result->sources[link.source];
        if (read->dtype != r->result->sources[first].dtype)
            return rs_fail(RESHARD_ERR_INVALID,
                           "\"%.*s\" and \"%.*s\" would be joined, but their dtypes differ",
                           rs_slice_shown(name_of(lists, first)), name_of(lists, first).bytes,
                           RS_SHOWN(read->name));
        read->used += link.axes->volume;
        status = rs_map_add_link(r, &link);
    }
    return status;
}

/* Makes a target once more, for the kind of state that `state` is. */
static reshard_status make_target(const state_lists *lists, int64_t index, int64_t state)
{
    rs_map_resolver *r = lists->r;
    reshard_map_target of = r->result->targets[index], made = of;
    const rs_map_state *kind = &r->states[state];
    for (int64_t l = 0; l < of.link_count; l++) {
        int64_t source = r->result->links[of.link_first + l].source;
        if (find_state(lists, source, kind) < 0 ||
            count_states(lists, source) != count_states(lists, kind->parameter))
            return fail_kinds(lists, &of, kind->parameter, source);
    }
    made.dtype = r->result->sources[state].dtype;
    made.added = 0; /* a constant that is added to values leaves their moments as they are */
    made.link_first = r->result->link_count;
    reshard_status status = make_name(lists, kind, of.name, &made.name);
    if (status == RESHARD_OK)
        status = kind->same_shape ? link_states(lists, &of, state)
                                  : link_number(lists, &of, state, &made);
    return status == RESHARD_OK
               ? rs_map_add_target(r, &r->map->lines[r->claims[kind->parameter].line], &made)
               : status;
}

/* States of what is left out are left out; the others lose what their parameters lose. */
static void begin_uses(const state_lists *lists)
{
    rs_map_resolver *r = lists->r;
    for (int64_t i = 0; i < r->result->source_count; i++) {
        if (!rs_map_is_state(r, i))
            continue;
        rs_map_source *read = &r->result->sources[i];
        const rs_map_source *parameter = &r->result->sources[r->states[i].parameter];
        read->use = parameter->use;
        read->use.surplus = r->states[i].same_shape ? parameter->use.surplus : 0;
        if (parameter->use.fate != RESHARD_MAP_USED)
            read->use = (reshard_map_use){.fate = RESHARD_MAP_DROPPED, .line = read->use.line};
    }
}

static reshard_status emit(const state_lists *lists)
{
    rs_map_resolver *r = lists->r;
    int64_t count = r->result->target_count;
    begin_uses(lists);
    for (int64_t t = 0; t < count; t++) {
        const reshard_map_target *target = &r->result->targets[t];
        if (target->origin != RESHARD_MAP_LINKS || target->link_count == 0)
            continue;
        int64_t first = r->result->links[target->link_first].source;
        for (int64_t l = 1; l < target->link_count && lists->first[first] < 0; l++) {
            int64_t other = r->result->links[target->link_first + l].source;
            if (lists->first[other] >= 0)
                return fail_kinds(lists, target, other, first);
        }
        for (int64_t s = lists->first[first]; s >= 0; s = lists->next[s]) {
            reshard_status status = make_target(lists, t, s);
            if (status != RESHARD_OK)
                return status;
        }
    }
    return RESHARD_OK;
}

reshard_status rs_map_emit_states(rs_map_resolver *r)
{
    size_t count = (size_t)r->result->source_count;
    if (r->states == NULL)
        return RESHARD_OK;
    state_lists lists = {.r = r};
    lists.first = rs_allocate_array(r->context, count, sizeof *lists.first);
    lists.next = rs_allocate_array(r->context, count, sizeof *lists.next);
    reshard_status status =
        lists.first == NULL || lists.next == NULL ? rs_allocation_status() : RESHARD_OK;
    for (size_t i = 0; i < count && status == RESHARD_OK; i++)
        lists.first[i] = lists.next[i] = -1;
    /* Backwards, so that lists have the order of the tensors. */
    for (int64_t i = (int64_t)count - 1; i >= 0 && status == RESHARD_OK; i--) {
        if (!rs_map_is_state(r, i))
            continue;
        lists.next[i] = lists.first[r->states[i].parameter];
        lists.first[r->states[i].parameter] = i;
    }
    if (status == RESHARD_OK)
        status = emit(&lists);
    rs_release(r->context, lists.first);
    rs_release(r->context, lists.next);
    return status;
}
