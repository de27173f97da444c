/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_mesh.c - a mesh over a group, and the sub-groups along its axes.
 *
 * Ranks are converted once: the mesh has ranks of the group over which it was made; everything here
 * uses positions, which are the ranks of the mesh's own group.
 */
#include <reshard/device_mesh.h>

#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/options.h"
#include "base/references.h"
#include "collective/collective.h"
#include "spec/spec.h"
#include "transport/group.h"

#include <string.h>

struct reshard_device_mesh {
    reshard_context *context;
    rs_references references;
    reshard_mesh *mesh;
    int32_t position; /* -1 if this rank is not in the mesh */
    int32_t coordinates[RESHARD_AXES_MAX];
    reshard_group *group; /* of the mesh; NULL if this rank is not in it, as are all axis groups */
    reshard_group *axis_groups[RESHARD_AXES_MAX];
};

/* ---- making and releasing -------------------------------------------------------------------- */

static reshard_status allocate(reshard_context *context, reshard_mesh *mesh, int32_t position,
                               reshard_device_mesh **out_device_mesh)
{
    reshard_device_mesh *made = rs_allocate_zeroed(context, sizeof *made);
    if (made == NULL)
        return rs_allocation_status();
    made->context = context;
    atomic_init(&made->references, 1);
    made->mesh = reshard_mesh_retain(mesh);
    made->position = position;
    for (int32_t a = mesh->axis_count - 1, rest = position; a >= 0; a--) {
        int32_t size = mesh->sizes[a];
        made->coordinates[a] = position < 0 ? -1 : rest % size;
        rest /= size;
    }
    *out_device_mesh = made;
    return RESHARD_OK;
}

reshard_device_mesh *reshard_device_mesh_retain(reshard_device_mesh *device_mesh)
{
    if (device_mesh != NULL)
        rs_reference_add(&device_mesh->references);
    return device_mesh;
}

void reshard_device_mesh_release(reshard_device_mesh *device_mesh)
{
    if (device_mesh == NULL || !rs_reference_drop(&device_mesh->references))
        return;
    for (int32_t a = 0; a < RESHARD_AXES_MAX; a++)
        reshard_group_release(device_mesh->axis_groups[a]);
    reshard_group_release(device_mesh->group);
    reshard_mesh_release(device_mesh->mesh);
    rs_release(device_mesh->context, device_mesh);
}

/* ---- agreeing -------------------------------------------------------------------------------- */

static void digest_mesh(const reshard_mesh *mesh, rs_digest *digest)
{
    for (int32_t a = 0; a < mesh->axis_count; a++) {
        const char *name = mesh->names[a];
        rs_digest_bytes(digest, name, strlen(name));
        rs_digest_u64(digest, (uint64_t)mesh->sizes[a]);
    }
    for (int32_t p = 0; p < mesh->size; p++)
        rs_digest_u64(digest, (uint64_t)reshard_mesh_rank_at(mesh, p));
}

static reshard_status check_ranks(const reshard_mesh *mesh, const reshard_group *group)
{
    int32_t size = reshard_group_size(group);
    for (int32_t p = 0; p < mesh->size; p++) {
        if (reshard_mesh_rank_at(mesh, p) >= size)
            return rs_fail(RESHARD_ERR_RANGE,
                           "device mesh: the mesh has rank %d, the group only %d ranks",
                           reshard_mesh_rank_at(mesh, p), size);
    }
    return rs_fail_within(rs_mesh_check_distinct(mesh), "device mesh");
}

/* ---- sub-groups ------------------------------------------------------------------------------ */

/* Some axes of a mesh, in its order: those that vary within a sub-group, or those that tell
 * sub-groups apart. */
typedef struct axes {
    int32_t count;
    int32_t axes[RESHARD_AXES_MAX];
    int32_t size; /* product of their sizes */
} axes;

static void add_axis(axes *to, const reshard_mesh *mesh, int32_t axis)
{
    to->axes[to->count++] = axis;
    to->size *= mesh->sizes[axis];
}

static axes find_others(const reshard_mesh *mesh, const axes *some)
{
    axes others = {.size = 1};
    for (int32_t a = 0, next = 0; a < mesh->axis_count; a++) {
        if (next < some->count && some->axes[next] == a)
            next++;
        else
            add_axis(&others, mesh, a);
    }
    return others;
}

/* The position of the index-th coordinates of these axes, with 0 on all other axes. */
static int32_t find_offset(const reshard_mesh *mesh, const axes *some, int32_t index)
{
    int32_t offset = 0;
    for (int32_t i = some->count - 1; i >= 0; i--) {
        int32_t size = mesh->sizes[some->axes[i]], stride = 1;
        for (int32_t a = some->axes[i] + 1; a < mesh->axis_count; a++)
            stride *= mesh->sizes[a];
        offset += index % size * stride;
        index /= size;
    }
    return offset;
}

/* Collective over the mesh. Makes all sub-groups along these axes; each rank keeps its own.
 * `scratch` has room for all positions. */
static reshard_status make_group(const reshard_device_mesh *of, const axes *along, int32_t *scratch,
                                 reshard_group **out_group)
{
    const reshard_mesh *mesh = of->mesh;
    if (along->size == mesh->size) {
        *out_group = reshard_group_retain(of->group);
        return RESHARD_OK;
    }
    if (along->size == 1)
        return reshard_group_self(of->context, out_group);
    axes others = find_others(mesh, along);
    reshard_group *mine = NULL;
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < others.size && status == RESHARD_OK; i++) {
        reshard_group *made = NULL;
        int32_t first = find_offset(mesh, &others, i);
        for (int32_t k = 0; k < along->size; k++)
            scratch[k] = first + find_offset(mesh, along, k);
        status = reshard_group_subset(of->group, along->size, scratch, &made);
        if (made != NULL)
            mine = made;
    }
    if (status != RESHARD_OK) {
        reshard_group_release(mine);
        return status;
    }
    *out_group = mine;
    return RESHARD_OK;
}

/* Collective over the group. */
static reshard_status make_mesh_group(reshard_device_mesh *made, reshard_group *group,
                                      int32_t *scratch)
{
    int32_t size = made->mesh->size;
    bool whole = size == reshard_group_size(group);
    for (int32_t p = 0; p < size; p++) {
        scratch[p] = reshard_mesh_rank_at(made->mesh, p);
        whole = whole && scratch[p] == p;
    }
    if (!whole)
        return reshard_group_subset(group, size, scratch, &made->group);
    made->group = reshard_group_retain(group);
    return RESHARD_OK;
}

/* A rank that alone runs out of memory tells the others at the end of the axis, where all ranks
 * agree. */
static reshard_status make_axis_groups(reshard_device_mesh *made, int32_t *scratch)
{
    reshard_status status = RESHARD_OK;
    for (int32_t a = 0; a < made->mesh->axis_count && status == RESHARD_OK; a++) {
        axes along = {.size = 1};
        add_axis(&along, made->mesh, a);
        status = make_group(made, &along, scratch, &made->axis_groups[a]);
        if (along.size == 1)
            status = reshard_group_agree(made->group, status);
    }
    return status;
}

reshard_status reshard_device_mesh_create(reshard_context *context, reshard_group *group,
                                          reshard_mesh *mesh, reshard_device_mesh **out_device_mesh)
{
    rs_collective c = {.name = "device mesh", .context = context, .group = group};
    reshard_status status = rs_collective_choose(&c);
    if (status != RESHARD_OK)
        return status;
    group = c.group;
    reshard_device_mesh *made = NULL;
    int32_t *scratch = NULL;
    size_t bytes = (size_t)mesh->size * sizeof *scratch;
    rs_digest digest;
    rs_collective_ask(&c, -1, -1, -1, -1, &digest);
    digest_mesh(mesh, &digest);
    rs_digest_finish(&digest, c.asked.digest);
    status = check_ranks(mesh, group);
    if (status == RESHARD_OK)
        status = allocate(context, mesh, reshard_mesh_position_of(mesh, reshard_group_rank(group)),
                          &made);
    if (status == RESHARD_OK) {
        scratch = rs_allocate(context, bytes);
        status = scratch == NULL ? rs_allocation_status() : RESHARD_OK;
    }
    status = rs_collective_agree(&c, status);
    if (status == RESHARD_OK)
        status = make_mesh_group(made, group, scratch);
    if (status != RESHARD_OK)
        goto out; /* all ranks fail here */
    if (made->position >= 0)
        status = make_axis_groups(made, scratch);
    status = reshard_group_agree(group, status);
    if (status == RESHARD_OK) {
        *out_device_mesh = made;
        made = NULL;
    }
out:
    rs_release(context, scratch);
    reshard_device_mesh_release(made);
    return status;
}

reshard_status reshard_device_mesh_parse(reshard_context *context, reshard_group *group,
                                         const char *text, reshard_device_mesh **out_device_mesh)
{
    reshard_mesh *mesh = NULL;
    reshard_status status = rs_group_choose(&group);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "device mesh");
    status = reshard_group_agree(group, reshard_mesh_parse(context, text, &mesh));
    if (status == RESHARD_OK)
        status = reshard_device_mesh_create(context, group, mesh, out_device_mesh);
    reshard_mesh_release(mesh);
    return status;
}

/* ---- asking ---------------------------------------------------------------------------------- */

reshard_status reshard_device_mesh_get_info(const reshard_device_mesh *device_mesh,
                                            reshard_device_mesh_info *out_info)
{
    reshard_device_mesh_info info = {.mesh = device_mesh->mesh,
                                     .position = device_mesh->position,
                                     .coordinates = device_mesh->coordinates,
                                     .group = device_mesh->group,
                                     .axis_groups = device_mesh->axis_groups};
    return rs_report_write("device mesh info", &info, sizeof info, out_info);
}

static reshard_status find_axis(const reshard_device_mesh *device_mesh, const char *name,
                                int32_t *out_axis)
{
    int32_t axis =
        name != NULL && name[0] != '\0' ? rs_mesh_find_axis(device_mesh->mesh, name) : -1;
    if (axis < 0)
        return rs_fail(RESHARD_ERR_NOT_FOUND, "device mesh: axis \"%.50s\" does not exist",
                       name != NULL ? name : "");
    *out_axis = axis;
    return RESHARD_OK;
}

reshard_status reshard_device_mesh_group_of(const reshard_device_mesh *device_mesh,
                                            const char *name, reshard_group **out_group)
{
    int32_t axis = -1;
    reshard_status status = find_axis(device_mesh, name, &axis);
    if (status == RESHARD_OK)
        *out_group = device_mesh->axis_groups[axis];
    return status;
}

/* ---- slices ---------------------------------------------------------------------------------- */

static reshard_status find_axes(const reshard_device_mesh *of, int32_t count,
                                const char *const *names, axes *out_axes)
{
    *out_axes = (axes){.size = 1};
    if (count < 1 || names == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "device mesh: a slice along no axes");
    for (int32_t i = 0, last = -1; i < count; i++) {
        int32_t axis = -1;
        reshard_status status = find_axis(of, names[i], &axis);
        if (status != RESHARD_OK)
            return status;
        if (axis <= last)
            return rs_fail(
                RESHARD_ERR_INVALID,
                "device mesh: axis \"%s\" is named %s; axes come in the order of the mesh",
                names[i], axis == last ? "twice" : "too late");
        add_axis(out_axes, of->mesh, axis);
        last = axis;
    }
    return RESHARD_OK;
}

/* Makes the slice without its groups. */
static reshard_status make_slice(const reshard_device_mesh *of, const axes *along,
                                 const char *const *names, reshard_device_mesh **out_slice)
{
    int32_t sizes[RESHARD_AXES_MAX], position = of->position < 0 ? -1 : 0;
    for (int32_t i = 0; i < along->count; i++) {
        sizes[i] = of->mesh->sizes[along->axes[i]];
        if (position >= 0)
            position = position * sizes[i] + of->coordinates[along->axes[i]];
    }
    reshard_mesh *mesh = NULL;
    reshard_status status =
        reshard_mesh_create(of->context, along->count, names, sizes, NULL, &mesh);
    if (status == RESHARD_OK)
        status = allocate(of->context, mesh, position, out_slice);
    reshard_mesh_release(mesh);
    return status;
}

/* Collective over the mesh. */
static reshard_status make_slice_groups(const reshard_device_mesh *of, const axes *along,
                                        int32_t *scratch, reshard_device_mesh *slice)
{
    for (int32_t i = 0; i < along->count; i++)
        slice->axis_groups[i] = reshard_group_retain(of->axis_groups[along->axes[i]]);
    if (along->count == 1) {
        slice->group = reshard_group_retain(slice->axis_groups[0]);
        return RESHARD_OK;
    }
    return reshard_group_agree(of->group, make_group(of, along, scratch, &slice->group));
}

reshard_status reshard_device_mesh_slice(reshard_device_mesh *of, int32_t name_count,
                                         const char *const *names, reshard_device_mesh **out_slice)
{
    rs_collective c = {.name = "slice of a device mesh", .context = of->context};
    c.group = of->group;
    reshard_device_mesh *slice = NULL;
    int32_t *scratch = NULL;
    size_t bytes = (size_t)of->mesh->size * sizeof *scratch;
    axes along;
    reshard_status status = find_axes(of, name_count, names, &along);
    rs_digest digest;
    rs_collective_ask(&c, -1, -1, -1, -1, &digest);
    for (int32_t i = 0; i < along.count; i++)
        rs_digest_u64(&digest, (uint64_t)along.axes[i]);
    rs_digest_finish(&digest, c.asked.digest);
    if (status == RESHARD_OK)
        status = make_slice(of, &along, names, &slice);
    if (status == RESHARD_OK) {
        scratch = rs_allocate(of->context, bytes);
        status = scratch == NULL ? rs_allocation_status() : RESHARD_OK;
    }
    if (of->group != NULL)
        status = rs_collective_agree(&c, status);
    if (status == RESHARD_OK && of->group != NULL)
        status = make_slice_groups(of, &along, scratch, slice);
    if (status == RESHARD_OK) {
        *out_slice = slice;
        slice = NULL;
    }
    rs_release(of->context, scratch);
    reshard_device_mesh_release(slice);
    return status;
}
