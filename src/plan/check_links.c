/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_links.c - see check_links.h. What a link fills is a product of lines, one for each dim of
 * the target. So two links meet if their lines meet in every dim; and two lines meet if one of them
 * has a place in a run of the other.
 */
#include "plan/check_links.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/shape.h"
#include "layout/index.h"
#include "layout/layout.h"

#include <inttypes.h>
#include <string.h>

/* ---- maps ------------------------------------------------------------------------------------ */

static void map_box(const reshard_box *given, const reshard_layout *layout, rs_side_map *map,
                    int64_t *out_size)
{
    map->ndim = layout->ndim;
    for (int32_t d = 0; d < map->ndim; d++) {
        map->origin[d] = given->ndim < 0 ? 0 : given->offset[d];
        out_size[d] = given->ndim < 0 ? layout->shape[d] : given->size[d];
    }
}

/* Takes factors from last to first, and fills dims from last to first. */
static void map_factors(rs_side_map *map, const int64_t *box_size, int32_t count,
                        const int64_t *factors, const int32_t *link_dims)
{
    int32_t d = map->ndim - 1;
    int64_t weight = 1;
    for (int32_t i = count - 1; i >= 0; i--) {
        while (d > 0 && weight == box_size[d] && factors[i] != 1) {
            d--;
            weight = 1;
        }
        map->dim[link_dims[i]] = d;
        map->weight[link_dims[i]] = weight;
        weight *= factors[i];
    }
}

static void map_plain(const reshard_link *link, const reshard_layout *source,
                      const reshard_layout *target, rs_link_map *map)
{
    int64_t sizes[2][RESHARD_NDIM_MAX] = {{0}};
    map_box(&link->source_box, source, &map->source, sizes[0]);
    map_box(&link->target_box, target, &map->target, sizes[1]);
    map->ndim = link->factor_count != 0 ? link->factor_count : map->target.ndim;
    int64_t in_order[RESHARD_FACTORS_MAX];
    int32_t place[RESHARD_FACTORS_MAX], straight[RESHARD_FACTORS_MAX];
    for (int32_t i = 0; i < map->ndim; i++) {
        straight[i] = i;
        if (link->factor_count == 0) {
            map->source.dim[i] = map->target.dim[i] = i;
            map->source.weight[i] = map->target.weight[i] = 1;
            map->size[i] = sizes[1][i];
        } else {
            map->size[i] = in_order[i] = link->factors[link->order[i]];
            place[link->order[i]] = i;
        }
    }
    if (link->factor_count != 0) {
        map_factors(&map->source, sizes[0], link->factor_count, link->factors, place);
        map_factors(&map->target, sizes[1], link->factor_count, in_order, straight);
    }
}

void rs_link_map_make(const rs_given_link *link, const reshard_layout *source,
                      const reshard_layout *target, rs_link_map *out_map)
{
    memset(out_map, 0, sizeof *out_map);
    if (link->strided == NULL) {
        map_plain(&link->plain, source, target, out_map);
        return;
    }
    out_map->ndim = link->strided->axis_count;
    out_map->source.ndim = source->ndim;
    out_map->target.ndim = target->ndim;
    memcpy(out_map->source.origin, link->strided->source_at, sizeof out_map->source.origin);
    memcpy(out_map->target.origin, link->strided->target_at, sizeof out_map->target.origin);
    for (int32_t i = 0; i < out_map->ndim; i++) {
        const reshard_link_axis *axis = &link->strided->axes[i];
        out_map->size[i] = axis->size;
        out_map->source.dim[i] = axis->source_dim;
        out_map->source.weight[i] = axis->source_step;
        out_map->target.dim[i] = axis->target_dim;
        out_map->target.weight[i] = axis->target_step;
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* What a link fills along one dim: origin + the sum of x[i] * weight[i], weights falling. */
typedef struct line {
    int64_t origin;
    int32_t count;
    int64_t size[RESHARD_FACTORS_MAX], weight[RESHARD_FACTORS_MAX];
} line;

static void take_line(const rs_link_map *map, int32_t dim, line *out_line)
{
    out_line->origin = map->target.origin[dim];
    out_line->count = 0;
    for (int32_t i = 0; i < map->ndim; i++) {
        if (map->target.dim[i] != dim || map->size[i] == 1)
            continue;
        int32_t at = out_line->count++;
        for (; at > 0 && out_line->weight[at - 1] < map->target.weight[i]; at--) {
            out_line->weight[at] = out_line->weight[at - 1];
            out_line->size[at] = out_line->size[at - 1];
        }
        out_line->weight[at] = map->target.weight[i];
        out_line->size[at] = map->size[i];
    }
}

/* How many places of a line, from axis `axis` on, lie before `end`, which counts from where these
 * axes begin. */
static int64_t count_before(const line *of, int32_t axis, int64_t end)
{
    if (end <= 0)
        return 0;
    if (axis == of->count)
        return 1;
    int64_t inner = rs_volume(of->count - axis - 1, of->size + axis + 1);
    int64_t whole = rs_min(of->size[axis], end / of->weight[axis]);
    int64_t sum = whole * inner;
    if (whole < of->size[axis])
        sum += count_before(of, axis + 1, end - whole * of->weight[axis]);
    return sum;
}

static int64_t count_between(const line *of, int64_t from, int64_t to)
{
    return count_before(of, 0, to - of->origin) - count_before(of, 0, from - of->origin);
}

int64_t rs_link_map_volume(const rs_link_map *map, const reshard_box *box)
{
    int64_t product = 1;
    for (int32_t d = 0; d < box->ndim; d++) {
        line along;
        take_line(map, d, &along);
        product *= count_between(&along, box->offset[d], box->offset[d] + box->size[d]);
    }
    return product;
}

static int64_t run_count(const line *of)
{
    int32_t outer = of->count - (of->count > 0 && of->weight[of->count - 1] == 1);
    return rs_volume(outer, of->size);
}

/* Whether a run of `a`, from axis `axis` on and beginning at `place`, holds a place of `b`. */
static bool runs_meet(const line *a, int32_t axis, int64_t place, const line *b)
{
    if (axis == a->count)
        return count_between(b, place, place + 1) != 0;
    if (axis == a->count - 1 && a->weight[axis] == 1)
        return count_between(b, place, place + a->size[axis]) != 0;
    for (int64_t i = 0; i < a->size[axis]; i++) {
        if (runs_meet(a, axis + 1, place + i * a->weight[axis], b))
            return true;
    }
    return false;
}

/* ---- the links of a target ------------------------------------------------------------------- */

typedef struct neighbours {
    const rs_link_map *maps;
    int64_t index; /* of the link whose neighbours are visited */
    int32_t ndim, stage, target;
    int64_t *steps; /* taken so far, over the whole stage */
} neighbours;

static reshard_status meet(void *user, int64_t other)
{
    const neighbours *n = user;
    if (other <= n->index) /* each pair once */
        return RESHARD_OK;
    for (int32_t d = 0; d < n->ndim; d++) {
        line a, b;
        take_line(&n->maps[n->index], d, &a);
        take_line(&n->maps[other], d, &b);
        bool swap = run_count(&b) < run_count(&a);
        *n->steps += run_count(swap ? &b : &a);
        if (*n->steps > RS_CHECK_STEPS_MAX)
            return rs_fail(RESHARD_ERR_RANGE,
                           "a check that compares more than %" PRId64 " runs of links is too long",
                           RS_CHECK_STEPS_MAX);
        if (!runs_meet(swap ? &b : &a, 0, swap ? b.origin : a.origin, swap ? &a : &b))
            return RESHARD_OK;
    }
    return rs_fail(RESHARD_ERR_CHECK, "stage %d: two links fill the same element of target %d",
                   n->stage, n->target);
}

/* The smallest box around what a link fills, as low and high ends. */
static void bound(const rs_link_map *map, int64_t *out_box)
{
    int32_t ndim = map->target.ndim;
    for (int32_t d = 0; d < ndim; d++) {
        out_box[d] = map->target.origin[d];
        out_box[ndim + d] = map->target.origin[d] + 1;
    }
    for (int32_t i = 0; i < map->ndim && ndim != 0; i++)
        out_box[ndim + map->target.dim[i]] +=
            map->size[i] == 1 ? 0 : (map->size[i] - 1) * map->target.weight[i];
}

static reshard_status check_disjoint(reshard_context *context, neighbours *n, int64_t count)
{
    rs_arena arena;
    rs_index index;
    rs_arena_init(&arena, context);
    int64_t *boxes =
        rs_arena_allocate_array(&arena, (size_t)count, (size_t)(2 * n->ndim) * sizeof *boxes);
    reshard_status status = boxes == NULL ? rs_allocation_status() : RESHARD_OK;
    for (int64_t i = 0; i < count && status == RESHARD_OK; i++)
        bound(&n->maps[i], boxes + i * 2 * n->ndim);
    if (status == RESHARD_OK)
        status = rs_index_build(&index, &arena, n->ndim, count, boxes);
    for (n->index = 0; n->index < count && status == RESHARD_OK; n->index++) {
        const int64_t *box = boxes + n->index * 2 * n->ndim;
        status = rs_index_visit(&index, box, box + n->ndim, meet, n);
    }
    rs_arena_release(&arena);
    return status;
}

/* Checks the target of link `first`, and marks all links of that target as seen. */
static reshard_status check_filled(reshard_context *context, const rs_stage *stage, int32_t first,
                                   neighbours *n, rs_link_map *maps, char *seen)
{
    const reshard_stage_link *shown = &stage->links[first].shown;
    int64_t volume = rs_volume(shown->target_layout->ndim, shown->target_layout->shape);
    int64_t count = 0, filled = 0;
    for (int32_t l = first; l < stage->link_count; l++) {
        const reshard_stage_link *other = &stage->links[l].shown;
        if (other->target != shown->target ||
            other->target_is_intermediate != shown->target_is_intermediate)
            continue;
        seen[l] = 1;
        const reshard_layout *source =
            other->link < 0 ? other->target_layout : other->source_layout;
        rs_link_map_make(&stage->links[l].link, source, other->target_layout, &maps[count]);
        int64_t part = rs_volume(maps[count].ndim, maps[count].size);
        filled += part;
        count += part != 0;
    }
    if (filled != volume)
        return rs_fail(RESHARD_ERR_CHECK,
                       "stage %d: links fill %" PRId64 " of %" PRId64 " elements of target %d",
                       n->stage, filled, volume, shown->target);
    n->ndim = shown->target_layout->ndim;
    n->target = shown->target;
    return count > 1 ? check_disjoint(context, n, count) : RESHARD_OK;
}

reshard_status rs_check_stage_links(reshard_context *context, const rs_stage *stage,
                                    int32_t stage_index)
{
    size_t count = (size_t)stage->link_count;
    rs_link_map *maps = rs_allocate_array(context, count, sizeof *maps);
    char *seen = rs_allocate_zeroed(context, count);
    reshard_status status = maps == NULL || seen == NULL ? rs_allocation_status() : RESHARD_OK;
    int64_t steps = 0;
    neighbours n = {.maps = maps, .stage = stage_index, .steps = &steps};
    for (int32_t l = 0; l < stage->link_count && status == RESHARD_OK; l++) {
        if (!seen[l])
            status = check_filled(context, stage, l, &n, maps, seen);
    }
    rs_release(context, maps);
    rs_release(context, seen);
    return status;
}
