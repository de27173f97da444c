/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_metadata.h - the metadata.pkl of torch_checkpointing: a pickle of plain dicts that says, for
 * each item of a checkpoint (model, optimizer), which file each rank has written, and how its
 * tensors are spread: the full shape, a mesh of ranks and a placement for each of its axes.
 *
 *   {"version": "2.0", "world_size": 4, "metadata": {"model": {
 *       "nested_path_to_metadata": {"[\"layers\",0,\"weight\"]": [{"ranks": (0, ..),
 *           "sharding_metadata": {"type": "DTensorShardingMetadata", "data": {"global_shape": [..],
 *               "dtype": "torch.float32", "mesh_spec": {"mesh_shape": (4,), "mesh_data": (0, ..)},
 *               "placements": [{"type": "Shard", "dim": 0}]}}}, ..]},
 *       "rank_to_layout_info": {0: {"file_path": .., "serialization_format": {"type": ..}}, ..}}}}
 *
 * Version 1.0 has paths of all items in one dict, the item first, and files by rank, then by item.
 */
#ifndef RS_CHECKPOINT_TORCH_ITEM_METADATA_H
#define RS_CHECKPOINT_TORCH_ITEM_METADATA_H

#include "checkpoint/torch/torch_placed.h"

#define RS_ITEM_METADATA_NAME "metadata.pkl"

typedef enum rs_item_body {
    RS_ITEM_TORCH,
    RS_ITEM_SAFETENSORS,
    RS_ITEM_OTHER, /* JSON or raw bytes: no tensors */
} rs_item_body;

/* What one rank has written of one item. */
typedef struct rs_item_file {
    rs_slice item;
    int32_t rank;
    const char *path; /* in the folder */
    rs_item_body body;
} rs_item_file;

/* A tensor that is spread over ranks. */
typedef struct rs_item_tensor {
    rs_slice name;                /* the item and its path, joined by dots */
    const rs_pickle_node *groups; /* of ranks that describe it alike */
    bool is_found;                /* for the reader: some file holds some of it */
} rs_item_tensor;

typedef struct rs_item_metadata {
    reshard_context *context;
    char *bytes; /* of the pickle, which points into them */
    size_t byte_count;
    rs_pickle *pickle;
    int64_t file_count, file_capacity;
    rs_item_file *files; /* by item, then by rank */
    int64_t tensor_count, tensor_capacity;
    rs_item_tensor *tensors; /* by name */
} rs_item_metadata;

/* How a tensor is spread, as one rank sees it. */
typedef struct rs_item_share {
    reshard_dtype dtype;
    int32_t ndim;
    const int64_t *full;
    rs_torch_cuts cuts; /* over the mesh of the rank that asked */
    bool cuts_again;    /* two axes cut one dimension */
} rs_item_share;

/* Local. Whether the file is such a pickle. Errors: IO. */
reshard_status rs_item_metadata_is(reshard_context *context, const char *path, bool *out_is);
/* Local. Texts are in the arena; release in any case. Errors: CORRUPT, SYNTAX; UNSUPPORTED for
 * another version and for ways of storing that are not known; RANGE when values are shared so often
 * that they would take much more room than the file. */
reshard_status rs_item_metadata_read(rs_arena *arena, const char *path,
                                     rs_item_metadata *out_metadata);
void rs_item_metadata_release(rs_item_metadata *metadata);
/* By name; NULL: none of that name is spread. */
rs_item_tensor *rs_item_metadata_find(const rs_item_metadata *metadata, rs_slice name);
/* What the tensor's metadata says to a rank; fills in the mesh of its owner. *out_is_there: false
 * when it names no part of this rank. Errors: CORRUPT; UNSUPPORTED, by name. */
reshard_status rs_item_tensor_share(rs_arena *arena, const rs_item_tensor *tensor,
                                    rs_torch_rank *owner, rs_item_share *out_share,
                                    bool *out_is_there);

#endif
