/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_metadata.h - what the pickle `.metadata` of PyTorch's distributed checkpoints says: which
 * tensors there are, the chunks of each, and in which file each chunk is. The classes have had
 * several homes in the course of time, and fields came and went; they are known by their names.
 *
 * Metadata(state_dict_metadata: {name: TensorStorageMetadata | BytesStorageMetadata},
 *          storage_data: {MetadataIndex(fqn, offset): _StorageInfo(relative_path, offset, length)},
 *          planner_data: None | {name: the keys on the way to it}, ..)
 */
#ifndef RS_CHECKPOINT_FORMAT_DCP_METADATA_H
#define RS_CHECKPOINT_FORMAT_DCP_METADATA_H

#include "checkpoint/archive/pickle.h"
#include "checkpoint/store/store.h"

/* A box of a tensor. */
typedef struct rs_dcp_chunk {
    const int64_t *offset, *size;
} rs_dcp_chunk;

typedef struct rs_dcp_tensor {
    rs_slice name;
    rs_value_place place;
    reshard_dtype dtype; /* NONE: bytes, which are no tensor */
    int32_t ndim;
    const int64_t *shape;
    int64_t chunk_count;
    const rs_dcp_chunk *chunks;
} rs_dcp_tensor;

/* Where a chunk, or bytes, are stored. */
typedef struct rs_dcp_entry {
    rs_slice name;
    int32_t ndim; /* -1: bytes */
    const int64_t *offset;
    int32_t file; /* of the metadata's files */
    uint64_t at, bytes;
    bool is_zstd;
    bool is_used; /* some chunk or value is it */
} rs_dcp_entry;

typedef struct rs_dcp_metadata {
    const char *version; /* "1.0.0"; NULL: it does not say */
    int64_t tensor_count;
    rs_dcp_tensor *tensors; /* by name */
    int64_t entry_count;
    rs_dcp_entry *entries; /* by name, then by offset */
    int64_t file_count;
    const char **files; /* within the folder, by the numbers in their names */
    int64_t next;       /* the entry after the one that was used last */
} rs_dcp_metadata;

/* Reads the pickle that begins the bytes. Everything *out_metadata points to is in the arena;
 * `what` names the pickle in errors. Errors: as rs_pickle_read; CORRUPT, also for files outside of
 * the folder; UNSUPPORTED for classes, layouts, dtypes and transforms that are not read, by name;
 * RANGE when values are shared so often that they would take much more room than the pickle. */
reshard_status rs_dcp_metadata_read(rs_arena *arena, const char *what, const char *bytes,
                                    size_t count, rs_dcp_metadata *out_metadata);
/* The entry of a chunk (ndim -1: of bytes), which is marked as used; or NULL. */
const rs_dcp_entry *rs_dcp_metadata_use(rs_dcp_metadata *metadata, rs_slice name, int32_t ndim,
                                        const int64_t *offset);
/* Orders names of files by the numbers in them. */
int rs_dcp_file_compare(const char *a, const char *b);

#endif
