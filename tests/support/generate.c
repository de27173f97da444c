/* SPDX-License-Identifier: Apache-2.0 */
/*
 * generate.c - random shapes, meshes and cuts; see generate.h.
 */
#include "tests/support/generate.h"

#include <string.h>

static int64_t draw_extent(draw_state *draw)
{
    static const int64_t extents[] = {0, 1, 1, 2, 2, 3, 3, 4, 5, 5, 6, 7, 7, 8, 9};
    if (draw_chance(draw, 12))
        return draw_between(draw, 10, 23);
    return extents[draw_below(draw, (int64_t)(sizeof extents / sizeof extents[0]))];
}

void generate_shape(draw_state *draw, int64_t volume_max, int32_t *out_ndim, int64_t *shape)
{
    int32_t ndim = (int32_t)draw_between(draw, 0, 4);
    if (ndim == 0 && draw_chance(draw, 60))
        ndim = 2;
    if (draw_chance(draw, 5))
        ndim = (int32_t)draw_between(draw, 5, RESHARD_NDIM_MAX);
    for (int32_t d = 0; d < ndim; d++) {
        shape[d] = draw_extent(draw);
        if (shape[d] == 0 && draw_chance(draw, 70))
            shape[d] = 5;
    }
    /* Shorten until it fits, leaving zeros alone. */
    for (int32_t d = 0; oracle_volume(ndim, shape) > volume_max; d = (d + 1) % ndim)
        shape[d] = shape[d] > 1 ? shape[d] - 1 : shape[d];
    *out_ndim = ndim;
}

void generate_mesh(draw_state *draw, int32_t size_max, oracle_spec *spec)
{
    int32_t axis_count = (int32_t)draw_between(draw, 1, 3);
    int32_t size = 1;
    spec->kind = RESHARD_SPEC_CUTS;
    spec->axis_count = axis_count;
    for (int32_t i = 0; i < axis_count; i++) {
        int32_t room = size_max / size < 5 ? size_max / size : 5;
        spec->sizes[i] =
            (int32_t)draw_between(draw, draw_chance(draw, 80) && room > 1 ? 2 : 1, room);
        size *= spec->sizes[i];
    }
    spec->named = draw_chance(draw, 70);
    spec->default_ranks = draw_chance(draw, 40);
    int32_t first = draw_chance(draw, 50) ? 0 : (int32_t)draw_between(draw, 0, 6);
    int32_t step = draw_chance(draw, 70) ? 1 : (int32_t)draw_between(draw, 1, 3);
    for (int32_t i = 0; i < size; i++)
        spec->ranks[i] = spec->default_ranks ? i : first + i * step;
    if (!spec->default_ranks && draw_chance(draw, 60))
        draw_shuffle(draw, size, spec->ranks);
}

/* Cuts n in `count` numbers, sometimes on multiples of the unit. */
static void split_number(draw_state *draw, int64_t n, int64_t unit, int32_t count, int64_t *numbers)
{
    int64_t left = n;
    for (int32_t i = 0; i < count; i++) {
        int64_t take = i + 1 == count ? left : draw_between(draw, 0, left < 9 ? left : 9);
        if (unit > 1 && i + 1 < count && take < left)
            take -= take % unit;
        numbers[i] = take;
        left -= take;
    }
}

static void draw_rule(draw_state *draw, int64_t length, int32_t axis_size, int flags,
                      oracle_cut *cut)
{
    static const reshard_shard_rule rules[] = {RESHARD_CHUNK,  RESHARD_CHUNK,   RESHARD_BALANCED,
                                               RESHARD_PACKED, RESHARD_STRIDED, RESHARD_RAGGED,
                                               RESHARD_CYCLIC};
    cut->rule = rules[draw_below(draw, 7)];
    if (draw_chance(draw, 25))
        cut->unit = draw_between(draw, 1, 4);
    if (draw_chance(draw, 20) && !(flags & GENERATE_TILING))
        cut->max = draw_between(draw, 1, 6);
    int64_t pieces = cut->max > 0 && cut->max < axis_size ? cut->max : axis_size;
    bool wrong = (flags & GENERATE_INVALID) && draw_chance(draw, 5);
    if (cut->rule == RESHARD_STRIDED)
        cut->factor = draw_between(draw, 1, 5);
    if (cut->rule == RESHARD_CYCLIC) {
        cut->factor = draw_between(draw, 1, 4);
        if (cut->unit > 1 && !wrong)
            cut->factor *= cut->unit;
    }
    if (cut->rule == RESHARD_PACKED) {
        cut->count = (int32_t)draw_between(draw, 1, 4);
        split_number(draw, length, 1, cut->count, cut->values);
        for (int32_t i = 0; i < cut->count && !(flags & GENERATE_TILING); i++)
            cut->part_max[i] = draw_chance(draw, 25) ? draw_between(draw, 1, 5) : 0;
    }
    if (cut->rule == RESHARD_RAGGED) {
        cut->count = (int32_t)pieces;
        split_number(draw, length, wrong ? 1 : cut->unit, cut->count, cut->values);
    }
    if (wrong && cut->count > 0)
        cut->values[draw_below(draw, cut->count)] += draw_between(draw, 0, 2);
}

static void draw_shard(draw_state *draw, int flags, int32_t ndim, const int64_t *shape,
                       int32_t axis, bool *flat, oracle_spec *spec)
{
    oracle_cut *cut = &spec->cuts[spec->cut_count];
    cut->kind = RESHARD_SHARD;
    bool wrong = (flags & GENERATE_INVALID) && draw_chance(draw, 4);
    if (wrong) {
        cut->dim = (int32_t)draw_between(draw, -ndim - 2, ndim + 1);
    } else if (*flat || ndim == 0 || draw_chance(draw, 15)) {
        cut->dim = RESHARD_DIM_FLAT;
        *flat = true;
    } else {
        cut->dim = (int32_t)draw_below(draw, ndim);
    }
    bool exists = cut->dim == RESHARD_DIM_FLAT || (cut->dim >= 0 && cut->dim < ndim);
    int64_t length = exists ? oracle_length_left(spec, ndim, shape, cut->dim) : 5;
    draw_rule(draw, length >= 0 ? length : 0, spec->sizes[axis], flags, cut);
    if (cut->dim >= 0 && draw_chance(draw, 25))
        cut->dim -= ndim;
}

static void draw_at(draw_state *draw, int32_t axis_size, int flags, oracle_cut *cut)
{
    cut->kind = RESHARD_AT;
    for (int32_t i = 0; i < axis_size; i++) {
        if (draw_chance(draw, 50) && !((flags & GENERATE_TILING) && cut->count == 1))
            cut->values[cut->count++] = i;
    }
    if (cut->count == 0)
        cut->values[cut->count++] = draw_below(draw, axis_size);
    if ((flags & GENERATE_INVALID) && draw_chance(draw, 3))
        cut->values[cut->count - 1] = axis_size + draw_between(draw, 0, 2);
}

static void draw_cut(draw_state *draw, int flags, int32_t ndim, const int64_t *shape, int32_t axis,
                     bool *flat, oracle_spec *spec)
{
    oracle_cut *cut = &spec->cuts[spec->cut_count];
    int64_t kind = draw_below(draw, 100);
    memset(cut, 0, sizeof *cut);
    cut->axis = axis;
    if (kind < 12 && (!(flags & GENERATE_TILING) || spec->sizes[axis] == 1)) {
        cut->kind = RESHARD_REPLICATE;
    } else if (kind < 27 && (flags & GENERATE_PARTIAL)) {
        cut->kind = RESHARD_PARTIAL;
        cut->reduction = (reshard_reduction)draw_below(draw, RESHARD_MAX + 1);
        for (int32_t i = 0; i < spec->cut_count; i++) {
            if (spec->cuts[i].kind == RESHARD_PARTIAL)
                cut->reduction = spec->cuts[i].reduction;
        }
        if (cut->reduction == RESHARD_SUM && draw_chance(draw, 20))
            cut->reduction = RESHARD_AVG;
        /* Sum beside max does not commute, and is refused. */
        if ((flags & GENERATE_INVALID) && draw_chance(draw, 5) && cut->reduction == RESHARD_SUM)
            cut->reduction = RESHARD_MAX;
    } else if (kind < 33) {
        draw_at(draw, spec->sizes[axis], flags, cut);
    } else {
        draw_shard(draw, flags, ndim, shape, axis, flat, spec);
    }
    spec->cut_count++;
}

void generate_cuts(draw_state *draw, int flags, int32_t ndim, const int64_t *shape,
                   oracle_spec *spec)
{
    int32_t order[ORACLE_AXES_MAX];
    bool flat = false;
    spec->cut_count = 0;
    spec->with_at = spec->named && draw_chance(draw, 50);
    for (int32_t i = 0; i < spec->axis_count; i++)
        order[i] = i;
    if (spec->with_at)
        draw_shuffle(draw, spec->axis_count, order);
    for (int32_t i = 0; i < spec->axis_count; i++) {
        bool left_out = spec->with_at && !(flags & GENERATE_TILING) && draw_chance(draw, 15) &&
                        i + 1 < spec->axis_count;
        if (!left_out)
            draw_cut(draw, flags, ndim, shape, order[i], &flat, spec);
    }
}

static bool suits(const oracle_spec *spec, int32_t ndim, const int64_t *shape)
{
    oracle_layout *layout = oracle_layout_create(spec, ndim, shape, NULL);
    oracle_layout_destroy(layout);
    return layout != NULL && !oracle_may_be_refused(spec);
}

/* Other ranks for a mesh that names some that there are not. */
static void confine_mesh(draw_state *draw, int32_t ranks_max, oracle_spec *spec)
{
    int32_t size = oracle_mesh_size(spec), ranks[ORACLE_RANKS_MAX];
    bool fits = true;
    for (int32_t i = 0; i < size; i++)
        fits = fits && spec->ranks[i] < ranks_max;
    if (fits)
        return;
    for (int32_t i = 0; i < ranks_max; i++)
        ranks[i] = i;
    draw_shuffle(draw, ranks_max, ranks);
    memcpy(spec->ranks, ranks, (size_t)size * sizeof *ranks);
}

/* On a mesh of one axis a rank may have several chunks. */
static void repeat_ranks(draw_state *draw, oracle_spec *spec)
{
    int32_t size = oracle_mesh_size(spec);
    for (int32_t i = 0; i < size; i++) {
        int32_t like = (int32_t)draw_below(draw, size);
        spec->ranks[i] = spec->ranks[draw_chance(draw, 50) ? like : i];
    }
    spec->default_ranks = false;
}

void generate_spec_within(draw_state *draw, int flags, int32_t ranks_max, int32_t ndim,
                          const int64_t *shape, oracle_spec *spec)
{
    memset(spec, 0, sizeof *spec);
    if ((flags & GENERATE_LISTED) && ndim > 0 && draw_chance(draw, 20)) {
        generate_boxes(draw, !(flags & GENERATE_TILING) && draw_chance(draw, 40), ndim, shape,
                       spec);
        for (int32_t i = 0; i < spec->listed_count && ranks_max > 0; i++)
            spec->listed[i].rank %= ranks_max;
        return;
    }
    int32_t size_max = flags & GENERATE_FEW_RANKS ? 5 : 16;
    if (ranks_max > 0 && ranks_max < size_max)
        size_max = ranks_max;
    generate_mesh(draw, size_max, spec);
    if (ranks_max > 0)
        confine_mesh(draw, ranks_max, spec);
    bool legal = spec->axis_count == 1;
    if ((flags & GENERATE_LISTED) && (legal || (flags & GENERATE_INVALID)) &&
        draw_chance(draw, legal ? 40 : 3))
        repeat_ranks(draw, spec);
    do {
        generate_cuts(draw, flags, ndim, shape, spec);
    } while (!(flags & GENERATE_INVALID) && !suits(spec, ndim, shape));
}

void generate_spec(draw_state *draw, int flags, int32_t ndim, const int64_t *shape,
                   oracle_spec *spec)
{
    generate_spec_within(draw, flags, 0, ndim, shape, spec);
}
