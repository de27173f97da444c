/* SPDX-License-Identifier: Apache-2.0 */
/* axes.c - see axes.h. */
#include "tensor/dist/axes.h"

#include "base/error.h"
#include "layout/layout.h"
#include "spec/spec.h"
#include "tensor/core/scope.h"

#include <assert.h>
#include <string.h>

static bool has_shared_pieces(const reshard_placement *p)
{
    bool shared = p->max != 0;
    for (int32_t i = 0; p->rule == RESHARD_PACKED && p->part_max != NULL && i < p->count; i++)
        shared = shared || p->part_max[i] != 0;
    return shared;
}

reshard_status rs_axes_of(const reshard_tensor *tensor, rs_axes *out_axes)
{
    assert(tensor->distribution != NULL);
    const reshard_spec *spec = tensor->distribution->layout->spec;
    bool fits = spec->kind == RESHARD_SPEC_CUTS && !spec->mesh->repeated;
    out_axes->mesh = spec->mesh;
    out_axes->count = 0;
    for (int32_t i = 0; fits && i < spec->cut_count; i++) {
        reshard_cut cut = spec->cuts[i];
        reshard_placement *p = &cut.placement;
        /* An axis of size 1 cuts nothing, but a flat shard has one dim even if it is whole. */
        bool is_flat = p->kind == RESHARD_SHARD && p->dim == RESHARD_DIM_FLAT;
        if (p->kind == RESHARD_REPLICATE || (out_axes->mesh->sizes[cut.axis] == 1 && !is_flat))
            continue;
        fits = p->kind != RESHARD_AT && !is_flat &&
               (p->kind != RESHARD_SHARD || !has_shared_pieces(p));
        if (fits && p->kind == RESHARD_SHARD && p->dim < 0)
            p->dim += tensor->ndim;
        out_axes->cuts[out_axes->count++] = cut;
    }
    if (!fits)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "a tensor with the layout \"%s\"",
                       rs_tensor_describe_layout(tensor).text);
    return RESHARD_OK;
}

bool rs_mesh_same(const reshard_mesh *a, const reshard_mesh *b)
{
    bool same = a != NULL && b != NULL && a->axis_count == b->axis_count && a->size == b->size;
    for (int32_t i = 0; same && i < a->axis_count; i++)
        same = a->sizes[i] == b->sizes[i];
    for (int32_t i = 0; same && i < a->size; i++)
        same = reshard_mesh_rank_at(a, i) == reshard_mesh_rank_at(b, i);
    return same;
}

reshard_status rs_axes_check_mesh(const reshard_tensor *a, const reshard_tensor *b)
{
    if (!rs_mesh_same(a->distribution->layout->spec->mesh, b->distribution->layout->spec->mesh))
        return rs_fail(RESHARD_ERR_INVALID, "layouts over different meshes: \"%s\" and \"%s\"",
                       rs_tensor_describe_layout(a).text, rs_tensor_describe_layout(b).text);
    return RESHARD_OK;
}

reshard_status rs_check_linear(const reshard_tensor *tensor, const reshard_placement *placement)
{
    if (placement->kind == RESHARD_PARTIAL && placement->reduction != RESHARD_SUM &&
        placement->reduction != RESHARD_AVG)
        return rs_refuse_partial(tensor);
    return RESHARD_OK;
}

/* Whether two cuts must keep their order: they cut the same dim, or one is flat and cuts all
 * dims. */
static bool depend(const reshard_placement *a, const reshard_placement *b)
{
    return a->kind == RESHARD_SHARD && b->kind == RESHARD_SHARD &&
           (a->dim == b->dim || a->dim == RESHARD_DIM_FLAT || b->dim == RESHARD_DIM_FLAT);
}

/* Sorts the cuts by axis as far as that does not change the layout, so that equal layouts get equal
 * specs. */
static void sort_cuts(rs_axes *axes)
{
    for (int32_t i = 1; i < axes->count; i++) {
        for (int32_t k = i; k > 0 && axes->cuts[k].axis < axes->cuts[k - 1].axis &&
                            !depend(&axes->cuts[k].placement, &axes->cuts[k - 1].placement);
             k--) {
            reshard_cut cut = axes->cuts[k];
            axes->cuts[k] = axes->cuts[k - 1];
            axes->cuts[k - 1] = cut;
        }
    }
}

bool rs_axes_equal(const rs_axes *first, const rs_axes *second)
{
    rs_axes a = *first, b = *second;
    sort_cuts(&a);
    sort_cuts(&b);
    bool same = a.count == b.count;
    for (int32_t i = 0; same && i < a.count; i++) {
        const reshard_placement *p = &a.cuts[i].placement, *q = &b.cuts[i].placement;
        same = a.cuts[i].axis == b.cuts[i].axis && p->kind == q->kind &&
               (p->kind != RESHARD_PARTIAL || p->reduction == q->reduction) &&
               (p->kind != RESHARD_SHARD || (p->dim == q->dim && rs_axes_same_cut(p, q)));
    }
    return same;
}

reshard_placement rs_axes_at(const rs_axes *axes, int32_t axis)
{
    for (int32_t i = 0; i < axes->count; i++) {
        if (axes->cuts[i].axis == axis)
            return axes->cuts[i].placement;
    }
    return (reshard_placement){.kind = RESHARD_REPLICATE};
}

bool rs_axes_is_cut(const reshard_placement *placement, int32_t dim)
{
    return placement->kind == RESHARD_SHARD && placement->dim == dim;
}

bool rs_axes_same_cut(const reshard_placement *a, const reshard_placement *b)
{
    int64_t unit_a = a->unit > 1 ? a->unit : 1, unit_b = b->unit > 1 ? b->unit : 1;
    if (a->kind != b->kind || a->rule != b->rule || a->factor != b->factor || unit_a != unit_b ||
        a->count != b->count)
        return false;
    return a->count == 0 || memcmp(a->values, b->values, (size_t)a->count * sizeof *a->values) == 0;
}

void rs_axes_set(rs_axes *axes, int32_t axis, reshard_placement placement)
{
    assert(axis >= 0 && axis < RESHARD_AXES_MAX);
    int32_t at = 0;
    while (at < axes->count && axes->cuts[at].axis != axis)
        at++;
    if (placement.kind != RESHARD_REPLICATE) {
        axes->cuts[at] = (reshard_cut){axis, placement};
        if (at == axes->count)
            axes->count++;
    } else if (at < axes->count) {
        memmove(&axes->cuts[at], &axes->cuts[at + 1],
                (size_t)(axes->count - at - 1) * sizeof *axes->cuts);
        axes->count--;
    }
}

reshard_placement rs_placement_partial(void)
{
    return (reshard_placement){.kind = RESHARD_PARTIAL, .reduction = RESHARD_SUM};
}

reshard_status rs_axes_layout(const rs_axes *axes, int32_t ndim, const int64_t *shape,
                              reshard_layout **out_layout)
{
    reshard_spec *spec = NULL;
    reshard_context *context = rs_scope_context();
    rs_axes sorted = *axes;
    sort_cuts(&sorted);
    reshard_status status =
        reshard_spec_create(context, (reshard_mesh *)axes->mesh, sorted.count, sorted.cuts, &spec);
    return rs_layout_take(context, status, spec, ndim, shape, out_layout);
}
