/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bag_rules.c - layout rules for embedding_bag: the table in ops.h, axis by axis. Bags stay whole:
 * an axis may cut between bags, but not inside them.
 */
#include "base/error.h"
#include "layout/layout.h"
#include "spec/spec.h"
#include "tensor/bag/bag.h"
#include "tensor/core/dense.h"
#include "tensor/core/move.h"
#include "tensor/core/scope.h"
#include "tensor/ops/spread_ops.h"

#include <string.h>

static reshard_status refuse(const rs_bag *bag)
{
    reshard_tensor *const *t = bag->tensors;
    return rs_fail(
        RESHARD_ERR_INVALID,
        "weight with \"%s\", indices with \"%s\", offsets with \"%s\" and sample "
        "weights with \"%s\" do not fit",
        rs_tensor_describe_layout(t[RS_BAG_WEIGHT]).text,
        rs_tensor_describe_layout(t[RS_BAG_INDICES]).text,
        t[RS_BAG_SIZES] != NULL ? rs_tensor_describe_layout(t[RS_BAG_SIZES]).text : "none",
        t[RS_BAG_SAMPLES] != NULL ? rs_tensor_describe_layout(t[RS_BAG_SAMPLES]).text : "none");
}

static reshard_status read_axes(const rs_bag *bag, rs_axes *out)
{
    reshard_status status = rs_check_together(RS_BAG_TENSORS, bag->tensors);
    for (int i = 0; i < RS_BAG_TENSORS && status == RESHARD_OK; i++) {
        if (bag->tensors[i] == NULL)
            continue;
        status = rs_axes_check_mesh(bag->tensors[RS_BAG_WEIGHT], bag->tensors[i]);
        if (status == RESHARD_OK)
            status = rs_axes_of(bag->tensors[i], &out[i]);
    }
    return status;
}

/* Whether the axis cuts between bags. */
static bool cuts_bags(const rs_axes *axes, int32_t axis)
{
    reshard_placement p = rs_axes_at(axes, axis);
    return p.kind == RESHARD_SHARD && rs_axes_is_cut(&p, 0);
}

/* Indices, sizes and sample weights are cut by the same axes, none of which cuts the weight. */
static reshard_status judge_bags(const rs_bag *bag, const rs_axes *now, rs_bag_axes *out)
{
    const rs_axes *leading =
        &now[bag->tensors[RS_BAG_SIZES] != NULL ? RS_BAG_SIZES : RS_BAG_INDICES];
    for (int32_t axis = 0; axis < now[0].mesh->axis_count; axis++) {
        bool cut = cuts_bags(&now[RS_BAG_INDICES], axis);
        if (cut && rs_axes_at(&now[RS_BAG_WEIGHT], axis).kind != RESHARD_REPLICATE)
            return refuse(bag);
        for (int i = RS_BAG_INDICES; i < RS_BAG_TENSORS; i++) {
            bool same = cut ? cuts_bags(&now[i], axis)
                            : rs_axes_at(&now[i], axis).kind == RESHARD_REPLICATE;
            if (bag->tensors[i] != NULL && !same)
                return refuse(bag);
        }
        if (cut) {
            rs_axes_set(&out->weight, axis, rs_placement_partial());
            rs_axes_set(&out->used, axis, rs_placement_partial());
        }
    }
    if (bag->tensors[RS_BAG_SAMPLES] != NULL &&
        !rs_axes_equal(&now[RS_BAG_SAMPLES], &now[RS_BAG_INDICES]))
        return refuse(bag);
    out->output = *leading;
    return RESHARD_OK;
}

reshard_status rs_bag_judge(const rs_bag *bag, rs_bag_axes *out)
{
    rs_axes now[RS_BAG_TENSORS];
    memset(out, 0, sizeof *out);
    memset(now, 0, sizeof now);
    if (!rs_any_distributed(RS_BAG_TENSORS, bag->tensors))
        return RESHARD_OK;
    reshard_status status = read_axes(bag, now);
    if (status != RESHARD_OK)
        return status;
    const rs_axes *weight = &now[RS_BAG_WEIGHT];
    out->weight = *weight;
    out->samples = now[RS_BAG_SAMPLES];
    out->samples.mesh = out->used.mesh = out->norms.mesh = weight->mesh;
    for (int32_t i = 0; i < weight->count; i++) {
        if (weight->cuts[i].placement.kind != RESHARD_SHARD)
            return rs_fail(RESHARD_ERR_INVALID, "weight with \"%s\": redistribute it first",
                           rs_tensor_describe_layout(bag->tensors[RS_BAG_WEIGHT]).text);
        if (weight->cuts[i].placement.dim == 0) {
            rs_axes_set(&out->used, weight->cuts[i].axis, weight->cuts[i].placement);
            rs_axes_set(&out->norms, weight->cuts[i].axis, weight->cuts[i].placement);
        }
    }
    status = judge_bags(bag, now, out);
    for (int32_t i = 0; i < weight->count && status == RESHARD_OK; i++) {
        reshard_placement cut = weight->cuts[i].placement;
        if (cut.dim != 0)
            rs_axes_set(&out->norms, weight->cuts[i].axis, rs_placement_partial());
        if (cut.dim == 0)
            cut = rs_placement_partial();
        rs_axes_set(&out->output, weight->cuts[i].axis, cut);
        rs_axes_set(&out->samples, weight->cuts[i].axis, rs_placement_partial());
    }
    return status;
}

/* ---- numbers that ranks contribute to -------------------------------------------------------- */

static rs_axes with_partial(const rs_axes *axes, reshard_placement placement)
{
    rs_axes made = *axes;
    for (int32_t i = 0; i < axes->count; i++) {
        if (axes->cuts[i].placement.kind == RESHARD_PARTIAL)
            rs_axes_set(&made, axes->cuts[i].axis, placement);
    }
    return made;
}

static bool is_partial(const rs_axes *axes)
{
    bool partial = false;
    for (int32_t i = 0; i < axes->count; i++)
        partial = partial || axes->cuts[i].placement.kind == RESHARD_PARTIAL;
    return partial;
}

reshard_status rs_bag_numbers(const rs_bag *bag, const rs_axes *axes, reshard_reduction reduction,
                              int32_t ndim, const int64_t *shape, reshard_tensor **out_numbers)
{
    const rs_distribution *d = bag->tensors[RS_BAG_WEIGHT]->distribution;
    reshard_layout *layout = NULL;
    if (d == NULL)
        return rs_result(RESHARD_F64, ndim, shape, out_numbers);
    reshard_placement partial = rs_placement_partial();
    partial.reduction = reduction;
    rs_axes given = with_partial(axes, partial);
    reshard_status status = rs_axes_layout(&given, ndim, shape, &layout);
    if (status == RESHARD_OK)
        status =
            rs_distributed_make(rs_scope_context(), d->cache, layout, RESHARD_F64, out_numbers);
    reshard_layout_release(layout);
    return status;
}

reshard_status rs_bag_settle(const rs_bag *bag, const rs_axes *axes, reshard_status status,
                             reshard_tensor **numbers)
{
    reshard_layout *layout = NULL;
    reshard_tensor *settled = NULL;
    if (is_partial(axes)) {
        rs_axes whole = with_partial(axes, (reshard_placement){.kind = RESHARD_REPLICATE});
        if (status == RESHARD_OK)
            status = rs_axes_layout(&whole, (*numbers)->ndim, (*numbers)->shape, &layout);
        status = rs_redistribute_after(status, rs_distributed_group(bag->tensors[RS_BAG_WEIGHT]),
                                       "embedding_bag", rs_scope_context(), *numbers, layout,
                                       RESHARD_F64, &settled);
        reshard_layout_release(layout);
    } else {
        settled = reshard_tensor_retain(*numbers);
    }
    reshard_tensor_release(*numbers);
    *numbers = settled;
    if (status != RESHARD_OK) {
        reshard_tensor_release(settled);
        *numbers = NULL;
    }
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

static reshard_tensor *sum_local(reshard_tensor *const *inputs, const void *user)
{
    const rs_bag_view *view = user;
    rs_bag_part part;
    reshard_status status = rs_bag_open(inputs, view, &part);
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "embedding_bag"));
    reshard_tensor *y = rs_bag_sum_at(inputs[RS_BAG_WEIGHT], part.places, part.sizes,
                                      inputs[RS_BAG_SAMPLES], view->mean);
    rs_bag_close(&part);
    return y;
}

/* inputs: the weight, and the winners as rows of the whole weight. */
static reshard_tensor *pick_local(reshard_tensor *const *inputs, const void *user)
{
    const rs_bag_view *view = user;
    reshard_tensor *places = NULL;
    reshard_status status = rs_result(RESHARD_I64, 2, inputs[1]->shape, &places);
    if (status != RESHARD_OK)
        return rs_scope_fail(status);
    const int64_t *rows = (const void *)inputs[1]->data;
    int64_t *to = (void *)places->data;
    for (int64_t i = 0; i < places->volume; i++)
        to[i] = rows[i] < 0 ? rows[i] : rs_find_row(view->shards, rows[i], inputs[0]->shape[1]);
    reshard_tensor *y = rs_bag_pick_at(inputs[0], places);
    reshard_tensor_release(places);
    return y;
}

reshard_tensor *rs_bag_spread(const rs_bag *bag, reshard_tensor *winners)
{
    reshard_tensor *picked[] = {bag->tensors[RS_BAG_WEIGHT], winners};
    reshard_tensor *weight = picked[0];
    rs_bag_axes axes;
    rs_bag_view view = {.rows = 0};
    rs_spread spread = {.name = "embedding_bag",
                        .input_count = winners != NULL ? 2 : RS_BAG_TENSORS,
                        .inputs = winners != NULL ? picked : bag->tensors,
                        .fn = winners != NULL ? pick_local : sum_local,
                        .user = &view,
                        .user_bytes = sizeof view};
    reshard_status status = rs_bag_judge(bag, &axes);
    if (status == RESHARD_OK) {
        int64_t shape[] = {rs_bag_count(bag->tensors[RS_BAG_INDICES], bag->tensors[RS_BAG_SIZES]),
                           weight->shape[1]};
        status = rs_axes_layout(&axes.output, 2, shape, &spread.output_layout);
    }
    if (status == RESHARD_OK)
        status = rs_axes_layout(&axes.weight, 2, weight->shape, &spread.gradient_layouts[0]);
    reshard_tensor *samples = bag->tensors[RS_BAG_SAMPLES];
    if (status == RESHARD_OK && samples != NULL)
        status = rs_axes_layout(&axes.samples, samples->ndim, samples->shape,
                                &spread.gradient_layouts[RS_BAG_SAMPLES]);
    if (status == RESHARD_OK)
        status = rs_bag_look(bag, &view);
    spread.shards = view.shards;
    return rs_spread_run(&spread, status);
}
