/* SPDX-License-Identifier: Apache-2.0 */
/* rules_rows.c - layout rules for transpose, cat, sums, norms and cross-entropy. */
#include "base/context.h"
#include "base/error.h"
#include "layout/layout.h"
#include "spec/spec.h"
#include "tensor/core/scope.h"
#include "tensor/dist/axes.h"
#include "tensor/grad/gradient.h"
#include "tensor/ops/cut_rows.h"
#include "tensor/ops/spread_ops.h"

#include <reshard/distributed.h>

#include <string.h>

/* ---- transpose ------------------------------------------------------------------------------- */

static reshard_status swap_layout(const reshard_tensor *tensor, int32_t a, int32_t b,
                                  reshard_layout **out_layout)
{
    const reshard_spec *spec = tensor->distribution->layout->spec;
    rs_axes axes = {.mesh = spec->mesh, .count = spec->cut_count};
    int64_t shape[RESHARD_NDIM_MAX];
    bool fits = spec->kind == RESHARD_SPEC_CUTS;
    for (int32_t i = 0; fits && i < axes.count; i++) {
        axes.cuts[i] = spec->cuts[i];
        reshard_placement *p = &axes.cuts[i].placement;
        fits = p->kind != RESHARD_SHARD || p->dim != RESHARD_DIM_FLAT;
        if (p->kind == RESHARD_SHARD && p->dim < 0 && fits)
            p->dim += tensor->ndim;
        if (p->kind == RESHARD_SHARD && (p->dim == a || p->dim == b))
            p->dim = p->dim == a ? b : a;
    }
    if (!fits)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "a tensor with the layout \"%s\"",
                       rs_tensor_describe_layout(tensor).text);
    memcpy(shape, tensor->shape, sizeof shape);
    shape[a] = tensor->shape[b];
    shape[b] = tensor->shape[a];
    return rs_axes_layout(&axes, tensor->ndim, shape, out_layout);
}

reshard_status rs_spread_transpose(reshard_tensor *tensor, int32_t a, int32_t b,
                                   reshard_tensor **out_tensor)
{
    const rs_distribution *distribution = tensor->distribution;
    reshard_context *context = rs_scope_context();
    size_t bytes = (size_t)distribution->shard_count * sizeof(reshard_tensor *);
    reshard_layout *layout = NULL;
    reshard_tensor **shards = rs_allocate(context, bytes);
    reshard_status status = shards != NULL ? RESHARD_OK : rs_allocation_status();
    if (status == RESHARD_OK)
        status = swap_layout(tensor, a, b, &layout);
    int enabled = reshard_set_gradients_enabled(0);
    for (int64_t i = 0; i < distribution->shard_count && status == RESHARD_OK; i++) {
        shards[i] = reshard_tensor_transpose(distribution->shards[i], a, b);
        status = shards[i] != NULL ? RESHARD_OK : rs_scope_failed();
    }
    (void)reshard_set_gradients_enabled(enabled);
    if (status == RESHARD_OK)
        status = rs_distributed_wrap(context, distribution->cache, layout, tensor->dtype, shards,
                                     out_tensor);
    reshard_layout_release(layout);
    rs_release(context, shards);
    return status;
}

/* ---- cat ------------------------------------------------------------------------------------- */

typedef struct joint {
    int32_t count, dim;
} joint;

static reshard_tensor *cat_local(reshard_tensor *const *inputs, const void *user)
{
    const joint *j = user;
    return reshard_cat(j->count, inputs, j->dim);
}

/* Checks that all inputs are cut in the same way, and not along the dim. */
static reshard_status check_cat(int32_t count, reshard_tensor *const *tensors, int32_t dim,
                                rs_axes *out_axes)
{
    reshard_status status = rs_check_together(count, tensors);
    if (status == RESHARD_OK && count > RS_SPREAD_MAX)
        status = rs_fail(RESHARD_ERR_UNSUPPORTED, "%d distributed tensors at once; there may be %d",
                         count, RS_SPREAD_MAX);
    for (int32_t i = 0; i < count && status == RESHARD_OK; i++) {
        rs_axes axes;
        status = rs_axes_check_mesh(tensors[0], tensors[i]);
        if (status == RESHARD_OK)
            status = rs_axes_of(tensors[i], &axes);
        if (status == RESHARD_OK && i == 0)
            *out_axes = axes;
        if (status == RESHARD_OK && !rs_axes_equal(&axes, out_axes))
            status =
                rs_fail(RESHARD_ERR_INVALID, "input 0 has the layout \"%s\" and input %d \"%s\"",
                        rs_tensor_describe_layout(tensors[0]).text, i,
                        rs_tensor_describe_layout(tensors[i]).text);
    }
    for (int32_t i = 0; status == RESHARD_OK && i < out_axes->count; i++) {
        if (rs_axes_is_cut(&out_axes->cuts[i].placement, dim))
            status = rs_fail(RESHARD_ERR_INVALID, "dimension %d is cut by \"%s\"", dim,
                             rs_tensor_describe_layout(tensors[0]).text);
    }
    return status;
}

reshard_tensor *rs_spread_cat(int32_t count, reshard_tensor *const *tensors, int32_t dim)
{
    rs_axes axes;
    joint j = {count, dim};
    rs_spread spread = {
        .name = "cat", .inputs = tensors, .fn = cat_local, .user = &j, .user_bytes = sizeof j};
    int64_t shape[RESHARD_NDIM_MAX];
    reshard_status status = check_cat(count, tensors, dim, &axes);
    if (status == RESHARD_OK) {
        spread.input_count = count;
        memcpy(shape, tensors[0]->shape, sizeof shape);
        for (int32_t i = 1; i < count; i++)
            shape[dim] += tensors[i]->shape[dim];
        status = rs_axes_layout(&axes, tensors[0]->ndim, shape, &spread.output_layout);
    }
    for (int32_t i = 0; i < count && status == RESHARD_OK; i++)
        status = rs_gradient_layout(tensors[i]->distribution->layout, &spread.gradient_layouts[i]);
    return rs_spread_run(&spread, status);
}

/* ---- sums ------------------------------------------------------------------------------------ */

static reshard_tensor *sum_local(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_sum(inputs[0]);
}

static reshard_tensor *mean_local(reshard_tensor *const *inputs, const void *user)
{
    return rs_mean_of(inputs[0], *(const int64_t *)user);
}

static reshard_status refuse_total(reshard_tensor *const *inputs, int32_t axis)
{
    (void)axis;
    return rs_refuse_partial(inputs[0]);
}

/* The total is partial over the axes that cut x. */
static const reshard_operation_rule total_rows[] = {
    {"S(*)", "P", NULL},
    {"P", "P", NULL},
    {"P(avg)", "P(avg)", NULL},
};
static const rs_layout_rules total_rules = RS_LAYOUT_RULES(total_rows, refuse_total);

reshard_tensor *rs_spread_sum(reshard_tensor *x)
{
    rs_spread spread = {.name = "sum", .input_count = 1, .inputs = &x, .fn = sum_local};
    return rs_spread_by(&total_rules, 0, NULL, &spread);
}

reshard_tensor *rs_spread_mean(reshard_tensor *x)
{
    rs_spread spread = {.name = "mean",
                        .input_count = 1,
                        .inputs = &x,
                        .fn = mean_local,
                        .user = &x->volume,
                        .user_bytes = sizeof x->volume};
    return rs_spread_by(&total_rules, 0, NULL, &spread);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Whether the axis leaves rows whole. */
static bool has_rows(const reshard_tensor *x, int32_t axis)
{
    rs_axes axes;
    if (rs_axes_of(x, &axes) != RESHARD_OK)
        return false;
    reshard_placement p = rs_axes_at(&axes, axis);
    return p.kind != RESHARD_PARTIAL && !rs_axes_is_cut(&p, x->ndim - 1);
}

static reshard_status refuse_rows(const reshard_tensor *x)
{
    return rs_fail(RESHARD_ERR_INVALID,
                   "x with \"%s\": rows have to be whole, redistribute it first",
                   rs_tensor_describe_layout(x).text);
}

static reshard_status refuse_norm(reshard_tensor *const *inputs, int32_t axis)
{
    rs_axes weight;
    if (!has_rows(inputs[0], axis))
        return refuse_rows(inputs[0]);
    bool whole = rs_axes_of(inputs[1], &weight) == RESHARD_OK && weight.count == 0;
    return rs_fail(RESHARD_ERR_INVALID, "a %s with \"%s\", which is not replicated",
                   whole ? "bias" : "weight",
                   rs_tensor_describe_layout(inputs[whole ? 2 : 1]).text);
}

/* Each rank has the gradient of weight and bias from its own rows only. */
static const reshard_operation_rule norm_rows[] = {{"S(i), R, R", "S(i)", NULL}};
const rs_layout_rules rs_norm_rules = RS_LAYOUT_RULES(norm_rows, refuse_norm);

reshard_tensor *rs_spread_norm(const char *name, reshard_tensor *x, reshard_tensor *weight,
                               reshard_tensor *bias, rs_local_fn fn, const void *user,
                               size_t user_bytes)
{
    reshard_tensor *inputs[] = {x, weight, bias};
    rs_spread spread = {.name = name,
                        .input_count = 3,
                        .inputs = inputs,
                        .fn = fn,
                        .user = user,
                        .user_bytes = user_bytes};
    return rs_spread_by(&rs_norm_rules, x->ndim, x->shape, &spread);
}

/* ---- cross-entropy --------------------------------------------------------------------------- */

static reshard_tensor *cross_entropy_local(reshard_tensor *const *inputs, const void *user)
{
    const reshard_cross_entropy_options none = {.size = sizeof none};
    return rs_cut_cross_entropy(inputs[0], inputs[1], &none, *(const int64_t *)user);
}

static reshard_status refuse_cross_entropy(reshard_tensor *const *inputs, int32_t axis)
{
    if (!has_rows(inputs[0], axis))
        return refuse_rows(inputs[0]);
    return rs_fail(RESHARD_ERR_INVALID, "logits with \"%s\" and labels with \"%s\"",
                   rs_tensor_describe_layout(inputs[0]).text,
                   rs_tensor_describe_layout(inputs[1]).text);
}

static const reshard_operation_rule cross_entropy_rows[] = {{"S(i), S(*)", "P", NULL}};
static const rs_layout_rules cross_entropy_rules =
    RS_LAYOUT_RULES(cross_entropy_rows, refuse_cross_entropy);

bool rs_spread_labels(reshard_tensor **t)
{
    rs_axes rows, labels;
    reshard_layout *layout = NULL;
    if (t[0]->distribution == NULL || t[0]->ndim != t[1]->ndim + 1 ||
        rs_axes_check_mesh(t[0], t[1]) != RESHARD_OK ||
        rs_rows_axes(t[0], (reshard_placement){.kind = RESHARD_REPLICATE}, &rows) != RESHARD_OK ||
        rs_axes_of(t[1], &labels) != RESHARD_OK || rs_axes_equal(&labels, &rows))
        return true; /* the operation reports what does not fit */
    reshard_status status = rs_axes_layout(&rows, t[1]->ndim, t[1]->shape, &layout);
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "cross_entropy_loss")) != NULL;
    t[1] = reshard_tensor_redistribute(t[1], layout->spec, NULL);
    reshard_layout_release(layout);
    return t[1] != NULL;
}

reshard_tensor *rs_spread_cross_entropy(reshard_tensor *logits, reshard_tensor *labels)
{
    reshard_tensor *inputs[] = {logits, labels};
    rs_spread spread = {.name = "cross_entropy",
                        .input_count = 2,
                        .inputs = inputs,
                        .fn = cross_entropy_local,
                        .user = &labels->volume,
                        .user_bytes = sizeof labels->volume};
    return rs_spread_by(&cross_entropy_rules, 0, NULL, &spread);
}
