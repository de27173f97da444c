/* SPDX-License-Identifier: Apache-2.0 */
/*
 * from_local.c - makes local tensors the shards of a distributed one. The global shape is added up
 * from what the ranks have. Sizes that the spec's own rule would not give become a ragged cut.
 */
#include <reshard/distributed.h>

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "layout/layout.h"
#include "spec/spec.h"
#include "tensor/core/dense.h"
#include "tensor/core/move.h"
#include "tensor/dist/outline.h"
#include "tensor/dist/partial.h"
#include "tensor/grad/gradient.h"
#include "tensor/grad/node.h"
#include "text/text.h"
#include "transport/group.h"

#include <inttypes.h>
#include <string.h>

/* ---- the layout ------------------------------------------------------------------------------ */

typedef struct puzzle {
    reshard_context *context;
    reshard_group *group;
    const reshard_spec *spec;
    const reshard_mesh *mesh;
    const rs_outline *all; /* by rank */
    int32_t ndim;
    int64_t shape[RESHARD_NDIM_MAX];
} puzzle;

static int32_t coordinate(const reshard_mesh *mesh, int32_t position, int32_t axis)
{
    for (int32_t i = mesh->axis_count - 1; i > axis; i--)
        position /= mesh->sizes[i];
    return position % mesh->sizes[axis];
}

static const reshard_placement *placement_of(const puzzle *p, int32_t axis)
{
    for (int32_t i = 0; i < p->spec->cut_count; i++) {
        if (p->spec->cuts[i].axis == axis)
            return &p->spec->cuts[i].placement;
    }
    return NULL;
}

static int32_t dim_of(const puzzle *p, const reshard_placement *placement)
{
    return placement->dim < 0 ? placement->dim + p->ndim : placement->dim;
}

/* Whether a position counts when the sizes of a dim are added up. On every axis that does not cut
 * the dim, only the first coordinate that holds something counts. */
static bool counts(const puzzle *p, int32_t position, int32_t dim)
{
    bool first = true;
    for (int32_t axis = 0; axis < p->mesh->axis_count; axis++) {
        const reshard_placement *placement = placement_of(p, axis);
        bool cuts =
            placement != NULL && placement->kind == RESHARD_SHARD && dim_of(p, placement) == dim;
        int64_t wanted =
            placement != NULL && placement->kind == RESHARD_AT ? placement->values[0] : 0;
        first = first && (cuts || coordinate(p->mesh, position, axis) == wanted);
    }
    return first;
}

static reshard_status check_members(puzzle *p)
{
    const rs_outline *first = NULL;
    reshard_status status = rs_mesh_check_distinct(p->mesh); /* each rank gives one tensor */
    if (status != RESHARD_OK)
        return status;
    for (int32_t i = 0; i < p->mesh->size; i++) {
        int32_t rank = reshard_mesh_rank_at(p->mesh, i);
        if (rank >= reshard_group_size(p->group))
            return rs_fail(RESHARD_ERR_RANGE, "the mesh has a rank %d, and the group %d ranks",
                           rank, reshard_group_size(p->group));
        const rs_outline *outline = &p->all[rank];
        first = first != NULL ? first : outline;
        if (outline->ndim != first->ndim || outline->dtype != first->dtype)
            return rs_fail(RESHARD_ERR_MISMATCH,
                           "rank %d has a tensor of %s with %d dimensions, rank %d one of %s with "
                           "%d",
                           rank, reshard_dtype_name((reshard_dtype)outline->dtype), outline->ndim,
                           reshard_mesh_rank_at(p->mesh, 0),
                           reshard_dtype_name((reshard_dtype)first->dtype), first->ndim);
    }
    p->ndim = first->ndim;
    for (int32_t i = 0; i < p->spec->cut_count; i++) {
        const reshard_placement *placement = &p->spec->cuts[i].placement;
        int32_t dim;
        if (placement->kind != RESHARD_SHARD)
            continue;
        if (placement->dim == RESHARD_DIM_FLAT)
            return rs_fail(RESHARD_ERR_UNSUPPORTED, "a flat cut does not tell the global shape");
        status = rs_dim_normalize(p->ndim, placement->dim, &dim);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

static reshard_status add_up_shape(puzzle *p)
{
    for (int32_t d = 0; d < p->ndim; d++) {
        p->shape[d] = 0;
        for (int32_t i = 0; i < p->mesh->size; i++) {
            int64_t length = p->all[reshard_mesh_rank_at(p->mesh, i)].shape[d];
            if (counts(p, i, d) && !rs_add(p->shape[d], length, &p->shape[d]))
                return rs_fail(RESHARD_ERR_RANGE, "dimension %d is longer than 2^63-1", d);
        }
    }
    return RESHARD_OK;
}

static reshard_status check_shapes(const puzzle *p, const reshard_layout *layout)
{
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < p->mesh->size && status == RESHARD_OK; i++) {
        int32_t rank = reshard_mesh_rank_at(p->mesh, i);
        reshard_shards *shards = NULL;
        status = reshard_layout_shards(layout, rank, &shards);
        if (status == RESHARD_OK && shards->count > 0 &&
            memcmp(shards->items[0].shape, p->all[rank].shape,
                   (size_t)p->ndim * sizeof *p->shape) != 0) {
            char text[160];
            rs_text words;
            rs_text_init(&words, text, sizeof text);
            rs_text_add(&words, "rank %d has ", rank);
            rs_text_add_shape(&words, p->ndim, p->all[rank].shape);
            rs_text_add(&words, ", where the others' sizes call for ");
            rs_text_add_shape(&words, p->ndim, shards->items[0].shape);
            status = rs_fail(RESHARD_ERR_MISMATCH, "%s", text);
        }
        reshard_shards_destroy(shards);
    }
    return status;
}

/* Makes the layout with the ranks' actual sizes, as a ragged cut of every dim that only one axis
 * cuts. */
static reshard_status make_ragged(const puzzle *p, reshard_layout **out_layout)
{
    reshard_cut cuts[RESHARD_AXES_MAX];
    int32_t count = p->spec->cut_count, size = p->mesh->size;
    size_t bytes = (size_t)count * (size_t)size * sizeof(int64_t);
    int64_t *sizes = rs_allocate_zeroed(p->context, bytes);
    reshard_spec *spec = NULL;
    if (sizes == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < count; i++) {
        cuts[i] = p->spec->cuts[i];
        reshard_placement *placement = &cuts[i].placement;
        int32_t cutters = 0, dim = placement->kind == RESHARD_SHARD ? dim_of(p, placement) : -1;
        for (int32_t k = 0; k < count; k++) {
            const reshard_placement *other = &p->spec->cuts[k].placement;
            cutters += other->kind == RESHARD_SHARD && dim_of(p, other) == dim;
        }
        if (placement->kind != RESHARD_SHARD || cutters != 1)
            continue;
        int64_t *own = sizes + (int64_t)i * size;
        for (int32_t k = 0; k < size; k++) {
            if (counts(p, k, dim))
                own[coordinate(p->mesh, k, cuts[i].axis)] =
                    p->all[reshard_mesh_rank_at(p->mesh, k)].shape[dim];
        }
        *placement = (reshard_placement){.kind = RESHARD_SHARD,
                                         .dim = dim,
                                         .rule = RESHARD_RAGGED,
                                         .count = p->mesh->sizes[cuts[i].axis],
                                         .values = own};
    }
    reshard_status status =
        reshard_spec_create(p->context, (reshard_mesh *)p->mesh, count, cuts, &spec);
    status = rs_layout_take(p->context, status, spec, p->ndim, p->shape, out_layout);
    rs_release(p->context, sizes);
    return status;
}

static reshard_status solve(puzzle *p, reshard_layout **out_layout)
{
    reshard_layout *layout = NULL;
    reshard_status status = check_members(p);
    if (status != RESHARD_OK)
        return status;
    status = add_up_shape(p);
    if (status == RESHARD_OK)
        status =
            reshard_layout_create(p->context, (reshard_spec *)p->spec, p->ndim, p->shape, &layout);
    if (status == RESHARD_OK)
        status = check_shapes(p, layout);
    if (status == RESHARD_ERR_MISMATCH) {
        reshard_layout_release(layout);
        layout = NULL;
        status = make_ragged(p, &layout);
        if (status == RESHARD_OK)
            status = check_shapes(p, layout);
    }
    if (status == RESHARD_OK)
        *out_layout = layout;
    else
        reshard_layout_release(layout);
    return status;
}

/* ---- the operation --------------------------------------------------------------------------- */

typedef struct origin {
    reshard_context *context;
    rs_exec_cache *cache;
    reshard_layout *layout, *gradient_layout;
} origin;

static void forget_origin(void *extra)
{
    origin *o = extra;
    if (o == NULL)
        return;
    reshard_layout_release(o->layout);
    reshard_layout_release(o->gradient_layout);
    rs_exec_cache_release(o->cache);
    rs_release(o->context, o);
}

static reshard_status make_origin(reshard_group *group, const reshard_spec *spec,
                                  const rs_outline *all, origin **out_origin)
{
    reshard_context *context = rs_scope_context();
    origin *o = rs_allocate_zeroed(context, sizeof *o);
    if (o == NULL)
        return rs_allocation_status();
    o->context = context;
    puzzle p = {.context = context, .group = group, .spec = spec, .mesh = spec->mesh, .all = all};
    reshard_status status = rs_exec_cache_of(group, &o->cache);
    if (status == RESHARD_OK)
        status = solve(&p, &o->layout);
    if (status == RESHARD_OK)
        status = rs_gradient_layout(o->layout, &o->gradient_layout);
    if (status == RESHARD_OK)
        *out_origin = o;
    else
        forget_origin(o);
    return status;
}

/* Gives this rank's part of the gradient. For a partial tensor, that is the gradient of its
 * contribution to the reduction. */
static reshard_status take_local(rs_node *node, const origin *o, reshard_tensor *gradient,
                                 reshard_tensor **out_local)
{
    const rs_extents *input = rs_node_facts(node);
    const rs_distribution *d = gradient->distribution;
    if (o->layout->partial && rs_layout_reduction(o->layout) != RESHARD_SUM) {
        reshard_tensor *saved = rs_node_saved(node, 0), *x = NULL, *like = NULL;
        reshard_status status = saved != NULL ? RESHARD_OK : rs_scope_failed();
        if (status == RESHARD_OK)
            status =
                rs_distributed_wrap(o->context, o->cache, o->layout, gradient->dtype, &saved, &x);
        if (status == RESHARD_OK)
            status = rs_distributed_wrap(o->context, o->cache, o->layout, gradient->dtype,
                                         d->shards, &like);
        reshard_tensor *found =
            status == RESHARD_OK ? rs_partial_gradient(x, like) : rs_scope_fail(status);
        reshard_tensor_release(x);
        reshard_tensor_release(like);
        if (found == NULL)
            return rs_scope_failed();
        d = found->distribution;
    }
    if (d->shard_count > 0) {
        *out_local = reshard_tensor_retain(d->shards[0]);
        return RESHARD_OK;
    }
    return rs_result_zeros(gradient->dtype, input->ndim, input->shape, out_local);
}

static void backward_from_local(rs_node *node, reshard_tensor *const *gradients,
                                reshard_tensor **out_gradients)
{
    const origin *o = node->extra;
    reshard_tensor *gradient = NULL, *local = NULL;
    reshard_status status = rs_redistribute(rs_scope_context(), gradients[0], o->gradient_layout,
                                            gradients[0]->dtype, &gradient);
    if (status == RESHARD_OK)
        status = take_local(node, o, gradient, &local);
    reshard_tensor_release(gradient);
    out_gradients[0] = rs_scope_finish(status, local);
}

reshard_tensor *reshard_tensor_from_local(reshard_tensor *local, reshard_group *group,
                                          reshard_spec *spec)
{
    if (rs_group_choose(&group) != RESHARD_OK)
        return rs_scope_fail(rs_fail_within(RESHARD_ERR_INVALID, "from_local"));
    if (!rs_op_begin_together("from_local", group, local))
        return NULL;
    rs_outline mine = rs_outline_of(local), *all = NULL;
    origin *o = NULL;
    reshard_tensor *made = NULL;
    uint64_t digest[2] = {0, 0};
    reshard_status status = RESHARD_OK;
    if (local->distribution != NULL)
        status = rs_fail(RESHARD_ERR_INVALID, "the tensor is distributed already");
    else if (spec == NULL || spec->kind != RESHARD_SPEC_CUTS)
        status = rs_fail(RESHARD_ERR_UNSUPPORTED, "a spec that is not made of cuts");
    status = rs_outlines_gather(group, status, "from_local", &mine, &all);
    if (status == RESHARD_OK) {
        status = make_origin(group, spec, all, &o);
        if (status == RESHARD_OK)
            status =
                rs_distributed_wrap(o->context, o->cache, o->layout, local->dtype, &local, &made);
        if (status == RESHARD_OK)
            memcpy(digest, o->layout->digest, sizeof digest);
        status = rs_agree_on(group, status, digest, "from_local", 0, NULL);
        rs_release(NULL, all);
    }
    rs_extents input = rs_extents_of(local);
    bool keeps = o != NULL && o->layout->partial && rs_layout_reduction(o->layout) != RESHARD_SUM;
    rs_recipe recipe = {.name = "from_local",
                        .backward = backward_from_local,
                        .input_count = 1,
                        .inputs = &local,
                        .saved_count = keeps ? 1 : 0,
                        .saved = &local,
                        .facts = &input,
                        .facts_bytes = sizeof input,
                        .group = group,
                        .extra = o,
                        .forget_extra = forget_origin};
    return rs_op_end(&recipe, status, made);
}
