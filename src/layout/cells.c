/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cells.c - divides a tensor, by its listed shards, into cells: boxes that are held by the same
 * shards throughout.
 *
 * If the shards tile the tensor, their pieces are the cells. Shards that may overlap are cut apart,
 * starting with the whole tensor: a box that is contained in every piece that touches it is a cell.
 * Any other box is split in the dim in which it contains the most faces of pieces, at the median of
 * these faces. Each split halves the faces in that dim, so the depth is logarithmic. A box that no
 * piece touches is a gap.
 *
 * Some covers have far more cells than pieces (n slabs across n others), or many cells with many
 * holders each (n boxes inside each other). Both numbers are limited.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/sort.h"
#include "layout/layout.h"
#include "text/text.h"

#include <inttypes.h>
#include <string.h>

typedef struct cutter {
    reshard_layout *layout;
    reshard_context *context;
    const rs_cell_holder *pieces; /* all pieces of all shards, ordered by shard */
    rs_cell *cells;
    int64_t cell_count, cell_capacity, cell_max;
    rs_cell_holder *holders;
    int64_t holder_count, holder_capacity, holder_max;
} cutter;

static const reshard_box *box_of(const cutter *c, int64_t piece)
{
    const rs_cell_holder *p = &c->pieces[piece];
    return &c->layout->shards[p->shard].pieces[p->piece].box;
}

static reshard_status add_cell(cutter *c, const reshard_box *box, const int64_t *list,
                               int64_t count)
{
    if (c->cell_count == c->cell_max)
        return rs_fail(RESHARD_ERR_RANGE,
                       "the boxes overlap in more than %" PRId64
                       " different ways; list fewer of them",
                       c->cell_max);
    if (count > c->holder_max - c->holder_count)
        return rs_fail(RESHARD_ERR_RANGE,
                       "the boxes overlap in different ways that have more than %" PRId64
                       " owners in all; list fewer of them",
                       c->holder_max);
    reshard_status status =
        rs_grow(c->context, &c->cells, &c->cell_capacity, c->cell_count + 1, sizeof *c->cells);
    if (status == RESHARD_OK)
        status = rs_grow(c->context, &c->holders, &c->holder_capacity, c->holder_count + count,
                         sizeof *c->holders);
    if (status != RESHARD_OK)
        return status;
    rs_cell *cell = &c->cells[c->cell_count++];
    memset(cell, 0, sizeof *cell);
    memcpy(cell->start, box->offset, sizeof cell->start);
    memcpy(cell->size, box->size, sizeof cell->size);
    cell->first_holder = c->holder_count;
    cell->holder_count = count;
    for (int64_t i = 0; i < count; i++)
        c->holders[c->holder_count++] = c->pieces[list[i]];
    return RESHARD_OK;
}

/* Collects the faces of the listed pieces that lie strictly inside the box, in one dim, and returns
 * their number. out_faces may be NULL. */
static int64_t collect_faces(const cutter *c, const reshard_box *box, int32_t dim,
                             const int64_t *list, int64_t count, int64_t *out_faces)
{
    int64_t low = box->offset[dim], high = low + box->size[dim];
    int64_t found = 0;
    for (int64_t i = 0; i < count; i++) {
        const reshard_box *b = box_of(c, list[i]);
        int64_t ends[2] = {b->offset[dim], b->offset[dim] + b->size[dim]};
        for (int e = 0; e < 2; e++) {
            if (ends[e] > low && ends[e] < high) {
                if (out_faces != NULL)
                    out_faces[found] = ends[e];
                found++;
            }
        }
    }
    return found;
}

static bool choose_split(const cutter *c, const reshard_box *box, const int64_t *list,
                         int64_t count, int64_t *scratch, int32_t *out_dim, int64_t *out_at)
{
    int64_t most = 0;
    for (int32_t d = 0; d < box->ndim; d++) {
        int64_t faces = collect_faces(c, box, d, list, count, NULL);
        if (faces > most) {
            most = faces;
            *out_dim = d;
        }
    }
    if (most == 0)
        return false;
    (void)collect_faces(c, box, *out_dim, list, count, scratch);
    rs_sort(scratch, (size_t)most, sizeof *scratch, rs_compare_i64);
    *out_at = scratch[most / 2];
    return true;
}

static reshard_status fail_gap(const reshard_box *box)
{
    char text[512];
    rs_text words;
    rs_text_init(&words, text, sizeof text);
    rs_text_add_box(&words, box->ndim, box->offset, box->size);
    return rs_fail(RESHARD_ERR_GAP, "nobody owns %s", text);
}

static bool touches(const reshard_box *a, const reshard_box *b)
{
    for (int32_t d = 0; d < a->ndim; d++) {
        if (a->offset[d] >= b->offset[d] + b->size[d] || b->offset[d] >= a->offset[d] + a->size[d])
            return false;
    }
    return true;
}

static reshard_status cut_apart(cutter *c, const reshard_box *box, const int64_t *list,
                                int64_t count)
{
    if (count == 0)
        return fail_gap(box);
    /* Used first for the faces from which the split is chosen, then for the list of one half. */
    int64_t *scratch = rs_allocate_array(c->context, (size_t)count * 2, sizeof *scratch);
    if (scratch == NULL)
        return rs_allocation_status();
    int32_t dim = 0;
    int64_t at = 0;
    reshard_status status = RESHARD_OK;
    if (!choose_split(c, box, list, count, scratch, &dim, &at)) {
        status = add_cell(c, box, list, count);
    } else {
        for (int half = 0; half < 2 && status == RESHARD_OK; half++) {
            reshard_box part = *box;
            if (half == 1)
                part.offset[dim] = at;
            part.size[dim] =
                half == 0 ? at - box->offset[dim] : box->offset[dim] + box->size[dim] - at;
            int64_t kept = 0;
            for (int64_t i = 0; i < count; i++) {
                if (touches(&part, box_of(c, list[i])))
                    scratch[kept++] = list[i];
            }
            status = cut_apart(c, &part, scratch, kept);
        }
    }
    rs_release(c->context, scratch);
    return status;
}

reshard_status rs_cells_build(reshard_layout *layout)
{
    int64_t count = 0;
    for (int64_t i = 0; i < layout->shard_count; i++)
        count += layout->shards[i].piece_count;
    cutter c = {.layout = layout, .context = layout->context};
    c.cell_max = rs_max(RS_CELLS_MAX_LEAST, count * RS_CELLS_PER_PIECE_MAX);
    c.holder_max = rs_max(RS_CELL_HOLDERS_MAX_LEAST, count * RS_CELL_HOLDERS_PER_PIECE_MAX);
    reshard_status status = RESHARD_OK;
    rs_cell_holder *pieces = rs_allocate_array(c.context, (size_t)count, sizeof *pieces);
    int64_t *list = rs_allocate_array(c.context, (size_t)count, sizeof *list);
    if (pieces == NULL || list == NULL) {
        status = rs_allocation_status();
        goto out;
    }
    int64_t next = 0;
    for (int64_t i = 0; i < layout->shard_count; i++) {
        for (int64_t p = 0; p < layout->shards[i].piece_count; p++) {
            pieces[next] = (rs_cell_holder){i, p};
            list[next] = next;
            next++;
        }
    }
    c.pieces = pieces;
    reshard_box whole = {.ndim = layout->ndim};
    memcpy(whole.size, layout->shape, sizeof whole.size);
    if (layout->volume != 0)
        status = cut_apart(&c, &whole, list, count);
    if (status != RESHARD_OK)
        goto out;
    layout->cell_count = c.cell_count;
    layout->cells = rs_arena_copy(&layout->arena, c.cells, (size_t)c.cell_count, sizeof *c.cells);
    layout->cell_holders =
        rs_arena_copy(&layout->arena, c.holders, (size_t)c.holder_count, sizeof *c.holders);
    if (layout->cells == NULL || layout->cell_holders == NULL)
        status = rs_allocation_status();
out:
    rs_release(c.context, c.cells);
    rs_release(c.context, c.holders);
    rs_release(c.context, pieces);
    rs_release(c.context, list);
    return status;
}
