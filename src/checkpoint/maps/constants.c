/* SPDX-License-Identifier: Apache-2.0 */
/*
 * constants.c - lines that only one side has: drop, fill, copy, object. Those of the written side
 * make targets; copies come last, because they repeat other targets. Those of the read side say
 * what becomes of the tensors that they claimed.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "checkpoint/maps/resolve.h"

#include <inttypes.h>
#include <string.h>

typedef struct maker {
    rs_map_resolver *r;
    const rs_map_line *line;
    const rs_map_term *term;
} maker;

static reshard_status repeat_target(const maker *m, const int64_t *values,
                                    reshard_map_target *target)
{
    rs_map_resolver *r = m->r;
    rs_slice name;
    reshard_status status = rs_map_make_name(r, m->line, &m->term->copied, values, &name);
    if (status != RESHARD_OK)
        return status;
    void **found = rs_table_at(&r->made, name.bytes, name.count);
    if (found == NULL)
        return rs_allocation_status();
    if (*found == NULL)
        return rs_map_fail_line(m->line, RESHARD_ERR_NOT_FOUND,
                                "copy(%.*s): no line makes this tensor", RS_SHOWN(name));
    const char *own = target->name;
    int64_t copied = (int64_t)(intptr_t)*found - 1;
    *target = r->result->targets[copied];
    target->name = own;
    target->line = m->line->number;
    target->copied = copied;
    target->origin = RESHARD_MAP_COPY;
    target->link_first = r->result->link_count;
    for (int64_t i = 0; i < target->link_count && status == RESHARD_OK; i++) {
        rs_map_link link = r->result->links[r->result->targets[copied].link_first + i];
        link.target = r->result->target_count;
        status = rs_map_add_link(r, &link);
    }
    return status;
}

static reshard_status make_target(void *user, const int64_t *values)
{
    const maker *m = user;
    rs_map_resolver *r = m->r;
    bool holds;
    rs_slice name;
    int64_t shape[RESHARD_NDIM_MAX];
    reshard_status status =
        rs_map_line_holds(r, m->line, m->term->pattern.captures, values, &holds);
    if (status != RESHARD_OK || !holds)
        return status;
    status = rs_map_make_name(r, m->line, &m->term->pattern, values, &name);
    if (status != RESHARD_OK)
        return status;
    reshard_map_target target = {.size = sizeof target,
                                 .name = name.bytes,
                                 .dtype = m->term->has_dtype ? m->term->dtype : RESHARD_F32,
                                 .value = m->term->value,
                                 .link_first = r->result->link_count,
                                 .line = m->line->number};
    if (m->term->word == RS_TERM_COPY) {
        status = repeat_target(m, values, &target);
    } else if (m->term->word == RS_TERM_OBJECT) {
        target.origin = RESHARD_MAP_OBJECT;
    } else {
        rs_map_sizes sizes;
        target.origin = RESHARD_MAP_FILL;
        rs_map_sizes_init(&sizes, r, m->line);
        status = rs_map_sizes_shape(&sizes, m->term, &target.ndim, shape);
        target.shape = rs_arena_copy(&r->result->arena, shape,
                                     status == RESHARD_OK ? (size_t)target.ndim : 0, sizeof *shape);
        if (status == RESHARD_OK && target.shape == NULL)
            status = rs_allocation_status();
    }
    return status == RESHARD_OK ? rs_map_add_target(r, m->line, &target) : status;
}

static reshard_status make_line(rs_map_resolver *r, const rs_map_line *line, bool copies)
{
    reshard_status status = RESHARD_OK;
    for (int32_t p = 0; p < line->place_counts[r->to] && status == RESHARD_OK; p++) {
        maker m = {r, line, &line->places[r->to][p].alternatives[0]};
        int64_t values[RS_MAP_CAPTURES_MAX] = {0};
        if (m.term->word == RS_TERM_DROP || (m.term->word == RS_TERM_COPY) != copies)
            continue;
        status = rs_map_each_value(r, line, m.term->pattern.captures, values, make_target, &m);
    }
    return status;
}

/* ---- the read side --------------------------------------------------------------------------- */

static reshard_status use_source(rs_map_resolver *r, int64_t source)
{
    const rs_map_claim *claim = &r->claims[source];
    const rs_map_line *line = &r->map->lines[claim->line];
    const rs_map_term *term = &line->places[r->from][claim->place].alternatives[0];
    rs_map_source *read = &r->result->sources[source];
    read->use = (reshard_map_use){.fate = RESHARD_MAP_DROPPED, .line = line->number};
    if (term->word == RS_TERM_FILL) {
        rs_map_sizes sizes;
        bool learned;
        read->use.fate = RESHARD_MAP_EXPECTED;
        read->use.value = term->value;
        rs_map_sizes_init(&sizes, r, line);
        return rs_map_sizes_learn(&sizes, term, read, &learned);
    }
    if (term->word != RS_TERM_COPY)
        return RESHARD_OK;
    rs_slice name;
    reshard_status status = rs_map_make_name(r, line, &term->copied, claim->values, &name);
    if (status != RESHARD_OK)
        return status;
    void **found = rs_table_at(&r->names, name.bytes, name.count);
    if (found == NULL)
        return rs_allocation_status();
    if (*found == NULL)
        return rs_map_fail_line(line, RESHARD_ERR_NOT_FOUND,
                                "\"%.*s\" is a copy of \"%.*s\", which does not exist",
                                RS_SHOWN(read->name), RS_SHOWN(name));
    read->use.fate = RESHARD_MAP_REPEATED;
    read->use.same_as = (int64_t)(intptr_t)*found - 1;
    const rs_map_source *other = &r->result->sources[read->use.same_as];
    if (other->ndim != read->ndim || other->dtype != read->dtype ||
        memcmp(other->shape, read->shape, (size_t)read->ndim * sizeof *read->shape) != 0)
        return rs_map_fail_line(line, RESHARD_ERR_INVALID,
                                "\"%.*s\" cannot be a copy of \"%.*s\": shape or dtype differ",
                                RS_SHOWN(read->name), RS_SHOWN(name));
    return RESHARD_OK;
}

reshard_status rs_map_emit_constants(rs_map_resolver *r)
{
    reshard_status status = RESHARD_OK;
    for (int copies = 0; copies < 2; copies++) {
        for (int32_t i = 0; i < r->map->line_count && status == RESHARD_OK; i++) {
            const rs_map_line *line = &r->map->lines[i];
            if (!line->is_rest && line->place_counts[r->from] == 0)
                status = make_line(r, line, copies == 1);
        }
    }
    for (int64_t i = 0; i < r->result->source_count && status == RESHARD_OK; i++) {
        if (rs_map_is_state(r, i))
            continue;
        const rs_map_line *line = &r->map->lines[r->claims[i].line];
        if (!line->is_rest && line->place_counts[r->to] == 0)
            status = use_source(r, i);
    }
    return status;
}
