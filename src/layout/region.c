/* SPDX-License-Identifier: Apache-2.0 */
/*
 * region.c - who holds a region, and where it lies in a holder's memory.
 *
 * Holders are numbered. In a regular layout the number has two parts: `contributor`, a mixed-radix
 * number over the partial axes, and `copy`, a mixed-radix number over all other axes, both with the
 * last axis varying fastest. In a listed layout the copies are the shards of the region's cell,
 * ordered by rank.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/search.h"
#include "base/shape.h"
#include "layout/flat.h"
#include "layout/layout.h"

#include <assert.h>
#include <string.h>

/* ---- regular layouts ------------------------------------------------------------------------- */

static int32_t coordinate_at(const rs_axis *axis, int32_t index)
{
    return axis->role == RS_AXIS_AT ? (int32_t)axis->at[index] : index;
}

static void regular_holder(const rs_region *region, int32_t contributor, int64_t copy,
                           rs_holder *out_holder)
{
    const reshard_layout *layout = region->layout;
    int32_t position = 0;
    int64_t digits[2] = {copy, contributor};
    for (int32_t a = layout->axis_count - 1; a >= 0; a--) {
        const rs_axis *axis = &layout->axes[a];
        int64_t *number = &digits[axis->role == RS_AXIS_PARTIAL];
        assert(region->count[a] >= 1);
        int32_t index = region->first[a] + (int32_t)(*number % region->count[a]);
        *number /= region->count[a];
        position += coordinate_at(axis, index) * axis->stride;
    }
    assert(digits[0] == 0 && digits[1] == 0); /* both numbers were in range */
    *out_holder = (rs_holder){.rank = reshard_mesh_rank_at(layout->mesh, position),
                              .contributor = contributor,
                              .copy = copy};
}

static bool regular_find(const rs_region *region, int32_t rank, rs_holder *out_holder)
{
    const reshard_layout *layout = region->layout;
    int32_t position = reshard_mesh_position_of(layout->mesh, rank);
    if (position < 0)
        return false;
    int64_t copy = 0;
    int32_t contributor = 0;
    for (int32_t a = 0; a < layout->axis_count; a++) {
        const rs_axis *axis = &layout->axes[a];
        int32_t index =
            rs_axis_index(axis, position / axis->stride % axis->size) - region->first[a];
        if (index < 0 || index >= region->count[a])
            return false;
        if (axis->role == RS_AXIS_PARTIAL)
            contributor = contributor * region->count[a] + index;
        else
            copy = copy * region->count[a] + index;
    }
    *out_holder = (rs_holder){.rank = rank, .contributor = contributor, .copy = copy};
    return true;
}

static void regular_place(const rs_region *region, const rs_holder *holder, const int64_t *start,
                          rs_place *out_place)
{
    const reshard_layout *layout = region->layout;
    int32_t position = reshard_mesh_position_of(layout->mesh, holder->rank);
    assert(position >= 0);
    int32_t coordinates[RESHARD_AXES_MAX], by_level[RESHARD_AXES_MAX];
    for (int32_t a = 0; a < layout->axis_count; a++)
        coordinates[a] = position / layout->axes[a].stride % layout->axes[a].size;
    int64_t block[RESHARD_NDIM_MAX];
    int64_t local[RESHARD_NDIM_MAX];
    for (int32_t d = 0; d < layout->ndim; d++) {
        const rs_chain *chain = &layout->dims[d];
        rs_chain_coordinates(chain, coordinates, by_level);
        block[d] = rs_chain_length(chain, layout->shape[d], by_level);
        local[d] = rs_chain_local(chain, layout->shape[d], by_level, start[d]);
    }
    rs_dense_strides(layout->ndim, block, out_place->strides);
    out_place->at = 0;
    for (int32_t d = 0; d < layout->ndim; d++)
        out_place->at += local[d] * out_place->strides[d];
    if (layout->flat.count != 0) {
        rs_chain_coordinates(&layout->flat, coordinates, by_level);
        out_place->at =
            rs_chain_local(&layout->flat, rs_volume(layout->ndim, block), by_level, out_place->at);
    }
}

/* Clips start and size to the flat box around the region, computed in the first holder's block as
 * in visit_flat. */
static void whole_flat(const rs_region *region, const rs_flat_block *block, const int64_t *low,
                       int64_t *start, int64_t *size)
{
    const reshard_layout *layout = region->layout;
    int64_t one[RESHARD_NDIM_MAX];
    int64_t place = 0;
    for (int32_t d = 0; d < layout->ndim; d++) {
        place = place * block->shape[d] + low[d];
        one[d] = 1;
    }
    rs_span span;
    rs_chain_find(&layout->flat, rs_volume(layout->ndim, block->shape), place, &span);
    rs_flat_boxes boxes;
    rs_flat_split(block, span.start, span.start + span.length, &boxes);
    for (int32_t i = 0; i < boxes.count; i++) {
        rs_flat_box inside = boxes.items[i];
        if (!rs_box_clip(layout->ndim, inside.start, inside.size, low, one))
            continue;
        /* Clip to the dims' spans. Inside a span, local and global places differ by a constant. */
        for (int32_t d = 0; d < layout->ndim; d++) {
            int64_t shift = region->start[d] - low[d];
            int64_t from = rs_max(start[d], boxes.items[i].start[d] + shift);
            int64_t to = rs_min(start[d] + size[d],
                                boxes.items[i].start[d] + boxes.items[i].size[d] + shift);
            start[d] = from;
            size[d] = to - from;
        }
        return;
    }
}

static void regular_whole(const rs_region *region, int64_t *out_start, int64_t *out_size)
{
    const reshard_layout *layout = region->layout;
    rs_flat_block block = {.ndim = layout->ndim};
    int64_t low[RESHARD_NDIM_MAX] = {0};
    for (int32_t d = 0; d < layout->ndim; d++) {
        rs_span span;
        rs_chain_find(&layout->dims[d], layout->shape[d], region->start[d], &span);
        out_start[d] = span.start;
        out_size[d] = span.length;
        low[d] = span.local + (region->start[d] - span.start);
        block.shape[d] = rs_chain_length(&layout->dims[d], layout->shape[d], span.first);
    }
    if (layout->flat.count != 0)
        whole_flat(region, &block, low, out_start, out_size);
}

/* ---- listed layouts -------------------------------------------------------------------------- */

static const rs_cell_holder *cell_holder(const rs_region *region, int64_t copy)
{
    const reshard_layout *layout = region->layout;
    assert(region->cell >= 0 && region->cell < layout->cell_count);
    assert(copy >= 0 && copy < layout->cells[region->cell].holder_count);
    return &layout->cell_holders[layout->cells[region->cell].first_holder + copy];
}

static void listed_holder(const rs_region *region, int64_t copy, rs_holder *out_holder)
{
    const reshard_shard *shard = &region->layout->shards[cell_holder(region, copy)->shard];
    *out_holder = (rs_holder){.rank = shard->rank, .shard = shard->index, .copy = copy};
}

/* Binary search: holders are ordered by shard, and shards by rank. */
static bool listed_find(const rs_region *region, int32_t rank, rs_holder *out_holder)
{
    const reshard_layout *layout = region->layout;
    int64_t at, count = layout->cells[region->cell].holder_count;
    RS_FIND_FIRST(at, count, layout->shards[cell_holder(region, at)->shard].rank >= rank);
    if (at == count)
        return false;
    listed_holder(region, at, out_holder);
    return out_holder->rank == rank;
}

static void listed_place(const rs_region *region, const rs_holder *holder, const int64_t *start,
                         rs_place *out_place)
{
    const reshard_layout *layout = region->layout;
    const rs_cell_holder *found = cell_holder(region, holder->copy);
    const reshard_piece *piece = &layout->shards[found->shard].pieces[found->piece];
    out_place->at = piece->at;
    for (int32_t d = 0; d < layout->ndim; d++) {
        assert(start[d] >= piece->box.offset[d] &&
               start[d] < piece->box.offset[d] + piece->box.size[d]);
        out_place->strides[d] = piece->strides[d];
        out_place->at += (start[d] - piece->box.offset[d]) * piece->strides[d];
    }
}

typedef struct cell_visit {
    const reshard_layout *layout;
    const int64_t *start, *size;
    rs_region_fn fn;
    void *user;
} cell_visit;

static reshard_status visit_cell(void *user, int64_t cell)
{
    const cell_visit *v = user;
    const rs_cell *c = &v->layout->cells[cell];
    rs_region region = {.layout = v->layout, .cell = cell};
    for (int32_t d = 0; d < v->layout->ndim; d++) {
        int64_t end = rs_min(c->start[d] + c->size[d], v->start[d] + v->size[d]);
        region.start[d] = rs_max(c->start[d], v->start[d]);
        region.size[d] = end - region.start[d];
        assert(region.size[d] > 0); /* the index gives only cells that meet the box */
    }
    return v->fn(v->user, &region);
}

static reshard_status listed_visit(const reshard_layout *layout, const int64_t *start,
                                   const int64_t *size, rs_region_fn fn, void *user)
{
    int64_t end[RESHARD_NDIM_MAX];
    for (int32_t d = 0; d < layout->ndim; d++)
        end[d] = start[d] + size[d];
    cell_visit v = {layout, start, size, fn, user};
    return rs_index_visit(&layout->cell_index, start, end, visit_cell, &v);
}

typedef struct piece_visit {
    rs_cell_holder piece;
    rs_held_fn fn;
    void *user;
} piece_visit;

static reshard_status visit_held_cell(void *user, const rs_region *region)
{
    const piece_visit *v = user;
    const rs_cell *cell = &region->layout->cells[region->cell];
    for (int64_t i = 0; i < cell->holder_count; i++) {
        const rs_cell_holder *found = cell_holder(region, i);
        if (found->shard == v->piece.shard && found->piece == v->piece.piece) {
            rs_holder holder;
            listed_holder(region, i, &holder);
            return v->fn(v->user, region, &holder);
        }
    }
    return RESHARD_OK;
}

static reshard_status listed_visit_held(const reshard_layout *layout, int32_t rank, rs_held_fn fn,
                                        void *user)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = rs_listed_first_shard(layout, rank);
         i < layout->shard_count && layout->shards[i].rank == rank; i++) {
        for (int64_t p = 0; p < layout->shards[i].piece_count && status == RESHARD_OK; p++) {
            const reshard_box *box = &layout->shards[i].pieces[p].box;
            piece_visit v = {{i, p}, fn, user};
            cell_visit c = {layout, box->offset, box->size, visit_held_cell, &v};
            status = layout->first_cells != NULL
                         ? visit_cell(&c, layout->first_cells[i] + p)
                         : listed_visit(layout, box->offset, box->size, visit_held_cell, &v);
        }
    }
    return status;
}

static void listed_whole(const rs_region *region, int64_t *out_start, int64_t *out_size)
{
    const rs_cell *cell = &region->layout->cells[region->cell];
    size_t bytes = (size_t)region->layout->ndim * sizeof *out_start;
    memcpy(out_start, cell->start, bytes);
    memcpy(out_size, cell->size, bytes);
}

/* ---- both kinds ------------------------------------------------------------------------------ */

reshard_status rs_layout_visit(const reshard_layout *layout, const int64_t *start,
                               const int64_t *size, rs_region_fn fn, void *user)
{
    return layout->listed ? listed_visit(layout, start, size, fn, user)
                          : rs_regular_visit(layout, start, size, fn, user);
}

reshard_status rs_layout_visit_held(const reshard_layout *layout, int32_t rank, rs_held_fn fn,
                                    void *user)
{
    return layout->listed ? listed_visit_held(layout, rank, fn, user)
                          : rs_regular_visit_held(layout, rank, fn, user);
}

int64_t rs_region_copy_count(const rs_region *region)
{
    const reshard_layout *layout = region->layout;
    if (layout->listed)
        return layout->cells[region->cell].holder_count;
    int64_t count = 1;
    for (int32_t a = 0; a < layout->axis_count; a++) {
        if (layout->axes[a].role != RS_AXIS_PARTIAL)
            count *= region->count[a];
    }
    return count;
}

void rs_region_holder(const rs_region *region, int32_t contributor, int64_t copy,
                      rs_holder *out_holder)
{
    assert(contributor >= 0 && contributor < region->layout->contributor_count);
    assert(copy >= 0 && copy < rs_region_copy_count(region));
    if (region->layout->listed)
        listed_holder(region, copy, out_holder);
    else
        regular_holder(region, contributor, copy, out_holder);
}

bool rs_region_find(const rs_region *region, int32_t rank, rs_holder *out_holder)
{
    return region->layout->listed ? listed_find(region, rank, out_holder)
                                  : regular_find(region, rank, out_holder);
}

void rs_region_place(const rs_region *region, const rs_holder *holder, const int64_t *start,
                     rs_place *out_place)
{
    if (region->layout->listed)
        listed_place(region, holder, start, out_place);
    else
        regular_place(region, holder, start, out_place);
}

void rs_region_whole(const rs_region *region, int64_t *out_start, int64_t *out_size)
{
    if (region->layout->listed)
        listed_whole(region, out_start, out_size);
    else
        regular_whole(region, out_start, out_size);
}
