/* SPDX-License-Identifier: Apache-2.0 */
/*
 * embedding.c - picking entries by index: embedding (rows of a matrix) and index_select (any dim).
 * A tensor is seen as [outer, n, inner]. Gradients of an entry that was picked several times add up
 * in the order of the indices.
 */
#ifndef REAL
#include "base/error.h"
#include "base/shape.h"
#include "tensor/dist/spread.h"
#include "tensor/ops/op.h"
#include "tensor/ops/spread_ops.h"

#include <string.h>

#define RS_REAL_FILE "tensor/ops/embedding.c"
#include "tensor/core/real.h"

typedef struct choose_facts {
    int64_t outer, n, inner;
    rs_extents input;
} choose_facts;

static void backward_choose(rs_node *node, reshard_tensor *const *gradients,
                            reshard_tensor **out_gradients)
{
    const choose_facts *facts = rs_node_facts(node);
    reshard_tensor *indices = rs_node_saved(node, 0), *dense = NULL, *output = NULL;
    reshard_tensor *gradient = NULL;
    if (indices == NULL)
        return;
    reshard_status status = rs_tensor_densify(rs_scope_context(), indices, &dense);
    if (status == RESHARD_OK)
        status = rs_real(gradients[0], &gradient);
    if (status == RESHARD_OK)
        status =
            rs_result_zeros(gradients[0]->dtype, facts->input.ndim, facts->input.shape, &output);
    if (status == RESHARD_OK)
        RS_CALL(output->dtype, add_chosen, gradient->data, (const void *)dense->data, facts->outer,
                facts->n, facts->inner, dense->volume, output->data);
    reshard_tensor_release(dense);
    reshard_tensor_release(gradient);
    out_gradients[0] = rs_scope_finish(status, output);
}

/* Indices of -1 give zeros. The caller has checked the others. */
static reshard_tensor *choose(const char *name, reshard_tensor *x, int32_t dim,
                              reshard_tensor *indices, int32_t ndim, const int64_t *shape)
{
    reshard_tensor *dense = NULL, *output = NULL, *picks = NULL;
    choose_facts facts = {.outer = rs_volume(dim, x->shape),
                          .n = x->shape[dim],
                          .inner = rs_volume(x->ndim - dim - 1, x->shape + dim + 1),
                          .input = rs_extents_of(x)};
    reshard_status status = rs_check_floats(1, &x);
    if (status == RESHARD_OK)
        status = rs_real(x, &dense);
    if (status == RESHARD_OK)
        status = rs_tensor_densify(rs_scope_context(), indices, &picks);
    if (status == RESHARD_OK)
        status = rs_result(x->dtype, ndim, shape, &output);
    if (status == RESHARD_OK)
        RS_CALL(x->dtype, choose, dense->data, (const void *)picks->data, facts.outer, facts.n,
                facts.inner, picks->volume, output->data);
    reshard_tensor_release(dense);
    reshard_tensor_release(picks);
    if (status == RESHARD_OK) { /* the recipe knows x alone, as indices have no gradient */
        reshard_tensor *const both[] = {x, indices};
        output->sameness = rs_sameness_of(2, both);
        output->kin = rs_kin_of(2, both);
    }
    rs_recipe recipe = {
        name, backward_choose, 1, &x, 1, &indices, .facts = &facts, .facts_bytes = sizeof facts};
    return rs_op_end(&recipe, status, output);
}

static reshard_status check_choice(reshard_tensor *indices, int64_t limit)
{
    reshard_tensor *dense = NULL;
    reshard_status status = rs_check_indices(indices);
    if (status == RESHARD_OK)
        status = rs_tensor_densify(rs_scope_context(), indices, &dense);
    if (status == RESHARD_OK)
        status = rs_check_index_range(dense, limit);
    reshard_tensor_release(dense);
    return status;
}

/* ---- embedding ------------------------------------------------------------------------------- */

reshard_tensor *rs_embedding_at(reshard_tensor *weight, reshard_tensor *places)
{
    int64_t shape[RESHARD_NDIM_MAX];
    reshard_tensor *inputs[] = {weight, places};
    if (!rs_op_begin("embedding", 2, inputs))
        return NULL;
    if (rs_dtype_is_half(weight->dtype))
        return reshard_tensor_cast(
            rs_embedding_at(reshard_tensor_cast(weight, RESHARD_F32), places), weight->dtype);
    memcpy(shape, places->shape, sizeof shape);
    shape[places->ndim] = weight->shape[1];
    return choose("embedding", weight, 0, places, places->ndim + 1, shape);
}

reshard_tensor *reshard_embedding(reshard_tensor *weight, reshard_tensor *indices)
{
    reshard_tensor *inputs[] = {weight, indices};
    if (!rs_op_begin("embedding", 2, inputs))
        return NULL;
    reshard_status status = rs_check_indices(indices);
    if (status == RESHARD_OK && (weight->ndim != 2 || indices->ndim >= RESHARD_NDIM_MAX))
        status = rs_fail(RESHARD_ERR_INVALID, "weight %s with indices %s",
                         rs_tensor_describe(weight).text, rs_tensor_describe(indices).text);
    bool distributed = rs_any_distributed(2, inputs);
    if (status == RESHARD_OK && !distributed)
        status = check_choice(indices, weight->shape[0]);
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "embedding"));
    return distributed ? rs_spread_embedding(weight, indices) : rs_embedding_at(weight, indices);
}

/* ---- index_select ---------------------------------------------------------------------------- */

reshard_tensor *reshard_index_select(reshard_tensor *x, int32_t dim, reshard_tensor *indices)
{
    reshard_tensor *inputs[] = {x, indices};
    int32_t d = 0;
    if (!rs_op_begin("index_select", 2, inputs))
        return NULL;
    reshard_status status = rs_dim_normalize(x->ndim, dim, &d);
    bool spread = rs_any_distributed(2, inputs);
    if (status == RESHARD_OK && indices->ndim != 1)
        status = rs_fail(RESHARD_ERR_INVALID, "indices are %s, not of one dimension",
                         rs_tensor_describe(indices).text);
    if (status == RESHARD_OK && !spread) /* otherwise they are checked shard by shard */
        status = check_choice(indices, x->shape[d]);
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "index_select"));
    if (spread)
        return rs_spread_index_select(x, d, indices);
    if (rs_dtype_is_half(x->dtype))
        return reshard_tensor_cast(
            reshard_index_select(reshard_tensor_cast(x, RESHARD_F32), dim, indices), x->dtype);
    int64_t shape[RESHARD_NDIM_MAX];
    memcpy(shape, x->shape, sizeof shape);
    shape[d] = indices->volume;
    return choose("index_select", x, d, indices, x->ndim, shape);
}

#else

static void OF(choose)(const void *x, const int64_t *indices, int64_t outer, int64_t n,
                       int64_t inner, int64_t count, void *y)
{
    const REAL *from = x;
    REAL *to = y;
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < count; i++) {
            REAL *row = to + (o * count + i) * inner;
            for (int64_t k = 0; k < inner; k++)
                row[k] = indices[i] < 0 ? 0 : from[(o * n + indices[i]) * inner + k];
        }
    }
}

static void OF(add_chosen)(const void *g, const int64_t *indices, int64_t outer, int64_t n,
                           int64_t inner, int64_t count, void *y)
{
    const REAL *from = g;
    REAL *to = y;
    for (int64_t o = 0; o < outer; o++) {
        for (int64_t i = 0; i < count; i++) {
            const REAL *row = from + (o * count + i) * inner;
            for (int64_t k = 0; k < inner && indices[i] >= 0; k++)
                to[(o * n + indices[i]) * inner + k] += row[k];
        }
    }
}

#endif
