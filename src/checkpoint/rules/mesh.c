/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mesh.c - checks that a set of rules knows what to do with every axis of a mesh. An axis that no
 * rule names would hold copies of everything. That is what the name dp asks for; under any other
 * name it is a mistake.
 */
#include "base/error.h"
#include "checkpoint/rules/model.h"
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
                       "an axis of %" PRId32 " ranks has no name; rules tell axes by their names",
                       size);
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
    for (int32_t i = 0; i < reshard_mesh_axis_count(mesh); i++) {
        const char *name = reshard_mesh_axis_name(mesh, i);
        int32_t size = reshard_mesh_axis_size(mesh, i);
        if (size != 1 && strcmp(name, "dp") != 0 && !names_axis(rules, name))
            return fail_axis(rules, name, size);
    }
    return RESHARD_OK;
}
