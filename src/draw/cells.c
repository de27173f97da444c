/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cells.c - finds who holds each cell of a picture, and whether a plan leaves it where it is.
 */
#include "base/context.h"
#include "draw/picture.h"

#include <string.h>

static reshard_status keep_region(void *user, const rs_region *region)
{
    *(rs_region *)user = *region;
    return RESHARD_OK;
}

/* Finds the first element of a cell. */
static void find_corner(const rs_picture *picture, int64_t cell, int64_t *out_start)
{
    for (int32_t d = 0; d < picture->ndim; d++)
        out_start[d] = picture->sliced[d] >= 0 ? picture->sliced[d] : 0;
    for (int axis = RS_PICTURE_AXES - 1; axis >= 0; axis--) {
        const rs_picture_axis *shown = &picture->axes[axis];
        if (shown->dim >= 0)
            out_start[shown->dim] = shown->edges[cell % shown->count];
        cell /= shown->count;
    }
}

static bool is_in_gap(const rs_picture *picture, int64_t cell)
{
    for (int axis = RS_PICTURE_AXES - 1; axis >= 0; axis--) {
        if (cell % picture->axes[axis].count == picture->axes[axis].gap)
            return true;
        cell /= picture->axes[axis].count;
    }
    return false;
}

/* Whether two regions of a layout have the same holders for the same reason. Regions that are not
 * alike may still turn out to have the same label. */
static bool are_alike(const rs_region *a, const rs_region *b)
{
    size_t bytes = (size_t)a->layout->axis_count * sizeof a->first[0];
    if (a->layout->listed)
        return a->cell == b->cell;
    return memcmp(a->first, b->first, bytes) == 0 && memcmp(a->count, b->count, bytes) == 0;
}

/* Finds the set of a region's holders, or adds one. Neighbours mostly share theirs, so the last
 * sets are tried first. */
static reshard_status find_set(rs_picture *picture, rs_side *side, const rs_region *region,
                               int32_t *out_set)
{
    rs_rank_set made = {.region = *region};
    for (int32_t i = side->set_count - 1; i >= 0; i--) {
        *out_set = i;
        if (are_alike(&side->sets[i].region, region))
            return RESHARD_OK;
    }
    reshard_status status =
        rs_region_label(region, &picture->cells_arena, &made.label, &made.least);
    if (status != RESHARD_OK)
        return status;
    for (int32_t i = 0; i < side->set_count; i++) {
        *out_set = i;
        if (side->sets[i].least == made.least && strcmp(side->sets[i].label, made.label) == 0)
            return RESHARD_OK;
    }
    *out_set = side->set_count;
    side->sets[side->set_count++] = made;
    return RESHARD_OK;
}

static reshard_status fill_side(rs_picture *picture, rs_side *side)
{
    int64_t start[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX];
    int64_t count = rs_picture_cell_count(picture);
    side->set_count = 0;
    side->cells = rs_arena_allocate_array(&picture->cells_arena, (size_t)count, sizeof(int32_t));
    side->sets = rs_arena_allocate_array(&picture->cells_arena, (size_t)count, sizeof(rs_rank_set));
    if (side->cells == NULL || side->sets == NULL)
        return rs_allocation_status();
    for (int32_t d = 0; d < picture->ndim; d++)
        size[d] = 1;
    for (int64_t cell = 0; cell < count; cell++) {
        rs_region region;
        side->cells[cell] = -1;
        if (is_in_gap(picture, cell))
            continue;
        find_corner(picture, cell, start);
        reshard_status status = rs_layout_visit(side->layout, start, size, keep_region, &region);
        if (status == RESHARD_OK)
            status = find_set(picture, side, &region, &side->cells[cell]);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

/* A target rank that holds the value needs nothing. Of a partial value it holds at most a
 * contribution. */
static rs_stay judge(const rs_region *source, const rs_region *target)
{
    int64_t copies = rs_region_copy_count(target), found = 0;
    int32_t contributors = target->layout->partial ? target->layout->contributor_count : 1;
    for (int32_t c = 0; c < contributors; c++) {
        for (int64_t i = 0; i < copies; i++) {
            rs_holder holder, other;
            rs_region_holder(target, c, i, &holder);
            found += rs_region_find(source, holder.rank, &other);
        }
    }
    if (found == 0)
        return RS_STAY_NONE;
    return found == copies * contributors && !source->layout->partial ? RS_STAY_ALL : RS_STAY_SOME;
}

/* Neighbouring cells mostly have the same pair of sets, so the last result is kept. */
static reshard_status judge_cells(rs_picture *picture)
{
    const rs_side *source = &picture->sides[0], *target = &picture->sides[1];
    int64_t count = rs_picture_cell_count(picture);
    int32_t source_set = -1, target_set = -1;
    rs_stay stay = RS_STAY_NONE;
    picture->stays = rs_arena_allocate(&picture->cells_arena, (size_t)count);
    if (picture->stays == NULL)
        return rs_allocation_status();
    for (int64_t cell = 0; cell < count; cell++) {
        picture->stays[cell] = RS_STAY_NONE;
        if (picture->side_count < 2 || source->cells[cell] < 0)
            continue;
        if (source->cells[cell] != source_set || target->cells[cell] != target_set) {
            source_set = source->cells[cell];
            target_set = target->cells[cell];
            stay = judge(&source->sets[source_set].region, &target->sets[target_set].region);
        }
        picture->stays[cell] = (uint8_t)stay;
    }
    return RESHARD_OK;
}

reshard_status rs_picture_fill(rs_picture *picture)
{
    reshard_status status = RESHARD_OK;
    rs_arena_release(&picture->cells_arena);
    for (int32_t i = 0; i < picture->side_count && status == RESHARD_OK; i++)
        status = fill_side(picture, &picture->sides[i]);
    return status == RESHARD_OK ? judge_cells(picture) : status;
}
