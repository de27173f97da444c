/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stages.c - decides between one stage and two.
 *
 * If a target has many copies of data that few ranks hold, or that many ranks contribute to, going
 * there directly makes the same ranks send or read everything again for each copy. Two stages are
 * then cheaper: first to a layout in which the copies divide the target among themselves, then from
 * there to all copies. That is reduce-scatter and all-gather if the source is partial, scatter and
 * all-gather if it is a single rank.
 *
 * The choice compares the elements that go into and out of the busiest rank. They are estimated
 * from the layouts' largest shards and from the ranks that hold and need the first element, so all
 * ranks decide alike without asking each other.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/sort.h"
#include "plan/grid.h"
#include "plan/plan.h"
#include "spec/build.h"
#include "text/text.h"

#include <string.h>

/* ---- is it cheaper? -------------------------------------------------------------------------- */

static reshard_status keep_region(void *user, const rs_region *region)
{
    *(rs_region *)user = *region;
    return RESHARD_OK;
}

#define HOLDERS_ASKED_MAX ((int64_t)1 << 20)

/* How many ranks hold both regions. Looks up the ranks of the smaller set in the larger one. */
static int64_t count_in_both(const rs_region *a, const rs_region *b)
{
    int64_t size_a = rs_region_copy_count(a) * a->layout->contributor_count;
    int64_t size_b = rs_region_copy_count(b) * b->layout->contributor_count;
    if (size_a > size_b)
        return count_in_both(b, a);
    /* Of very many ranks, evenly spaced ones represent the others. */
    int64_t step = rs_divide_up(size_a, HOLDERS_ASKED_MAX);
    int64_t copies = rs_region_copy_count(a), both = 0;
    for (int64_t i = 0; i < size_a; i += step) {
        rs_holder holder, found;
        rs_region_holder(a, (int32_t)(i / copies), i % copies, &holder);
        both += rs_region_find(b, holder.rank, &found) ? rs_min(step, size_a - i) : 0;
    }
    return both;
}

static bool is_whole_link(const rs_given_link *link)
{
    return link->strided == NULL && link->plain.source_box.ndim < 0 &&
           link->plain.target_box.ndim < 0 && link->plain.factor_count == 0;
}

static int64_t replicas_of(const reshard_layout *target)
{
    int64_t replicas = 1;
    for (int32_t a = 0; a < target->axis_count; a++)
        replicas *= target->axes[a].role == RS_AXIS_COPIES ? target->axes[a].size : 1;
    return replicas;
}

static double larger(double a, double b)
{
    return a > b ? a : b;
}

static bool two_stages_pay(const reshard_layout *source, const reshard_layout *target)
{
    int64_t origin[RESHARD_NDIM_MAX] = {0}, one[RESHARD_NDIM_MAX];
    for (int32_t d = 0; d < RESHARD_NDIM_MAX; d++)
        one[d] = 1;
    rs_region held, needed;
    (void)rs_layout_visit(source, origin, one, keep_region, &held);
    (void)rs_layout_visit(target, origin, one, keep_region, &needed);
    double s = (double)rs_region_copy_count(&held), t = (double)rs_region_copy_count(&needed);
    double m = source->contributor_count, r = (double)replicas_of(target);
    double both = (double)count_in_both(&held, &needed);
    double own = both > 0 ? 1 : 0; /* a rank that needs all contributions holds one at most */
    double from = (double)rs_layout_shard_volume_max(source);
    double to = (double)rs_layout_shard_volume_max(target);
    double divided = (double)rs_divide_up(rs_layout_shard_volume_max(target), replicas_of(target));
    double out, in, first_out, first_in;
    if (m > 1) {
        out = from * (t - own);
        in = to * (m - own);
        first_out = from * (t / r) * (own > 0 ? (r - 1) / r : 1);
        first_in = divided * (m - own);
    } else {
        out = from * (t - both) / s;
        in = both < t ? to : 0;
        first_out = from * (t / r) / s;
        first_in = divided;
    }
    double direct = larger(out, in);
    double staged = larger(first_out, first_in) + larger(divided * (r - 1), to - divided);
    return staged < direct;
}

/* ---- the intermediate layout ----------------------------------------------------------------- */

/* How the intermediate layout cuts one replicated axis: into `rows` parts of the first dim times
 * `columns` parts of the second. */
typedef struct axis_split {
    int32_t rows, columns;
} axis_split;

/* With more columns, rows would be cut so finely that flat ranges make fewer and longer runs. */
#define COLUMNS_MAX 64

/* Cuts the first two dims evenly for all replicated axes. Returns false if that is not possible. */
static bool split_evenly(const reshard_layout *target, axis_split *out_splits)
{
    if (target->flat.count != 0 || target->ndim == 0)
        return false;
    int64_t rows = rs_chain_length_max(&target->dims[0], target->shape[0]);
    int64_t columns =
        target->ndim > 1 ? rs_chain_length_max(&target->dims[1], target->shape[1]) : 1;
    int32_t axes = target->axis_count;
    for (int32_t a = 0; a < target->axis_count; a++) {
        if (target->axes[a].role != RS_AXIS_COPIES)
            continue;
        int64_t size = target->axes[a].size;
        int64_t first = rs_greatest_common_divisor(rows, size), second = size / first;
        if (second > COLUMNS_MAX || columns % second != 0)
            return false;
        rows /= first;
        columns /= second;
        out_splits[a] = (axis_split){(int32_t)first, (int32_t)second};
        axes += first > 1 && second > 1;
    }
    return axes <= RESHARD_AXES_MAX;
}

/* The intermediate layout under construction. */
typedef struct builder {
    const reshard_layout *target;
    int32_t axis_count;
    int32_t sizes[RESHARD_AXES_MAX];
    int32_t moved[RESHARD_AXES_MAX]; /* by axis of the target: where it begins in the new mesh */
    int32_t cut_count;
    reshard_cut cuts[2 * RESHARD_AXES_MAX];
    int32_t late_count;
    reshard_cut late[RESHARD_AXES_MAX]; /* cuts of replicated axes, after the target's own cuts */
} builder;

static void add_axis(builder *b, int32_t size, int32_t dim, reshard_shard_rule rule)
{
    if (dim != INT32_MAX)
        b->late[b->late_count++] = (reshard_cut){
            .axis = b->axis_count, .placement = {.kind = RESHARD_SHARD, .dim = dim, .rule = rule}};
    b->sizes[b->axis_count++] = size;
}

/* A replicated axis of size rows * columns becomes two adjacent axes in its place, so every rank
 * keeps its position. */
static void add_axes(builder *b, const axis_split *splits)
{
    for (int32_t a = 0; a < b->target->axis_count; a++) {
        const rs_axis *axis = &b->target->axes[a];
        b->moved[a] = b->axis_count;
        if (axis->role != RS_AXIS_COPIES || axis->size == 1) {
            add_axis(b, axis->size, INT32_MAX, RESHARD_CHUNK);
        } else if (splits == NULL) {
            add_axis(b, axis->size, RESHARD_DIM_FLAT, RESHARD_BALANCED);
        } else {
            if (splits[a].rows > 1 || splits[a].columns == 1)
                add_axis(b, splits[a].rows, 0, RESHARD_BALANCED);
            if (splits[a].columns > 1)
                add_axis(b, splits[a].columns, 1, RESHARD_BALANCED);
        }
    }
}

static reshard_status make_intermediate(const reshard_layout *target, reshard_layout **out_layout)
{
    axis_split splits[RESHARD_AXES_MAX] = {{0, 0}};
    builder b = {.target = target};
    add_axes(&b, split_evenly(target, splits) ? splits : NULL);
    const reshard_spec *spec = target->spec;
    for (int32_t i = 0; i < spec->cut_count; i++) {
        if (spec->cuts[i].placement.kind == RESHARD_REPLICATE)
            continue;
        b.cuts[b.cut_count] = spec->cuts[i];
        b.cuts[b.cut_count++].axis = b.moved[spec->cuts[i].axis];
    }
    memcpy(b.cuts + b.cut_count, b.late, (size_t)b.late_count * sizeof *b.late);
    b.cut_count += b.late_count;
    const reshard_mesh *old = target->mesh;
    reshard_mesh *mesh = NULL;
    reshard_spec *cut = NULL;
    rs_ranks ranks = {old->listed, old->first, old->step};
    reshard_status status =
        rs_mesh_build(target->context, b.axis_count, NULL, b.sizes, &ranks, &mesh);
    if (status == RESHARD_OK)
        status = reshard_spec_create(target->context, mesh, b.cut_count, b.cuts, &cut);
    if (status == RESHARD_OK)
        status =
            reshard_layout_create(target->context, cut, target->ndim, target->shape, out_layout);
    reshard_spec_release(cut);
    reshard_mesh_release(mesh);
    return status;
}

/* ---- stages ---------------------------------------------------------------------------------- */

static void add_link(rs_stage *stage, const rs_stage_link *link)
{
    stage->links[stage->link_count++] = *link;
}

/* Links with equal layouts get equal decisions, so the last few are remembered. */
typedef struct decision {
    const reshard_layout *source, *target;
    reshard_layout *intermediate; /* NULL for a single stage */
} decision;

#define DECISIONS 32

static reshard_status decide(reshard_plan *plan, const rs_given_link *link, decision *memory,
                             int32_t *used, reshard_layout **out_intermediate)
{
    const reshard_layout *source = plan->sources[link->plain.source].layout;
    const reshard_layout *target = plan->targets[link->plain.target].layout;
    *out_intermediate = NULL;
    if (plan->options.single_stage || !is_whole_link(link) || target->listed || target->partial ||
        target->volume == 0 || replicas_of(target) == 1)
        return RESHARD_OK;
    for (int32_t i = 0; i < DECISIONS && i < *used; i++) {
        if (rs_layout_same(memory[i].source, source) && rs_layout_same(memory[i].target, target)) {
            *out_intermediate = reshard_layout_retain(memory[i].intermediate);
            return RESHARD_OK;
        }
    }
    if (two_stages_pay(source, target)) {
        reshard_status status = make_intermediate(target, out_intermediate);
        if (status != RESHARD_OK)
            return status;
    }
    memory[*used % DECISIONS] = (decision){source, target, *out_intermediate};
    ++*used;
    return RESHARD_OK;
}

/* Takes ownership of one reference to the intermediate layout, which may be NULL. */
static void add_planned_link(reshard_plan *plan, int32_t index, reshard_layout *intermediate)
{
    const reshard_link *given = &plan->links[index].plain;
    const reshard_plan_tensor *source = &plan->sources[given->source];
    const reshard_plan_tensor *target = &plan->targets[given->target];
    rs_stage_link link = {.link = plan->links[index]};
    link.shown = (reshard_stage_link){.link = index,
                                      .source = given->source,
                                      .target = given->target,
                                      .source_layout = source->layout,
                                      .target_layout = target->layout,
                                      .source_dtype = source->dtype,
                                      .target_dtype = target->dtype};
    if (intermediate == NULL) {
        add_link(&plan->stages[0], &link);
        return;
    }
    rs_stage_link halves[2] = {link, link};
    halves[0].shown.target = halves[1].shown.source = plan->intermediate_count;
    halves[0].shown.target_is_intermediate = halves[1].shown.source_is_intermediate = 1;
    halves[0].shown.target_layout = halves[1].shown.source_layout = intermediate;
    plan->intermediates[plan->intermediate_count++] = intermediate;
    /* Combined values keep the source's dtype until the last stage. */
    halves[0].shown.target_dtype = halves[1].shown.source_dtype = source->dtype;
    add_link(&plan->stages[0], &halves[0]);
    add_link(&plan->stages[1], &halves[1]);
    plan->stage_count = 2;
}

static void add_fill(reshard_plan *plan, const rs_fill *fill)
{
    const reshard_plan_tensor *target = &plan->targets[fill->target];
    rs_stage_link link = {.link = fill->link};
    link.shown = (reshard_stage_link){.link = -1,
                                      .source = -1,
                                      .target = fill->target,
                                      .target_layout = target->layout,
                                      .source_dtype = target->dtype,
                                      .target_dtype = target->dtype};
    add_link(&plan->stages[0], &link);
}

reshard_status rs_plan_build_stages(reshard_plan *plan)
{
    size_t room = (size_t)plan->link_count + (size_t)plan->fill_count;
    for (int32_t i = 0; i < RS_STAGES_MAX; i++) {
        plan->stages[i].links = rs_arena_allocate_array(&plan->arena, room, sizeof(rs_stage_link));
        if (plan->stages[i].links == NULL)
            return rs_allocation_status();
    }
    plan->intermediates = rs_arena_allocate_array(&plan->arena, (size_t)plan->link_count,
                                                  sizeof *plan->intermediates);
    if (plan->intermediates == NULL)
        return rs_allocation_status();
    plan->stage_count = 1;
    decision memory[DECISIONS];
    int32_t used = 0;
    for (int32_t i = 0; i < plan->link_count; i++) {
        reshard_layout *intermediate;
        reshard_status status = decide(plan, &plan->links[i], memory, &used, &intermediate);
        if (status != RESHARD_OK)
            return status;
        add_planned_link(plan, i, intermediate);
    }
    for (int64_t i = 0; i < plan->fill_count; i++)
        add_fill(plan, &plan->fills[i]);
    return RESHARD_OK;
}

/* ---- templates ------------------------------------------------------------------------------- */

typedef struct key {
    uint64_t digest[2];
    int32_t link;
} key;

static void digest_stage_link(const rs_stage_link *link, uint64_t out_digest[2])
{
    rs_digest digest;
    rs_digest_init(&digest);
    const reshard_layout *layouts[2] = {link->shown.source_layout, link->shown.target_layout};
    for (int i = 0; i < 2; i++) {
        rs_digest_u64(&digest, layouts[i] != NULL ? layouts[i]->digest[0] : 0);
        rs_digest_u64(&digest, layouts[i] != NULL ? layouts[i]->digest[1] : 0);
    }
    rs_link_digest(&link->link, &digest);
    rs_digest_finish(&digest, out_digest);
}

static int compare_keys(const void *a, const void *b)
{
    const key *x = a, *y = b;
    for (int i = 0; i < 2; i++) {
        if (x->digest[i] != y->digest[i])
            return x->digest[i] < y->digest[i] ? -1 : 1;
    }
    return (x->link > y->link) - (x->link < y->link);
}

static reshard_status make_template(const rs_stage_link *link, rs_template *out_template)
{
    memset(out_template, 0, sizeof *out_template);
    rs_link resolved;
    bool is_fill = link->shown.link < 0;
    const reshard_layout *target = link->shown.target_layout;
    reshard_status status = rs_link_resolve(
        &link->link, is_fill ? target : link->shown.source_layout, target, &resolved);
    if (status != RESHARD_OK)
        return status;
    rs_sender_rule_init(&out_template->rule, &resolved);
    out_template->kind = is_fill                      ? RS_TEMPLATE_FILL
                         : rs_grid_applies(&resolved) ? RS_TEMPLATE_GRID
                                                      : RS_TEMPLATE_MATCHES;
    return RESHARD_OK;
}

static reshard_status build_stage_templates(reshard_plan *plan, rs_stage *stage)
{
    size_t count = (size_t)stage->link_count;
    key *keys = rs_allocate_array(plan->context, count, sizeof *keys);
    if (keys == NULL)
        return rs_allocation_status();
    int32_t distinct = 0;
    for (int32_t i = 0; i < stage->link_count; i++) {
        digest_stage_link(&stage->links[i], keys[i].digest);
        keys[i].link = i;
    }
    rs_sort(keys, count, sizeof *keys, compare_keys);
    for (size_t i = 0; i < count; i++) {
        bool same = i > 0 && memcmp(keys[i].digest, keys[i - 1].digest, sizeof keys[i].digest) == 0;
        distinct += !same;
        stage->links[keys[i].link].template_index = distinct - 1;
    }
    reshard_status status = RESHARD_OK;
    stage->templates =
        rs_arena_allocate_array(&plan->arena, (size_t)distinct, sizeof *stage->templates);
    if (stage->templates == NULL)
        status = rs_allocation_status();
    for (size_t i = 0; i < count && status == RESHARD_OK; i++) {
        const rs_stage_link *link = &stage->links[keys[i].link];
        if (link->template_index == stage->template_count)
            status = make_template(link, &stage->templates[stage->template_count++]);
    }
    rs_release(plan->context, keys);
    return status;
}

reshard_status rs_plan_build_templates(reshard_plan *plan)
{
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < plan->stage_count && status == RESHARD_OK; i++)
        status = build_stage_templates(plan, &plan->stages[i]);
    return status;
}
