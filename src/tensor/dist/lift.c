/* SPDX-License-Identifier: Apache-2.0 */
/* lift.c - see lift.h. */
#include "tensor/dist/lift.h"

#include "layout/derive.h"
#include "layout/layout.h"
#include "spec/spec.h"
#include "tensor/core/dense.h"
#include "tensor/core/move.h"
#include "tensor/dist/alike.h"
#include "tensor/grad/node.h"

#include <reshard/distributed.h>
#include <reshard/group.h>

reshard_status rs_layout_replicated(reshard_context *context, const reshard_tensor *like,
                                    int32_t ndim, const int64_t *shape, reshard_layout **out_layout)
{
    const rs_distribution *d = like->distribution;
    const reshard_mesh *mesh = d->layout->spec->mesh;
    reshard_spec *spec = NULL;
    if (mesh == NULL || mesh->repeated)
        return rs_layout_simple(context, reshard_group_size(rs_exec_cache_group(d->cache)), -1,
                                NULL, ndim, shape, out_layout);
    reshard_status status = reshard_spec_create(context, (reshard_mesh *)mesh, 0, NULL, &spec);
    return rs_layout_take(context, status, spec, ndim, shape, out_layout);
}

/* ---- lifting --------------------------------------------------------------------------------- */

static void forget_layout(void *extra)
{
    reshard_layout_release(extra);
}

/* Every rank gets the whole gradient of the replicated tensor, even ranks outside the mesh: all
 * local tensors are copies of one, and have to stay equal. */
static void backward_lift(rs_node *node, reshard_tensor *const *gradients,
                          reshard_tensor **out_gradients)
{
    reshard_tensor *whole = NULL, *local = NULL;
    reshard_layout *layout = reshard_layout_retain(node->extra);
    reshard_group *group = rs_distributed_group(gradients[0]);
    reshard_status status = RESHARD_OK;
    if (layout->rank_count < reshard_group_size(group)) {
        reshard_layout_release(layout);
        layout = NULL;
        status = rs_layout_simple(rs_scope_context(), reshard_group_size(group), -1, NULL,
                                  gradients[0]->ndim, gradients[0]->shape, &layout);
    }
    status = rs_redistribute_after(status, group, "lift", rs_scope_context(), gradients[0], layout,
                                   gradients[0]->dtype, &whole);
    if (status == RESHARD_OK)
        status = rs_tensor_alias(rs_scope_context(), whole->distribution->shards[0], &local);
    reshard_tensor_release(whole);
    reshard_layout_release(layout);
    out_gradients[0] = rs_scope_finish(status, local);
}

/* Gives a vector the shape of the row, or the other way round. */
static reshard_status turn(reshard_tensor *tensor, int32_t ndim, reshard_tensor **out_turned)
{
    int32_t last = tensor->ndim - 1;
    int64_t count = tensor->shape[last], step = tensor->strides[last];
    const int64_t shape[] = {1, count}, strides[] = {count * step, step};
    return rs_tensor_view(rs_scope_context(), tensor, ndim, shape + 2 - ndim, strides + 2 - ndim, 0,
                          out_turned);
}

static void backward_row(rs_node *node, reshard_tensor *const *gradients,
                         reshard_tensor **out_gradients)
{
    (void)node;
    reshard_tensor *turned = NULL;
    reshard_status status = turn(gradients[0], 1, &turned);
    out_gradients[0] = rs_scope_finish(status, turned);
}

static reshard_tensor *make_row(reshard_tensor *vector)
{
    if (!rs_op_begin("lift", 1, &vector))
        return NULL;
    reshard_tensor *row = NULL;
    reshard_status status = turn(vector, 2, &row);
    rs_recipe recipe = {
        .name = "lift", .backward = backward_row, .input_count = 1, .inputs = &vector};
    return rs_op_end(&recipe, status, row);
}

/* A vector of its own on every rank becomes one row of a matrix, as in PyTorch. */
static reshard_tensor *join_rows(reshard_tensor *tensor, bool is_row, reshard_group *group,
                                 reshard_spec *rows)
{
    if (tensor->ndim == 0)
        return rs_scope_fail(
            rs_fail(RESHARD_ERR_INVALID, "a local scalar differs between ranks, and has no rows"));
    if (is_row && tensor->ndim == 1)
        tensor = make_row(tensor);
    return reshard_tensor_from_local(tensor, group, rows);
}

/* Makes a local tensor the copy of every rank. *out_layout is set on failure too, or stays NULL. */
static reshard_status wrap_whole(reshard_context *context, reshard_tensor *local,
                                 const reshard_tensor *like, reshard_layout **out_layout,
                                 reshard_tensor **out_tensor)
{
    reshard_tensor *dense = NULL;
    reshard_status status =
        rs_layout_replicated(context, like, local->ndim, local->shape, out_layout);
    if (status == RESHARD_OK)
        status = rs_tensor_densify(context, local, &dense);
    if (status == RESHARD_OK)
        status = rs_distributed_wrap(context, like->distribution->cache, *out_layout, local->dtype,
                                     &dense, out_tensor);
    reshard_tensor_release(dense);
    return status;
}

static reshard_tensor *replicate(reshard_tensor *tensor, const reshard_tensor *like)
{
    if (!rs_op_begin("lift", 1, &tensor))
        return NULL;
    reshard_layout *layout = NULL;
    reshard_tensor *made = NULL;
    reshard_status status = wrap_whole(rs_scope_context(), tensor, like, &layout, &made);
    rs_recipe recipe = {.name = "lift",
                        .backward = backward_lift,
                        .input_count = 1,
                        .inputs = &tensor,
                        .group = rs_distributed_group(like),
                        .extra = layout,
                        .forget_extra = forget_layout};
    return rs_op_end(&recipe, status, made);
}

static reshard_tensor *lift_one(const char *what, int32_t slot, bool is_row, reshard_tensor *tensor,
                                const reshard_tensor *like)
{
    reshard_spec *rows = NULL;
    if (!rs_op_begin(what, 1, &tensor)) {
        rs_agree_on_failure();
        return NULL;
    }
    reshard_status status = rs_find_rows(what, slot, tensor, like, &rows);
    if (status != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(status, "%s", what));
    reshard_tensor *made = rows != NULL
                               ? join_rows(tensor, is_row, rs_distributed_group(like), rows)
                               : replicate(tensor, like);
    reshard_spec_release(rows);
    return made;
}

bool rs_lift(const char *what, int32_t row_slot, int32_t count, reshard_tensor **tensors)
{
    const reshard_tensor *like = NULL;
    for (int32_t i = 0; i < count && like == NULL; i++) {
        if (tensors[i] != NULL && tensors[i]->distribution != NULL)
            like = tensors[i];
    }
    for (int32_t i = 0; i < count && like != NULL; i++) {
        if (tensors[i] == NULL || tensors[i]->distribution != NULL)
            continue;
        tensors[i] = lift_one(what, i, i == row_slot, tensors[i], like);
        if (tensors[i] == NULL)
            return false;
    }
    return true;
}

/* ---- moving to another tensor's layout ------------------------------------------------------- */

reshard_status rs_tensor_bring(reshard_context *context, reshard_tensor *source,
                               const reshard_tensor *target, reshard_tensor **out_tensor)
{
    if (target->distribution == NULL && source->distribution == NULL) {
        *out_tensor = reshard_tensor_retain(source);
        return RESHARD_OK;
    }
    if (target->distribution == NULL)
        return rs_gather_whole(context, RESHARD_OK, "load", source, -1, out_tensor);
    reshard_layout *layout = NULL;
    reshard_tensor *spread = NULL;
    reshard_status status = RESHARD_OK;
    if (source->distribution == NULL) {
        status = rs_compare_whole("load", source, rs_distributed_group(target));
        if (status != RESHARD_OK)
            return status;
        status = wrap_whole(context, source, target, &layout, &spread);
    } else {
        spread = reshard_tensor_retain(source);
    }
    status = rs_redistribute_after(status, rs_distributed_group(target), "load", context, spread,
                                   target->distribution->layout, target->dtype, out_tensor);
    reshard_tensor_release(spread);
    reshard_layout_release(layout);
    return status;
}
