/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mesh.c - meshes: axes over ranks.
 *
 * Ranks that form one increasing arithmetic progression, however they were given, are stored as
 * first and step, so a mesh of two billion ranks takes no more memory than a mesh of two. Other
 * ranks are listed, with an index sorted by rank. Invariants: ranks are not negative; step >= 1; in
 * a mesh of several axes, ranks are distinct.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/options.h"
#include "base/search.h"
#include "base/sort.h"
#include "spec/build.h"
#include "spec/spec.h"

#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- checks ---------------------------------------------------------------------------------- */

static bool is_name(const char *name)
{
    rs_scan scan = {"name", name, strlen(name), 0};
    rs_slice word = rs_scan_word(&scan);
    return word.bytes == name && word.count == scan.length && scan.length != 0;
}

static bool is_named(const char *const *names, int32_t axis)
{
    return names != NULL && names[axis] != NULL && names[axis][0] != '\0';
}

static reshard_status check_name(const char *const *names, int32_t axis)
{
    if (!is_named(names, axis))
        return RESHARD_OK;
    const char *name = names[axis];
    if (!is_name(name))
        return rs_fail(RESHARD_ERR_INVALID,
                       "\"%s\" is not an axis name: use letters, digits and _ only",
                       rs_excerpt_of(name, strlen(name)).text);
    for (int32_t i = 0; i < axis; i++) {
        if (is_named(names, i) && strcmp(names[i], name) == 0)
            return rs_fail(RESHARD_ERR_INVALID, "two axes are named \"%s\"",
                           rs_excerpt_of(name, strlen(name)).text);
    }
    return RESHARD_OK;
}

static reshard_status check_axes(int32_t axis_count, const char *const *names, const int32_t *sizes,
                                 int32_t *out_size)
{
    if (axis_count < 1 || axis_count > RESHARD_AXES_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "%" PRId32 " axes are not between 1 and %d", axis_count,
                       RESHARD_AXES_MAX);
    if (sizes == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "the axis sizes are NULL");
    int64_t size = 1;
    for (int32_t i = 0; i < axis_count; i++) {
        reshard_status status = check_name(names, i);
        if (status != RESHARD_OK)
            return status;
        if (sizes[i] < 1)
            return rs_fail(RESHARD_ERR_RANGE,
                           "axis %" PRId32 " has the size %" PRId32 ", not 1 or more", i, sizes[i]);
        size *= sizes[i]; /* both factors are below 2^31 */
        if (size > INT32_MAX)
            return rs_fail(RESHARD_ERR_RANGE, "a mesh of more than 2^31-1 ranks");
    }
    *out_size = (int32_t)size;
    return RESHARD_OK;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static bool is_progression(const int32_t *ranks, int32_t count)
{
    for (int32_t i = 1; i < count; i++) {
        int64_t step = (int64_t)ranks[1] - ranks[0];
        if (step < 1 || (int64_t)ranks[i] - ranks[i - 1] != step)
            return false;
    }
    return true;
}

reshard_status rs_mesh_check_distinct(const reshard_mesh *mesh)
{
    assert(!mesh->repeated || mesh->by_rank != NULL);
    for (int32_t i = 1; mesh->repeated && i < mesh->size; i++) {
        int32_t rank = mesh->listed[mesh->by_rank[i]];
        if (rank == mesh->listed[mesh->by_rank[i - 1]])
            return rs_fail(RESHARD_ERR_INVALID, "rank %" PRId32 " occurs twice in the mesh", rank);
    }
    return RESHARD_OK;
}

/* Fills by_rank, sets `repeated`, and refuses repeated ranks in a mesh of several axes. */
static reshard_status index_by_rank(reshard_mesh *mesh)
{
    size_t count = (size_t)mesh->size;
    assert(mesh->listed != NULL && count >= 1);
    mesh->by_rank = rs_arena_allocate_array(&mesh->arena, count, sizeof *mesh->by_rank);
    if (mesh->by_rank == NULL)
        return rs_allocation_status();
    uint64_t *keys = rs_allocate_array(mesh->context, count, sizeof *keys);
    if (keys == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++)
        keys[i] = (uint64_t)(uint32_t)mesh->listed[i] << 32 | i;
    rs_sort(keys, count, sizeof *keys, rs_compare_u64);
    for (size_t i = 0; i < count; i++) {
        mesh->by_rank[i] = (int32_t)(keys[i] & UINT32_MAX);
        mesh->repeated = mesh->repeated || (i > 0 && keys[i] >> 32 == keys[i - 1] >> 32);
    }
    rs_release(mesh->context, keys);
    return mesh->axis_count > 1 ? rs_mesh_check_distinct(mesh) : RESHARD_OK;
}

static reshard_status set_ranks(reshard_mesh *mesh, const rs_ranks *ranks)
{
    if (ranks->listed == NULL) {
        mesh->first = ranks->first;
        mesh->step = mesh->size > 1 ? ranks->step : 1;
        return RESHARD_OK;
    }
    for (int32_t i = 0; i < mesh->size; i++) {
        if (ranks->listed[i] < 0)
            return rs_fail(RESHARD_ERR_RANGE, "rank %" PRId32 " is negative", ranks->listed[i]);
    }
    mesh->first = ranks->listed[0];
    mesh->step = 1;
    if (is_progression(ranks->listed, mesh->size)) {
        if (mesh->size > 1)
            mesh->step = ranks->listed[1] - ranks->listed[0];
        return RESHARD_OK;
    }
    mesh->listed =
        rs_arena_copy(&mesh->arena, ranks->listed, (size_t)mesh->size, sizeof *ranks->listed);
    if (mesh->listed == NULL)
        return rs_allocation_status();
    return index_by_rank(mesh);
}

/* ---- creation -------------------------------------------------------------------------------- */

static reshard_status set_axes(reshard_mesh *mesh, const char *const *names, const int32_t *sizes)
{
    int32_t stride = 1;
    for (int32_t i = mesh->axis_count - 1; i >= 0; i--) {
        mesh->sizes[i] = sizes[i];
        mesh->strides[i] = stride;
        stride *= sizes[i];
    }
    assert(stride == mesh->size);
    mesh->names =
        rs_arena_allocate_array(&mesh->arena, (size_t)mesh->axis_count, sizeof *mesh->names);
    if (mesh->names == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < mesh->axis_count; i++) {
        const char *name = is_named(names, i) ? names[i] : "";
        mesh->names[i] = rs_arena_copy(&mesh->arena, name, strlen(name) + 1, 1);
        if (mesh->names[i] == NULL)
            return rs_allocation_status();
    }
    return RESHARD_OK;
}

reshard_status rs_mesh_build(reshard_context *context, int32_t axis_count, const char *const *names,
                             const int32_t *sizes, const rs_ranks *ranks, reshard_mesh **out_mesh)
{
    int32_t size = 0;
    reshard_status status = check_axes(axis_count, names, sizes, &size);
    if (status != RESHARD_OK)
        return status;
    reshard_mesh *mesh = rs_allocate_zeroed(context, sizeof *mesh);
    if (mesh == NULL)
        return rs_allocation_status();
    mesh->context = context;
    atomic_init(&mesh->references, 1);
    rs_arena_init(&mesh->arena, context);
    mesh->axis_count = axis_count;
    mesh->size = size;
    status = set_axes(mesh, names, sizes);
    if (status == RESHARD_OK)
        status = set_ranks(mesh, ranks);
    if (status != RESHARD_OK) {
        reshard_mesh_release(mesh);
        return status;
    }
    assert(mesh->step >= 1 && (mesh->listed == NULL) == (mesh->by_rank == NULL));
    assert(!mesh->repeated || mesh->axis_count == 1);
    *out_mesh = mesh;
    return RESHARD_OK;
}

reshard_status reshard_mesh_create(reshard_context *context, int32_t axis_count,
                                   const char *const *names, const int32_t *sizes,
                                   const int32_t *ranks, reshard_mesh **out_mesh)
{
    return rs_mesh_build(context, axis_count, names, sizes, &(rs_ranks){ranks, 0, 1}, out_mesh);
}

reshard_status rs_mesh_with_ranks(const reshard_mesh *mesh, const int32_t *ranks,
                                  reshard_mesh **out_mesh)
{
    return reshard_mesh_create(mesh->context, mesh->axis_count, (const char *const *)mesh->names,
                               mesh->sizes, ranks, out_mesh);
}

reshard_mesh *reshard_mesh_retain(reshard_mesh *mesh)
{
    if (mesh != NULL)
        rs_reference_add(&mesh->references);
    return mesh;
}

void reshard_mesh_release(reshard_mesh *mesh)
{
    if (mesh == NULL || !rs_reference_drop(&mesh->references))
        return;
    rs_arena_release(&mesh->arena);
    rs_release(mesh->context, mesh);
}

/* ---- queries --------------------------------------------------------------------------------- */

reshard_status reshard_mesh_get_info(const reshard_mesh *mesh, reshard_mesh_info *out_info)
{
    reshard_mesh_info info = {.position_count = mesh->size,
                              .axis_count = mesh->axis_count,
                              .names = (const char *const *)mesh->names,
                              .sizes = mesh->sizes};
    return rs_report_write("mesh info", &info, sizeof info, out_info);
}

int32_t rs_mesh_find_axis(const reshard_mesh *mesh, const char *name)
{
    if (name == NULL || name[0] == '\0')
        return -1;
    for (int32_t i = 0; i < mesh->axis_count; i++) {
        if (strcmp(mesh->names[i], name) == 0)
            return i;
    }
    return -1;
}

rs_excerpt rs_mesh_axis_words(const reshard_mesh *mesh, int32_t axis)
{
    const char *name = mesh->names[axis];
    if (name[0] != '\0')
        return rs_excerpt_of(name, strlen(name));
    rs_excerpt words;
    (void)snprintf(words.text, sizeof words.text, "%" PRId32, axis);
    return words;
}

int32_t reshard_mesh_rank_at(const reshard_mesh *mesh, int32_t position)
{
    if (position < 0 || position >= mesh->size)
        return -1;
    return mesh->listed != NULL ? mesh->listed[position] : mesh->first + position * mesh->step;
}

int32_t reshard_mesh_position_of(const reshard_mesh *mesh, int32_t rank)
{
    if (mesh->listed == NULL) {
        assert(mesh->step >= 1 && mesh->size >= 1);
        int64_t distance = (int64_t)rank - mesh->first;
        if (distance < 0 || distance % mesh->step != 0 || distance / mesh->step >= mesh->size)
            return -1;
        return (int32_t)(distance / mesh->step);
    }
    int64_t at;
    RS_FIND_FIRST(at, mesh->size, mesh->listed[mesh->by_rank[at]] >= rank);
    return at < mesh->size && mesh->listed[mesh->by_rank[at]] == rank ? mesh->by_rank[at] : -1;
}
