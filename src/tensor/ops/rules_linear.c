/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_linear.c - layout rules for linear, matmul and embedding: the tables in ops.h, axis by
 * axis. If several axes cut one dim, their cuts keep the order they have in the input they come
 * from.
 */
#include "base/error.h"
#include "layout/layout.h"
#include "tensor/dist/axes.h"
#include "tensor/ops/layout_rules.h"
#include "tensor/ops/op.h"

#include <reshard/group.h>

#include <string.h>

/* ---- linear ---------------------------------------------------------------------------------- */

/* The layouts of x, weight and bias, of the output y, and of the gradients d*. */
typedef struct linear {
    reshard_tensor *inputs[3];
    rs_axes x, weight, bias, y, dx, dweight, dbias;
    int32_t last;         /* the last dim of x and y */
    int32_t outer, inner; /* dims of the weight: the output's, and the one that is summed over */
} linear;

static reshard_status refuse(const linear *l, int32_t axis)
{
    if (l->outer == 1)
        return rs_fail(RESHARD_ERR_INVALID, "axis %d: a with \"%s\" and b with \"%s\" do not fit",
                       axis, rs_tensor_describe_layout(l->inputs[0]).text,
                       rs_tensor_describe_layout(l->inputs[1]).text);
    return rs_fail(RESHARD_ERR_INVALID,
                   "axis %d: x with \"%s\" and weight with \"%s\" do not fit, with bias \"%s\"",
                   axis, rs_tensor_describe_layout(l->inputs[0]).text,
                   rs_tensor_describe_layout(l->inputs[1]).text,
                   l->inputs[2] != NULL ? rs_tensor_describe_layout(l->inputs[2]).text : "none");
}

/* Whether x and weight cut the inner dim by the same axes in the same order. */
static bool same_order(const linear *l)
{
    int32_t k = 0;
    for (int32_t i = 0; i < l->x.count; i++) {
        if (!rs_axes_is_cut(&l->x.cuts[i].placement, l->last))
            continue;
        while (k < l->weight.count && !rs_axes_is_cut(&l->weight.cuts[k].placement, l->inner))
            k++;
        if (k == l->weight.count || l->weight.cuts[k].axis != l->x.cuts[i].axis)
            return false;
        k++;
    }
    return true;
}

static reshard_status judge_axis(linear *l, int32_t axis)
{
    reshard_placement x = rs_axes_at(&l->x, axis), weight = rs_axes_at(&l->weight, axis);
    reshard_placement bias = rs_axes_at(&l->bias, axis), partial = rs_placement_partial();
    bool x_whole = x.kind == RESHARD_REPLICATE, weight_whole = weight.kind == RESHARD_REPLICATE;
    bool bias_whole = bias.kind == RESHARD_REPLICATE;
    if (x_whole && weight_whole && bias_whole)
        return RESHARD_OK;
    if (x.kind == RESHARD_SHARD && x.dim < l->last && weight_whole && bias_whole) {
        rs_axes_set(&l->y, axis, x);
        rs_axes_set(&l->dweight, axis, partial);
        rs_axes_set(&l->dbias, axis, partial);
        return RESHARD_OK;
    }
    if (x_whole && rs_axes_is_cut(&weight, l->outer) &&
        (l->inputs[2] == NULL || (rs_axes_is_cut(&bias, 0) && rs_axes_same_cut(&bias, &weight)))) {
        rs_axes_set(&l->dx, axis, partial);
        return RESHARD_OK; /* y has the order of the weight's cuts: see judge_linear */
    }
    bool row = rs_axes_is_cut(&x, l->last) && rs_axes_is_cut(&weight, l->inner) &&
               rs_axes_same_cut(&x, &weight);
    bool sum = x.kind == RESHARD_PARTIAL && x.reduction == RESHARD_SUM && weight_whole;
    if ((row || sum) && bias_whole) {
        rs_axes_set(&l->y, axis, partial);
        rs_axes_set(&l->dbias, axis, partial);
        if (sum) {
            rs_axes_set(&l->dx, axis, (reshard_placement){.kind = RESHARD_REPLICATE});
            rs_axes_set(&l->dweight, axis, partial);
        }
        return RESHARD_OK;
    }
    return refuse(l, axis);
}

static reshard_status judge_linear(linear *l)
{
    reshard_status status = rs_check_together(3, l->inputs);
    for (int32_t i = 1; i < 3 && status == RESHARD_OK; i++) {
        if (l->inputs[i] != NULL)
            status = rs_axes_check_mesh(l->inputs[0], l->inputs[i]);
    }
    if (status == RESHARD_OK)
        status = rs_axes_of(l->inputs[0], &l->x);
    if (status == RESHARD_OK)
        status = rs_axes_of(l->inputs[1], &l->weight);
    if (status == RESHARD_OK && l->inputs[2] != NULL)
        status = rs_axes_of(l->inputs[2], &l->bias);
    if (status != RESHARD_OK)
        return status;
    l->last = l->inputs[0]->ndim - 1;
    l->dx = l->x;
    l->dweight = l->weight;
    l->dbias = l->bias;
    l->y.mesh = l->dbias.mesh = l->x.mesh;
    if (!same_order(l))
        return refuse(l, 0);
    /* y begins with the cuts of x, in their order. judge_axis decides later whether they are
     * allowed. */
    for (int32_t i = 0; i < l->x.count; i++) {
        if (l->x.cuts[i].placement.kind == RESHARD_SHARD && l->x.cuts[i].placement.dim < l->last)
            rs_axes_set(&l->y, l->x.cuts[i].axis, l->x.cuts[i].placement);
    }
    for (int32_t i = 0; i < l->weight.count; i++) {
        reshard_placement cut = l->weight.cuts[i].placement;
        if (!rs_axes_is_cut(&cut, l->outer))
            continue;
        cut.dim = l->last;
        rs_axes_set(&l->y, l->weight.cuts[i].axis, cut);
    }
    for (int32_t axis = 0; axis < reshard_mesh_axis_count(l->x.mesh) && status == RESHARD_OK;
         axis++)
        status = judge_axis(l, axis);
    return status;
}

/* Whether this rank adds the bias. If the output is partial, only one rank does: that at coordinate
 * 0 of all partial axes. */
static bool has_bias(const linear *l)
{
    const rs_distribution *distribution = l->inputs[0]->distribution;
    int32_t rank = reshard_group_rank(rs_exec_cache_group(distribution->cache));
    int32_t coordinates[RESHARD_AXES_MAX];
    if (l->inputs[2] == NULL || !rs_layout_coordinates(distribution->layout, rank, coordinates))
        return false;
    bool first = true;
    for (int32_t i = 0; i < l->y.count; i++) {
        if (l->y.cuts[i].placement.kind == RESHARD_PARTIAL)
            first = first && coordinates[l->y.cuts[i].axis] == 0;
    }
    return first;
}

static reshard_tensor *linear_local(reshard_tensor *const *inputs, const void *user)
{
    return reshard_linear(inputs[0], inputs[1], *(const bool *)user ? inputs[2] : NULL);
}

reshard_tensor *rs_spread_linear(reshard_tensor *x, reshard_tensor *weight, reshard_tensor *bias)
{
    linear l;
    memset(&l, 0, sizeof l);
    l.inputs[0] = x;
    l.inputs[1] = weight;
    l.inputs[2] = bias;
    l.inner = 1;
    bool here = false;
    rs_spread spread = {.name = "linear",
                        .input_count = bias != NULL ? 3 : 2,
                        .inputs = l.inputs,
                        .fn = linear_local,
                        .user = &here,
                        .user_bytes = sizeof here};
    reshard_status status = judge_linear(&l);
    if (status == RESHARD_OK) {
        int64_t shape[RESHARD_NDIM_MAX];
        memcpy(shape, x->shape, sizeof shape);
        shape[l.last] = weight->shape[0];
        here = has_bias(&l);
        status = rs_axes_layout(&l.y, x->ndim, shape, &spread.output_layout);
    }
    if (status == RESHARD_OK)
        status = rs_axes_layout(&l.dx, x->ndim, x->shape, &spread.gradient_layouts[0]);
    if (status == RESHARD_OK)
        status = rs_axes_layout(&l.dweight, 2, weight->shape, &spread.gradient_layouts[1]);
    if (status == RESHARD_OK && bias != NULL)
        status = rs_axes_layout(&l.dbias, 1, bias->shape, &spread.gradient_layouts[2]);
    return rs_spread_run(&spread, status);
}

/* ---- matmul ---------------------------------------------------------------------------------- */

static reshard_tensor *matmul_local(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_matmul(inputs[0], inputs[1]);
}

/* One product for each index of the leading dims. Both inputs must be cut in the same way, and only
 * along these dims. */
static reshard_status judge_batched(linear *l)
{
    bool same = true;
    reshard_status status = rs_check_together(2, l->inputs);
    if (status == RESHARD_OK)
        status = rs_axes_check_mesh(l->inputs[0], l->inputs[1]);
    if (status == RESHARD_OK)
        status = rs_axes_of(l->inputs[0], &l->x);
    if (status == RESHARD_OK)
        status = rs_axes_of(l->inputs[1], &l->weight);
    if (status != RESHARD_OK)
        return status;
    same = l->x.count == l->weight.count;
    for (int32_t i = 0; same && i < l->x.count; i++) {
        const reshard_placement *a = &l->x.cuts[i].placement, *b = &l->weight.cuts[i].placement;
        same = l->x.cuts[i].axis == l->weight.cuts[i].axis && a->kind == RESHARD_SHARD &&
               a->dim == b->dim && a->dim < l->inputs[0]->ndim - 2 && rs_axes_same_cut(a, b);
    }
    if (!same)
        return refuse(l, 0);
    l->y = l->dx = l->x;
    l->dweight = l->weight;
    return RESHARD_OK;
}

reshard_tensor *rs_spread_matmul(reshard_tensor *a, reshard_tensor *b)
{
    linear l;
    memset(&l, 0, sizeof l);
    l.inputs[0] = a;
    l.inputs[1] = b;
    l.outer = 1;
    rs_spread spread = {.name = "matmul", .input_count = 2, .inputs = l.inputs, .fn = matmul_local};
    reshard_status status = b->ndim == 2 ? judge_linear(&l) : judge_batched(&l);
    if (status == RESHARD_OK) {
        int64_t shape[RESHARD_NDIM_MAX];
        memcpy(shape, a->shape, sizeof shape);
        shape[a->ndim - 1] = b->shape[b->ndim - 1];
        status = rs_axes_layout(&l.y, a->ndim, shape, &spread.output_layout);
    }
    if (status == RESHARD_OK)
        status = rs_axes_layout(&l.dx, a->ndim, a->shape, &spread.gradient_layouts[0]);
    if (status == RESHARD_OK)
        status = rs_axes_layout(&l.dweight, b->ndim, b->shape, &spread.gradient_layouts[1]);
    return rs_spread_run(&spread, status);
}

/* ---- embedding ------------------------------------------------------------------------------- */

/* The rows of the weight that are on this rank. */
typedef struct rows {
    reshard_shards *shards; /* of the weight */
    int64_t limit;
} rows;

int64_t rs_find_row(const reshard_shards *shards, int64_t row, int64_t width)
{
    const reshard_shard *shard = &shards->items[0];
    for (int64_t i = 0; i < shard->piece_count; i++) {
        const reshard_piece *piece = &shard->pieces[i];
        int64_t inside = row - piece->box.offset[0];
        if (inside >= 0 && inside < piece->box.size[0] && width > 0)
            return piece->at / width + inside * (piece->strides[0] / width);
    }
    return -1;
}

static reshard_tensor *embed_local(reshard_tensor *const *inputs, const void *user)
{
    const rows *r = user;
    reshard_tensor *weight = inputs[0], *indices = NULL, *places = NULL;
    reshard_status status = rs_tensor_densify(rs_scope_context(), inputs[1], &indices);
    if (status == RESHARD_OK)
        status = rs_check_index_range(indices, r->limit);
    if (status == RESHARD_OK)
        status = rs_result(RESHARD_I64, indices->ndim, indices->shape, &places);
    if (status == RESHARD_OK) {
        const int64_t *from = (const void *)indices->data;
        int64_t *to = (void *)places->data;
        for (int64_t i = 0; i < indices->volume; i++)
            to[i] = rs_find_row(r->shards, from[i], weight->shape[1]);
    }
    reshard_tensor_release(indices);
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "embedding"));
    return rs_embedding_at(weight, rs_scope_own(places));
}

static reshard_status judge_embedding(reshard_tensor *const *inputs, rs_axes *y, rs_axes *dweight)
{
    rs_axes weight, indices;
    int32_t last = inputs[1]->ndim;
    reshard_status status = rs_check_together(2, inputs);
    if (status == RESHARD_OK)
        status = rs_axes_check_mesh(inputs[0], inputs[1]);
    if (status == RESHARD_OK)
        status = rs_axes_of(inputs[0], &weight);
    if (status == RESHARD_OK)
        status = rs_axes_of(inputs[1], &indices);
    if (status != RESHARD_OK)
        return status;
    *y = indices;
    *dweight = weight;
    for (int32_t i = 0; i < indices.count; i++) {
        reshard_placement other = rs_axes_at(&weight, indices.cuts[i].axis);
        if (indices.cuts[i].placement.kind != RESHARD_SHARD || other.kind != RESHARD_REPLICATE)
            return rs_fail(RESHARD_ERR_INVALID, "weight with \"%s\" and indices with \"%s\"",
                           rs_tensor_describe_layout(inputs[0]).text,
                           rs_tensor_describe_layout(inputs[1]).text);
        rs_axes_set(dweight, indices.cuts[i].axis, rs_placement_partial());
    }
    for (int32_t i = 0; i < weight.count; i++) {
        reshard_placement cut = weight.cuts[i].placement;
        if (cut.kind != RESHARD_SHARD)
            return rs_fail(RESHARD_ERR_INVALID, "weight with \"%s\": redistribute it first",
                           rs_tensor_describe_layout(inputs[0]).text);
        if (cut.dim == 0)
            cut = rs_placement_partial();
        else
            cut.dim = last;
        rs_axes_set(y, weight.cuts[i].axis, cut);
    }
    return RESHARD_OK;
}

reshard_tensor *rs_spread_embedding(reshard_tensor *weight, reshard_tensor *indices)
{
    reshard_tensor *inputs[] = {weight, indices};
    rs_axes y, dweight;
    rows r = {.limit = weight->shape[0]};
    rs_spread spread = {.name = "embedding",
                        .input_count = 2,
                        .inputs = inputs,
                        .fn = embed_local,
                        .user = &r,
                        .user_bytes = sizeof r};
    reshard_status status = judge_embedding(inputs, &y, &dweight);
    if (status == RESHARD_OK) {
        int64_t shape[RESHARD_NDIM_MAX];
        memcpy(shape, indices->shape, sizeof shape);
        shape[indices->ndim] = weight->shape[1];
        status = rs_axes_layout(&y, indices->ndim + 1, shape, &spread.output_layout);
    }
    if (status == RESHARD_OK)
        status = rs_axes_layout(&dweight, 2, weight->shape, &spread.gradient_layouts[0]);
    if (status == RESHARD_OK)
        status = reshard_layout_shards(weight->distribution->layout,
                                       reshard_group_rank(rs_distributed_group(weight)), &r.shards);
    spread.shards = r.shards;
    return rs_spread_run(&spread, status);
}
