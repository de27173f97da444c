/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fills.c - checks that the links of a target fill it exactly: no element twice, none left out.
 * Gaps are found by subtracting the links' boxes from the whole, one after another. They become
 * fills or an error.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/shape.h"
#include "base/sort.h"
#include "layout/tiling.h"
#include "plan/plan.h"

#include <inttypes.h>
#include <string.h>

typedef struct target_links {
    reshard_plan *plan;
    int32_t target;
    int64_t count;
    const int32_t *links; /* indices of the links of this target */
} target_links;

static void get_box(const target_links *t, int64_t index, reshard_box *out_box)
{
    const reshard_box *given = &t->plan->links[t->links[index]].target_box;
    const reshard_layout *layout = t->plan->targets[t->target].layout;
    *out_box = *given;
    if (given->ndim < 0) {
        memset(out_box, 0, sizeof *out_box);
        out_box->ndim = layout->ndim;
        memcpy(out_box->size, layout->shape, sizeof out_box->size);
    }
}

static reshard_status check_overlap(const target_links *t, int64_t *out_volume)
{
    reshard_context *context = t->plan->context;
    int32_t ndim = t->plan->targets[t->target].layout->ndim;
    *out_volume = 0;
    /* Describe the links as shards of one piece each, so that the overlap check of layouts can be
     * used. */
    reshard_shard *shards = rs_allocate_array(context, (size_t)t->count, sizeof *shards);
    reshard_piece *pieces = rs_allocate_array(context, (size_t)t->count, sizeof *pieces);
    reshard_status status = shards == NULL || pieces == NULL ? rs_allocation_status() : RESHARD_OK;
    for (int64_t i = 0; i < t->count && status == RESHARD_OK; i++) {
        memset(&shards[i], 0, sizeof shards[i]);
        memset(&pieces[i], 0, sizeof pieces[i]);
        get_box(t, i, &pieces[i].box);
        shards[i].piece_count = 1;
        shards[i].pieces = &pieces[i];
    }
    if (status == RESHARD_OK)
        status = rs_tiling_check_overlap(context, ndim, t->count, shards);
    if (status == RESHARD_ERR_OVERLAP)
        status = rs_fail(RESHARD_ERR_OVERLAP, "target \"%.200s\": two links fill the same element",
                         t->plan->targets[t->target].name);
    /* Only the volumes of disjoint boxes are sure to add up without overflow. */
    for (int64_t i = 0; i < t->count && status == RESHARD_OK; i++)
        *out_volume += rs_volume(ndim, pieces[i].box.size);
    rs_release(context, pieces, (size_t)t->count * sizeof *pieces);
    rs_release(context, shards, (size_t)t->count * sizeof *shards);
    return status;
}

static reshard_status add_fill(reshard_plan *plan, int32_t target, const reshard_box *box)
{
    reshard_status status = rs_grow(plan->context, (void **)&plan->fills, &plan->fill_capacity,
                                    plan->fill_count + 1, sizeof *plan->fills);
    if (status == RESHARD_OK)
        plan->fills[plan->fill_count++] = (rs_fill_box){target, *box};
    return status;
}

/* Subtracts a box from fill `index`: splits the fill at the faces of the box, keeps what is outside
 * and drops what is inside. */
static reshard_status take_off(reshard_plan *plan, int64_t index, const reshard_box *box)
{
    rs_fill_box rest = plan->fills[index];
    for (int32_t d = 0; d < box->ndim; d++) {
        if (rest.box.offset[d] >= box->offset[d] + box->size[d] ||
            box->offset[d] >= rest.box.offset[d] + rest.box.size[d])
            return RESHARD_OK;
    }
    plan->fills[index] = plan->fills[--plan->fill_count];
    for (int32_t d = 0; d < box->ndim; d++) {
        int64_t low = rest.box.offset[d], high = low + rest.box.size[d];
        int64_t from = rs_max(low, box->offset[d]),
                to = rs_min(high, box->offset[d] + box->size[d]);
        int64_t sides[2][2] = {{low, from}, {to, high}};
        for (int i = 0; i < 2; i++) {
            if (sides[i][0] >= sides[i][1])
                continue;
            rs_fill_box part = rest;
            part.box.offset[d] = sides[i][0];
            part.box.size[d] = sides[i][1] - sides[i][0];
            reshard_status status = add_fill(plan, part.target, &part.box);
            if (status != RESHARD_OK)
                return status;
        }
        rest.box.offset[d] = from;
        rest.box.size[d] = to - from;
    }
    return RESHARD_OK;
}

static reshard_status find_fills(const target_links *t)
{
    reshard_plan *plan = t->plan;
    const reshard_layout *layout = plan->targets[t->target].layout;
    reshard_box whole = {.ndim = layout->ndim};
    memcpy(whole.size, layout->shape, sizeof whole.size);
    int64_t first = plan->fill_count;
    reshard_status status = add_fill(plan, t->target, &whole);
    for (int64_t i = 0; i < t->count && status == RESHARD_OK; i++) {
        reshard_box box;
        get_box(t, i, &box);
        /* Go backwards: take_off appends parts at the end, and these already lie outside the
         * box. */
        for (int64_t f = plan->fill_count - 1; f >= first && status == RESHARD_OK; f--)
            status = take_off(plan, f, &box);
    }
    return status;
}

static reshard_status check_target(const target_links *t)
{
    reshard_plan *plan = t->plan;
    const reshard_plan_tensor *target = &plan->targets[t->target];
    int64_t volume = target->layout->volume;
    int64_t filled = 0;
    if (t->count == 1 && plan->links[t->links[0]].target_box.ndim < 0)
        return RESHARD_OK;
    reshard_status status = check_overlap(t, &filled);
    if (status != RESHARD_OK || filled == volume)
        return status;
    if (!plan->options.zero_fill)
        return rs_fail(RESHARD_ERR_GAP,
                       "target \"%.200s\": links fill %" PRId64 " of its %" PRId64 " elements",
                       target->name, filled, volume);
    return find_fills(t);
}

reshard_status rs_plan_check_links(reshard_plan *plan)
{
    /* The links sorted by target; those of one target keep their order. */
    size_t count = (size_t)plan->link_count;
    int64_t *keys = rs_allocate_array(plan->context, count, sizeof *keys);
    int32_t *links = rs_allocate_array(plan->context, count, sizeof *links);
    reshard_status status = keys == NULL || links == NULL ? rs_allocation_status() : RESHARD_OK;
    for (int32_t i = 0; i < plan->link_count && status == RESHARD_OK; i++)
        keys[i] = (int64_t)plan->links[i].target << 32 | i;
    if (status == RESHARD_OK)
        rs_sort(keys, count, sizeof *keys, rs_compare_i64);
    for (int32_t i = 0; i < plan->link_count && status == RESHARD_OK; i++)
        links[i] = (int32_t)(keys[i] & INT32_MAX);
    int32_t next = 0;
    for (int32_t target = 0; target < plan->target_count && status == RESHARD_OK; target++) {
        target_links t = {.plan = plan, .target = target, .links = links + next};
        while (next < plan->link_count && plan->links[links[next]].target == target) {
            next++;
            t.count++;
        }
        status = check_target(&t);
    }
    rs_release(plan->context, links, count * sizeof *links);
    rs_release(plan->context, keys, count * sizeof *keys);
    return status;
}
