/* SPDX-License-Identifier: Apache-2.0 */
/*
 * info.h - what public structs of facts say, as a value, for tests that need one of them.
 */
#ifndef RS_TESTS_INFO_H
#define RS_TESTS_INFO_H

#include <reshard/checkpoint.h>
#include <reshard/device_mesh.h>
#include <reshard/tensor.h>

static inline reshard_device_mesh_info info_device_mesh(const reshard_device_mesh *mesh)
{
    reshard_device_mesh_info info = {.size = sizeof info};
    (void)reshard_device_mesh_get_info(mesh, &info); /* fails only for a wrong size */
    return info;
}

static inline reshard_memory_info info_memory(const reshard_context *context)
{
    reshard_memory_info info = {.size = sizeof info};
    (void)reshard_context_get_memory(context, &info);
    return info;
}

static inline reshard_tensor_info info_tensor(const reshard_tensor *tensor)
{
    reshard_tensor_info info = {.size = sizeof info};
    (void)reshard_tensor_get_info(tensor, &info);
    return info;
}

static inline reshard_checkpoint_info info_checkpoint(const reshard_checkpoint *checkpoint)
{
    reshard_checkpoint_info info = {.size = sizeof info};
    (void)reshard_checkpoint_get_info(checkpoint, &info);
    return info;
}

#endif
