/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_placed.h - tensors of which a file holds one rank's part: DTensor, with a mesh and
 * placements, and ShardedTensor, with shards that have offsets. Both have the full shape.
 */
#ifndef RS_CHECKPOINT_TORCH_TORCH_PLACED_H
#define RS_CHECKPOINT_TORCH_TORCH_PLACED_H

#include "checkpoint/torch/torch_mesh.h"

/* What one mesh axis does to a tensor. */
typedef enum rs_torch_placement_kind {
    RS_TORCH_REPLICATE,
    RS_TORCH_SHARD,
    RS_TORCH_STRIDED, /* cut after some of the axes that follow it, which cut into `factor` parts */
    RS_TORCH_PARTIAL,
} rs_torch_placement_kind;

typedef struct rs_torch_placement {
    rs_torch_placement_kind kind;
    int32_t dim;
    int64_t factor;
} rs_torch_placement;

/* How the axes of a mesh cut a tensor: their placements, and the order in which they cut. */
typedef struct rs_torch_cuts {
    rs_torch_placement placements[RS_TORCH_AXES_MAX];
    int32_t order_count;
    int32_t order[RS_TORCH_AXES_MAX]; /* axes that cut; those of one dim in the order they cut it */
} rs_torch_cuts;

/* Computes the order in which the axes cut: from left to right, except that a strided axis comes
 * after the axes that make up its factor. Errors: UNSUPPORTED for Partial, and for a factor that
 * fits no axes; CORRUPT for a dim that the tensor does not have. */
reshard_status rs_torch_cuts_order(const rs_torch_mesh *mesh, int32_t ndim, rs_torch_cuts *cuts);
/* Computes the rank's box of a tensor. */
void rs_torch_cuts_box(const rs_torch_mesh *mesh, const rs_torch_cuts *cuts, int32_t ndim,
                       const int64_t *shape, int64_t *out_offset, int64_t *out_size);

/* Turns a local array into the rank's box of a tensor with shape `full`, which must outlive it.
 * Errors: CORRUPT, naming file and tensor, if the array has another shape. */
reshard_status rs_torch_cuts_take(reshard_checkpoint *checkpoint, const rs_torch_mesh *mesh,
                                  const rs_torch_cuts *cuts, int32_t ndim, const int64_t *full,
                                  rs_occurrence *local);

/* Reads a leaf of kind DTENSOR or SHARDED from a rank's file, and adds the boxes of the tensor that
 * it holds. A rank that holds nothing of it adds an empty box. Errors: UNSUPPORTED, CORRUPT, naming
 * file and tensor. */
reshard_status rs_torch_placed_add(reshard_checkpoint *checkpoint, rs_torch_rank *owner,
                                   const rs_torch_leaf *leaf, rs_occurrences *list);

/* Does a pickle name the class DTensor or ShardedTensor? */
bool rs_torch_names_placed(const rs_pickle *pickle);

#endif
