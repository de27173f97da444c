/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_metadata.h - reads `.metadata`, the pickle of PyTorch's distributed checkpoints: which
 * tensors there are, the chunks of each, and which file each chunk is in. The classes have lived in
 * several modules over time, and fields came and went; both are recognised by name.
 *
 * Metadata(state_dict_metadata: {name: TensorStorageMetadata | BytesStorageMetadata},
 *          storage_data: {MetadataIndex(fqn, offset): _StorageInfo(relative_path, offset, length)},
 *          planner_data: None | {name: tuple of the keys that lead to it}, ..)
 */
#ifndef RS_CHECKPOINT_DCP_DCP_METADATA_H
#define RS_CHECKPOINT_DCP_DCP_METADATA_H

#include "checkpoint/archive/pickle.h"
#include "checkpoint/store/store.h"

/* A box of a tensor. */
typedef struct rs_dcp_chunk {
    const int64_t *offset, *size;
} rs_dcp_chunk;

typedef struct rs_dcp_tensor {
    rs_slice name;
    rs_value_place place;
    reshard_dtype dtype; /* NONE: a byte entry, not a tensor */
    int32_t ndim;
    const int64_t *shape;
    int64_t chunk_count;
    const rs_dcp_chunk *chunks;
    const char *unreadable; /* why it cannot be read (dtype is NONE then); NULL: it can */
} rs_dcp_tensor;

/* Where a chunk, or a byte entry, is stored. */
typedef struct rs_dcp_entry {
    rs_slice name;
    int32_t ndim; /* -1: a byte entry */
    const int64_t *offset;
    int32_t file; /* index into the metadata's files */
    uint64_t at, bytes;
    bool is_zstd;
    bool is_used; /* some chunk or value uses it */
} rs_dcp_entry;

typedef struct rs_dcp_metadata {
    const char *version; /* "1.0.0"; NULL: not given */
    int64_t tensor_count;
    rs_dcp_tensor *tensors; /* sorted by name */
    int64_t entry_count;
    rs_dcp_entry *entries; /* sorted by name, then by offset */
    int64_t file_count;
    const char **files; /* paths within the folder, sorted by the numbers in them */
    int64_t next;       /* the entry after the one used last */
} rs_dcp_metadata;

/* Reads the pickle at the front of the bytes. Everything *out_metadata points to is in the arena;
 * `what` names the pickle in errors. Errors: as rs_pickle_read; CORRUPT, also for files outside the
 * folder; UNSUPPORTED, by name, for classes and transforms that are not read;
 * RANGE if values are shared so often that they would take much more room than the pickle. */
reshard_status rs_dcp_metadata_read(rs_arena *arena, const char *what, const char *bytes,
                                    size_t count, rs_dcp_metadata *out_metadata);
/* Finds the entry of a chunk (ndim -1: a byte entry) and marks it as used; NULL if there is
 * none. */
const rs_dcp_entry *rs_dcp_metadata_use(rs_dcp_metadata *metadata, rs_slice name, int32_t ndim,
                                        const int64_t *offset);
/* Compares file names by the numbers in them. */
int rs_dcp_file_compare(const char *a, const char *b);

#endif
