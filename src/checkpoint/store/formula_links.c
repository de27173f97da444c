/* SPDX-License-Identifier: Apache-2.0 */
/*
 * formula_links.c - computes a box of a tensor that links of a map fill. The values of most axes of
 * a link are walked, those alone that reach into the box; what is left is a grid with one axis for
 * each dim, so that its share of a stored piece is one strided region of a file. That region is
 * read straight to its place in memory. Of a source that is computed itself, boxes are computed
 * and copied there.
 */
#include "base/checked.h"
#include "base/shape.h"
#include "base/sort.h"
#include "checkpoint/store/formula.h"
#include "kernel/copy/copy.h"

#include <assert.h>
#include <string.h>

/* ---- axes ------------------------------------------------------------------------------------ */

static bool is_contiguous(const reshard_link_axis *axis)
{
    return axis->source_step == 1 && axis->target_step == 1;
}

/* The axes that are best read together come first. */
static int compare_axes(const void *a, const void *b)
{
    const reshard_link_axis *x = a, *y = b;
    if (is_contiguous(x) != is_contiguous(y))
        return is_contiguous(x) ? -1 : 1;
    if (x->size != y->size)
        return x->size > y->size ? -1 : 1;
    if (x->target_dim != y->target_dim)
        return x->target_dim < y->target_dim ? -1 : 1;
    return (x->target_step < y->target_step) - (x->target_step > y->target_step);
}

static int compare_target_dims(const void *a, const void *b)
{
    const reshard_link_axis *x = a, *y = b;
    return (x->target_dim > y->target_dim) - (x->target_dim < y->target_dim);
}

void rs_formula_link_sort(reshard_link_axis *axes, int32_t count, int32_t *out_inner_count)
{
    reshard_link_axis sorted[RESHARD_FACTORS_MAX];
    uint32_t sources = 0, targets = 0;
    int32_t outer = 0, inner = count;
    assert(count <= RESHARD_FACTORS_MAX);
    rs_sort(axes, (size_t)count, sizeof *axes, compare_axes);
    for (int32_t i = 0; i < count; i++) {
        uint32_t source = 1U << axes[i].source_dim, target = 1U << axes[i].target_dim;
        if ((sources & source) != 0 || (targets & target) != 0) {
            sorted[outer++] = axes[i];
            continue;
        }
        sources |= source;
        targets |= target;
        sorted[--inner] = axes[i];
    }
    memcpy(axes, sorted, (size_t)count * sizeof *axes);
    /* In the order of the target, a grid that is contiguous on both sides is read as one range. */
    rs_sort(axes + inner, (size_t)(count - inner), sizeof *axes, compare_target_dims);
    *out_inner_count = count - inner;
}

/* ---- walking --------------------------------------------------------------------------------- */

typedef struct link_walk {
    const rs_stored_tensor *tensor;
    const rs_formula_link *link;
    const int64_t *offset, *size;                                     /* the box */
    int64_t source_at[RESHARD_NDIM_MAX], target_at[RESHARD_NDIM_MAX]; /* by the axes so far */
    int64_t strides[RESHARD_NDIM_MAX];                                /* of the box in memory */
    int64_t reach[RESHARD_FACTORS_MAX]; /* by axis: how far later axes go along its target dim */
    char *memory, *scratch;
    size_t scratch_bytes;
    rs_formula_tally *tally;
} link_walk;

/* The values x of an axis for which at + x * step lies in begin .. end-1. Empty if first > last. */
typedef struct axis_range {
    int64_t first, last;
} axis_range;

static axis_range clip_axis(axis_range range, int64_t at, int64_t step, int64_t begin, int64_t end)
{
    int64_t first = begin <= at ? 0 : (begin - at + step - 1) / step;
    int64_t last = end <= at ? -1 : (end - 1 - at) / step;
    return (axis_range){rs_max(range.first, first), rs_min(range.last, last)};
}

/* The values of an axis that reach into the box. */
static axis_range range_in_box(const link_walk *walk, int32_t index)
{
    const reshard_link_axis *axis = &walk->link->axes[index];
    int32_t d = axis->target_dim;
    return clip_axis((axis_range){0, axis->size - 1}, walk->target_at[d], axis->target_step,
                     walk->offset[d] - walk->reach[index], walk->offset[d] + walk->size[d]);
}

static bool is_inside(int32_t ndim, const int64_t *at, uint32_t skipped, const int64_t *offset,
                      const int64_t *size)
{
    for (int32_t d = 0; d < ndim; d++) {
        int64_t from = offset != NULL ? offset[d] : 0;
        if ((skipped >> d & 1) == 0 && (at[d] < from || at[d] >= from + size[d]))
            return false;
    }
    return true;
}

/* Reads what one piece of the source has of the grid. */
static reshard_status read_piece(const link_walk *walk, const rs_stored_piece *piece,
                                 const axis_range *ranges)
{
    const rs_formula_link *link = walk->link;
    const rs_stored_tensor *source = link->source;
    const reshard_link_axis *inner = link->axes + (link->axis_count - link->inner_count);
    rs_file_region region = {.ndim = link->inner_count, .element_bytes = source->element_bytes};
    int64_t strides[RESHARD_NDIM_MAX], from = 0, to = 0;
    uint32_t along = 0;
    for (int32_t i = 0; i < link->inner_count; i++)
        along |= 1U << inner[i].source_dim;
    if (!is_inside(source->carried_ndim, walk->source_at, along, piece->offset, piece->size))
        return RESHARD_OK;
    rs_piece_strides(source, piece, strides);
    for (int32_t d = 0; d < source->carried_ndim; d++)
        from += (walk->source_at[d] - (piece->offset != NULL ? piece->offset[d] : 0)) * strides[d];
    for (int32_t d = 0; d < walk->tensor->carried_ndim; d++)
        to += (walk->target_at[d] - walk->offset[d]) * walk->strides[d];
    for (int32_t i = 0; i < link->inner_count; i++) {
        int32_t d = inner[i].source_dim;
        int64_t begin = piece->offset != NULL ? piece->offset[d] : 0;
        axis_range range = clip_axis(ranges[i], walk->source_at[d], inner[i].source_step, begin,
                                     begin + piece->size[d]);
        if (range.first > range.last)
            return RESHARD_OK;
        region.size[i] = range.last - range.first + 1;
        region.file_strides[i] = strides[d] * inner[i].source_step;
        region.memory_strides[i] = walk->strides[inner[i].target_dim] * inner[i].target_step;
        from += range.first * region.file_strides[i];
        to += range.first * region.memory_strides[i];
    }
    return rs_file_region_read(walk->tensor->formula->checkpoint->files[piece->file].file,
                               piece->at + (uint64_t)(from * source->element_bytes), &region,
                               walk->memory + to * source->element_bytes, walk->scratch,
                               walk->scratch_bytes);
}

/* Computes a box of the source, and copies it to its place in memory: `to`, with a step for each
 * dim of the source. */
static reshard_status compute_box(const link_walk *walk, const int64_t *offset, const int64_t *size,
                                  char *to, const int64_t *steps)
{
    const rs_stored_tensor *source = walk->link->source;
    int32_t ndim = source->carried_ndim;
    char *tile = walk->scratch, *rest = tile + RS_FORMULA_SCRATCH_MIN;
    rs_tiles tiles =
        rs_tiles_cut(ndim, size, (int64_t)RS_FORMULA_SCRATCH_MIN / source->element_bytes);
    for (int64_t i = 0; i < tiles.count; i++) {
        int64_t at[RESHARD_NDIM_MAX] = {0}, extent[RESHARD_NDIM_MAX] = {0};
        int64_t strides[RESHARD_NDIM_MAX], place = 0;
        rs_tiles_at(&tiles, i, at, extent);
        for (int32_t d = 0; d < ndim; d++) {
            place += at[d] * steps[d];
            at[d] += offset[d];
        }
        reshard_status status =
            rs_formula_read(source, at, extent, tile, rest,
                            walk->scratch_bytes - RS_FORMULA_SCRATCH_MIN, walk->tally);
        if (status != RESHARD_OK)
            return status;
        rs_copy copy;
        rs_dense_strides(ndim, extent, strides);
        rs_copy_prepare(&copy, source->element_bytes, ndim, extent, strides, steps);
        rs_copy_run(&copy, tile, to + place * source->element_bytes);
    }
    return RESHARD_OK;
}

/* Computes the grid of a source that no file holds: boxes along the axes that are contiguous in the
 * source, for each choice of the others' values. */
static reshard_status compute_grid(const link_walk *walk, const axis_range *ranges)
{
    const rs_formula_link *link = walk->link;
    const reshard_link_axis *inner = link->axes + (link->axis_count - link->inner_count);
    int64_t at[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX], steps[RESHARD_NDIM_MAX];
    int64_t choices = 1, to = 0;
    for (int32_t d = 0; d < walk->tensor->carried_ndim; d++)
        to += (walk->target_at[d] - walk->offset[d]) * walk->strides[d];
    for (int32_t d = 0; d < link->source->carried_ndim; d++)
        size[d] = steps[d] = 1;
    for (int32_t i = 0; i < link->inner_count; i++) {
        int64_t count = ranges[i].last - ranges[i].first + 1;
        if (inner[i].source_step != 1) {
            choices *= count;
            continue;
        }
        size[inner[i].source_dim] = count;
        steps[inner[i].source_dim] = walk->strides[inner[i].target_dim] * inner[i].target_step;
    }
    reshard_status status = RESHARD_OK;
    for (int64_t choice = 0; status == RESHARD_OK && choice < choices; choice++) {
        int64_t left = choice, place = to;
        memcpy(at, walk->source_at, sizeof at);
        for (int32_t i = 0; i < link->inner_count; i++) {
            int64_t count = ranges[i].last - ranges[i].first + 1, x = ranges[i].first;
            if (inner[i].source_step != 1) {
                x += left % count;
                left /= count;
            }
            at[inner[i].source_dim] += x * inner[i].source_step;
            place += x * walk->strides[inner[i].target_dim] * inner[i].target_step;
        }
        status =
            compute_box(walk, at, size, walk->memory + place * link->source->element_bytes, steps);
    }
    return status;
}

/* Reads the grid of the inner axes. */
static reshard_status read_grid(const link_walk *walk)
{
    const rs_formula_link *link = walk->link;
    int32_t outer = link->axis_count - link->inner_count;
    axis_range ranges[RESHARD_NDIM_MAX];
    uint32_t along = 0;
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < link->inner_count; i++) {
        ranges[i] = range_in_box(walk, outer + i);
        along |= 1U << link->axes[outer + i].target_dim;
        if (ranges[i].first > ranges[i].last)
            return RESHARD_OK;
    }
    if (!is_inside(walk->tensor->carried_ndim, walk->target_at, along, walk->offset, walk->size))
        return RESHARD_OK;
    if (link->source->formula != NULL)
        status = compute_grid(walk, ranges);
    for (int64_t i = 0;
         status == RESHARD_OK && link->source->formula == NULL && i < link->source->piece_count;
         i++)
        status = read_piece(walk, &link->source->pieces[i], ranges);
    return rs_fail_within(status, "tensor \"%.*s\"", RS_SHOWN(link->source->name));
}

/* Recursion is bounded by RESHARD_FACTORS_MAX. */
static reshard_status walk_axes(link_walk *walk, int32_t index)
{
    const rs_formula_link *link = walk->link;
    if (index == link->axis_count - link->inner_count)
        return read_grid(walk);
    const reshard_link_axis *axis = &link->axes[index];
    int64_t *source = &walk->source_at[axis->source_dim];
    int64_t *target = &walk->target_at[axis->target_dim];
    int64_t source_from = *source, target_from = *target;
    axis_range range = range_in_box(walk, index);
    reshard_status status = RESHARD_OK;
    for (int64_t x = range.first; status == RESHARD_OK && x <= range.last; x++) {
        *source = source_from + x * axis->source_step;
        *target = target_from + x * axis->target_step;
        status = walk_axes(walk, index + 1);
    }
    *source = source_from;
    *target = target_from;
    return status;
}

static reshard_status read_link(link_walk *walk, const rs_formula_link *link)
{
    int64_t reach[RESHARD_NDIM_MAX] = {0};
    walk->link = link;
    memcpy(walk->source_at, link->source_at, (size_t)link->source->carried_ndim * sizeof(int64_t));
    memcpy(walk->target_at, link->target_at, (size_t)walk->tensor->carried_ndim * sizeof(int64_t));
    for (int32_t i = link->axis_count; i-- > 0;) {
        const reshard_link_axis *axis = &link->axes[i];
        walk->reach[i] = reach[axis->target_dim];
        reach[axis->target_dim] += (axis->size - 1) * axis->target_step;
    }
    return walk_axes(walk, 0);
}

reshard_status rs_formula_read_links(const rs_stored_tensor *tensor, const int64_t *offset,
                                     const int64_t *size, char *memory, char *scratch,
                                     size_t scratch_bytes, rs_formula_tally *tally)
{
    reshard_status status = RESHARD_OK;
    link_walk walk = {.tensor = tensor,
                      .offset = offset,
                      .size = size,
                      .memory = memory,
                      .scratch = scratch,
                      .scratch_bytes = scratch_bytes,
                      .tally = tally};
    rs_dense_strides(tensor->carried_ndim, size, walk.strides);
    for (int64_t i = 0; status == RESHARD_OK && i < tensor->formula->link_count; i++)
        status = read_link(&walk, &tensor->formula->links[i]);
    return status;
}
