/* SPDX-License-Identifier: Apache-2.0 */
/*
 * device_mesh.h - a mesh over live ranks, like PyTorch's DeviceMesh.
 *
 * A mesh (spec.h) names axes and ranks; here the ranks are those of a group. Every rank then has
 * coordinates, and along each axis a sub-group: the ranks that differ from it only on that axis,
 * numbered by their coordinate. A rank of the group that is not in the mesh also gets a device
 * mesh, but one without coordinates or groups.
 *
 *     reshard_mesh_create(NULL, 2, names, sizes, NULL, &mesh);          dp=2,tp=4
 *     reshard_device_mesh_create(NULL, group, mesh, &world);            Collective
 *     reshard_device_mesh_group_of(world, "dp", &replicas);
 *     reshard_device_mesh_slice(world, 1, (const char *[]){"tp"}, &tp); Collective
 *
 * A device mesh belongs to one rank, and so do its groups; retain adds a reference, release drops
 * one.
 */
#ifndef RESHARD_DEVICE_MESH_H
#define RESHARD_DEVICE_MESH_H

#include <reshard/group.h>
#include <reshard/spec.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * Make a mesh over a group, and find this rank's place in it.
 */

typedef struct reshard_device_mesh reshard_device_mesh;

/* Collective over the group, including ranks outside the mesh. Creates all sub-groups, of which
 * there are size / axis_size for each axis; the ranks agree once for each. Retains the mesh and the
 * group. Errors, agreed by all ranks: RANGE (a rank that the group does not have), MISMATCH (names
 * a rank that passes a different mesh), NO_MEMORY. */
RESHARD_API reshard_status reshard_device_mesh_create(reshard_context *context,
                                                      reshard_group *group, reshard_mesh *mesh,
                                                      reshard_device_mesh **out_device_mesh);
/* The same with the mesh as text: "4", "dp=2,tp=2". */
RESHARD_API reshard_status reshard_device_mesh_parse(reshard_context *context, reshard_group *group,
                                                     const char *text,
                                                     reshard_device_mesh **out_device_mesh);
RESHARD_API reshard_device_mesh *reshard_device_mesh_retain(reshard_device_mesh *device_mesh);
RESHARD_API void reshard_device_mesh_release(reshard_device_mesh *device_mesh);

/* ---- queries, all Local ---------------------------------------------------------------------- */

/* This rank's place. Pointers live as long as the device mesh; groups are not retained. */
typedef struct reshard_device_mesh_info {
    size_t size; /* sizeof(reshard_device_mesh_info), set by the caller */
    reshard_mesh *mesh;
    int32_t position;           /* of this rank; -1 if it is not in the mesh */
    const int32_t *coordinates; /* one for each axis; -1 if this rank is not in the mesh */
    /* all ranks of the mesh, numbered by position; NULL if this rank is not in the mesh */
    reshard_group *group;
    /* For each axis, this rank and those that differ from it only there, numbered by coordinate;
     * this rank alone if the axis has size 1. NULL if this rank is not in the mesh. */
    reshard_group *const *axis_groups;
} reshard_device_mesh_info;
/* Errors: INVALID for a size that no release has. */
RESHARD_API reshard_status reshard_device_mesh_get_info(const reshard_device_mesh *device_mesh,
                                                        reshard_device_mesh_info *out_info);
/* The group along the axis of this name. Errors: NOT_FOUND. */
RESHARD_API reshard_status reshard_device_mesh_group_of(const reshard_device_mesh *device_mesh,
                                                        const char *name,
                                                        reshard_group **out_group);

/* ==== explicit ===================================================================================
 * Part of a mesh as a mesh of its own.
 */

/* ---- slices ---------------------------------------------------------------------------------- */

/*
 * Collective over the ranks of the mesh; Local for others. Makes a device mesh of the part along
 * the named axes, given in mesh order, that contains this rank: its group holds the ranks that
 * differ from this one only on these axes, and its mesh numbers them 0, 1, 2, ... It shares the
 * sub-groups along its axes with the mesh it was taken from. A rank outside the mesh gets a device
 * mesh without coordinates.
 *
 * Errors, agreed by the ranks of the mesh: NOT_FOUND (no such axis), INVALID (no names, a name
 * twice or out of order), MISMATCH (names a rank that passes different names), NO_MEMORY.
 */
RESHARD_API reshard_status reshard_device_mesh_slice(reshard_device_mesh *device_mesh,
                                                     int32_t name_count, const char *const *names,
                                                     reshard_device_mesh **out_slice);

#ifdef __cplusplus
}
#endif
#endif
