/* SPDX-License-Identifier: Apache-2.0 */
/*
 * view.c - views: other shapes and strides over the same memory. Their backward steps are views of
 * the gradient, except that narrow copies the gradient into zeros.
 */
#include "base/checked.h"
#include "base/error.h"
#include "base/shape.h"
#include "tensor/core/dense.h"
#include "tensor/grad/node.h"
#include "tensor/ops/spread_ops.h"

#include <inttypes.h>
#include <string.h>

/* ---- transpose ------------------------------------------------------------------------------- */

typedef struct transpose_facts {
    int32_t a, b;
} transpose_facts;

static void backward_transpose(rs_node *node, reshard_tensor *const *gradients,
                               reshard_tensor **out_gradients)
{
    const transpose_facts *facts = rs_node_facts(node);
    out_gradients[0] = reshard_tensor_transpose(gradients[0], facts->a, facts->b);
}

reshard_tensor *reshard_tensor_transpose(reshard_tensor *tensor, int32_t a, int32_t b)
{
    if (!rs_op_begin("transpose", 1, &tensor))
        return NULL;
    int32_t first = 0, second = 0;
    reshard_tensor *view = NULL;
    reshard_status status = rs_dim_normalize(tensor->ndim, a, &first);
    if (status == RESHARD_OK)
        status = rs_dim_normalize(tensor->ndim, b, &second);
    transpose_facts facts = {first, second};
    rs_recipe recipe = {"transpose", backward_transpose, 1,
                        &tensor,     .facts = &facts,    .facts_bytes = sizeof facts};
    if (status == RESHARD_OK && tensor->distribution != NULL) {
        status = rs_spread_transpose(tensor, first, second, &view);
    } else if (status == RESHARD_OK) {
        int64_t shape[RESHARD_NDIM_MAX], strides[RESHARD_NDIM_MAX];
        memcpy(shape, tensor->shape, sizeof shape);
        memcpy(strides, tensor->strides, sizeof strides);
        shape[first] = tensor->shape[second];
        shape[second] = tensor->shape[first];
        strides[first] = tensor->strides[second];
        strides[second] = tensor->strides[first];
        status = rs_tensor_view(rs_scope_context(), tensor, tensor->ndim, shape, strides, 0, &view);
    }
    return rs_op_end(&recipe, status, view);
}

/* ---- narrow ---------------------------------------------------------------------------------- */

typedef struct narrow_facts {
    int32_t dim;
    int64_t start;
    rs_extents whole;
} narrow_facts;

static void backward_narrow(rs_node *node, reshard_tensor *const *gradients,
                            reshard_tensor **out_gradients)
{
    const narrow_facts *facts = rs_node_facts(node);
    reshard_tensor *whole = NULL, *part = NULL, *gradient = gradients[0];
    reshard_status status =
        rs_result_zeros(gradient->dtype, facts->whole.ndim, facts->whole.shape, &whole);
    if (status == RESHARD_OK)
        status = rs_tensor_view(whole->context, whole, gradient->ndim, gradient->shape,
                                whole->strides, facts->start * whole->strides[facts->dim], &part);
    if (status == RESHARD_OK)
        rs_tensor_copy(gradient, part);
    reshard_tensor_release(part);
    out_gradients[0] = rs_scope_finish(status, whole);
}

static reshard_status check_range(const reshard_tensor *tensor, int32_t dim, int64_t start,
                                  int64_t length)
{
    if (start < 0 || length < 0 || start > tensor->shape[dim] ||
        length > tensor->shape[dim] - start)
        return rs_fail(RESHARD_ERR_RANGE,
                       "%" PRId64 " elements from %" PRId64 " of dimension %d, which has %" PRId64,
                       length, start, dim, tensor->shape[dim]);
    return RESHARD_OK;
}

reshard_tensor *reshard_tensor_narrow(reshard_tensor *tensor, int32_t dim, int64_t start,
                                      int64_t length)
{
    if (!rs_op_begin("narrow", 1, &tensor))
        return NULL;
    int32_t d = 0;
    reshard_tensor *view = NULL;
    reshard_status status = rs_dim_normalize(tensor->ndim, dim, &d);
    if (status == RESHARD_OK)
        status = check_range(tensor, d, start, length);
    if (status == RESHARD_OK && tensor->distribution != NULL)
        return rs_spread_narrow(tensor, d, start, length);
    if (status == RESHARD_OK) {
        int64_t shape[RESHARD_NDIM_MAX];
        memcpy(shape, tensor->shape, sizeof shape);
        shape[d] = length;
        status = rs_tensor_view(rs_scope_context(), tensor, tensor->ndim, shape, tensor->strides,
                                start * tensor->strides[d], &view);
    }
    narrow_facts facts = {d, start, rs_extents_of(tensor)};
    rs_recipe recipe = {"narrow", backward_narrow, 1,
                        &tensor,  .facts = &facts, .facts_bytes = sizeof facts};
    return rs_op_end(&recipe, status, view);
}

/* ---- reshape --------------------------------------------------------------------------------- */

static void backward_reshape(rs_node *node, reshard_tensor *const *gradients,
                             reshard_tensor **out_gradients)
{
    const rs_extents *before = rs_node_facts(node);
    out_gradients[0] = reshard_tensor_reshape(gradients[0], before->ndim, before->shape);
}

static reshard_tensor *end_reshape(const char *name, reshard_tensor *tensor, reshard_status status,
                                   reshard_tensor *view)
{
    rs_extents before = rs_extents_of(tensor);
    rs_recipe recipe = {name,    backward_reshape, 1,
                        &tensor, .facts = &before, .facts_bytes = sizeof before};
    return rs_op_end(&recipe, status, view);
}

/* Replaces a size of -1 by whatever the other sizes leave. */
static reshard_status resolve_shape(const reshard_tensor *tensor, int32_t ndim,
                                    const int64_t *shape, int64_t *out_shape)
{
    int64_t known = 1, volume;
    int32_t open = -1;
    if (ndim < 0 || ndim > RESHARD_NDIM_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "to %d dimensions; there may be 0..%d", ndim,
                       RESHARD_NDIM_MAX);
    for (int32_t d = 0; d < ndim; d++) {
        out_shape[d] = shape[d];
        if (shape[d] == -1 && open >= 0)
            return rs_fail(RESHARD_ERR_INVALID, "sizes %d and %d are both -1", open, d);
        if (shape[d] == -1)
            open = d;
        else if (shape[d] < 0 || !rs_multiply(known, shape[d], &known))
            return rs_fail(RESHARD_ERR_RANGE, "size %d is %" PRId64, d, shape[d]);
    }
    if (open >= 0 && (known == 0 || tensor->volume % known != 0))
        return rs_fail(RESHARD_ERR_INVALID,
                       "%" PRId64 " elements cannot be cut in rows of %" PRId64, tensor->volume,
                       known);
    if (open >= 0)
        out_shape[open] = tensor->volume / known;
    reshard_status status = rs_extents_check(ndim, out_shape, &volume);
    if (status == RESHARD_OK && volume != tensor->volume)
        status = rs_fail(RESHARD_ERR_INVALID, "%" PRId64 " elements to a shape of %" PRId64,
                         tensor->volume, volume);
    return status;
}

reshard_tensor *reshard_tensor_reshape(reshard_tensor *tensor, int32_t ndim, const int64_t *shape)
{
    if (!rs_op_begin("reshape", 1, &tensor))
        return NULL;
    int64_t resolved[RESHARD_NDIM_MAX], strides[RESHARD_NDIM_MAX];
    reshard_tensor *dense = NULL, *view = NULL;
    reshard_status status = resolve_shape(tensor, ndim, shape, resolved);
    if (status == RESHARD_OK && tensor->distribution != NULL)
        return rs_spread_reshape(tensor, ndim, resolved);
    if (status == RESHARD_OK)
        status = rs_tensor_densify(rs_scope_context(), tensor, &dense);
    if (status == RESHARD_OK) {
        rs_dense_strides(ndim, resolved, strides);
        status = rs_tensor_view(rs_scope_context(), dense, ndim, resolved, strides, 0, &view);
    }
    reshard_tensor_release(dense);
    return end_reshape("reshape", tensor, status, view);
}

reshard_tensor *reshard_tensor_squeeze(reshard_tensor *tensor, int32_t dim)
{
    if (!rs_op_begin("squeeze", 1, &tensor))
        return NULL;
    int32_t d = 0;
    reshard_tensor *view = NULL;
    reshard_status status = rs_dim_normalize(tensor->ndim, dim, &d);
    if (status == RESHARD_OK && tensor->shape[d] != 1)
        status = rs_fail(RESHARD_ERR_INVALID, "dimension %d has the size %" PRId64 ", not 1", d,
                         tensor->shape[d]);
    if (status == RESHARD_OK) {
        int64_t shape[RESHARD_NDIM_MAX], strides[RESHARD_NDIM_MAX];
        for (int32_t i = 0, k = 0; i < tensor->ndim; i++) {
            if (i == d)
                continue;
            shape[k] = tensor->shape[i];
            strides[k++] = tensor->strides[i];
        }
        if (tensor->distribution != NULL)
            return rs_spread_reshape(tensor, tensor->ndim - 1, shape);
        status =
            rs_tensor_view(rs_scope_context(), tensor, tensor->ndim - 1, shape, strides, 0, &view);
    }
    return end_reshape("squeeze", tensor, status, view);
}

reshard_tensor *reshard_tensor_unsqueeze(reshard_tensor *tensor, int32_t dim)
{
    if (!rs_op_begin("unsqueeze", 1, &tensor))
        return NULL;
    int32_t d = 0;
    reshard_tensor *view = NULL;
    reshard_status status = RESHARD_OK;
    if (tensor->ndim == RESHARD_NDIM_MAX)
        status = rs_fail(RESHARD_ERR_RANGE, "the tensor has %d dimensions already", tensor->ndim);
    if (status == RESHARD_OK)
        status = rs_dim_normalize(tensor->ndim + 1, dim, &d);
    if (status == RESHARD_OK) {
        int64_t shape[RESHARD_NDIM_MAX], strides[RESHARD_NDIM_MAX];
        for (int32_t i = 0; i <= tensor->ndim; i++) {
            shape[i] = i == d ? 1 : tensor->shape[i - (i > d)];
            strides[i] = i == d ? 1 : tensor->strides[i - (i > d)];
        }
        if (tensor->distribution != NULL)
            return rs_spread_reshape(tensor, tensor->ndim + 1, shape);
        status =
            rs_tensor_view(rs_scope_context(), tensor, tensor->ndim + 1, shape, strides, 0, &view);
    }
    return end_reshape("unsqueeze", tensor, status, view);
}

/* ---- the same values ------------------------------------------------------------------------- */

static void backward_identity(rs_node *node, reshard_tensor *const *gradients,
                              reshard_tensor **out_gradients)
{
    (void)node;
    out_gradients[0] = gradients[0];
}

reshard_tensor *reshard_tensor_contiguous(reshard_tensor *tensor)
{
    if (!rs_op_begin("contiguous", 1, &tensor))
        return NULL;
    if (tensor->distribution != NULL || rs_tensor_is_contiguous(tensor))
        return tensor;
    reshard_tensor *dense = NULL;
    reshard_status status = rs_tensor_densify(rs_scope_context(), tensor, &dense);
    rs_recipe recipe = {
        .name = "contiguous", .backward = backward_identity, .input_count = 1, .inputs = &tensor};
    return rs_op_end(&recipe, status, dense);
}

static reshard_status copy_all(reshard_tensor *tensor, reshard_tensor **out_copy)
{
    const rs_distribution *d = tensor->distribution;
    reshard_tensor *copy = NULL;
    reshard_status status =
        d != NULL
            ? rs_distributed_make(rs_scope_context(), d->cache, d->layout, tensor->dtype, &copy)
            : rs_result(tensor->dtype, tensor->ndim, tensor->shape, &copy);
    if (status != RESHARD_OK)
        return status;
    if (d == NULL)
        rs_tensor_copy(tensor, copy);
    for (int64_t i = 0; d != NULL && i < d->shard_count; i++)
        rs_tensor_copy(d->shards[i], copy->distribution->shards[i]);
    *out_copy = copy;
    return RESHARD_OK;
}

reshard_tensor *reshard_tensor_clone(reshard_tensor *tensor)
{
    if (!rs_op_begin("clone", 1, &tensor))
        return NULL;
    reshard_tensor *copy = NULL;
    reshard_status status = copy_all(tensor, &copy);
    rs_recipe recipe = {
        .name = "clone", .backward = backward_identity, .input_count = 1, .inputs = &tensor};
    return rs_op_end(&recipe, status, copy);
}

reshard_tensor *reshard_tensor_detach(reshard_tensor *tensor)
{
    if (!rs_op_begin("detach", 1, &tensor))
        return NULL;
    reshard_tensor *alias = NULL;
    reshard_status status = rs_tensor_alias(rs_scope_context(), tensor, &alias);
    rs_recipe recipe = {.name = "detach"};
    return rs_op_end(&recipe, status, alias);
}
