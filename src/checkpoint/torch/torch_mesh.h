/* SPDX-License-Identifier: Apache-2.0 */
/* torch_mesh.h - device meshes in pickles of PyTorch: their axes, and where a rank is in them. */
#ifndef RS_CHECKPOINT_TORCH_TORCH_MESH_H
#define RS_CHECKPOINT_TORCH_TORCH_MESH_H

#include "checkpoint/torch/torch_files.h"

#define RS_TORCH_AXES_MAX 8

/* A mesh as one rank of it sees it. */
typedef struct rs_torch_mesh {
    int32_t axis_count;
    int64_t sizes[RS_TORCH_AXES_MAX];
    int64_t coordinate[RS_TORCH_AXES_MAX]; /* of this rank */
} rs_torch_mesh;

/* A rank's file, and the last mesh that was read from it, because most tensors of a file share
 * one. */
typedef struct rs_torch_rank {
    int32_t file;
    int32_t rank;
    const rs_pickle_node *mesh_node; /* NULL: none yet */
    rs_torch_mesh mesh;
} rs_torch_rank;

/* Reads a DeviceMesh into owner->mesh, unless it is the last one that was read. Errors: UNSUPPORTED
 * for spellings that are not known; CORRUPT if it does not hold the owner's rank, if its axes do
 * not fit its ranks, or if it was saved by another rank. */
reshard_status rs_torch_mesh_read(reshard_checkpoint *checkpoint, rs_torch_rank *owner,
                                  const rs_pickle_node *node);

#endif
