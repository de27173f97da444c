/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/split_space.h"

#include "base/checked.h"
#include "base/error.h"
#include "layout/flat.h"

#include <string.h>

/* ---- lines ----------------------------------------------------------------------------------- */

/* Joins axes that continue each other: as a set of places, {4, step 3} and {3, step 1} are {12,
 * step 1}. */
static void take_line(const rs_link *link, const rs_link_side *side, int32_t dim,
                      rs_strided_line *out_line)
{
    rs_strided_line *line = out_line;
    line->offset = side->offset[dim];
    line->count = 0;
    for (int32_t i = side->first[dim]; i < side->first[dim + 1]; i++) {
        int64_t size = link->size[side->members[i]], step = side->weight[side->members[i]];
        if (size == 1)
            continue;
        int32_t last = line->count - 1;
        if (last >= 0 && line->step[last] == step * size) {
            line->step[last] = step;
            line->size[last] *= size;
        } else {
            line->step[line->count] = step;
            line->size[line->count++] = size;
        }
    }
}

/* ---- making ---------------------------------------------------------------------------------- */

/* While a space is made, radix[d] is -1 for a dim d that cannot be split, and otherwise 0. */
void rs_split_space_begin(rs_split_space *space, int32_t ndim)
{
    memset(space, 0, sizeof *space);
    space->dim_count = space->ndim = ndim;
    for (int32_t d = 0; d < ndim; d++) {
        space->first[d] = space->dim[d] = d;
        space->step[d] = 1;
    }
    space->first[ndim] = ndim;
}

static void remove_digit(rs_split_space *space, int32_t digit)
{
    for (int32_t k = digit; k + 1 < space->ndim; k++) {
        space->step[k] = space->step[k + 1];
        space->dim[k] = space->dim[k + 1];
    }
    space->ndim--;
    for (int32_t d = 0; d <= space->dim_count; d++)
        space->first[d] -= space->first[d] > digit;
}

/* Leaves a dim whole, for good. */
static void give_up(rs_split_space *space, int32_t dim)
{
    while (space->first[dim + 1] - space->first[dim] > 1)
        remove_digit(space, space->first[dim]);
    space->radix[dim] = -1;
}

static int32_t most_split(const rs_split_space *space)
{
    int32_t most = 0;
    for (int32_t d = 1; d < space->dim_count; d++) {
        if (space->first[d + 1] - space->first[d] > space->first[most + 1] - space->first[most])
            most = d;
    }
    return most;
}

static void add_step(rs_split_space *space, int32_t dim, int64_t step)
{
    if (space->radix[dim] < 0)
        return;
    int32_t at = space->first[dim];
    while (space->step[at] > step) /* ends at step 1 at the latest */
        at++;
    if (space->step[at] == step)
        return;
    if (step % space->step[at] != 0 ||
        (at > space->first[dim] && space->step[at - 1] % step != 0)) {
        give_up(space, dim);
        return;
    }
    if (space->ndim == RESHARD_NDIM_MAX) {
        int32_t most = most_split(space);
        bool helps = space->first[most + 1] - space->first[most] > 1;
        give_up(space, helps ? most : dim);
        add_step(space, dim, step);
        return;
    }
    for (int32_t k = space->ndim; k > at; k--) {
        space->step[k] = space->step[k - 1];
        space->dim[k] = space->dim[k - 1];
    }
    space->step[at] = step;
    space->dim[at] = dim;
    space->ndim++;
    for (int32_t d = dim + 1; d <= space->dim_count; d++)
        space->first[d]++;
}

void rs_split_space_see(rs_split_space *space, const rs_link *link, const rs_link_side *side)
{
    for (int32_t d = 0; d < space->dim_count; d++) {
        rs_strided_line line;
        take_line(link, side, d, &line);
        for (int32_t i = 0; i < line.count; i++)
            add_step(space, d, line.step[i]);
    }
}

void rs_split_space_finish(rs_split_space *space, const int64_t *shape)
{
    for (int32_t k = 0; k < space->ndim; k++) {
        bool top = k == space->first[space->dim[k]];
        space->radix[k] = top ? rs_divide_up(shape[space->dim[k]], space->step[k])
                              : space->step[k - 1] / space->step[k];
    }
}

/* ---- boxes ----------------------------------------------------------------------------------- */

typedef struct emission {
    const rs_split_space *space;
    const rs_strided_line *lines; /* one for each dim */
    reshard_box box;
    rs_split_box_fn fn;
    void *user;
} emission;

static reshard_status emit(emission *e, int32_t dim, int32_t axis, int64_t offset);

static void set_digits(emission *e, int32_t dim, int64_t offset)
{
    for (int32_t k = e->space->first[dim]; k < e->space->first[dim + 1]; k++) {
        e->box.offset[k] = offset / e->space->step[k];
        e->box.size[k] = 1;
        offset %= e->space->step[k];
    }
}

static int32_t find_digit(const rs_split_space *space, int32_t dim, int64_t step)
{
    for (int32_t k = space->first[dim]; k < space->first[dim + 1]; k++) {
        if (space->step[k] == step)
            return k;
    }
    return -1;
}

/* Makes the axes from `axis` on sizes of digits, if none of them carries over. */
static bool fit_digits(emission *e, int32_t dim, int32_t axis)
{
    const rs_strided_line *line = &e->lines[dim];
    for (int32_t i = axis; i < line->count; i++) {
        int32_t k = find_digit(e->space, dim, line->step[i]);
        if (k < 0 || e->box.offset[k] + line->size[i] > e->space->radix[k])
            return false;
        e->box.size[k] = line->size[i];
    }
    return true;
}

static reshard_status next_dim(emission *e, int32_t dim)
{
    if (dim + 1 == e->space->dim_count)
        return e->fn(e->user, &e->box);
    return emit(e, dim + 1, 0, e->lines[dim + 1].offset);
}

/* A single axis whose step is that of digit `last`: a range of the digits down to that one. */
static reshard_status emit_range(emission *e, int32_t dim, int32_t last, int64_t size)
{
    const rs_split_space *space = e->space;
    rs_flat_block block = {.ndim = 0};
    int64_t from = 0;
    for (int32_t k = space->first[dim]; k <= last; k++) {
        block.shape[block.ndim++] = space->radix[k];
        from = from * space->radix[k] + e->box.offset[k];
    }
    rs_flat_boxes boxes;
    rs_flat_split(&block, from, from + size, &boxes);
    reshard_status status = RESHARD_OK;
    for (int32_t b = 0; b < boxes.count && status == RESHARD_OK; b++) {
        for (int32_t i = 0; i < block.ndim; i++) {
            e->box.offset[space->first[dim] + i] = boxes.items[b].start[i];
            e->box.size[space->first[dim] + i] = boxes.items[b].size[i];
        }
        status = next_dim(e, dim);
    }
    return status;
}

/* The places of a line from `axis` on, beginning at `offset`: one box if digits allow it, otherwise
 * one after another along the outermost axis. */
static reshard_status emit(emission *e, int32_t dim, int32_t axis, int64_t offset)
{
    const rs_strided_line *line = &e->lines[dim];
    set_digits(e, dim, offset);
    if (fit_digits(e, dim, axis))
        return next_dim(e, dim);
    set_digits(e, dim, offset);
    int32_t last = find_digit(e->space, dim, line->step[axis]);
    if (axis + 1 == line->count && last >= 0)
        return emit_range(e, dim, last, line->size[axis]);
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < line->size[axis] && status == RESHARD_OK; i++)
        status = emit(e, dim, axis + 1, offset + i * line->step[axis]);
    return status;
}

static reshard_status emit_lines(const rs_split_space *space, const rs_strided_line *lines,
                                 rs_split_box_fn fn, void *user)
{
    emission e = {.space = space, .lines = lines, .fn = fn, .user = user};
    e.box.ndim = space->ndim;
    return space->dim_count == 0 ? fn(user, &e.box) : emit(&e, 0, 0, lines[0].offset);
}

reshard_status rs_split_space_boxes(const rs_split_space *space, const rs_link *link,
                                    const rs_link_side *side, rs_split_box_fn fn, void *user)
{
    rs_strided_line lines[RESHARD_NDIM_MAX];
    for (int32_t i = 0; i < link->ndim; i++) {
        if (link->size[i] == 0)
            return RESHARD_OK;
    }
    for (int32_t d = 0; d < space->dim_count; d++)
        take_line(link, side, d, &lines[d]);
    return emit_lines(space, lines, fn, user);
}

reshard_status rs_split_space_whole(const rs_split_space *space, const int64_t *shape,
                                    rs_split_box_fn fn, void *user)
{
    rs_strided_line lines[RESHARD_NDIM_MAX];
    for (int32_t d = 0; d < space->dim_count; d++) {
        if (shape[d] == 0)
            return RESHARD_OK;
        lines[d] = (rs_strided_line){.count = 1, .step = {1}, .size = {shape[d]}};
    }
    return emit_lines(space, lines, fn, user);
}

void rs_split_space_link(const rs_split_space *space, const reshard_box *box,
                         reshard_strided_link *out_link)
{
    memset(out_link, 0, sizeof *out_link);
    out_link->size = sizeof *out_link;
    for (int32_t k = 0; k < space->ndim; k++) {
        out_link->target_at[space->dim[k]] += box->offset[k] * space->step[k];
        out_link->axes[out_link->axis_count++] = (reshard_link_axis){
            box->size[k], space->dim[k], space->dim[k], space->step[k], space->step[k]};
    }
    memcpy(out_link->source_at, out_link->target_at, sizeof out_link->source_at);
}
