/* SPDX-License-Identifier: Apache-2.0 */
/* clip.c - computes the norm of all gradients, over parameters and ranks, and scales them to a
 * norm. */
#ifndef REAL
#include "base/context.h"
#include "base/error.h"
#include "layout/layout.h"
#include "nn/optimizer.h"
#include "spec/spec.h"
#include "tensor/core/distribution.h"
#include "tensor/dist/spread.h"
#include "transport/group.h"

#include <math.h>

enum { LANES = 8 };

#define RS_REAL_FILE "nn/clip.c"
#include "tensor/core/real.h"

/* Tells whether this rank counts. Of the ranks that hold the same shard, only that at coordinate 0
 * of all replicated axes does. */
static reshard_status counts_here(const reshard_tensor *parameter, bool *out_counts)
{
    const reshard_layout *layout = parameter->distribution->layout;
    const reshard_spec *spec = layout->spec;
    const reshard_mesh *mesh = spec->mesh;
    int32_t coordinates[RESHARD_AXES_MAX];
    int32_t rank = reshard_group_rank(rs_distributed_group(parameter));
    bool cut[RESHARD_AXES_MAX] = {false}, shared = false;
    *out_counts = true;
    if (spec->kind == RESHARD_SPEC_BOXES)
        return RESHARD_OK;
    for (int32_t i = 0; i < spec->cut_count; i++) {
        const reshard_cut *c = &spec->cuts[i];
        cut[c->axis] = c->placement.kind == RESHARD_SHARD;
        shared = shared ||
                 (c->placement.kind == RESHARD_SHARD &&
                  (c->placement.max != 0 || c->placement.part_max != NULL)) ||
                 c->placement.kind == RESHARD_AT || c->placement.kind == RESHARD_PARTIAL;
    }
    if (mesh == NULL || shared)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "clip: a parameter with the layout \"%s\"",
                       rs_tensor_describe_layout(parameter).text);
    if (!rs_layout_coordinates(layout, rank, coordinates))
        return RESHARD_OK; /* this rank has no shards either */
    for (int32_t axis = 0; axis < mesh->axis_count; axis++)
        *out_counts = *out_counts && (cut[axis] || coordinates[axis] == 0);
    return RESHARD_OK;
}

/* Sums squares: sums[0] is of local parameters and the same on every rank; sums[1] is of this
 * rank's shards. */
static reshard_status sum_gradients(const reshard_optimizer *o, double sums[2])
{
    reshard_status status = RESHARD_OK;
    sums[0] = sums[1] = 0;
    for (int64_t i = 0; i < o->count && status == RESHARD_OK; i++) {
        const rs_step_slot *s = &o->slots[i];
        reshard_tensor *gradient = NULL;
        bool spread = s->moments->parameter->distribution != NULL, counts = true;
        status = rs_slot_gradient(o, s, &gradient);
        if (status == RESHARD_OK && spread)
            status = counts_here(s->moments->parameter, &counts);
        if (status == RESHARD_OK && gradient != NULL && counts)
            sums[spread] += RS_CALL(gradient->dtype, sum_squares, (const void *)gradient->data,
                                    gradient->volume);
        reshard_tensor_release(gradient);
    }
    return status;
}

/* Scales a gradient in place if only its leaf holds it. Otherwise a scaled copy replaces it. */
static reshard_status scale_gradient(const reshard_optimizer *o, reshard_tensor **place,
                                     double factor)
{
    reshard_tensor *g = *place, *copy = NULL;
    bool sole = rs_tensor_is_contiguous(g) && atomic_load(&g->references) == 1 &&
                atomic_load(&g->storage->references) == 1;
    if (!sole) {
        reshard_status status = rs_tensor_make(o->context, g->dtype, g->ndim, g->shape, &copy);
        if (status != RESHARD_OK)
            return status;
        rs_tensor_copy(g, copy);
        *place = copy;
        reshard_tensor_release(g);
    }
    RS_CALL((*place)->dtype, scale, reshard_tensor_write(*place), (*place)->volume, factor);
    return RESHARD_OK;
}

/* The same for a distributed gradient, which somebody else may hold as a whole. */
static reshard_status scale_shards(const reshard_optimizer *o, reshard_tensor **place,
                                   double factor)
{
    reshard_tensor *gradient = *place;
    rs_distribution *d = gradient->distribution;
    reshard_status status = RESHARD_OK;
    if (atomic_load(&gradient->references) > 1 || atomic_load(&d->references) > 1) {
        status =
            rs_distributed_wrap(o->context, d->cache, d->layout, gradient->dtype, d->shards, place);
        if (status == RESHARD_OK)
            reshard_tensor_release(gradient);
        d = (*place)->distribution;
    }
    for (int64_t i = 0; i < d->shard_count && status == RESHARD_OK; i++)
        status = scale_gradient(o, &d->shards[i], factor);
    return status;
}

static reshard_status scale_all(reshard_optimizer *o, double factor)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < o->parameters->count && status == RESHARD_OK; i++) {
        reshard_tensor *parameter = o->parameters->items[i].tensor;
        if (!parameter->requires_grad || parameter->gradient == NULL)
            continue;
        if (parameter->gradient->distribution == NULL)
            status = scale_gradient(o, &parameter->gradient, factor);
        else
            status = scale_shards(o, &parameter->gradient, factor);
    }
    return status;
}

static reshard_status sum_ranks(const reshard_optimizer *o, reshard_group *group, double *sum)
{
    size_t bytes = (size_t)reshard_group_size(group) * sizeof *sum;
    double mine = *sum, *all = rs_allocate(o->context, bytes);
    reshard_status status =
        reshard_group_agree(group, all != NULL ? RESHARD_OK : rs_allocation_status());
    if (status == RESHARD_OK)
        status = reshard_group_gather_bytes(group, &mine, sizeof mine, all);
    *sum = 0;
    for (int32_t i = 0; i < reshard_group_size(group) && status == RESHARD_OK; i++)
        *sum += all[i];
    rs_release(o->context, all);
    return status;
}

/* Local parameters alone need no group: they are the same on all ranks, and so is their norm. */
static reshard_status choose_group(const reshard_optimizer *o, reshard_group **group)
{
    bool spread = false;
    for (int64_t i = 0; i < o->count; i++)
        spread = spread || o->slots[i].moments->parameter->distribution != NULL;
    if (!spread && *group == NULL && rs_group_current() == NULL)
        return RESHARD_OK;
    return rs_fail_within(rs_group_choose(group), "clip");
}

reshard_status reshard_optimizer_clip(reshard_optimizer *o, reshard_group *group, double norm_max,
                                      double *out_norm)
{
    double sums[2];
    reshard_status status = choose_group(o, &group);
    if (status != RESHARD_OK)
        return status;
    status = sum_gradients(o, sums);
    if (status == RESHARD_OK && !(isfinite(norm_max) && norm_max >= 0))
        status = rs_fail(RESHARD_ERR_INVALID, "clip: a norm of at most %g", norm_max);
    if (group != NULL) {
        status = reshard_group_agree(group, status);
        if (status == RESHARD_OK)
            status = sum_ranks(o, group, &sums[1]);
    }
    if (status != RESHARD_OK)
        return status;
    double norm = sqrt(sums[0] + sums[1]);
    if (!isfinite(norm))
        return rs_fail(RESHARD_ERR_INVALID, "clip: the norm of the gradients is %g", norm);
    double factor = norm_max > 0 ? norm_max / (norm + 1e-6) : 1;
    status = factor < 1 ? scale_all(o, factor) : RESHARD_OK;
    if (group != NULL)
        status = reshard_group_agree(group, status);
    if (status == RESHARD_OK && out_norm != NULL)
        *out_norm = norm;
    return status;
}

#else

/* Sums in double. LANES sums take turns, because a single one would wait for its previous addition
 * at every step. */
static double OF(sum_squares)(const REAL *x, int64_t n)
{
    double lanes[LANES] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        for (int64_t k = 0; k < LANES; k++)
            lanes[k] += (double)x[i + k] * (double)x[i + k];
    }
    for (; i < n; i++)
        lanes[0] += (double)x[i] * (double)x[i];
    for (int64_t k = 0; k < LANES; k++)
        sum += lanes[k];
    return sum;
}

static void OF(scale)(REAL *x, int64_t n, double by)
{
    REAL factor = (REAL)by;
    for (int64_t i = 0; i < n; i++)
        x[i] *= factor;
}

#endif
