/* SPDX-License-Identifier: Apache-2.0 */
/* rules_linear.c - layout rules for linear, matmul and embedding: the tables in ops.h. */
#include "base/error.h"
#include "layout/layout.h"
#include "tensor/ops/op.h"
#include "tensor/ops/spread_ops.h"

#include <reshard/group.h>

#include <string.h>

/* ---- linear ---------------------------------------------------------------------------------- */

static reshard_status refuse_linear(reshard_tensor *const *inputs, int32_t axis)
{
    return rs_fail(RESHARD_ERR_INVALID,
                   "axis %d: x with \"%s\" and weight with \"%s\" do not fit, with bias \"%s\"",
                   axis, rs_tensor_describe_layout(inputs[0]).text,
                   rs_tensor_describe_layout(inputs[1]).text,
                   inputs[2] != NULL ? rs_tensor_describe_layout(inputs[2]).text : "none");
}

static const reshard_operation_rule linear_rows[] = {
    {"S(i), R, R", "S(i)", NULL},
    {"R, S(0), S(0)", "S(-1)", NULL}, /* column parallel */
    {"S(-1), S(1), R", "P", NULL},    /* row parallel */
    {"P, R, R", "P", NULL},
};
const rs_layout_rules rs_linear_rules = RS_LAYOUT_RULES(linear_rows, refuse_linear);

/* Whether this rank adds the bias. If the output is partial, only one rank does: that at coordinate
 * 0 of all partial axes. */
static bool has_bias(const rs_fit *fit)
{
    const rs_distribution *distribution = fit->inputs[0]->distribution;
    int32_t rank = reshard_group_rank(rs_exec_cache_group(distribution->cache));
    int32_t coordinates[RESHARD_AXES_MAX];
    if (fit->inputs[2] == NULL || !rs_layout_coordinates(distribution->layout, rank, coordinates))
        return false;
    bool first = true;
    for (int32_t i = 0; i < fit->outputs[0].count; i++) {
        const reshard_cut *cut = &fit->outputs[0].cuts[i];
        first = first && (cut->placement.kind != RESHARD_PARTIAL || coordinates[cut->axis] == 0);
    }
    return first;
}

static reshard_tensor *linear_local(reshard_tensor *const *inputs, const void *user)
{
    return reshard_linear(inputs[0], inputs[1], *(const bool *)user ? inputs[2] : NULL);
}

reshard_tensor *rs_spread_linear(reshard_tensor *x, reshard_tensor *weight, reshard_tensor *bias)
{
    reshard_tensor *inputs[] = {x, weight, bias};
    bool here = false;
    rs_spread spread = {.name = "linear",
                        .input_count = 3,
                        .inputs = inputs,
                        .fn = linear_local,
                        .user = &here,
                        .user_bytes = sizeof here};
    rs_fit fit;
    rs_extents y = rs_extents_of(x);
    y.shape[y.ndim - 1] = weight->shape[0];
    reshard_status status = rs_spread_prepare(&fit, &rs_linear_rules, y.ndim, y.shape, &spread);
    here = status == RESHARD_OK && has_bias(&fit);
    return rs_spread_run(&spread, status);
}

/* ---- matmul ---------------------------------------------------------------------------------- */

static reshard_status refuse_matmul(reshard_tensor *const *inputs, int32_t axis)
{
    return rs_fail(RESHARD_ERR_INVALID, "axis %d: a with \"%s\" and b with \"%s\" do not fit", axis,
                   rs_tensor_describe_layout(inputs[0]).text,
                   rs_tensor_describe_layout(inputs[1]).text);
}

/* b [k, n]. */
static const reshard_operation_rule matmul_rows[] = {
    {"S(i), R", "S(i)", NULL},
    {"R, S(1)", "S(-1)", NULL},
    {"S(-1), S(0)", "P", NULL},
    {"P, R", "P", NULL},
};
static const rs_layout_rules matmul_rules = RS_LAYOUT_RULES(matmul_rows, refuse_matmul);

/* One product for each index of the leading dims, which alone may be cut. */
static const reshard_operation_rule batched_rows[] = {{"S(i), S(i)", "S(i)", NULL}};
static const rs_layout_rules batched_rules = RS_LAYOUT_RULES(batched_rows, refuse_matmul);

static reshard_tensor *matmul_local(reshard_tensor *const *inputs, const void *user)
{
    (void)user;
    return reshard_matmul(inputs[0], inputs[1]);
}

reshard_tensor *rs_spread_matmul(reshard_tensor *a, reshard_tensor *b)
{
    reshard_tensor *inputs[] = {a, b};
    rs_spread spread = {.name = "matmul", .input_count = 2, .inputs = inputs, .fn = matmul_local};
    rs_fit fit;
    rs_extents y = rs_extents_of(a);
    y.shape[y.ndim - 1] = b->shape[b->ndim - 1];
    const rs_layout_rules *rules = b->ndim == 2 ? &matmul_rules : &batched_rules;
    reshard_status status = rs_spread_prepare(&fit, rules, y.ndim, y.shape, &spread);
    for (int32_t i = 0; status == RESHARD_OK && b->ndim > 2 && i < fit.now[0].count; i++) {
        if (rs_axes_is_cut(&fit.now[0].cuts[i].placement, a->ndim - 2))
            status = refuse_matmul(inputs, fit.now[0].cuts[i].axis);
    }
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

static reshard_status refuse_embedding(reshard_tensor *const *inputs, int32_t axis)
{
    (void)axis;
    return rs_fail(RESHARD_ERR_INVALID, "weight with \"%s\" and indices with \"%s\"",
                   rs_tensor_describe_layout(inputs[0]).text,
                   rs_tensor_describe_layout(inputs[1]).text);
}

static const reshard_operation_rule embedding_rows[] = {
    {"S(0), R", "P", NULL},
    {"S(1), R", "S(-1)", NULL},
    {"R, S(*)", "S(*)", NULL},
};
const rs_layout_rules rs_embedding_rules = RS_LAYOUT_RULES(embedding_rows, refuse_embedding);

reshard_tensor *rs_spread_embedding(reshard_tensor *weight, reshard_tensor *indices)
{
    reshard_tensor *inputs[] = {weight, indices};
    rows r = {.limit = weight->shape[0]};
    rs_spread spread = {.name = "embedding",
                        .input_count = 2,
                        .inputs = inputs,
                        .fn = embed_local,
                        .user = &r,
                        .user_bytes = sizeof r};
    rs_fit fit;
    rs_extents y = rs_extents_of(indices);
    y.shape[y.ndim++] = weight->shape[1];
    reshard_status status = rs_spread_prepare(&fit, &rs_embedding_rules, y.ndim, y.shape, &spread);
    if (status == RESHARD_OK)
        status = reshard_layout_shards(weight->distribution->layout,
                                       reshard_group_rank(rs_distributed_group(weight)), &r.shards);
    spread.shards = r.shards;
    return rs_spread_run(&spread, status);
}
