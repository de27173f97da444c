/* SPDX-License-Identifier: Apache-2.0 */
/* meshes.h - device meshes, specs and tensors over them, for the tests of modules. */
#ifndef TESTS_NN_MESHES_H
#define TESTS_NN_MESHES_H

#include "tests/support/check.h"
#include "tests/tensor/values.h"

#include <string.h>

static inline reshard_device_mesh *make_mesh(reshard_group *group, int32_t axes,
                                             const int32_t *sizes)
{
    reshard_mesh *mesh = NULL;
    reshard_device_mesh *made = NULL;
    MUST(reshard_mesh_create(NULL, axes, NULL, sizes, NULL, &mesh));
    MUST(reshard_device_mesh_create(NULL, group, mesh, &made));
    reshard_mesh_release(mesh);
    return made;
}

static inline reshard_device_mesh *make_line(reshard_group *group)
{
    int32_t size = reshard_group_size(group);
    return make_mesh(group, 1, &size);
}

static inline reshard_spec *make_spec(const char *text)
{
    reshard_spec *spec = NULL;
    MUST(reshard_spec_parse(NULL, text, &spec));
    return spec;
}

static inline reshard_tensor *distribute(reshard_group *group, const char *text,
                                         reshard_tensor *local)
{
    reshard_spec *spec = make_spec(text);
    reshard_tensor *made = NULL;
    MUST(reshard_tensor_shard(NULL, group, spec, 0, local, &made));
    reshard_spec_release(spec);
    return made;
}

/* Numbers that are always the same, which collect gradients. */
static inline reshard_tensor *make_leaf(int32_t ndim, const int64_t *shape)
{
    draw_state draw;
    draw_seed(&draw, 17);
    reshard_tensor *x = make_random(RESHARD_F64, &draw, ndim, shape);
    MUST(reshard_tensor_set_requires_grad(x, 1));
    return x;
}

#endif
