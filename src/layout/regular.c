/* SPDX-License-Identifier: Apache-2.0 */
/*
 * regular.c - layouts made from cuts, kept as arithmetic.
 *
 * In each dim, a rank's coordinates select a list of intervals (the spans of the dim's chain), and
 * the rank holds the product of these lists. Dims are independent of each other, so regions are
 * found dim by dim. A flat chain then cuts the row-major order of that product: its spans become
 * boxes of the local block (flat.h), which are clipped to the dims' intervals.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/shape.h"
#include "base/sort.h"
#include "layout/flat.h"
#include "layout/layout.h"

#include <stdlib.h>
#include <string.h>

/* ---- creation -------------------------------------------------------------------------------- */

static reshard_status add_starts(rs_arena *arena, rs_cut *cut)
{
    int64_t *starts = rs_arena_allocate_array(arena, (size_t)cut->value_count + 1, sizeof *starts);
    if (starts == NULL)
        return rs_allocation_status();
    starts[0] = 0;
    for (int32_t i = 0; i < cut->value_count; i++) {
        if (!rs_add(starts[i], cut->values[i], &starts[i + 1]))
            return rs_fail(RESHARD_ERR_RANGE, "sizes add up to more than 2^63-1");
    }
    cut->starts = starts;
    return RESHARD_OK;
}

static reshard_status make_cut(reshard_layout *layout, const reshard_cut *given, rs_cut *cut)
{
    const reshard_placement *placement = &given->placement;
    int32_t size = layout->axes[given->axis].size;
    *cut = (rs_cut){
        .axis = given->axis,
        .coordinate_count = size,
        .piece_count = size,
        .rule = placement->rule,
        .factor = placement->factor,
        .unit = rs_max(1, placement->unit),
        .value_count = placement->count,
        .values = placement->values,
        .part_max = placement->rule == RESHARD_PACKED ? placement->part_max : NULL,
    };
    if (placement->max != 0)
        cut->piece_count = (int32_t)rs_min(size, placement->max);
    if (cut->rule == RESHARD_RAGGED || cut->rule == RESHARD_PACKED)
        return add_starts(&layout->arena, cut);
    return RESHARD_OK;
}

/* Appends a cut to a chain. Chains are short, so each append copies the array. */
static reshard_status append_cut(reshard_layout *layout, rs_chain *chain, const reshard_cut *given)
{
    rs_cut *cuts = rs_arena_allocate_array(&layout->arena, (size_t)chain->count + 1, sizeof *cuts);
    if (cuts == NULL)
        return rs_allocation_status();
    if (chain->count != 0)
        memcpy(cuts, chain->cuts, (size_t)chain->count * sizeof *cuts);
    reshard_status status = make_cut(layout, given, &cuts[chain->count]);
    if (status == RESHARD_OK) {
        chain->cuts = cuts;
        chain->count++;
    }
    return status;
}

static reshard_status add_shard_cut(reshard_layout *layout, const reshard_cut *given)
{
    int32_t dim = given->placement.dim;
    if (dim == RESHARD_DIM_FLAT)
        return append_cut(layout, &layout->flat, given);
    if (layout->flat.count != 0)
        return rs_fail(RESHARD_ERR_INVALID,
                       "dimension %d is cut after S(flat), which leaves no dimensions", dim);
    if (dim < -layout->ndim || dim >= layout->ndim)
        return rs_fail(RESHARD_ERR_INVALID,
                       "dimension %d does not exist in a tensor of %d dimensions", dim,
                       layout->ndim);
    if (dim < 0)
        dim += layout->ndim;
    return append_cut(layout, &layout->dims[dim], given);
}

static reshard_status add_cut(reshard_layout *layout, const reshard_cut *given)
{
    rs_axis *axis = &layout->axes[given->axis];
    const reshard_placement *placement = &given->placement;
    switch (placement->kind) {
    case RESHARD_REPLICATE:
        return RESHARD_OK;
    case RESHARD_AT:
        axis->role = RS_AXIS_AT;
        axis->at_count = placement->count;
        axis->at = placement->values;
        return RESHARD_OK;
    case RESHARD_PARTIAL:
        axis->role = RS_AXIS_PARTIAL;
        layout->contributor_count *= axis->size;
        if (placement->reduction == RESHARD_AVG)
            layout->divisor *= axis->size;
        /* sums and averages together are an average with another divisor; other reductions do not
         * mix */
        if (!layout->partial || placement->reduction == RESHARD_AVG)
            layout->reduction = placement->reduction;
        layout->partial = true;
        return RESHARD_OK;
    case RESHARD_SHARD:
        axis->role = RS_AXIS_CUT;
        return add_shard_cut(layout, given);
    }
    return rs_fail(RESHARD_ERR_INVALID, "placement kind %d is not known", (int)placement->kind);
}

/* The next coordinate to look at if only the extreme lengths matter. Except for RAGGED, no rule
 * gives a later coordinate more than an earlier one, so the first and the last have the
 * extremes. */
static int32_t next_extreme(const rs_cut *cut, int32_t coordinate)
{
    int32_t last = cut->coordinate_count - 1;
    return cut->rule == RESHARD_RAGGED || coordinate >= last ? coordinate + 1 : last;
}

/* Ragged sizes and parts must add up to the length that the cuts before them leave, at every
 * coordinate. So all these lengths must be equal, and checking the extremes is enough. */
static reshard_status check_level(const rs_chain *chain, int32_t level, int64_t n)
{
    reshard_status status = rs_cut_check(&chain->cuts[level], n);
    if (status != RESHARD_OK || level + 1 == chain->count)
        return status;
    const rs_cut *cut = &chain->cuts[level];
    int64_t checked = -1;
    for (int32_t c = 0; c < cut->coordinate_count && status == RESHARD_OK;
         c = next_extreme(cut, c)) {
        int64_t length = rs_cut_length(cut, n, c);
        if (length != checked)
            status = check_level(chain, level + 1, length);
        checked = length;
    }
    return status;
}

static bool needs_check(const rs_chain *chain)
{
    for (int32_t i = 0; i < chain->count; i++) {
        if (chain->cuts[i].rule == RESHARD_RAGGED || chain->cuts[i].rule == RESHARD_PACKED ||
            chain->cuts[i].rule == RESHARD_CYCLIC)
            return true;
    }
    return false;
}

/* Flat sizes must add up to the volume of the local block, at every combination of coordinates.
 * Again the extremes are enough. */
static reshard_status check_flat(const reshard_layout *layout, int32_t dim, int64_t volume)
{
    if (dim == layout->ndim)
        return check_level(&layout->flat, 0, volume);
    const rs_chain *chain = &layout->dims[dim];
    if (chain->count == 0)
        return check_flat(layout, dim + 1, volume * layout->shape[dim]);
    int32_t coordinates[RESHARD_AXES_MAX] = {0};
    int64_t checked = -1;
    reshard_status status = RESHARD_OK;
    for (;;) {
        int64_t length = rs_chain_length(chain, layout->shape[dim], coordinates);
        if (length != checked)
            status = check_flat(layout, dim + 1, volume * length);
        checked = length;
        int32_t level = chain->count - 1;
        while (level >= 0 &&
               (coordinates[level] = next_extreme(&chain->cuts[level], coordinates[level])) ==
                   chain->cuts[level].coordinate_count)
            coordinates[level--] = 0;
        if (level < 0 || status != RESHARD_OK)
            return status;
    }
}

static reshard_status check_chains(const reshard_layout *layout)
{
    for (int32_t d = 0; d < layout->ndim; d++) {
        const rs_chain *chain = &layout->dims[d];
        if (!needs_check(chain))
            continue;
        reshard_status status = check_level(chain, 0, layout->shape[d]);
        if (status != RESHARD_OK)
            return rs_fail_within(status, "dimension %d", d);
    }
    if (layout->flat.count != 0 && needs_check(&layout->flat))
        return rs_fail_within(check_flat(layout, 0, 1), "S(flat)");
    return RESHARD_OK;
}

/* A single piece is the whole line under every rule, and the chunk rule finds it as one span. */
static void simplify_chain(const rs_chain *chain)
{
    for (int32_t i = 0; i < chain->count; i++) {
        if (chain->cuts[i].piece_count == 1)
            chain->cuts[i].rule = RESHARD_CHUNK;
    }
}

reshard_status rs_regular_init(reshard_layout *layout)
{
    const reshard_spec *spec = layout->spec;
    layout->mesh = spec->mesh;
    layout->axis_count = spec->mesh->axis_count;
    layout->contributor_count = 1;
    layout->divisor = 1;
    for (int32_t a = 0; a < layout->axis_count; a++)
        layout->axes[a] = (rs_axis){
            .role = RS_AXIS_COPIES, .size = spec->mesh->sizes[a], .stride = spec->mesh->strides[a]};
    for (int32_t i = 0; i < spec->cut_count; i++) {
        reshard_status status = add_cut(layout, &spec->cuts[i]);
        if (status != RESHARD_OK)
            return status;
    }
    reshard_status status = check_chains(layout);
    for (int32_t d = 0; d < layout->ndim; d++)
        simplify_chain(&layout->dims[d]);
    simplify_chain(&layout->flat);
    return status;
}

static bool deals_parts_differently(const rs_cut *cut)
{
    for (int32_t i = 0;
         cut->rule == RESHARD_PACKED && cut->part_max != NULL && i < cut->value_count; i++) {
        if (cut->part_max[i] != 0 && cut->part_max[i] < cut->piece_count)
            return true;
    }
    return false;
}

bool rs_regular_is_tangled(const reshard_layout *layout)
{
    for (int32_t d = 0; d <= layout->ndim; d++) {
        const rs_chain *chain = d < layout->ndim ? &layout->dims[d] : &layout->flat;
        bool is_last = d == layout->ndim || layout->flat.count == 0;
        for (int32_t i = 0; i < chain->count; i++) {
            bool cut_again = i + 1 < chain->count || !is_last;
            if (cut_again && deals_parts_differently(&chain->cuts[i]))
                return true;
        }
    }
    return false;
}

/* ---- coordinates and holders ----------------------------------------------------------------- */

int32_t rs_axis_index(const rs_axis *axis, int32_t coordinate)
{
    if (axis->role != RS_AXIS_AT)
        return coordinate;
    int64_t wanted = coordinate;
    const int64_t *found =
        bsearch(&wanted, axis->at, (size_t)axis->at_count, sizeof wanted, rs_compare_i64);
    return found != NULL ? (int32_t)(found - axis->at) : -1;
}

bool rs_layout_coordinates(const reshard_layout *layout, int32_t rank, int32_t *out_coordinates)
{
    int32_t position = reshard_mesh_position_of(layout->mesh, rank);
    if (position < 0)
        return false;
    for (int32_t a = 0; a < layout->axis_count; a++) {
        const rs_axis *axis = &layout->axes[a];
        out_coordinates[a] = position / axis->stride % axis->size;
        if (rs_axis_index(axis, out_coordinates[a]) < 0)
            return false;
    }
    return true;
}

void rs_chain_coordinates(const rs_chain *chain, const int32_t *coordinates, int32_t *out_by_level)
{
    for (int32_t i = 0; i < chain->count; i++)
        out_by_level[i] = coordinates[chain->cuts[i].axis];
}

/* Starts a region: axes that are not cut have all their holders. The chains fill in the others. */
static void init_region(const reshard_layout *layout, rs_region *region)
{
    region->layout = layout;
    region->cell = -1;
    for (int32_t a = 0; a < layout->axis_count; a++) {
        const rs_axis *axis = &layout->axes[a];
        region->first[a] = 0;
        region->count[a] = axis->role == RS_AXIS_AT ? axis->at_count : axis->size;
    }
}

static void set_holders(rs_region *region, const rs_chain *chain, const rs_span *span)
{
    for (int32_t i = 0; i < chain->count; i++) {
        region->first[chain->cuts[i].axis] = span->first[i];
        region->count[chain->cuts[i].axis] = span->count[i];
    }
}

/* ---- regions that touch a box ---------------------------------------------------------------- */

typedef struct visit {
    const reshard_layout *layout;
    const int64_t *start, *size;
    rs_region_fn fn;
    void *user;
    rs_region region;
    /* With a flat cut: the local block of the first holder, and where the current sub-box lies in
     * it. */
    int64_t block[RESHARD_NDIM_MAX];
    int64_t low[RESHARD_NDIM_MAX];
} visit;

static reshard_status visit_flat(visit *v)
{
    const reshard_layout *layout = v->layout;
    int32_t ndim = layout->ndim;
    rs_flat_block block = {.ndim = ndim};
    int64_t corner[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX];
    memcpy(block.shape, v->block, sizeof block.shape);
    memcpy(corner, v->region.start, sizeof corner);
    memcpy(size, v->region.size, sizeof size);
    int64_t volume = rs_volume(ndim, v->block);
    reshard_status status = RESHARD_OK;
    int64_t position = rs_flat_next(&block, v->low, size, 0);
    while (position >= 0 && status == RESHARD_OK) {
        rs_span span;
        rs_chain_find(&layout->flat, volume, position, &span);
        set_holders(&v->region, &layout->flat, &span);
        rs_flat_boxes boxes;
        rs_flat_split(&block, span.start, span.start + span.length, &boxes);
        for (int32_t i = 0; i < boxes.count && status == RESHARD_OK; i++) {
            if (!rs_box_clip(ndim, boxes.items[i].start, boxes.items[i].size, v->low, size))
                continue;
            for (int32_t d = 0; d < ndim; d++) {
                v->region.start[d] = corner[d] + (boxes.items[i].start[d] - v->low[d]);
                v->region.size[d] = boxes.items[i].size[d];
            }
            status = v->fn(v->user, &v->region);
        }
        position = rs_flat_next(&block, v->low, size, span.start + span.length);
    }
    memcpy(v->region.start, corner, sizeof corner);
    memcpy(v->region.size, size, sizeof size);
    return status;
}

static reshard_status visit_dim(visit *v, int32_t dim)
{
    const reshard_layout *layout = v->layout;
    if (dim == layout->ndim)
        return layout->flat.count != 0 ? visit_flat(v) : v->fn(v->user, &v->region);
    const rs_chain *chain = &layout->dims[dim];
    int64_t position = v->start[dim];
    int64_t end = position + v->size[dim];
    rs_span span;
    reshard_status status = RESHARD_OK;
    while (status == RESHARD_OK &&
           rs_chain_next(chain, layout->shape[dim], end, &position, &span)) {
        v->region.start[dim] = span.start;
        v->region.size[dim] = span.length;
        set_holders(&v->region, chain, &span);
        if (layout->flat.count != 0) {
            v->low[dim] = span.local;
            v->block[dim] = rs_chain_length(chain, layout->shape[dim], span.first);
        }
        status = visit_dim(v, dim + 1);
    }
    return status;
}

reshard_status rs_regular_visit(const reshard_layout *layout, const int64_t *start,
                                const int64_t *size, rs_region_fn fn, void *user)
{
    visit v = {.layout = layout, .start = start, .size = size, .fn = fn, .user = user};
    init_region(layout, &v.region);
    for (int32_t d = 0; d < layout->ndim; d++) {
        if (size[d] <= 0)
            return RESHARD_OK;
    }
    return visit_dim(&v, 0);
}

/* ---- regions that one rank holds ------------------------------------------------------------- */

typedef struct held_visit {
    const reshard_layout *layout;
    rs_held_fn fn;
    void *user;
    int32_t rank;
    rs_region region;
    int32_t by_level[RESHARD_NDIM_MAX][RESHARD_AXES_MAX];
    /* The part of the rank's own line to visit, in each dim. */
    int64_t low[RESHARD_NDIM_MAX], high[RESHARD_NDIM_MAX];
} held_visit;

static reshard_status visit_held_dim(held_visit *v, int32_t dim)
{
    const reshard_layout *layout = v->layout;
    if (dim == layout->ndim) {
        rs_holder holder; /* the number of the copy may differ from region to region */
        (void)rs_region_find(&v->region, v->rank, &holder);
        return v->fn(v->user, &v->region, &holder);
    }
    const rs_chain *chain = &layout->dims[dim];
    rs_line_cursor cursor;
    rs_line_cursor_init(&cursor, chain, layout->shape[dim], v->by_level[dim]);
    cursor.local = v->low[dim];
    rs_span span;
    reshard_status status = RESHARD_OK;
    while (status == RESHARD_OK && cursor.local < v->high[dim]) {
        int64_t from = cursor.local;
        if (!rs_line_cursor_next(&cursor, &span))
            break;
        int64_t to = rs_min(span.local + span.length, v->high[dim]);
        v->region.start[dim] = span.start + (from - span.local);
        v->region.size[dim] = to - from;
        set_holders(&v->region, chain, &span);
        status = visit_held_dim(v, dim + 1);
    }
    return status;
}

static reshard_status visit_held_flat(held_visit *v, const int32_t *coordinates)
{
    const reshard_layout *layout = v->layout;
    int32_t by_level[RESHARD_AXES_MAX];
    rs_chain_coordinates(&layout->flat, coordinates, by_level);
    rs_flat_block block = {.ndim = layout->ndim};
    memcpy(block.shape, v->high, sizeof block.shape);
    rs_line_cursor cursor;
    rs_line_cursor_init(&cursor, &layout->flat, rs_volume(layout->ndim, block.shape), by_level);
    rs_span span;
    reshard_status status = RESHARD_OK;
    while (status == RESHARD_OK && rs_line_cursor_next(&cursor, &span)) {
        set_holders(&v->region, &layout->flat, &span);
        rs_flat_boxes boxes;
        rs_flat_split(&block, span.start, span.start + span.length, &boxes);
        for (int32_t i = 0; i < boxes.count && status == RESHARD_OK; i++) {
            for (int32_t d = 0; d < layout->ndim; d++) {
                v->low[d] = boxes.items[i].start[d];
                v->high[d] = boxes.items[i].start[d] + boxes.items[i].size[d];
            }
            status = visit_held_dim(v, 0);
        }
    }
    return status;
}

reshard_status rs_regular_visit_held(const reshard_layout *layout, int32_t rank, rs_held_fn fn,
                                     void *user)
{
    int32_t coordinates[RESHARD_AXES_MAX];
    if (!rs_layout_coordinates(layout, rank, coordinates))
        return RESHARD_OK;
    held_visit v = {.layout = layout, .fn = fn, .user = user, .rank = rank};
    init_region(layout, &v.region);
    for (int32_t d = 0; d < layout->ndim; d++) {
        rs_chain_coordinates(&layout->dims[d], coordinates, v.by_level[d]);
        v.low[d] = 0;
        v.high[d] = rs_chain_length(&layout->dims[d], layout->shape[d], v.by_level[d]);
        if (v.high[d] == 0)
            return RESHARD_OK;
    }
    return layout->flat.count != 0 ? visit_held_flat(&v, coordinates) : visit_held_dim(&v, 0);
}
