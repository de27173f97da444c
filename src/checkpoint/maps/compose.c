/* SPDX-License-Identifier: Apache-2.0 */
/*
 * compose.c - two results one after the other, as one. A tensor in between is filled by links of
 * the first and read by links of the second. Where such a pair meets, there are links from the
 * source of one to the target of the other.
 *
 * What a link has of the tensor in between is a product of lines, one for each dim; so is what two
 * links have in common. A line is a list of nested axes. Two lines are compared axis by axis,
 * largest step first:
 *  - If both have the step s, and begin q * s + r apart (0 <= r < s), what lies inside of them
 *    differs by r or by r - s. In either case both axes become one, as far as they overlap.
 *  - If one has a larger step that the other's step divides, the other axis is split at it: into
 *    whole multiples, and a remainder.
 *  - Otherwise the axis with the larger step is gone through element by element.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "checkpoint/maps/resolve.h"

#include <string.h>

/* An axis along a dim of the tensor in between, and its step in the tensor at the other end. */
typedef struct line_axis {
    int64_t size, step;
    int32_t far_dim;
    int64_t far_step;
} line_axis;

enum { LINE_AXES_MAX = 2 * RESHARD_FACTORS_MAX };

typedef struct line {
    int32_t count;
    line_axis axes[LINE_AXES_MAX]; /* by falling step */
} line;

typedef struct composer {
    rs_map_resolver r; /* holds the result that is made; nothing else of it is used */
    const reshard_map_result *first, *second;
    const rs_map_link *in, *out; /* the pair at hand */
    int32_t ndim;                /* of the tensor in between */
    line ins[RESHARD_NDIM_MAX], outs[RESHARD_NDIM_MAX];
    int64_t apart[RESHARD_NDIM_MAX]; /* where `out` begins, seen from `in` */
    int32_t axis_count;
    reshard_link_axis axes[LINE_AXES_MAX];
    int64_t source_at[RESHARD_NDIM_MAX], target_at[RESHARD_NDIM_MAX];
    int64_t target; /* of the composed link */
    int64_t steps;  /* of the pair at hand */
} composer;

/* ---- meeting lines --------------------------------------------------------------------------- */

static reshard_status meet(composer *c, int32_t dim, const line *a, const line *b, int64_t apart);

static reshard_status emit_link(composer *c)
{
    reshard_link_axis axes[LINE_AXES_MAX];
    int32_t count = 0;
    reshard_map_result *result = c->r.result;
    rs_map_axes made = {.volume = 1};
    for (int32_t i = 0; i < c->axis_count; i++) {
        made.volume *= c->axes[i].size;
        rs_map_add_axis(axes, &count, c->axes[i]);
    }
    made.count = rs_map_join_axes(axes, count);
    if (made.count > RESHARD_FACTORS_MAX)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "a tensor would be moved along %d axes at once (at most %d are possible); "
                       "convert in two steps",
                       (int)made.count, RESHARD_FACTORS_MAX);
    rs_map_source *source = &result->sources[c->in->source];
    made.axes = rs_arena_copy(&result->arena, axes, (size_t)made.count, sizeof *axes);
    rs_map_link link = {
        .source = c->in->source,
        .target = c->target,
        .axes = rs_arena_copy(&result->arena, &made, 1, sizeof made),
        .source_at =
            rs_arena_copy(&result->arena, c->source_at, (size_t)source->ndim, sizeof(int64_t)),
        .target_at = rs_arena_copy(&result->arena, c->target_at,
                                   (size_t)c->second->targets[c->target].ndim, sizeof(int64_t)),
    };
    if (made.axes == NULL || link.axes == NULL || link.source_at == NULL || link.target_at == NULL)
        return rs_allocation_status();
    source->used += made.volume;
    return rs_map_add_link(&c->r, &link);
}

static reshard_status next_dim(composer *c, int32_t dim)
{
    return dim == c->ndim ? emit_link(c) : meet(c, dim, &c->ins[dim], &c->outs[dim], c->apart[dim]);
}

static line without_first(const line *of)
{
    line rest = {.count = of->count - 1};
    memcpy(rest.axes, of->axes + 1, (size_t)rest.count * sizeof *rest.axes);
    return rest;
}

/* Both lines begin with the same step. */
static reshard_status meet_equal(composer *c, int32_t dim, const line *a, const line *b,
                                 int64_t apart)
{
    const line_axis *x = &a->axes[0], *y = &b->axes[0];
    int64_t step = x->step, r = apart % step, q = apart / step;
    line inner_a = without_first(a), inner_b = without_first(b);
    if (r < 0) {
        r += step;
        q--;
    }
    for (int64_t k = 0; k < 2; k++) {
        /* x = y + q + k */
        int64_t from = rs_max(0, -(q + k)), to = rs_min(y->size, x->size - q - k);
        if (from >= to)
            continue;
        int64_t source_from = c->source_at[x->far_dim], target_from = c->target_at[y->far_dim];
        int32_t axis_count = c->axis_count;
        c->source_at[x->far_dim] += (from + q + k) * x->far_step;
        c->target_at[y->far_dim] += from * y->far_step;
        if (to - from > 1)
            c->axes[c->axis_count++] =
                (reshard_link_axis){to - from, x->far_dim, y->far_dim, x->far_step, y->far_step};
        reshard_status status = meet(c, dim, &inner_a, &inner_b, r - k * step);
        c->source_at[x->far_dim] = source_from;
        c->target_at[y->far_dim] = target_from;
        c->axis_count = axis_count;
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

/* Splits the first axis of a line at a larger step: a line of whole multiples, and one that has the
 * remainder, which begins `*out_passed` elements of the axis later. Either may be empty (count
 * -1). */
static void split(const line *of, int64_t step, line *out_whole, line *out_rest,
                  int64_t *out_passed)
{
    line_axis axis = of->axes[0];
    int64_t radix = step / axis.step;
    line inner = without_first(of);
    line *parts[2] = {out_whole, out_rest};
    int64_t outer[2] = {axis.size / radix, 1}, sizes[2] = {radix, axis.size % radix};
    *out_passed = outer[0] * radix;
    for (int i = 0; i < 2; i++) {
        parts[i]->count = -1;
        if (outer[i] == 0 || sizes[i] == 0)
            continue;
        parts[i]->axes[0] = (line_axis){outer[i], step, axis.far_dim, axis.far_step * radix};
        parts[i]->axes[1] = (line_axis){sizes[i], axis.step, axis.far_dim, axis.far_step};
        memcpy(parts[i]->axes + 2, inner.axes, (size_t)inner.count * sizeof *inner.axes);
        parts[i]->count = inner.count + 2;
    }
}

/* `larger` begins with a larger step than `smaller`. is_in: `larger` belongs to the link into the
 * tensor. */
static reshard_status meet_unequal(composer *c, int32_t dim, const line *larger,
                                   const line *smaller, int64_t apart, bool is_in)
{
    const line_axis *outer = &larger->axes[0], *axis = &smaller->axes[0];
    reshard_status status = RESHARD_OK;
    if (outer->step % axis->step == 0 && smaller->count + 1 < LINE_AXES_MAX) {
        line parts[2];
        int64_t passed;
        split(smaller, outer->step, &parts[0], &parts[1], &passed);
        for (int i = 0; i < 2 && status == RESHARD_OK; i++) {
            int64_t moved = i == 0 ? 0 : passed;
            int64_t *at = is_in ? c->target_at : c->source_at;
            if (parts[i].count < 0)
                continue;
            at[axis->far_dim] += moved * axis->far_step;
            status = is_in ? meet(c, dim, larger, &parts[i], apart + moved * axis->step)
                           : meet(c, dim, &parts[i], larger, apart - moved * axis->step);
            at[axis->far_dim] -= moved * axis->far_step;
        }
        return status;
    }
    line inner = without_first(larger);
    int64_t *at = is_in ? c->source_at : c->target_at;
    for (int64_t i = 0; i < outer->size && status == RESHARD_OK; i++) {
        at[outer->far_dim] += i * outer->far_step;
        status = is_in ? meet(c, dim, &inner, smaller, apart - i * outer->step)
                       : meet(c, dim, smaller, &inner, apart + i * outer->step);
        at[outer->far_dim] -= i * outer->far_step;
    }
    return status;
}

/* The places that two lines share, where b begins `apart` behind a. */
static reshard_status meet(composer *c, int32_t dim, const line *a, const line *b, int64_t apart)
{
    if (++c->steps > RS_MAP_COMPOSE_STEPS_MAX || c->axis_count == LINE_AXES_MAX)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "\"%.200s\" is arranged so differently by the two maps that they cannot be "
                       "joined: convert in two steps",
                       c->first->targets[c->in->target].name);
    if (a->count == 0 && b->count == 0)
        return apart == 0 ? next_dim(c, dim + 1) : RESHARD_OK;
    if (a->count == 0 || b->count == 0) {
        /* A line without axes has one place: an axis of one element of any step. */
        const line *other = a->count == 0 ? b : a;
        line one = {.count = 1};
        one.axes[0] = (line_axis){1, other->axes[0].step, 0, 0};
        return meet_equal(c, dim, a->count == 0 ? &one : a, b->count == 0 ? &one : b, apart);
    }
    if (a->axes[0].step == b->axes[0].step)
        return meet_equal(c, dim, a, b, apart);
    return a->axes[0].step > b->axes[0].step ? meet_unequal(c, dim, a, b, apart, true)
                                             : meet_unequal(c, dim, b, a, apart, false);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

static void take_lines(const rs_map_axes *axes, bool is_in, line *lines)
{
    for (int32_t d = 0; d < RESHARD_NDIM_MAX; d++)
        lines[d].count = 0;
    for (int32_t i = 0; i < axes->count; i++) {
        const reshard_link_axis *axis = &axes->axes[i];
        line *to = &lines[is_in ? axis->target_dim : axis->source_dim];
        line_axis made =
            is_in ? (line_axis){axis->size, axis->target_step, axis->source_dim, axis->source_step}
                  : (line_axis){axis->size, axis->source_step, axis->target_dim, axis->target_step};
        int32_t at = to->count++;
        for (; at > 0 && to->axes[at - 1].step < made.step; at--)
            to->axes[at] = to->axes[at - 1];
        to->axes[at] = made;
    }
}

static reshard_status compose_pair(composer *c, const rs_map_link *in, const rs_map_link *out)
{
    c->in = in;
    c->out = out;
    c->axis_count = 0;
    c->steps = 0;
    c->ndim = c->first->targets[in->target].ndim;
    take_lines(in->axes, true, c->ins);
    take_lines(out->axes, false, c->outs);
    memset(c->source_at, 0, sizeof c->source_at);
    memset(c->target_at, 0, sizeof c->target_at);
    memcpy(c->source_at, in->source_at,
           (size_t)c->first->sources[in->source].ndim * sizeof(int64_t));
    memcpy(c->target_at, out->target_at,
           (size_t)c->second->targets[out->target].ndim * sizeof(int64_t));
    for (int32_t d = 0; d < c->ndim; d++)
        c->apart[d] = out->source_at[d] - in->target_at[d];
    return next_dim(c, 0);
}

static reshard_status compose_target(composer *c, int64_t index)
{
    reshard_map_target target = c->second->targets[index];
    reshard_map_result *result = c->r.result;
    c->target = index;
    int64_t link_first = result->link_count;
    for (int64_t l = 0; l < target.link_count; l++) {
        const rs_map_link *out = &c->second->links[target.link_first + l];
        const reshard_map_target *between = &c->first->targets[out->source];
        if (between->added != 0 || between->origin == RESHARD_MAP_FILL ||
            between->origin == RESHARD_MAP_OBJECT)
            return rs_fail(RESHARD_ERR_UNSUPPORTED,
                           "\"%.200s\" is made of \"%.200s\", %s: convert in two steps",
                           target.name, between->name,
                           between->added != 0 ? "which adds to values" : "which is a constant");
        for (int64_t k = 0; k < between->link_count; k++) {
            reshard_status status = compose_pair(c, &c->first->links[between->link_first + k], out);
            if (status != RESHARD_OK)
                return status;
        }
    }
    target.link_first = link_first;
    target.link_count = result->link_count - link_first;
    reshard_status status = rs_grow(result->context, &result->targets, &result->target_capacity,
                                    result->target_count + 1, sizeof *result->targets);
    if (status != RESHARD_OK)
        return status;
    size_t bytes = strlen(target.name) + 1;
    target.name = rs_arena_copy(&result->arena, target.name, bytes, 1);
    target.shape =
        rs_arena_copy(&result->arena, target.shape, (size_t)target.ndim, sizeof *target.shape);
    if (c->r.file == NULL || strcmp(c->r.file, target.file) != 0) {
        c->r.file = target.file;
        c->r.file_kept = rs_arena_copy(&result->arena, target.file, strlen(target.file) + 1, 1);
    }
    target.file = c->r.file_kept;
    if (target.name == NULL || target.shape == NULL || target.file == NULL)
        return rs_allocation_status();
    result->targets[result->target_count++] = target;
    return RESHARD_OK;
}

/* ---- what becomes of sources ----------------------------------------------------------------- */

/* The source that a tensor in between is, unchanged; -1: none. */
static int64_t same_source(const reshard_map_result *first, int64_t between)
{
    const reshard_map_target *target = &first->targets[between];
    if (target->link_count != 1)
        return -1;
    const rs_map_link *link = &first->links[target->link_first];
    const rs_map_source *source = &first->sources[link->source];
    bool same = source->ndim == target->ndim && source->volume == link->axes->volume;
    for (int32_t d = 0; d < source->ndim && same; d++)
        same = source->shape[d] == target->shape[d];
    for (int32_t i = 0; i < link->axes->count && same; i++)
        same = link->axes->axes[i].source_dim == link->axes->axes[i].target_dim &&
               link->axes->axes[i].source_step == link->axes->axes[i].target_step;
    return same ? link->source : -1;
}

/* What the second map expects of a tensor in between becomes an expectation of a source, or is
 * known to hold. */
static reshard_status pass_expectation(const composer *c, int64_t between)
{
    const reshard_map_use *use = &c->second->sources[between].use;
    const reshard_map_target *made = &c->first->targets[between];
    if (use->fate != RESHARD_MAP_EXPECTED && use->fate != RESHARD_MAP_REPEATED)
        return RESHARD_OK;
    if (use->fate == RESHARD_MAP_EXPECTED && made->origin == RESHARD_MAP_FILL &&
        made->value == use->value)
        return RESHARD_OK;
    if (use->fate == RESHARD_MAP_REPEATED && made->origin == RESHARD_MAP_COPY &&
        made->copied == use->same_as)
        return RESHARD_OK;
    int64_t source = same_source(c->first, between);
    int64_t other = use->fate == RESHARD_MAP_REPEATED ? same_source(c->first, use->same_as) : 0;
    if (use->fate == RESHARD_MAP_REPEATED && source >= 0 && source == other)
        return RESHARD_OK;
    /* A source can be compared once. */
    reshard_map_use *kept = source >= 0 ? &c->r.result->sources[source].use : NULL;
    bool is_taken =
        kept != NULL &&
        (kept->fate == RESHARD_MAP_EXPECTED || kept->fate == RESHARD_MAP_REPEATED) &&
        (kept->fate != use->fate || kept->value != use->value || kept->same_as != other);
    if (kept == NULL || other < 0 || is_taken)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "\"%.200s\" has to be compared, and only exists in between: convert in two "
                       "steps",
                       made->name);
    *kept = *use;
    kept->same_as = other;
    return RESHARD_OK;
}

static void finish_uses(const composer *c)
{
    for (int64_t i = 0; i < c->first->source_count; i++) {
        rs_map_source *source = &c->r.result->sources[i];
        if (source->use.fate != RESHARD_MAP_USED)
            continue;
        if (source->used == 0 && source->volume != 0)
            source->use.fate = RESHARD_MAP_DROPPED;
        else
            /* A number may go to several targets. */
            source->use.surplus = rs_max(0, source->volume - source->used);
    }
}

/* ---- results --------------------------------------------------------------------------------- */

static reshard_status check_between(const reshard_map_result *first,
                                    const reshard_map_result *second)
{
    bool same = first->target_count == second->source_count;
    for (int64_t i = 0; i < first->target_count && same; i++) {
        const reshard_map_target *target = &first->targets[i];
        const rs_map_source *source = &second->sources[i];
        same = strcmp(target->name, source->name.bytes) == 0 && target->ndim == source->ndim &&
               (target->ndim == 0 || memcmp(target->shape, source->shape,
                                            (size_t)target->ndim * sizeof *target->shape) == 0);
    }
    return same ? RESHARD_OK
                : rs_fail(RESHARD_ERR_INVALID,
                          "the second map was not resolved on what the first one makes");
}

static reshard_status copy_sources(const reshard_map_result *from, reshard_map_result *to)
{
    to->sources =
        rs_arena_copy(&to->arena, from->sources, (size_t)from->source_count, sizeof *to->sources);
    if (to->sources == NULL)
        return rs_allocation_status();
    to->source_count = from->source_count;
    for (int64_t i = 0; i < to->source_count; i++) {
        rs_map_source *source = &to->sources[i];
        source->used = 0;
        source->name.bytes =
            rs_arena_copy(&to->arena, source->name.bytes, source->name.count + 1, 1);
        source->shape =
            rs_arena_copy(&to->arena, source->shape, (size_t)source->ndim, sizeof *source->shape);
        if (source->name.bytes == NULL || source->shape == NULL)
            return rs_allocation_status();
    }
    return RESHARD_OK;
}

reshard_status rs_map_compose(const reshard_map_result *first, const reshard_map_result *second,
                              reshard_map_result **out_result)
{
    reshard_status status = check_between(first, second);
    if (status != RESHARD_OK)
        return status;
    reshard_map_result *result = rs_allocate_zeroed(first->context, sizeof *result);
    if (result == NULL)
        return rs_allocation_status();
    result->context = first->context;
    rs_arena_init(&result->arena, result->context);
    composer *c = rs_allocate_zeroed(first->context, sizeof *c);
    status = c == NULL ? rs_allocation_status() : copy_sources(first, result);
    if (status == RESHARD_OK) {
        c->first = first;
        c->second = second;
        c->r.result = result;
    }
    for (int64_t t = 0; t < second->target_count && status == RESHARD_OK; t++)
        status = compose_target(c, t);
    if (status == RESHARD_OK)
        finish_uses(c);
    for (int64_t i = 0; i < second->source_count && status == RESHARD_OK; i++)
        status = pass_expectation(c, i);
    rs_release(first->context, c);
    if (status != RESHARD_OK) {
        reshard_map_result_destroy(result);
        return status;
    }
    *out_result = result;
    return RESHARD_OK;
}
