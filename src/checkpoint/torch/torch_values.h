/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_values.h - what PyTorch's names in a pickle mean: dtypes, storages, sizes, and the calls
 * that rebuild a tensor from a storage. A fixed list of names has a meaning here; every other name
 * is data. Nothing is resolved or run.
 */
#ifndef RS_CHECKPOINT_FORMAT_TORCH_VALUES_H
#define RS_CHECKPOINT_FORMAT_TORCH_VALUES_H

#include "base/arena.h"
#include "checkpoint/archive/pickle.h"

/* ---- dtypes ---------------------------------------------------------------------------------- */

/* "float32" for RESHARD_F32, as in `torch.float32`; NULL when torch has none. */
const char *rs_torch_dtype_name(reshard_dtype dtype);
/* "FloatStorage"; NULL for dtypes whose storages are untyped. */
const char *rs_torch_storage_name(reshard_dtype dtype);
/* From a name with or without "torch." in front. Errors: UNSUPPORTED, naming it. */
reshard_status rs_torch_dtype_parse(rs_slice name, reshard_dtype *out_dtype);
/* From the global torch.float32. Errors: UNSUPPORTED; CORRUPT when it is something else. */
reshard_status rs_torch_dtype_read(const rs_pickle_node *node, reshard_dtype *out_dtype);

/* ---- numbers --------------------------------------------------------------------------------- */

/* The numbers of a tuple, a list or a torch.Size(..), in the arena. Errors: CORRUPT for anything
 * else, and for numbers that are negative. */
reshard_status rs_torch_numbers(rs_arena *arena, const rs_pickle_node *node, int32_t *out_count,
                                const int64_t **out_numbers);

/* ---- storages -------------------------------------------------------------------------------- */

/* What a persistent id says: bytes that are kept beside the pickle under a key. */
typedef struct rs_torch_storage {
    rs_slice key;
    reshard_dtype dtype;   /* NONE: bytes without a type */
    int64_t element_bytes; /* 1 without a type */
    int64_t elements;
    /* legacy files: where this storage begins in the one of that key, in elements */
    int64_t view_at;
} rs_torch_storage;

/* Errors: CORRUPT for what is no reference to a storage; UNSUPPORTED for a dtype. */
reshard_status rs_torch_storage_read(const rs_pickle_node *node, rs_torch_storage *out_storage);

/* ---- tensors --------------------------------------------------------------------------------- */

typedef enum rs_torch_kind {
    RS_TORCH_VALUE,   /* no tensor: a number, a text, a container, an object */
    RS_TORCH_TENSOR,  /* one that is in the file, as a tensor or a parameter */
    RS_TORCH_DTENSOR, /* a local tensor with a mesh and placements */
    RS_TORCH_SHARDED, /* a ShardedTensor: local shards with offsets */
} rs_torch_kind;

/* What a node is, by the function or class it names. Says nothing about its arguments. */
rs_torch_kind rs_torch_kind_of(const rs_pickle_node *node);

/* A tensor that lies in a storage. All of it is inside the storage. */
typedef struct rs_torch_tensor {
    rs_torch_storage storage;
    uint64_t at; /* the byte of the storage's key where the first element lies */
    reshard_dtype dtype;
    int32_t ndim;
    const int64_t *shape;
    const int64_t *strides; /* in elements; NULL: dense and row-major */
} rs_torch_tensor;

/* Reads a node of kind TENSOR; shape and strides are in the arena. Errors: UNSUPPORTED for sparse,
 * quantised, meta and lazily conjugated tensors, by name; CORRUPT for arguments that make no
 * tensor, and for elements outside of the storage. */
reshard_status rs_torch_tensor_read(rs_arena *arena, const rs_pickle_node *node,
                                    rs_torch_tensor *out_tensor);

/* Whether a global is one that files of PyTorch have for good reason: those above, containers,
 * numbers and the like. inspect lists the others. */
bool rs_torch_global_is_known(const rs_pickle_global *global);

#endif
