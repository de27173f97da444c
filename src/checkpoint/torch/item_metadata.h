/* SPDX-License-Identifier: Apache-2.0 */
/*
 * item_metadata.h - the metadata.pkl of torch_checkpointing: a pickle of plain dicts. For each item
 * of a checkpoint (model, optimizer) it says which file each rank wrote, and how tensors are
 * distributed: the full shape, a mesh of ranks and a placement for each of its axes.
 *
 *   {"version": "2.0", "world_size": 4, "metadata": {"model": {
 *       "nested_path_to_metadata": {"[\"layers\",0,\"weight\"]": [{"ranks": (0, ..),
 *           "sharding_metadata": {"type": "DTensorShardingMetadata", "data": {"global_shape": [..],
 *               "dtype": "torch.float32", "mesh_spec": {"mesh_shape": (4,), "mesh_data": (0, ..)},
 *               "placements": [{"type": "Shard", "dim": 0}]}}}, ..]},
 *       "rank_to_layout_info": {0: {"file_path": .., "serialization_format": {"type": ..}}, ..}}}}
 *
 * In version 1.0 one dict has the paths of all items, with the item as the first key, and files are
 * listed by rank, then by item.
 */
#ifndef RS_CHECKPOINT_TORCH_ITEM_METADATA_H
#define RS_CHECKPOINT_TORCH_ITEM_METADATA_H

#include "checkpoint/torch/torch_placed.h"

#define RS_ITEM_METADATA_NAME "metadata.pkl"

typedef enum rs_item_body {
    RS_ITEM_TORCH,
    RS_ITEM_SAFETENSORS,
    RS_ITEM_OTHER, /* JSON or raw bytes, without tensors */
} rs_item_body;

/* The file that one rank wrote of one item. */
typedef struct rs_item_file {
    rs_slice item;
    int32_t rank;
    const char *path; /* within the folder */
    rs_item_body body;
} rs_item_file;

/* A distributed tensor. */
typedef struct rs_item_tensor {
    rs_slice name;                /* the item and the path, joined by dots */
    const rs_pickle_node *groups; /* list of groups of ranks and their descriptions */
    bool is_found;                /* set by the reader: some file holds part of it */
} rs_item_tensor;

typedef struct rs_item_metadata {
    reshard_context *context;
    char *bytes; /* the pickle's bytes, which its nodes point into */
    size_t byte_count;
    rs_pickle *pickle;
    int64_t file_count, file_capacity;
    rs_item_file *files; /* sorted by item, then by rank */
    int64_t tensor_count, tensor_capacity;
    rs_item_tensor *tensors; /* sorted by name */
} rs_item_metadata;

/* How a tensor is distributed, as described to one rank. */
typedef struct rs_item_share {
    reshard_dtype dtype;
    int32_t ndim;
    const int64_t *full;
    rs_torch_cuts cuts; /* over the mesh of that rank */
    bool cuts_again;    /* two axes cut the same dimension */
} rs_item_share;

/* Local. Is the file such a pickle? Errors: IO. */
reshard_status rs_item_metadata_is(reshard_context *context, const char *path, bool *out_is);
/* Local. Reads the file. Texts are in the arena. Release the metadata in any case. Errors: CORRUPT,
 * SYNTAX; UNSUPPORTED for other versions and unknown serialization formats; RANGE if values are
 * shared so often that they would take much more room than the file. */
reshard_status rs_item_metadata_read(rs_arena *arena, const char *path,
                                     rs_item_metadata *out_metadata);
void rs_item_metadata_release(rs_item_metadata *metadata);
/* Finds a distributed tensor by name; NULL if there is none. */
rs_item_tensor *rs_item_metadata_find(const rs_item_metadata *metadata, rs_slice name);
/* Reads how the tensor is described to a rank, and fills in the mesh of `owner`. *out_is_there is
 * false if no description is for this rank. Errors: CORRUPT; UNSUPPORTED, by name. */
reshard_status rs_item_tensor_share(rs_arena *arena, const rs_item_tensor *tensor,
                                    rs_torch_rank *owner, rs_item_share *out_share,
                                    bool *out_is_there);

#endif
