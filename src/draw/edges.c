/* SPDX-License-Identifier: Apache-2.0 */
/*
 * edges.c - finds where layouts cut each dim, and chooses the dims to be drawn.
 *
 * All cuts are borders of regions, so the corners of regions are the edges. If there are too many
 * regions to visit, only the corners of the tensor are looked at: along each dim a head and a tail
 * of a few segments, found by walking along a line, and all regions in the products of heads and
 * tails. Edges are then complete in these windows, and everything between them is one gap.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/options.h"
#include "base/sort.h"
#include "draw/picture.h"

#include <assert.h>
#include <string.h>

/* With heads and tails of this many segments, three dims stay within REGIONS_MAX. */
enum { REGIONS_MAX = 1 << 14, HEAD_SEGMENTS = 12, COUNTED_MAX = 1 << 20 };

/* The places of a dim that are looked at: the first `head`, and those from `tail` on. Without a
 * gap, both are the dim's length. */
typedef struct window {
    int64_t head, tail;
} window;

typedef struct search {
    reshard_context *context;
    const rs_picture *picture;
    window windows[RESHARD_NDIM_MAX];
    int64_t *edges[RESHARD_NDIM_MAX]; /* not sorted */
    int64_t count, capacity[RESHARD_NDIM_MAX];
    int64_t regions;
    bool is_too_much;
} search;

/* ---- visiting -------------------------------------------------------------------------------- */

static reshard_status add_region(void *user, const rs_region *region)
{
    search *state = user;
    if (++state->regions > REGIONS_MAX) {
        state->is_too_much = true;
        return RESHARD_ERR_RANGE; /* the caller sets the error text */
    }
    for (int32_t d = 0; d < state->picture->ndim; d++) {
        reshard_status status = rs_grow(state->context, &state->edges[d], &state->capacity[d],
                                        state->count + 2, sizeof(int64_t));
        if (status != RESHARD_OK)
            return status;
        state->edges[d][state->count] = region->start[d];
        state->edges[d][state->count + 1] = region->start[d] + region->size[d];
    }
    state->count += 2;
    return RESHARD_OK;
}

/* Visits heads and tails of all dims in all combinations: bit d of `choice` selects the tail of dim
 * d. */
static reshard_status visit_windows(search *state, const reshard_layout *layout)
{
    const rs_picture *picture = state->picture;
    int64_t start[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX];
    for (unsigned choice = 0; choice < 1u << picture->ndim; choice++) {
        bool is_empty = false;
        for (int32_t d = 0; d < picture->ndim; d++) {
            bool is_tail = (choice >> d & 1) != 0;
            if (picture->sliced[d] >= 0) {
                start[d] = picture->sliced[d];
                size[d] = is_tail ? 0 : 1;
            } else {
                start[d] = is_tail ? state->windows[d].tail : 0;
                size[d] = is_tail ? picture->shape[d] - start[d] : state->windows[d].head;
            }
            is_empty = is_empty || size[d] == 0;
        }
        reshard_status status =
            is_empty ? RESHARD_OK : rs_layout_visit(layout, start, size, add_region, state);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

static reshard_status visit_sides(search *state)
{
    reshard_status status = RESHARD_OK;
    state->count = 0;
    state->regions = 0;
    state->is_too_much = false;
    for (int32_t i = 0; i < state->picture->side_count && status == RESHARD_OK; i++)
        status = visit_windows(state, state->picture->sides[i].layout);
    return status;
}

/* ---- walking --------------------------------------------------------------------------------- */

static reshard_status keep_region(void *user, const rs_region *region)
{
    *(rs_region *)user = *region;
    return RESHARD_OK;
}

/* Finds the segment around a place of the line along dim d through the corner of the picture. */
static reshard_status find_segment(const rs_picture *picture, const reshard_layout *layout,
                                   int32_t d, int64_t place, int64_t *out_from, int64_t *out_to)
{
    int64_t start[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX];
    for (int32_t e = 0; e < picture->ndim; e++) {
        start[e] = picture->sliced[e] >= 0 ? picture->sliced[e] : 0;
        size[e] = 1;
    }
    start[d] = place;
    rs_region region;
    reshard_status status = rs_layout_visit(layout, start, size, keep_region, &region);
    if (status != RESHARD_OK)
        return status;
    rs_region_whole(&region, start, size);
    *out_from = start[d];
    *out_to = start[d] + size[d];
    return RESHARD_OK;
}

/* Narrows the window of dim d to at most `segments` at each end of this layout's line. */
static reshard_status narrow(const rs_picture *picture, const reshard_layout *layout, int32_t d,
                             int32_t segments, window *seen)
{
    int64_t from = 0, to = 0;
    int64_t length = picture->shape[d], head = 0, tail = length;
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < segments && head < length && status == RESHARD_OK; i++) {
        status = find_segment(picture, layout, d, head, &from, &to);
        head = to;
    }
    for (int32_t i = 0; i < segments && tail > head && status == RESHARD_OK; i++) {
        status = find_segment(picture, layout, d, tail - 1, &from, &to);
        tail = from;
    }
    if (status == RESHARD_OK && head < seen->head)
        seen->head = head;
    if (status == RESHARD_OK && tail > seen->tail)
        seen->tail = tail;
    return status;
}

static reshard_status narrow_all(search *state, int32_t segments)
{
    const rs_picture *picture = state->picture;
    reshard_status status = RESHARD_OK;
    for (int32_t d = 0; d < picture->ndim && status == RESHARD_OK; d++) {
        window *seen = &state->windows[d];
        *seen = (window){picture->shape[d], 0};
        for (int32_t i = 0;
             i < picture->side_count && picture->sliced[d] < 0 && status == RESHARD_OK; i++)
            status = narrow(picture, picture->sides[i].layout, d, segments, seen);
        if (seen->head >= seen->tail)
            *seen = (window){picture->shape[d], picture->shape[d]};
    }
    return status;
}

/* Visits the regions of all sides or, if these are too many, those in windows that become smaller
 * until they are few enough. */
static reshard_status find_edges(search *state)
{
    const rs_picture *picture = state->picture;
    for (int32_t d = 0; d < picture->ndim; d++)
        state->windows[d] = (window){picture->shape[d], picture->shape[d]};
    reshard_status status = visit_sides(state);
    for (int32_t segments = HEAD_SEGMENTS; segments > 0 && state->is_too_much; segments /= 2) {
        status = narrow_all(state, segments);
        if (status == RESHARD_OK)
            status = visit_sides(state);
    }
    if (state->is_too_much)
        return rs_fail(RESHARD_ERR_RANGE,
                       "more than %d boxes meet in one corner of the tensor, which is too many to "
                       "draw; draw a slice of it",
                       (int)REGIONS_MAX);
    return status;
}

/* ---- axes ------------------------------------------------------------------------------------ */

static void sort_edges(search *state, int64_t *out_counts)
{
    for (int32_t d = 0; d < state->picture->ndim; d++) {
        int64_t kept = 0, *edges = state->edges[d];
        rs_sort(edges, (size_t)state->count, sizeof *edges, rs_compare_i64);
        for (int64_t i = 0; i < state->count; i++) {
            if (kept == 0 || edges[kept - 1] != edges[i])
                edges[kept++] = edges[i];
        }
        out_counts[d] = kept;
    }
}

/* The number of segments between two edges. 0 for two layouts, for one that does not cut each dim
 * by itself, and if there are very many. */
static int64_t count_parts(const rs_picture *picture, int32_t d, int64_t from, int64_t to)
{
    const reshard_layout *layout = picture->sides[0].layout;
    int64_t first = 0, parts = 0;
    if (picture->side_count != 1 || layout->listed || layout->flat.count != 0)
        return 0;
    for (; from < to && parts < COUNTED_MAX; parts++) {
        if (find_segment(picture, layout, d, from, &first, &from) != RESHARD_OK)
            return 0;
    }
    return from < to ? 0 : parts;
}

static reshard_status make_axis(rs_picture *picture, const search *state, int32_t d,
                                const int64_t *counts, rs_picture_axis *axis)
{
    *axis = (rs_picture_axis){.dim = d, .count = 1, .gap = -1};
    static const int64_t whole[] = {0, 1};
    const int64_t *edges = d >= 0 ? state->edges[d] : whole;
    axis->count = d >= 0 ? (int32_t)counts[d] - 1 : 1;
    axis->edges =
        rs_arena_copy(&picture->edges_arena, edges, (size_t)axis->count + 1, sizeof *edges);
    if (axis->edges == NULL)
        return rs_allocation_status();
    if (d < 0 || state->windows[d].head == picture->shape[d])
        return RESHARD_OK;
    for (int32_t i = 0; i < axis->count; i++) {
        if (axis->edges[i] == state->windows[d].head)
            axis->gap = i;
    }
    assert(axis->gap >= 0 && axis->edges[axis->gap + 1] == state->windows[d].tail);
    axis->gap_parts = count_parts(picture, d, state->windows[d].head, state->windows[d].tail);
    return RESHARD_OK;
}

/* Draws the dims that are cut. If they are fewer than two, draws some uncut ones as well. */
static reshard_status choose_dims(const rs_picture *picture, const int64_t *counts,
                                  int32_t dims[RS_PICTURE_AXES])
{
    bool drawn[RESHARD_NDIM_MAX] = {false};
    char names[RESHARD_NDIM_MAX * 4 + 1] = "";
    rs_text text;
    rs_text_init(&text, names, sizeof names);
    int32_t count = 0, axis = RS_PICTURE_AXES;
    for (int32_t d = 0; d < picture->ndim; d++) {
        drawn[d] = counts[d] > 2;
        if (drawn[d])
            rs_text_add(&text, "%s%d", count++ == 0 ? "" : ", ", (int)d);
    }
    if (count > RS_PICTURE_AXES)
        return rs_fail(RESHARD_ERR_RANGE,
                       "dims %s are cut, and a picture has three; draw a slice of %d of them",
                       names, (int)(count - RS_PICTURE_AXES));
    for (int32_t d = 0; d < picture->ndim && count < 2; d++) {
        if (!drawn[d] && picture->sliced[d] < 0) {
            drawn[d] = true;
            count++;
        }
    }
    for (int32_t d = picture->ndim - 1; d >= 0; d--) {
        if (drawn[d])
            dims[--axis] = d;
    }
    while (axis > 0)
        dims[--axis] = -1;
    return RESHARD_OK;
}

static reshard_status make_axes(rs_picture *picture, search *state)
{
    int64_t counts[RESHARD_NDIM_MAX];
    int32_t dims[RS_PICTURE_AXES];
    sort_edges(state, counts);
    reshard_status status = choose_dims(picture, counts, dims);
    for (int axis = 0; axis < RS_PICTURE_AXES && status == RESHARD_OK; axis++)
        status = make_axis(picture, state, dims[axis], counts, &picture->axes[axis]);
    return status;
}

/* ---- making ---------------------------------------------------------------------------------- */

static reshard_status read_slices(rs_picture *picture, const reshard_draw_options *options)
{
    for (int32_t d = 0; d < picture->ndim; d++)
        picture->sliced[d] = -1;
    for (int32_t i = 0; i < options->slice_count; i++) {
        const reshard_draw_slice *slice = &options->slices[i];
        int32_t d = slice->dim < 0 ? slice->dim + picture->ndim : slice->dim;
        if (d < 0 || d >= picture->ndim)
            return rs_fail(RESHARD_ERR_RANGE,
                           "slice: dimension %d does not exist in a tensor of %d dimensions",
                           (int)slice->dim, (int)picture->ndim);
        if (slice->index < 0 || slice->index >= picture->shape[d])
            return rs_fail(RESHARD_ERR_RANGE,
                           "slice: dimension %d has no index %lld; its length is %lld", (int)d,
                           (long long)slice->index, (long long)picture->shape[d]);
        if (picture->sliced[d] >= 0)
            return rs_fail(RESHARD_ERR_INVALID, "slice: dimension %d is given twice", (int)d);
        picture->sliced[d] = slice->index;
    }
    return RESHARD_OK;
}

reshard_status rs_picture_init(rs_picture *picture, int32_t side_count,
                               const reshard_layout *const *layouts,
                               const reshard_draw_options *options)
{
    reshard_context *context = layouts[0]->context;
    *picture = (rs_picture){.side_count = side_count, .ndim = layouts[0]->ndim};
    rs_arena_init(&picture->edges_arena, context);
    rs_arena_init(&picture->cells_arena, context);
    memcpy(picture->shape, layouts[0]->shape, sizeof picture->shape);
    for (int32_t i = 0; i < side_count; i++)
        picture->sides[i].layout = layouts[i];
    picture->is_empty = layouts[0]->volume == 0;
    reshard_status status = read_slices(picture, options);
    if (status != RESHARD_OK || picture->is_empty)
        return status;
    search state = {.context = context, .picture = picture};
    status = find_edges(&state);
    if (status == RESHARD_OK)
        status = make_axes(picture, &state);
    for (int32_t d = 0; d < picture->ndim; d++)
        rs_release(context, state.edges[d]);
    return status;
}

void rs_picture_release(rs_picture *picture)
{
    rs_arena_release(&picture->edges_arena);
    rs_arena_release(&picture->cells_arena);
}

void rs_picture_fit(rs_picture_axis *axis, int32_t count)
{
    assert(count >= 1);
    if (axis->count <= count)
        return;
    int32_t head = count / 2, tail = count - 1 - head;
    if (axis->gap >= 0) { /* it stays within what is left out */
        head = (int32_t)rs_min(head, axis->gap);
        tail = (int32_t)rs_min(count - 1 - head, axis->count - axis->gap - 1);
        head = (int32_t)rs_min(count - 1 - tail, axis->gap);
    }
    int64_t parts = axis->count - head - tail;
    if (axis->gap >= 0)
        parts = axis->gap_parts == 0 ? 0 : parts - 1 + axis->gap_parts;
    memmove(axis->edges + head + 1, axis->edges + axis->count - tail,
            ((size_t)tail + 1) * sizeof *axis->edges);
    axis->count = head + 1 + tail;
    axis->gap = head;
    axis->gap_parts = parts;
}
