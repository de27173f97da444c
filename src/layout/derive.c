/* SPDX-License-Identifier: Apache-2.0 */
#include "layout/derive.h"

#include "base/context.h"
#include "layout/layout.h"
#include "spec/spec.h"

#include <string.h>

reshard_status rs_layout_take(reshard_context *context, reshard_status status, reshard_spec *spec,
                              int32_t ndim, const int64_t *shape, reshard_layout **out_layout)
{
    if (status == RESHARD_OK)
        status = reshard_layout_create(context, spec, ndim, shape, out_layout);
    reshard_spec_release(spec);
    return status;
}

reshard_status rs_layout_simple(reshard_context *context, int32_t rank_count, int32_t rank,
                                const reshard_placement *placement, int32_t ndim,
                                const int64_t *shape, reshard_layout **out_layout)
{
    int32_t size = rank >= 0 ? 1 : rank_count;
    reshard_cut cut = {0, placement != NULL ? *placement
                                            : (reshard_placement){.kind = RESHARD_REPLICATE}};
    reshard_mesh *mesh = NULL;
    reshard_spec *spec = NULL;
    reshard_status status =
        reshard_mesh_create(context, 1, NULL, &size, rank >= 0 ? &rank : NULL, &mesh);
    if (status == RESHARD_OK)
        status = reshard_spec_create(context, mesh, 1, &cut, &spec);
    status = rs_layout_take(context, status, spec, ndim, shape, out_layout);
    reshard_mesh_release(mesh);
    return status;
}

static reshard_status clone_mesh(reshard_context *context, const reshard_mesh *mesh,
                                 reshard_mesh **out_mesh)
{
    const char *names[RESHARD_AXES_MAX];
    int32_t size = mesh->size, count = mesh->axis_count;
    int32_t *ranks = rs_allocate_array(context, (size_t)size, sizeof *ranks);
    if (ranks == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < size; i++)
        ranks[i] = reshard_mesh_rank_at(mesh, i);
    for (int32_t i = 0; i < count; i++)
        names[i] = mesh->names[i];
    reshard_status status =
        reshard_mesh_create(context, count, names, mesh->sizes, ranks, out_mesh);
    rs_release(context, ranks);
    return status;
}

reshard_status rs_layout_clone(reshard_context *context, const reshard_layout *layout,
                               reshard_layout **out_layout)
{
    const reshard_spec *spec = layout->spec;
    reshard_mesh *mesh = NULL;
    reshard_spec *made = NULL;
    reshard_shards *shards = NULL;
    reshard_status status = RESHARD_OK;
    if (spec->kind == RESHARD_SPEC_CUTS) {
        status = clone_mesh(context, spec->mesh, &mesh);
        if (status == RESHARD_OK)
            status = reshard_spec_create(context, mesh, spec->cut_count, spec->cuts, &made);
    } else if (spec->kind == RESHARD_SPEC_CALLBACK) {
        status = reshard_layout_shards(layout, RESHARD_ALL_RANKS, &shards);
        if (status == RESHARD_OK)
            status = reshard_spec_boxes(context, spec->cover, layout->ndim, layout->shape,
                                        shards->count, shards->items, &made);
    } else {
        status = reshard_spec_boxes(context, spec->kind == RESHARD_SPEC_COVER, spec->ndim,
                                    spec->shape, spec->shard_count, spec->shards, &made);
    }
    status = rs_layout_take(context, status, made, layout->ndim, layout->shape, out_layout);
    reshard_shards_destroy(shards);
    reshard_mesh_release(mesh);
    return status;
}

reshard_status rs_layout_replace_partial(reshard_layout *layout, const reshard_placement *placement,
                                         reshard_layout **out_layout)
{
    const reshard_spec *spec = layout->spec;
    reshard_cut cuts[RESHARD_AXES_MAX];
    reshard_spec *made = NULL;
    int32_t count = spec->cut_count;
    bool partial = false;
    for (int32_t i = 0; i < count; i++) {
        cuts[i] = spec->cuts[i];
        if (cuts[i].placement.kind == RESHARD_PARTIAL) {
            cuts[i].placement = *placement;
            partial = true;
        }
    }
    if (!partial) {
        *out_layout = reshard_layout_retain(layout);
        return RESHARD_OK;
    }
    reshard_status status = reshard_spec_create(layout->context, spec->mesh, count, cuts, &made);
    return rs_layout_take(layout->context, status, made, layout->ndim, layout->shape, out_layout);
}

reshard_reduction rs_layout_reduction(const reshard_layout *layout)
{
    return layout->partial ? layout->reduction : RESHARD_SUM;
}

int32_t rs_layout_list_axes(const reshard_layout *layout, int32_t out_axes[RESHARD_AXES_MAX])
{
    const reshard_spec *spec = layout->spec;
    const reshard_mesh *mesh = spec->mesh;
    int32_t count = 0;
    if (spec->kind != RESHARD_SPEC_CUTS)
        return -1;
    for (int32_t i = 0; i < spec->cut_count; i++) {
        const reshard_cut *cut = &spec->cuts[i];
        if (cut->placement.kind != RESHARD_REPLICATE && mesh->sizes[cut->axis] > 1)
            out_axes[count++] = cut->axis;
    }
    return count;
}

bool rs_layout_is_everywhere(const reshard_layout *layout)
{
    int32_t axes[RESHARD_AXES_MAX];
    return rs_layout_list_axes(layout, axes) == 0;
}

bool rs_layouts_lie_alike(const reshard_layout *a, const reshard_layout *b)
{
    if (rs_layout_same(a, b))
        return true;
    return a->rank_count == 1 && b->rank_count == 1 && !a->listed && !b->listed &&
           a->flat.count == 0 && b->flat.count == 0 && rs_layout_is_everywhere(a) &&
           rs_layout_is_everywhere(b) &&
           reshard_layout_rank_at(a, 0) == reshard_layout_rank_at(b, 0);
}

rs_layout_words rs_layout_describe(const reshard_layout *layout)
{
    rs_layout_words words;
    size_t length = 0;
    if (reshard_spec_text(layout->spec, words.text, sizeof words.text, &length) != RESHARD_OK)
        (void)strcpy(words.text, "a callback's");
    return words;
}
