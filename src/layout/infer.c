/* SPDX-License-Identifier: Apache-2.0 */
/*
 * infer.c - finds the simplest spec for a list of shards that tile a tensor.
 *
 * Guess and prove: the intervals that shards occupy in each dim suggest a grid of cuts, and the
 * guess is accepted only if its layout has exactly these shards, piece by piece. Comparing only
 * sizes, or only the offsets in one dim, would accept tilings that are not chunks.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/shape.h"
#include "base/sort.h"
#include "layout/layout.h"

#include <stdlib.h>
#include <string.h>

/* ---- proving a guess ------------------------------------------------------------------------- */

static bool same_piece(const reshard_piece *a, const reshard_piece *b)
{
    if (a->at != b->at)
        return false;
    for (int32_t d = 0; d < a->box.ndim; d++) {
        bool same_step = a->strides[d] == b->strides[d] || a->box.size[d] == 1;
        if (a->box.offset[d] != b->box.offset[d] || a->box.size[d] != b->box.size[d] || !same_step)
            return false;
    }
    return true;
}

/* The pieces of a layout are in memory order. Given pieces may be in another order, which counts as
 * no match. */
static bool same_shard(const reshard_shard *a, const reshard_shard *b)
{
    if (a->rank != b->rank || a->ndim != b->ndim || a->piece_count != b->piece_count)
        return false;
    for (int32_t d = 0; d < a->ndim; d++) {
        if (a->shape[d] != b->shape[d])
            return false;
    }
    for (int64_t i = 0; i < a->piece_count; i++) {
        if (!same_piece(&a->pieces[i], &b->pieces[i]))
            return false;
    }
    return true;
}

/* Whether the layout of `spec` has exactly the shards of `wanted`. False if the spec cannot be a
 * layout of this shape. */
static reshard_status prove(reshard_spec *spec, const reshard_layout *wanted, bool *out_proved)
{
    reshard_layout *layout = NULL;
    reshard_status status =
        reshard_layout_create(wanted->context, spec, wanted->ndim, wanted->shape, &layout);
    *out_proved = false;
    if (status != RESHARD_OK)
        return status == RESHARD_ERR_NO_MEMORY || status == RESHARD_ERR_MEMORY_LIMIT ? status
                                                                                     : RESHARD_OK;
    bool same = layout->rank_count == wanted->shard_count;
    for (int64_t i = 0; i < wanted->shard_count && same && status == RESHARD_OK; i++) {
        const reshard_shard *shard = &wanted->shards[i];
        reshard_shards *shards = NULL;
        int64_t about = 0;
        /* One piece more than wanted shows that the guess is wrong. It may have far too many. */
        status = reshard_layout_shards_head(layout, shard->rank, shard->piece_count + 1, &about,
                                            &shards);
        if (status == RESHARD_OK)
            same = shards->count == 1 && same_shard(&shards->items[0], shard);
        reshard_shards_destroy(shards);
    }
    *out_proved = same && status == RESHARD_OK;
    reshard_layout_release(layout);
    return status;
}

/* ---- guessing -------------------------------------------------------------------------------- */

typedef struct interval {
    int64_t start, size;
} interval;

typedef struct guess {
    const reshard_layout *wanted;
    rs_arena arena;
    int32_t *ranks;                    /* the rank at each position of the grid */
    interval *lines[RESHARD_NDIM_MAX]; /* the distinct intervals of each dim, increasing */
    int64_t line_count[RESHARD_NDIM_MAX];
} guess;

static int compare_intervals(const void *a, const void *b)
{
    const interval *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->size > y->size) - (x->size < y->size);
}

/* The interval of a dim that a shard occupies. */
static interval interval_of(const reshard_shard *shard, int32_t dim)
{
    return (interval){shard->offset[dim], shard->shape[dim]};
}

/* Collects the distinct intervals of one dim. Empty intervals are all kept, even if they are equal,
 * because each has an owner. */
static reshard_status collect_lines(guess *g, int32_t dim)
{
    const reshard_layout *wanted = g->wanted;
    interval *all = rs_arena_allocate_array(&g->arena, (size_t)wanted->shard_count, sizeof *all);
    if (all == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < wanted->shard_count; i++)
        all[i] = interval_of(&wanted->shards[i], dim);
    rs_sort(all, (size_t)wanted->shard_count, sizeof *all, compare_intervals);
    int64_t count = 0;
    for (int64_t i = 0; i < wanted->shard_count; i++) {
        if (count == 0 || all[i].size == 0 || compare_intervals(&all[i], &all[count - 1]) != 0)
            all[count++] = all[i];
    }
    g->lines[dim] = all;
    g->line_count[dim] = count;
    return RESHARD_OK;
}

/* Orders shards by their offsets. Empty shards come last, because their offset may be anything. */
static int compare_offsets(const void *a, const void *b)
{
    const reshard_shard *x = *(const reshard_shard *const *)a,
                        *y = *(const reshard_shard *const *)b;
    if ((x->piece_count == 0) != (y->piece_count == 0))
        return x->piece_count == 0 ? 1 : -1;
    for (int32_t d = 0; d < RESHARD_NDIM_MAX; d++) {
        if (x->offset[d] != y->offset[d])
            return x->offset[d] < y->offset[d] ? -1 : 1;
    }
    return (x->rank > y->rank) - (x->rank < y->rank);
}

/* Orders shards by their first element in memory. For a flat range that is also its first in
 * row-major order. */
static int compare_flat_starts(const void *a, const void *b)
{
    const reshard_shard *x = *(const reshard_shard *const *)a,
                        *y = *(const reshard_shard *const *)b;
    if (x->piece_count == 0 || y->piece_count == 0)
        return (x->piece_count == 0) - (y->piece_count == 0);
    for (int32_t d = 0; d < x->pieces[0].box.ndim; d++) {
        int64_t p = x->pieces[0].box.offset[d], q = y->pieces[0].box.offset[d];
        if (p != q)
            return p < q ? -1 : 1;
    }
    return 0;
}

static reshard_status order_by(guess *g, int (*compare)(const void *, const void *),
                               const reshard_shard ***out_order)
{
    const reshard_layout *wanted = g->wanted;
    const reshard_shard **order =
        rs_arena_allocate_array(&g->arena, (size_t)wanted->shard_count, sizeof *order);
    if (order == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < wanted->shard_count; i++)
        order[i] = &wanted->shards[i];
    rs_sort(order, (size_t)wanted->shard_count, sizeof *order, compare);
    for (int64_t i = 0; i < wanted->shard_count; i++)
        g->ranks[i] = order[i]->rank;
    *out_order = order;
    return RESHARD_OK;
}

/* Puts each shard's rank at its position in the grid; returns false if two shards have the same
 * position. */
static bool place_ranks(guess *g)
{
    const reshard_layout *wanted = g->wanted;
    for (int64_t i = 0; i < wanted->shard_count; i++)
        g->ranks[i] = -1;
    for (int64_t i = 0; i < wanted->shard_count; i++) {
        int64_t position = 0;
        for (int32_t d = 0; d < wanted->ndim; d++) {
            interval line = interval_of(&wanted->shards[i], d);
            const interval *found = bsearch(&line, g->lines[d], (size_t)g->line_count[d],
                                            sizeof line, compare_intervals);
            position = position * g->line_count[d] + (found - g->lines[d]);
        }
        if (g->ranks[position] >= 0)
            return false;
        g->ranks[position] = wanted->shards[i].rank;
    }
    return true;
}

static const reshard_shard_rule rules_to_try[] = {RESHARD_CHUNK, RESHARD_BALANCED, RESHARD_RAGGED};

static reshard_status make_grid_spec(guess *g, reshard_shard_rule rule, reshard_spec **out_spec)
{
    int32_t sizes[RESHARD_NDIM_MAX];
    reshard_cut cuts[RESHARD_NDIM_MAX];
    int32_t axes = 0;
    for (int32_t d = 0; d < g->wanted->ndim; d++) {
        if (g->line_count[d] == 1)
            continue;
        int64_t *values =
            rs_arena_allocate_array(&g->arena, (size_t)g->line_count[d], sizeof *values);
        if (values == NULL)
            return rs_allocation_status();
        for (int64_t i = 0; i < g->line_count[d]; i++)
            values[i] = g->lines[d][i].size;
        sizes[axes] = (int32_t)g->line_count[d];
        cuts[axes] = (reshard_cut){.axis = axes,
                                   .placement = {.kind = RESHARD_SHARD, .dim = d, .rule = rule}};
        if (rule == RESHARD_RAGGED) {
            cuts[axes].placement.values = values;
            cuts[axes].placement.count = sizes[axes];
        }
        axes++;
    }
    if (axes == 0) { /* one rank holds everything */
        sizes[0] = 1;
        cuts[axes++] = (reshard_cut){.axis = 0, .placement = {.kind = RESHARD_REPLICATE}};
    }
    reshard_mesh *mesh = NULL;
    reshard_status status =
        reshard_mesh_create(g->wanted->context, axes, NULL, sizes, g->ranks, &mesh);
    if (status == RESHARD_OK)
        status = reshard_spec_create(g->wanted->context, mesh, axes, cuts, out_spec);
    reshard_mesh_release(mesh);
    return status;
}

static reshard_status try_spec(guess *g, reshard_spec *spec, reshard_spec **out_spec)
{
    bool proved = false;
    reshard_status status = prove(spec, g->wanted, &proved);
    if (proved)
        *out_spec = reshard_spec_retain(spec);
    reshard_spec_release(spec);
    return status;
}

static reshard_status try_grid(guess *g, reshard_spec **out_spec)
{
    int64_t product = 1;
    int32_t cut_dims = 0;
    for (int32_t d = 0; d < g->wanted->ndim; d++) {
        reshard_status status = collect_lines(g, d);
        if (status != RESHARD_OK)
            return status;
        if (!rs_multiply(product, g->line_count[d], &product))
            return RESHARD_OK;
        cut_dims += g->line_count[d] > 1;
    }
    if (product != g->wanted->shard_count)
        return RESHARD_OK;
    if (cut_dims == 1) { /* empty shards look alike, so go by their order */
        const reshard_shard **order;
        reshard_status status = order_by(g, compare_offsets, &order);
        if (status != RESHARD_OK)
            return status;
    } else if (!place_ranks(g)) {
        return RESHARD_OK;
    }
    for (size_t i = 0; i < sizeof rules_to_try / sizeof *rules_to_try && *out_spec == NULL; i++) {
        reshard_spec *spec = NULL;
        reshard_status status = make_grid_spec(g, rules_to_try[i], &spec);
        if (status == RESHARD_OK)
            status = try_spec(g, spec, out_spec);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

/* Tries shards of several pieces along one dim: strided or block-cyclic. */
static reshard_status try_dealt(guess *g, int32_t dim, reshard_spec **out_spec)
{
    const reshard_layout *wanted = g->wanted;
    int64_t pieces_max = 0;
    for (int64_t i = 0; i < wanted->shard_count; i++)
        pieces_max = rs_max(pieces_max, wanted->shards[i].piece_count);
    const reshard_shard **order;
    reshard_status status = order_by(g, compare_offsets, &order);
    if (status != RESHARD_OK || pieces_max < 2 || order[0]->piece_count == 0)
        return status;
    reshard_placement guesses[] = {
        {.kind = RESHARD_SHARD, .dim = dim, .rule = RESHARD_STRIDED, .factor = pieces_max},
        {.kind = RESHARD_SHARD,
         .dim = dim,
         .rule = RESHARD_CYCLIC,
         .factor = order[0]->pieces[0].box.size[dim]},
    };
    int32_t size = (int32_t)wanted->shard_count;
    reshard_mesh *mesh = NULL;
    status = reshard_mesh_create(wanted->context, 1, NULL, &size, g->ranks, &mesh);
    for (size_t i = 0;
         i < sizeof guesses / sizeof *guesses && status == RESHARD_OK && *out_spec == NULL; i++) {
        reshard_spec *spec = NULL;
        reshard_cut cut = {.axis = 0, .placement = guesses[i]};
        status = reshard_spec_create(wanted->context, mesh, 1, &cut, &spec);
        if (status == RESHARD_OK)
            status = try_spec(g, spec, out_spec);
    }
    reshard_mesh_release(mesh);
    return status;
}

/* Tries shards that are ranges of the row-major order. */
static reshard_status try_flat(guess *g, reshard_spec **out_spec)
{
    const reshard_layout *wanted = g->wanted;
    const reshard_shard **order;
    reshard_status status = order_by(g, compare_flat_starts, &order);
    int64_t *sizes = rs_arena_allocate_array(&g->arena, (size_t)wanted->shard_count, sizeof *sizes);
    if (status != RESHARD_OK || sizes == NULL)
        return status != RESHARD_OK ? status : rs_allocation_status();
    for (int64_t i = 0; i < wanted->shard_count; i++)
        sizes[i] = order[i]->shape[0];
    int32_t size = (int32_t)wanted->shard_count;
    reshard_mesh *mesh = NULL;
    status = reshard_mesh_create(wanted->context, 1, NULL, &size, g->ranks, &mesh);
    for (size_t i = 0; i < sizeof rules_to_try / sizeof *rules_to_try && status == RESHARD_OK;
         i++) {
        reshard_cut cut = {
            .placement = {.kind = RESHARD_SHARD, .dim = RESHARD_DIM_FLAT, .rule = rules_to_try[i]}};
        if (rules_to_try[i] == RESHARD_RAGGED) {
            cut.placement.count = size;
            cut.placement.values = sizes;
        }
        reshard_spec *spec = NULL;
        status = reshard_spec_create(wanted->context, mesh, 1, &cut, &spec);
        if (status == RESHARD_OK)
            status = try_spec(g, spec, out_spec);
        if (*out_spec != NULL)
            break;
    }
    reshard_mesh_release(mesh);
    return status;
}

/* Whether each rank has one shard, with `ndim` dims: those of the tensor, or one for flat cuts. */
static bool may_be_cuts(const reshard_layout *wanted, int32_t ndim)
{
    for (int64_t i = 0; i < wanted->shard_count; i++) {
        if (wanted->shards[i].ndim != ndim || wanted->shards[i].index != 0)
            return false;
    }
    return true;
}

static reshard_status try_cuts(const reshard_layout *wanted, reshard_spec **out_spec)
{
    guess g = {.wanted = wanted};
    rs_arena_init(&g.arena, wanted->context);
    g.ranks = rs_arena_allocate_array(&g.arena, (size_t)wanted->shard_count, sizeof *g.ranks);
    reshard_status status = g.ranks == NULL ? rs_allocation_status() : RESHARD_OK;
    bool by_dims = may_be_cuts(wanted, wanted->ndim);
    if (status == RESHARD_OK && by_dims)
        status = try_grid(&g, out_spec);
    if (status == RESHARD_OK && *out_spec == NULL && may_be_cuts(wanted, 1))
        status = try_flat(&g, out_spec);
    for (int32_t d = 0; d < wanted->ndim && by_dims && status == RESHARD_OK && *out_spec == NULL;
         d++)
        status = try_dealt(&g, d, out_spec);
    rs_arena_release(&g.arena);
    return status;
}

/* ---- shards that a spec of boxes cannot describe directly ------------------------------------ */

/* The first dim from which on a piece is dense; the dims before it have to be taken apart. */
static int32_t first_dense_dim(const reshard_piece *piece)
{
    int64_t stride = 1;
    for (int32_t d = piece->box.ndim - 1; d >= 0; d--) {
        if (piece->box.size[d] != 1 && piece->strides[d] != stride)
            return d + 1;
        stride *= piece->box.size[d];
    }
    return 0;
}

/* Cuts the pieces of a flat shard into dense ones, because a spec of boxes allows no others. If
 * dims were cut before the flat cut, pieces have gaps. */
static reshard_status make_dense(rs_arena *arena, reshard_shard *shard)
{
    int64_t count = 0;
    for (int64_t p = 0; p < shard->piece_count; p++)
        count += rs_volume(first_dense_dim(&shard->pieces[p]), shard->pieces[p].box.size);
    if (count == shard->piece_count)
        return RESHARD_OK;
    reshard_piece *pieces = rs_arena_allocate_array(arena, (size_t)count, sizeof *pieces);
    if (pieces == NULL)
        return rs_allocation_status();
    int64_t next = 0;
    for (int64_t p = 0; p < shard->piece_count; p++) {
        const reshard_piece *whole = &shard->pieces[p];
        int32_t dense = first_dense_dim(whole);
        int64_t parts = rs_volume(dense, whole->box.size);
        for (int64_t i = 0; i < parts; i++, next++) {
            pieces[next] = *whole;
            int64_t rest = i;
            for (int32_t d = dense - 1; d >= 0; d--) {
                int64_t x = rest % whole->box.size[d];
                rest /= whole->box.size[d];
                pieces[next].box.offset[d] += x;
                pieces[next].box.size[d] = 1;
                pieces[next].at += x * whole->strides[d];
            }
        }
    }
    shard->pieces = pieces;
    shard->piece_count = count;
    return RESHARD_OK;
}

/* A scalar has no empty boxes, so the spec is a flat cut: the rank that has the element comes
 * first, and those with empty shards follow. */
static reshard_status infer_scalar(reshard_context *context, int64_t count,
                                   const reshard_shard *shards, reshard_spec **out_spec)
{
    int32_t *ranks = rs_allocate_array(context, (size_t)count, sizeof *ranks);
    if (ranks == NULL)
        return rs_allocation_status();
    int64_t owners = 0, next = 1;
    for (int64_t i = 0; i < count; i++) {
        owners += shards[i].piece_count != 0;
        ranks[shards[i].piece_count != 0 ? 0 : rs_min(next++, count - 1)] = shards[i].rank;
    }
    reshard_status status = RESHARD_OK;
    if (owners != 1)
        status = rs_fail(owners == 0 ? RESHARD_ERR_GAP : RESHARD_ERR_OVERLAP,
                         "%d shards have the element of a scalar", (int)owners);
    int32_t size = (int32_t)count;
    reshard_mesh *mesh = NULL;
    if (status == RESHARD_OK)
        status = reshard_mesh_create(context, 1, NULL, &size, ranks, &mesh);
    reshard_cut cut = {.placement = {.kind = RESHARD_SHARD, .dim = RESHARD_DIM_FLAT}};
    if (status == RESHARD_OK)
        status = reshard_spec_create(context, mesh, 1, &cut, out_spec);
    reshard_mesh_release(mesh);
    rs_release(context, ranks);
    return status;
}

static reshard_status infer_boxes(reshard_context *context, int32_t ndim, const int64_t *shape,
                                  int64_t count, const reshard_shard *given,
                                  reshard_spec **out_spec)
{
    rs_arena arena;
    rs_arena_init(&arena, context);
    reshard_shard *shards = rs_arena_copy(&arena, given, (size_t)count, sizeof *shards);
    reshard_status status = shards == NULL ? rs_allocation_status() : RESHARD_OK;
    for (int64_t i = 0; i < count && ndim > 1 && status == RESHARD_OK; i++) {
        if (shards[i].ndim == 1)
            status = make_dense(&arena, &shards[i]);
    }
    if (status == RESHARD_OK)
        status = reshard_spec_boxes(context, 0, ndim, shape, count, shards, out_spec);
    rs_arena_release(&arena);
    return status;
}

reshard_status reshard_layout_infer(const reshard_layout *layout, reshard_spec **out_spec)
{
    reshard_spec *cuts = NULL;
    reshard_status status = RESHARD_OK;
    bool tiles = layout->spec->kind == RESHARD_SPEC_BOXES ||
                 (layout->spec->kind == RESHARD_SPEC_CALLBACK && !layout->spec->cover);
    if (tiles)
        status = try_cuts(layout, &cuts);
    if (status == RESHARD_OK)
        *out_spec = cuts != NULL ? cuts : reshard_spec_retain(layout->spec);
    return status;
}

reshard_status reshard_spec_infer(reshard_context *context, int32_t ndim, const int64_t *shape,
                                  int64_t count, const reshard_shard *shards,
                                  reshard_spec **out_spec)
{
    reshard_spec *boxes = NULL;
    reshard_layout *wanted = NULL;
    reshard_status status = rs_shape_check(ndim, shape);
    if (status == RESHARD_OK && count < 1)
        status = rs_fail(RESHARD_ERR_INVALID, "no shards are given");
    if (status == RESHARD_OK && ndim == 0 && count > 1 && count <= INT32_MAX)
        return infer_scalar(context, count, shards, out_spec);
    if (status == RESHARD_OK)
        status = infer_boxes(context, ndim, shape, count, shards, &boxes);
    if (status == RESHARD_OK)
        status = reshard_layout_create(context, boxes, ndim, shape, &wanted);
    if (status == RESHARD_OK)
        status = reshard_layout_infer(wanted, out_spec);
    reshard_layout_release(wanted);
    reshard_spec_release(boxes);
    return status;
}
