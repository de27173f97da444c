/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules_views.c - layout rules for operations that change the size of dims: narrow, index_select,
 * reductions along dims, reshape. A dim that changes must be whole on each rank. There are two
 * exceptions: the sum along a cut dim is partial, and reshape accepts even cuts. Shards are dense,
 * so results are copies and not views.
 */
#include "base/error.h"
#include "layout/layout.h"
#include "spec/spec.h"
#include "tensor/dist/axes.h"
#include "tensor/grad/gradient.h"
#include "tensor/grad/node.h"
#include "tensor/ops/spread_ops.h"

#include <reshard/group.h>

#include <string.h>

static reshard_status check_whole(const reshard_tensor *x, const rs_axes *axes, int32_t dim)
{
    for (int32_t i = 0; i < axes->count; i++) {
        if (rs_axes_is_cut(&axes->cuts[i].placement, dim))
            return rs_fail(RESHARD_ERR_INVALID, "dimension %d is cut by \"%s\"", dim,
                           rs_tensor_describe_layout(x).text);
    }
    return RESHARD_OK;
}

/* Sets the layouts of an operation that changes the size of one dim, which must be whole. */
static reshard_status resize_dim(rs_spread *spread, reshard_tensor *x, int32_t dim, int64_t size)
{
    rs_axes axes;
    int64_t shape[RESHARD_NDIM_MAX];
    reshard_status status = rs_axes_of(x, &axes);
    if (status == RESHARD_OK)
        status = check_whole(x, &axes, dim);
    if (status != RESHARD_OK)
        return status;
    memcpy(shape, x->shape, sizeof shape);
    shape[dim] = size;
    status = rs_axes_layout(&axes, x->ndim, shape, &spread->output_layout);
    if (status == RESHARD_OK)
        status = rs_gradient_layout(x->distribution->layout, &spread->gradient_layouts[0]);
    return status;
}

/* ---- parts of a dim -------------------------------------------------------------------------- */

typedef struct range {
    int32_t dim;
    int64_t start, length;
} range;

static reshard_tensor *narrow_local(reshard_tensor *const *inputs, const void *user)
{
    const range *r = user;
    return reshard_tensor_narrow(inputs[0], r->dim, r->start, r->length);
}

reshard_tensor *rs_spread_narrow(reshard_tensor *x, int32_t dim, int64_t start, int64_t length)
{
    range r = {dim, start, length};
    rs_spread spread = {.name = "narrow",
                        .input_count = 1,
                        .inputs = &x,
                        .fn = narrow_local,
                        .user = &r,
                        .user_bytes = sizeof r};
    return rs_spread_run(&spread, resize_dim(&spread, x, dim, length));
}

static reshard_tensor *select_local(reshard_tensor *const *inputs, const void *user)
{
    return reshard_index_select(inputs[0], *(const int32_t *)user, inputs[1]);
}

reshard_tensor *rs_spread_index_select(reshard_tensor *x, int32_t dim, reshard_tensor *indices)
{
    reshard_tensor *inputs[] = {x, indices};
    rs_axes axes;
    rs_spread spread = {.name = "index_select",
                        .input_count = 2,
                        .inputs = inputs,
                        .fn = select_local,
                        .user = &dim,
                        .user_bytes = sizeof dim};
    reshard_status status = rs_check_together(2, inputs);
    if (status == RESHARD_OK)
        status = rs_axes_check_mesh(x, indices);
    if (status == RESHARD_OK)
        status = rs_axes_of(indices, &axes);
    if (status == RESHARD_OK && axes.count != 0)
        status = rs_fail(RESHARD_ERR_INVALID, "indices with \"%s\", which are not replicated",
                         rs_tensor_describe_layout(indices).text);
    if (status == RESHARD_OK)
        status = resize_dim(&spread, x, dim, indices->volume);
    return rs_spread_run(&spread, status);
}

/* ---- reductions ------------------------------------------------------------------------------ */

static reshard_tensor *reduce_local(reshard_tensor *const *inputs, const void *user)
{
    return rs_reduce_local(inputs[0], user);
}

static reshard_status check_reduces(reshard_tensor *x, const rs_reducing *r,
                                    const reshard_placement *p)
{
    if (r->reduction == RESHARD_SUM || r->reduction == RESHARD_AVG)
        return rs_check_linear(x, p);
    if (p->kind == RESHARD_PARTIAL && (p->reduction != r->reduction || rs_op_records(1, &x)))
        return rs_refuse_partial(x);
    /* The gradient of a partial maximum reaches all ranks, and not only those that have it. */
    if (p->kind == RESHARD_SHARD && (r->dims >> p->dim & 1) != 0 && rs_op_records(1, &x))
        return rs_fail(
            RESHARD_ERR_INVALID,
            "dimension %d is cut by \"%s\", which has no gradient: redistribute it first", p->dim,
            rs_tensor_describe_layout(x).text);
    return RESHARD_OK;
}

/* Turns cuts of reduced dims into partial reductions, and renumbers the dims after them. Each rank
 * divides its sum by the number of elements on all of them. */
static reshard_status drop_dims(reshard_tensor *x, const rs_reducing *r, rs_axes *axes)
{
    for (int32_t i = 0; i < axes->count; i++) {
        reshard_placement *p = &axes->cuts[i].placement;
        reshard_status status = check_reduces(x, r, p);
        if (status != RESHARD_OK)
            return status;
        if (p->kind != RESHARD_SHARD)
            continue;
        int32_t dim = p->dim;
        if ((r->dims >> dim & 1) != 0) {
            *p = rs_placement_partial();
            p->reduction = r->reduction == RESHARD_AVG ? RESHARD_SUM : r->reduction;
        }
        for (int32_t d = 0; d < dim && !r->keep && p->kind == RESHARD_SHARD; d++)
            p->dim -= (r->dims >> d & 1) != 0;
    }
    return RESHARD_OK;
}

reshard_tensor *rs_spread_reduce(reshard_tensor *x, const rs_reducing *r)
{
    rs_axes axes;
    int64_t shape[RESHARD_NDIM_MAX];
    int32_t ndim = 0;
    rs_spread spread = {.name = r->name,
                        .input_count = 1,
                        .inputs = &x,
                        .fn = reduce_local,
                        .user = r,
                        .user_bytes = sizeof *r};
    reshard_status status = rs_axes_of(x, &axes);
    if (status == RESHARD_OK)
        status = drop_dims(x, r, &axes);
    for (int32_t d = 0; d < x->ndim; d++) {
        bool reduced = (r->dims >> d & 1) != 0;
        if (!reduced || r->keep)
            shape[ndim++] = reduced ? 1 : x->shape[d];
    }
    if (status == RESHARD_OK)
        status = rs_axes_layout(&axes, ndim, shape, &spread.output_layout);
    if (status == RESHARD_OK)
        status = rs_gradient_layout(x->distribution->layout, &spread.gradient_layouts[0]);
    return rs_spread_run(&spread, status);
}

/* ---- reshape --------------------------------------------------------------------------------- */

static int32_t first_large(const int64_t *shape, int32_t from, int32_t to)
{
    for (int32_t d = from; d < to; d++) {
        if (shape[d] != 1)
            return d;
    }
    return from < to ? from : -1;
}

/* Matches runs of dims of x with runs of the new shape that have the same product. No size is 0.
 * out_to tells where each dim of x goes: the first of a run, not counting sizes of 1, goes to the
 * first of the matching run, and the others go nowhere (-1). */
static void match_dims(const reshard_tensor *x, int32_t ndim, const int64_t *shape, int32_t *out_to)
{
    for (int32_t d = 0; d < x->ndim; d++)
        out_to[d] = -1;
    for (int32_t i = 0, o = 0; i < x->ndim && o < ndim;) {
        int32_t first_in = i, first_out = o;
        int64_t in = x->shape[i++], out = shape[o++];
        while (in != out) {
            if (in < out && i < x->ndim)
                in *= x->shape[i++];
            else
                out *= shape[o++];
        }
        out_to[first_large(x->shape, first_in, i)] = first_large(shape, first_out, o);
    }
}

/* Moves cuts to the new dims. A dim that keeps its size may be cut in any way. One that is merged
 * with those after it, or split into several, must be cut evenly, so that its parts are parts of
 * the new dim. */
static reshard_status follow_dims(const reshard_tensor *x, const int64_t *shape, const int32_t *to,
                                  rs_axes *axes)
{
    int64_t parts[RESHARD_NDIM_MAX];
    for (int32_t d = 0; d < x->ndim; d++)
        parts[d] = 1;
    for (int32_t i = 0; i < axes->count; i++) {
        if (axes->cuts[i].placement.kind == RESHARD_SHARD)
            parts[axes->cuts[i].placement.dim] *= axes->mesh->sizes[axes->cuts[i].axis];
    }
    for (int32_t i = 0; i < axes->count; i++) {
        reshard_placement *p = &axes->cuts[i].placement;
        if (p->kind != RESHARD_SHARD)
            continue;
        int32_t d = p->dim;
        bool plain = p->rule == RESHARD_CHUNK || p->rule == RESHARD_BALANCED;
        bool even = plain && p->unit <= 1 && to[d] >= 0 && x->shape[d] % parts[d] == 0 &&
                    shape[to[d]] % parts[d] == 0;
        if (to[d] < 0 || (x->shape[d] != shape[to[d]] && !even))
            return rs_fail(RESHARD_ERR_INVALID,
                           "dimension %d is cut by \"%s\" in another way than the new shape's dims",
                           d, rs_tensor_describe_layout(x).text);
        p->dim = to[d];
    }
    return RESHARD_OK;
}

typedef struct local_shape {
    int32_t ndim;
    const int64_t *shape; /* of this rank's shard */
} local_shape;

static reshard_tensor *reshape_local(reshard_tensor *const *inputs, const void *user)
{
    const local_shape *s = user;
    return reshard_tensor_reshape(inputs[0], s->ndim, s->shape);
}

reshard_tensor *rs_spread_reshape(reshard_tensor *x, int32_t ndim, const int64_t *shape)
{
    rs_axes axes;
    int32_t to[RESHARD_NDIM_MAX];
    local_shape here = {ndim, NULL};
    rs_spread spread = {.name = "reshape",
                        .input_count = 1,
                        .inputs = &x,
                        .fn = reshape_local,
                        .user = &here,
                        .user_bytes = sizeof here};
    reshard_status status = rs_axes_of(x, &axes);
    if (status == RESHARD_OK && x->volume == 0)
        status = rs_fail(RESHARD_ERR_UNSUPPORTED, "the distributed tensor has no elements");
    if (status == RESHARD_OK) {
        match_dims(x, ndim, shape, to);
        status = follow_dims(x, shape, to, &axes);
    }
    if (status == RESHARD_OK)
        status = rs_axes_layout(&axes, ndim, shape, &spread.output_layout);
    if (status == RESHARD_OK)
        status = rs_gradient_layout(x->distribution->layout, &spread.gradient_layouts[0]);
    if (status == RESHARD_OK)
        status = reshard_layout_shards(spread.output_layout,
                                       reshard_group_rank(rs_distributed_group(x)), &spread.shards);
    if (status == RESHARD_OK && spread.shards->count > 0)
        here.shape = spread.shards->items[0].shape;
    return rs_spread_run(&spread, status);
}
