/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spec.c - creates specs, counts references, and answers questions about specs. A spec owns one
 * reference to its mesh; everything else is in its arena.
 */
#include "spec/spec.h"

#include "base/context.h"
#include "base/options.h"
#include "spec/build.h"

#include <assert.h>
#include <inttypes.h>

reshard_status rs_spec_allocate(reshard_context *context, reshard_spec_kind kind,
                                reshard_spec **out_spec)
{
    reshard_spec *spec = rs_allocate_zeroed(context, sizeof *spec);
    if (spec == NULL)
        return rs_allocation_status();
    spec->context = context;
    atomic_init(&spec->references, 1);
    spec->kind = kind;
    spec->cover = kind == RESHARD_SPEC_COVER;
    rs_arena_init(&spec->arena, context);
    *out_spec = spec;
    return RESHARD_OK;
}

/* ---- cuts ------------------------------------------------------------------------------------ */

static reshard_status check_axis(const reshard_spec *spec, int32_t cut_index, int32_t axis)
{
    const reshard_mesh *mesh = spec->mesh;
    if (axis < 0 || axis >= mesh->axis_count)
        return rs_fail(RESHARD_ERR_INVALID, "axis %" PRId32 " in a mesh of %" PRId32 " axes", axis,
                       mesh->axis_count);
    for (int32_t i = 0; i < cut_index; i++) {
        if (spec->cuts[i].axis == axis)
            return rs_fail(RESHARD_ERR_INVALID, "axis %s is cut twice",
                           rs_mesh_axis_words(mesh, axis).text);
    }
    return RESHARD_OK;
}

static bool is_linear(reshard_reduction reduction)
{
    return reduction == RESHARD_SUM || reduction == RESHARD_AVG;
}

/* Reductions over several axes are well defined only if their order does not matter: they must be
 * the same operation, or all be sums and averages. */
static reshard_status check_reduction(const reshard_spec *spec, int32_t cut_index)
{
    const reshard_placement *placement = &spec->cuts[cut_index].placement;
    for (int32_t i = 0; i < cut_index; i++) {
        const reshard_placement *other = &spec->cuts[i].placement;
        if (placement->kind != RESHARD_PARTIAL || other->kind != RESHARD_PARTIAL)
            continue;
        if (placement->reduction == other->reduction)
            continue;
        if (!is_linear(placement->reduction) || !is_linear(other->reduction))
            return rs_fail(RESHARD_ERR_UNSUPPORTED, "P(%s) and P(%s) in one spec do not commute",
                           reshard_reduction_name(other->reduction),
                           reshard_reduction_name(placement->reduction));
    }
    return RESHARD_OK;
}

/* A rank that is named twice has two chunks, and one copy of a tensor that is not cut. For a
 * partial tensor it would have to hold two contributions, which is refused. */
static reshard_status check_repeated(const reshard_spec *spec, const reshard_cut *cut)
{
    if (cut->placement.kind != RESHARD_PARTIAL || !spec->mesh->repeated)
        return RESHARD_OK;
    return rs_fail_within(rs_mesh_check_distinct(spec->mesh), "P(%s)",
                          reshard_reduction_name(cut->placement.reduction));
}

static reshard_status add_cut(reshard_spec *spec, const reshard_cut *cut)
{
    int32_t index = spec->cut_count;
    assert(index < spec->mesh->axis_count);
    reshard_status status = check_axis(spec, index, cut->axis);
    if (status == RESHARD_OK)
        status = rs_cut_copy_checked(&spec->arena, spec->mesh, cut, &spec->cuts[index]);
    if (status == RESHARD_OK)
        status = check_reduction(spec, index);
    if (status == RESHARD_OK)
        status = check_repeated(spec, cut);
    if (status == RESHARD_OK)
        spec->cut_count++;
    return status;
}

reshard_status rs_spec_build_cuts(reshard_context *context, reshard_mesh *mesh, int32_t cut_count,
                                  const reshard_cut *cuts, int32_t *out_culprit,
                                  reshard_spec **out_spec)
{
    reshard_spec *spec = NULL;
    *out_culprit = -1;
    if (cut_count < 0 || cut_count > mesh->axis_count)
        return rs_fail(RESHARD_ERR_INVALID, "%" PRId32 " cuts for a mesh of %" PRId32 " axes",
                       cut_count, mesh->axis_count);
    reshard_status status = rs_spec_allocate(context, RESHARD_SPEC_CUTS, &spec);
    if (status != RESHARD_OK)
        return status;
    spec->mesh = reshard_mesh_retain(mesh);
    spec->cuts = rs_arena_allocate_array(&spec->arena, (size_t)cut_count, sizeof *spec->cuts);
    if (spec->cuts == NULL)
        status = rs_allocation_status();
    for (int32_t i = 0; status == RESHARD_OK && i < cut_count; i++) {
        status = add_cut(spec, &cuts[i]);
        if (status != RESHARD_OK)
            *out_culprit = i;
    }
    if (status != RESHARD_OK) {
        reshard_spec_release(spec);
        return status;
    }
    assert(spec->cut_count == cut_count);
    *out_spec = spec;
    return RESHARD_OK;
}

reshard_status reshard_spec_create(reshard_context *context, reshard_mesh *mesh, int32_t cut_count,
                                   const reshard_cut *cuts, reshard_spec **out_spec)
{
    if (mesh == NULL || (cuts == NULL && cut_count > 0))
        return rs_fail(RESHARD_ERR_INVALID, "a spec without %s",
                       mesh == NULL ? "a mesh" : "its cuts");
    int32_t culprit;
    reshard_status status = rs_spec_build_cuts(context, mesh, cut_count, cuts, &culprit, out_spec);
    if (status != RESHARD_OK && culprit >= 0)
        return rs_fail_within(status, "cut %" PRId32, culprit);
    return status;
}

reshard_status reshard_spec_chunk(reshard_context *context, int32_t dim, int32_t count,
                                  const int32_t *ranks, reshard_spec **out_spec)
{
    reshard_mesh *mesh = NULL;
    reshard_status status = reshard_mesh_create(context, 1, NULL, &count, ranks, &mesh);
    if (status != RESHARD_OK)
        return status;
    reshard_cut cut = {.axis = 0,
                       .placement = {.kind = RESHARD_SHARD, .dim = dim, .rule = RESHARD_CHUNK}};
    status = reshard_spec_create(context, mesh, 1, &cut, out_spec);
    reshard_mesh_release(mesh);
    return status;
}

/* ---- callback -------------------------------------------------------------------------------- */

reshard_status reshard_spec_callback(reshard_context *context, int cover, reshard_shards_fn fn,
                                     void *user, void (*forget)(void *user),
                                     reshard_spec **out_spec)
{
    if (fn == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "a spec by callback without a function");
    reshard_spec *spec = NULL;
    reshard_status status = rs_spec_allocate(context, RESHARD_SPEC_CALLBACK, &spec);
    if (status != RESHARD_OK)
        return status;
    spec->cover = cover != 0;
    spec->fn = fn;
    spec->user = user;
    spec->forget = forget;
    *out_spec = spec;
    return RESHARD_OK;
}

/* ---- references and queries ------------------------------------------------------------------ */

reshard_spec *reshard_spec_retain(reshard_spec *spec)
{
    if (spec != NULL)
        rs_reference_add(&spec->references);
    return spec;
}

void reshard_spec_release(reshard_spec *spec)
{
    if (spec == NULL || !rs_reference_drop(&spec->references))
        return;
    if (spec->forget != NULL)
        spec->forget(spec->user);
    reshard_mesh_release(spec->mesh);
    rs_arena_release(&spec->arena);
    rs_release(spec->context, spec);
}

reshard_status reshard_spec_get_info(const reshard_spec *spec, reshard_spec_info *out_info)
{
    reshard_spec_info info = {
        .kind = spec->kind, .mesh = spec->mesh, .cut_count = spec->cut_count, .cuts = spec->cuts};
    return rs_report_write("spec info", &info, sizeof info, out_info);
}
