/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_values.h - the meaning of PyTorch's names in a pickle: dtypes, storages, sizes, and the
 * calls that rebuild a tensor from a storage. A fixed list of names has a meaning here; every other
 * name is data. Nothing is resolved or run.
 */
#ifndef RS_CHECKPOINT_TORCH_TORCH_VALUES_H
#define RS_CHECKPOINT_TORCH_TORCH_VALUES_H

#include "base/arena.h"
#include "checkpoint/archive/pickle.h"

/* ---- dtypes ---------------------------------------------------------------------------------- */

/* "float32" for RESHARD_F32, as in `torch.float32`; NULL if torch has no such dtype. */
const char *rs_torch_dtype_name(reshard_dtype dtype);
/* "FloatStorage" for RESHARD_F32; NULL for dtypes whose storages are untyped. */
const char *rs_torch_storage_name(reshard_dtype dtype);
/* Parses a name with or without "torch." in front. Errors: UNSUPPORTED, naming it. */
reshard_status rs_torch_dtype_parse(rs_slice name, reshard_dtype *out_dtype);
/* Reads a global such as torch.float32. Errors: UNSUPPORTED; CORRUPT if it is something else. */
reshard_status rs_torch_dtype_read(const rs_pickle_node *node, reshard_dtype *out_dtype);

/* ---- objects --------------------------------------------------------------------------------- */

/* Finds a field in the state of an object, which is a dict, or a tuple of dicts if the class has
 * slots. NULL if there is none. */
const rs_pickle_node *rs_torch_state_field(const rs_pickle_node *state, const char *name);
/* Finds a field of an object by name, or else at this position of its arguments (-1: nowhere). */
const rs_pickle_node *rs_torch_field(const rs_pickle_node *node, const char *name, int position);

/* The pairs of an OrderedDict that is called with a list of them, as Python 2 pickles it: a list of
 * lists of two. NULL for anything else. */
const rs_pickle_node *rs_torch_pairs(const rs_pickle_node *node);

/* ---- numbers --------------------------------------------------------------------------------- */

/* Reads the numbers of a tuple, a list or a torch.Size(..) into the arena. Errors: CORRUPT for
 * anything else, and for negative numbers. */
reshard_status rs_torch_numbers(rs_arena *arena, const rs_pickle_node *node, int32_t *out_count,
                                const int64_t **out_numbers);

/* ---- storages -------------------------------------------------------------------------------- */

/* A persistent id: refers to bytes that are kept beside the pickle under a key. */
typedef struct rs_torch_storage {
    rs_slice key;
    reshard_dtype dtype;   /* NONE: untyped bytes */
    int64_t element_bytes; /* 1 if untyped */
    int64_t elements;
    /* legacy files: where this view begins in the key's storage, in elements */
    int64_t view_at;
} rs_torch_storage;

/* Errors: CORRUPT if the node does not refer to a storage; UNSUPPORTED for its dtype. */
reshard_status rs_torch_storage_read(const rs_pickle_node *node, rs_torch_storage *out_storage);

/* ---- tensors --------------------------------------------------------------------------------- */

typedef enum rs_torch_kind {
    RS_TORCH_VALUE,   /* not a tensor: a number, a text, a container, an object */
    RS_TORCH_TENSOR,  /* a tensor or parameter, whole in the file */
    RS_TORCH_DTENSOR, /* a DTensor: a local tensor with a mesh and placements */
    RS_TORCH_SHARDED, /* a ShardedTensor: local shards with offsets */
} rs_torch_kind;

/* What a node is, by the function or class it names. Its arguments are not checked. */
rs_torch_kind rs_torch_kind_of(const rs_pickle_node *node);

/* A tensor that lies in a storage, and entirely inside it. */
typedef struct rs_torch_tensor {
    rs_torch_storage storage;
    uint64_t at; /* byte of the key's storage where the first element lies */
    reshard_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    const int64_t *strides; /* in elements; NULL: dense and row-major */
} rs_torch_tensor;

/* Reads a node of kind TENSOR; shape and strides are in the arena. Errors: UNSUPPORTED, by name,
 * for sparse, quantised, meta and lazily conjugated tensors; CORRUPT for arguments that make no
 * tensor, and for elements outside the storage. */
reshard_status rs_torch_tensor_read(rs_arena *arena, const rs_pickle_node *node,
                                    rs_torch_tensor *out_tensor);

/* Is this a global that PyTorch's files contain for a good reason: those above, containers, numbers
 * and the like? inspect lists the others. */
bool rs_torch_global_is_known(const rs_pickle_global *global);

#endif
