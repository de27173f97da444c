/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_placed.h - tensors of which a file holds one rank's part: DTensor, with a mesh and
 * placements, and ShardedTensor, whose shards tell their offsets. Both tell the full shape.
 */
#ifndef RS_CHECKPOINT_FORMAT_TORCH_PLACED_H
#define RS_CHECKPOINT_FORMAT_TORCH_PLACED_H

#include "checkpoint/torch/torch_files.h"

/* What one mesh axis does to a tensor. */
typedef enum rs_torch_placement_kind {
    RS_TORCH_REPLICATE,
    RS_TORCH_SHARD,
    RS_TORCH_STRIDED, /* cut after the axes that follow it, `factor` parts in all */
    RS_TORCH_PARTIAL,
} rs_torch_placement_kind;

typedef struct rs_torch_placement {
    rs_torch_placement_kind kind;
    int32_t dim;
    int64_t factor;
} rs_torch_placement;

#define RS_TORCH_AXES_MAX 8

/* A mesh as one rank of it sees it. */
typedef struct rs_torch_mesh {
    int32_t axis_count;
    int64_t sizes[RS_TORCH_AXES_MAX];
    int64_t coordinate[RS_TORCH_AXES_MAX]; /* the rank's */
} rs_torch_mesh;

/* How the axes of a mesh cut a tensor: its placements, and for each dim the axes that cut it, the
 * first cut first. */
typedef struct rs_torch_cuts {
    rs_torch_placement placements[RS_TORCH_AXES_MAX];
    int32_t order_count;
    int32_t order[RS_TORCH_AXES_MAX]; /* axes; those of one dim in the order in which they cut it */
} rs_torch_cuts;

/* Brings the axes into the order in which they cut: from left to right, but a strided one behind
 * those that it leaves room for. Errors: UNSUPPORTED for Partial, and for a factor that fits no
 * axes; CORRUPT for a dim that the tensor does not have. */
reshard_status rs_torch_cuts_order(const rs_torch_mesh *mesh, int32_t ndim, rs_torch_cuts *cuts);
/* The box of the tensor that the rank has. */
void rs_torch_cuts_box(const rs_torch_mesh *mesh, const rs_torch_cuts *cuts, int32_t ndim,
                       const int64_t *shape, int64_t *out_offset, int64_t *out_size);

/* Makes a local array the box that the rank has of a tensor of the full shape, which must outlive
 * it. Errors: CORRUPT, naming file and tensor, when the array has another shape. */
reshard_status rs_torch_cuts_take(reshard_checkpoint *checkpoint, const rs_torch_mesh *mesh,
                                  const rs_torch_cuts *cuts, int32_t ndim, const int64_t *full,
                                  rs_occurrence *local);

/* A rank's file, and the last mesh that was read in it: most tensors of a file share one. */
typedef struct rs_torch_rank {
    int32_t file;
    int32_t rank;
    const rs_pickle_node *mesh_node; /* NULL: none so far */
    rs_torch_mesh mesh;
} rs_torch_rank;

/* Reads a leaf of kind DTENSOR or SHARDED of the file of a rank, and adds what it holds as boxes of
 * the whole tensor. A rank that has nothing of it adds an empty box. Errors: UNSUPPORTED, CORRUPT,
 * naming file and tensor. */
reshard_status rs_torch_placed_add(reshard_checkpoint *checkpoint, rs_torch_rank *owner,
                                   const rs_torch_leaf *leaf, rs_occurrences *list);

/* Whether a pickle names a class of tensors that are cut. */
bool rs_torch_names_placed(const rs_pickle *pickle);

#endif
