/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mesh.c - checks that a set of rules knows what to do with every axis of a mesh. An axis that no
 * rule names would hold copies of everything. That is what the name dp asks for; under any other
 * name it is a mistake.
 *
 * An axis that is over the ranks of another one (`same ep tp`) leaves the mesh: rules then ask for
 * its size (@ep), and cut over the other one.
 */
#include "base/error.h"
#include "checkpoint/rules/model.h"
#include "spec/spec.h"
#include "text/text.h"

#include <inttypes.h>
#include <string.h>

static bool names_axis(const rs_rules *rules, const char *name)
{
    for (int64_t i = 0; i < rules->axis_count; i++) {
        if (strcmp(rules->axes[i], name) == 0)
            return true;
    }
    return false;
}

static reshard_status fail_axis(const rs_rules *rules, const char *name, int32_t size)
{
    char known[256] = "none";
    rs_text text;
    if (name[0] == '\0')
        return rs_fail(RESHARD_ERR_INVALID,
                       "an axis of %" PRId32
                       " ranks has no name; rules know axes by their names, such as tp=%" PRId32
                       " or fsdp=%" PRId32,
                       size, size, size);
    if (rules->axis_count != 0)
        rs_text_init(&text, known, sizeof known);
    for (int64_t i = 0; i < rules->axis_count; i++)
        rs_text_add(&text, i == 0 ? "%s" : ", %s", rules->axes[i]);
    return rs_fail(RESHARD_ERR_INVALID,
                   "no rule of %s says what axis %s=%" PRId32 " does (they name %s)",
                   rules->file_name, name, size, known);
}

reshard_status rs_rules_check_mesh(const rs_rules *rules, const reshard_mesh *mesh)
{
    for (int32_t i = 0; i < mesh->axis_count; i++) {
        const char *name = mesh->names[i];
        int32_t size = mesh->sizes[i];
        if (size != 1 && strcmp(name, "dp") != 0 && !names_axis(rules, name))
            return fail_axis(rules, name, size);
    }
    return RESHARD_OK;
}

static int32_t size_of(const reshard_mesh *mesh, const char *name)
{
    int32_t axis = rs_mesh_find_axis(mesh, name);
    return axis >= 0 ? mesh->sizes[axis] : 1;
}

static bool has_given_ranks(const reshard_mesh *mesh)
{
    int32_t i = 0;
    while (i < mesh->size && reshard_mesh_rank_at(mesh, i) == i)
        i++;
    return i < mesh->size;
}

/* Makes the mesh without one of its axes, over ranks from 0 up. */
static reshard_status remove_axis(reshard_context *context, const reshard_mesh *mesh, int32_t axis,
                                  reshard_mesh **out_mesh)
{
    const char *names[RESHARD_AXES_MAX];
    int32_t sizes[RESHARD_AXES_MAX], count = 0;
    for (int32_t i = 0; i < mesh->axis_count; i++) {
        names[count] = mesh->names[i];
        sizes[count] = mesh->sizes[i];
        count += i != axis;
    }
    return reshard_mesh_create(context, count, names, sizes, NULL, out_mesh);
}

static reshard_status check_same(const reshard_mesh *mesh, const rs_same_axes *same)
{
    int32_t other = size_of(mesh, same->of);
    if (same->size != 1 && same->size != other)
        return rs_fail(RESHARD_ERR_INVALID,
                       "%s=%" PRId32 ": %s is over the ranks of %s=%" PRId32
                       ", so it has 1 coordinate or %" PRId32,
                       same->name, same->size, same->name, same->of, other, other);
    if (same->size != 1 && has_given_ranks(mesh))
        return rs_fail(RESHARD_ERR_INVALID,
                       "%s is over the ranks of %s, so a mesh of both takes no list of ranks",
                       same->name, same->of);
    return RESHARD_OK;
}

reshard_status rs_rules_fold_mesh(rs_rules *rules, reshard_mesh *mesh, reshard_mesh **out_mesh)
{
    reshard_status status = RESHARD_OK;
    reshard_mesh *left = reshard_mesh_retain(mesh);
    for (int32_t i = 0; status == RESHARD_OK && i < rules->same_count; i++) {
        rs_same_axes *same = &rules->same[i];
        reshard_mesh *fewer = NULL;
        int32_t axis = rs_mesh_find_axis(left, same->name);
        same->size = size_of(left, same->name);
        if (same->size == 1)
            continue; /* it cuts nothing, wherever it is */
        status = check_same(left, same);
        if (status == RESHARD_OK)
            status = remove_axis(rules->context, left, axis, &fewer);
        if (status != RESHARD_OK)
            break;
        reshard_mesh_release(left);
        left = fewer;
    }
    if (status == RESHARD_OK)
        *out_mesh = left;
    else
        reshard_mesh_release(left);
    return status;
}
