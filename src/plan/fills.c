/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fills.c - checks that the links of a target fill it exactly: no element twice, none left out.
 * Targets are looked at in split space, where strided links fill boxes too. Gaps are found by
 * subtracting the links' boxes from the whole, one after another. They become fills or an error.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/shape.h"
#include "base/sort.h"
#include "layout/tiling.h"
#include "plan/plan.h"
#include "plan/split_space.h"

#include <inttypes.h>
#include <string.h>

typedef struct target_links {
    reshard_plan *plan;
    int32_t target;
    int64_t count;
    const int32_t *links; /* indices of the links of this target */
} target_links;

/* The boxes of all links of one target in split space. */
typedef struct box_list {
    reshard_context *context;
    const char *target;
    rs_split_space space;
    int64_t count, capacity;
    reshard_box *boxes;
    int64_t volume;
} box_list;

static reshard_status add_box(void *user, const reshard_box *box)
{
    box_list *list = user;
    if (list->count == RS_LINK_BOXES_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "target \"%.200s\": its links fill more than %" PRId64
                       " boxes: their steps do not divide each other",
                       list->target, RS_LINK_BOXES_MAX);
    reshard_status status =
        rs_grow(list->context, &list->boxes, &list->capacity, list->count + 1, sizeof *list->boxes);
    if (status == RESHARD_OK)
        list->boxes[list->count++] = *box;
    return status;
}

static reshard_status resolve(const target_links *t, int64_t index, rs_link *out_link)
{
    const rs_given_link *given = &t->plan->links[t->links[index]];
    return rs_link_resolve(given, t->plan->sources[given->plain.source].layout,
                           t->plan->targets[t->target].layout, out_link);
}

static reshard_status list_boxes(const target_links *t, box_list *list)
{
    const reshard_layout *layout = t->plan->targets[t->target].layout;
    reshard_status status = RESHARD_OK;
    rs_link link;
    rs_split_space_begin(&list->space, layout->ndim);
    for (int64_t i = 0; i < t->count && status == RESHARD_OK; i++) {
        status = resolve(t, i, &link);
        if (status == RESHARD_OK)
            rs_split_space_see(&list->space, &link, &link.target);
    }
    rs_split_space_finish(&list->space, layout->shape);
    for (int64_t i = 0; i < t->count && status == RESHARD_OK; i++) {
        status = resolve(t, i, &link);
        if (status == RESHARD_OK)
            status = rs_split_space_boxes(&list->space, &link, &link.target, add_box, list);
    }
    return status;
}

static reshard_status check_overlap(const target_links *t, box_list *list)
{
    reshard_context *context = t->plan->context;
    size_t count = (size_t)list->count;
    /* Describe the boxes as shards of one piece each, so that the overlap check of layouts can be
     * used. */
    reshard_shard *shards = rs_allocate_array(context, count, sizeof *shards);
    reshard_piece *pieces = rs_allocate_array(context, count, sizeof *pieces);
    reshard_status status = shards == NULL || pieces == NULL ? rs_allocation_status() : RESHARD_OK;
    for (size_t i = 0; i < count && status == RESHARD_OK; i++) {
        memset(&shards[i], 0, sizeof shards[i]);
        memset(&pieces[i], 0, sizeof pieces[i]);
        pieces[i].box = list->boxes[i];
        shards[i].piece_count = 1;
        shards[i].pieces = &pieces[i];
    }
    if (status == RESHARD_OK)
        status = rs_tiling_check_overlap(context, list->space.ndim, list->count, shards);
    if (status == RESHARD_ERR_OVERLAP)
        status = rs_fail(RESHARD_ERR_OVERLAP, "target \"%.200s\": two links fill the same element",
                         t->plan->targets[t->target].name);
    /* Only the volumes of disjoint boxes are sure to add up without overflow. */
    for (size_t i = 0; i < count && status == RESHARD_OK; i++)
        list->volume += rs_volume(list->space.ndim, list->boxes[i].size);
    rs_release(context, pieces);
    rs_release(context, shards);
    return status;
}

/* Subtracts a box from gap `index`: splits the gap at the faces of the box, keeps what is outside
 * and drops what is inside. */
static reshard_status take_off(box_list *gaps, int64_t index, const reshard_box *box)
{
    reshard_box rest = gaps->boxes[index];
    for (int32_t d = 0; d < box->ndim; d++) {
        if (rest.offset[d] >= box->offset[d] + box->size[d] ||
            box->offset[d] >= rest.offset[d] + rest.size[d])
            return RESHARD_OK;
    }
    gaps->boxes[index] = gaps->boxes[--gaps->count];
    for (int32_t d = 0; d < box->ndim; d++) {
        int64_t low = rest.offset[d], high = low + rest.size[d];
        int64_t from = rs_max(low, box->offset[d]),
                to = rs_min(high, box->offset[d] + box->size[d]);
        int64_t sides[2][2] = {{low, from}, {to, high}};
        for (int i = 0; i < 2; i++) {
            if (sides[i][0] >= sides[i][1])
                continue;
            reshard_box part = rest;
            part.offset[d] = sides[i][0];
            part.size[d] = sides[i][1] - sides[i][0];
            reshard_status status = add_box(gaps, &part);
            if (status != RESHARD_OK)
                return status;
        }
        rest.offset[d] = from;
        rest.size[d] = to - from;
    }
    return RESHARD_OK;
}

/* Keeps a gap as a fill: a plain box if no dim is split, and otherwise a strided link. */
static reshard_status keep_gap(const target_links *t, const box_list *gaps, const reshard_box *box)
{
    reshard_plan *plan = t->plan;
    rs_given_link link = {.plain = reshard_link_whole(-1, t->target)};
    if (gaps->space.ndim == gaps->space.dim_count) {
        link.plain.source_box = link.plain.target_box = *box;
    } else {
        reshard_strided_link *strided = rs_arena_allocate_array(&plan->arena, 1, sizeof *strided);
        if (strided == NULL)
            return rs_allocation_status();
        rs_split_space_link(&gaps->space, box, strided);
        link.strided = strided;
    }
    reshard_status status = rs_grow(plan->context, &plan->fills, &plan->fill_capacity,
                                    plan->fill_count + 1, sizeof *plan->fills);
    if (status == RESHARD_OK)
        plan->fills[plan->fill_count++] = (rs_fill){t->target, link};
    return status;
}

static reshard_status find_gaps(const target_links *t, const box_list *filled)
{
    box_list gaps = {.context = filled->context, .target = filled->target, .space = filled->space};
    reshard_status status = rs_split_space_whole(
        &gaps.space, t->plan->targets[t->target].layout->shape, add_box, &gaps);
    for (int64_t i = 0; i < filled->count && status == RESHARD_OK; i++) {
        /* Go backwards: take_off appends parts at the end, and these already lie outside the
         * box. */
        for (int64_t g = gaps.count - 1; g >= 0 && status == RESHARD_OK; g--)
            status = take_off(&gaps, g, &filled->boxes[i]);
    }
    for (int64_t g = 0; g < gaps.count && status == RESHARD_OK; g++)
        status = keep_gap(t, &gaps, &gaps.boxes[g]);
    rs_release(gaps.context, gaps.boxes);
    return status;
}

static reshard_status check_boxes(const target_links *t)
{
    reshard_plan *plan = t->plan;
    const reshard_plan_tensor *target = &plan->targets[t->target];
    box_list list = {.context = plan->context, .target = target->name};
    reshard_status status = list_boxes(t, &list);
    if (status == RESHARD_OK)
        status = check_overlap(t, &list);
    if (status == RESHARD_OK && list.volume != target->layout->volume)
        status =
            plan->options.zero_fill
                ? find_gaps(t, &list)
                : rs_fail(RESHARD_ERR_GAP,
                          "target \"%.200s\": links fill %" PRId64 " of its %" PRId64 " elements",
                          target->name, list.volume, target->layout->volume);
    rs_release(plan->context, list.boxes);
    return status;
}

static reshard_status check_target(const target_links *t)
{
    int64_t volume = t->plan->targets[t->target].layout->volume;
    if (t->count == 1) {
        rs_link link;
        reshard_status status = resolve(t, 0, &link);
        if (status != RESHARD_OK || rs_volume(link.ndim, link.size) == volume)
            return status; /* a single link meets nothing that it could overlap */
    }
    return check_boxes(t);
}

reshard_status rs_plan_check_links(reshard_plan *plan)
{
    /* The links sorted by target; those of one target keep their order. */
    size_t count = (size_t)plan->link_count;
    int64_t *keys = rs_allocate_array(plan->context, count, sizeof *keys);
    int32_t *links = rs_allocate_array(plan->context, count, sizeof *links);
    reshard_status status = keys == NULL || links == NULL ? rs_allocation_status() : RESHARD_OK;
    for (int32_t i = 0; i < plan->link_count && status == RESHARD_OK; i++)
        keys[i] = (int64_t)plan->links[i].plain.target << 32 | i;
    if (status == RESHARD_OK)
        rs_sort(keys, count, sizeof *keys, rs_compare_i64);
    for (int32_t i = 0; i < plan->link_count && status == RESHARD_OK; i++)
        links[i] = (int32_t)(keys[i] & INT32_MAX);
    int32_t next = 0;
    for (int32_t target = 0; target < plan->target_count && status == RESHARD_OK; target++) {
        target_links t = {.plan = plan, .target = target, .links = links + next};
        while (next < plan->link_count && plan->links[links[next]].plain.target == target) {
            next++;
            t.count++;
        }
        status = check_target(&t);
    }
    rs_release(plan->context, links);
    rs_release(plan->context, keys);
    return status;
}
