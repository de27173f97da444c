/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_reading.h - what the files that read a `.metadata` share. Chunks and entries, of which there
 * may be a million, are taken out of the pickle in batches while it is read; what a batch had of
 * names, files and offsets is mostly kept already.
 */
#ifndef RS_CHECKPOINT_TORCH_DCP_READING_H
#define RS_CHECKPOINT_TORCH_DCP_READING_H

#include "base/intern.h"
#include "checkpoint/torch/dcp_metadata.h"

/* Chunks that were taken from a list. */
typedef struct rs_dcp_batch {
    uint32_t list; /* `at` of its node */
    int32_t ndim;
    int64_t first, count;
} rs_dcp_batch;

/* An entry as it was found: names and files by their numbers in `names` and `files`. */
typedef struct rs_dcp_found {
    int32_t name, file;
    int32_t ndim; /* -1: bytes */
    bool is_zstd;
    const int64_t *offset;
    uint64_t at, bytes;
} rs_dcp_found;

typedef struct rs_dcp_reading {
    rs_arena *arena;
    rs_dcp_metadata made;
    rs_pickle_index paths; /* planner_data, by name */
    uint64_t left;         /* bytes of texts, and numbers, that may still be copied */
    rs_intern names, files, rows;
    /* as they were met last */
    const rs_pickle_node *chunk_class, *index_class, *info_class, *size_class;
    int64_t batch_count, batch_capacity;
    rs_dcp_batch *batches; /* by list */
    int64_t chunk_count, chunk_capacity;
    rs_dcp_chunk *chunks;
    uint32_t dict; /* `at` of the dict that entries were taken from; 0: none were */
    int64_t found_count, found_capacity;
    rs_dcp_found *found;
} rs_dcp_reading;

/* ---- objects (dcp_objects.c) ----------------------------------------------------------------- */

/* A node that is shared is copied each time: a small pickle could stand for a huge list. Errors:
 * RANGE when much more was spent than the pickle has bytes. */
reshard_status rs_dcp_spend(rs_dcp_reading *r, uint64_t amount);
/* Is it an object of this class, of PyTorch or Megatron? */
bool rs_dcp_is_of(const rs_pickle_node *node, const char *name);
/* Likewise, for a class of which there are many objects: *known is the global that was found to be
 * it last time. */
bool rs_dcp_is_again(const rs_pickle_node *node, const char *name, const rs_pickle_node **known);
/* A field of an object; NULL when it is absent, so that the class's default counts. */
const rs_pickle_node *rs_dcp_field(const rs_pickle_node *object, const char *name);
/* `node` is not what it should be. */
reshard_status rs_dcp_fail_kind(const rs_pickle_node *node, const char *wanted);
/* Into the arena, with a NUL behind it. */
reshard_status rs_dcp_copy_text(rs_dcp_reading *r, rs_slice text, rs_slice *out_copy);
/* As rs_torch_numbers. */
reshard_status rs_dcp_copy_numbers(rs_dcp_reading *r, const rs_pickle_node *node,
                                   int32_t *out_count, const int64_t **out_numbers);

/* ---- storage_data (dcp_places.c) ------------------------------------------------------------- */

/* Adds one pair of storage_data to what was found. Errors: CORRUPT, UNSUPPORTED, RANGE. */
reshard_status rs_dcp_find_entry(rs_dcp_reading *r, const rs_pickle_node *key,
                                 const rs_pickle_node *info);
/* All of storage_data, with what was taken from it: entries in their order, and files. */
reshard_status rs_dcp_read_entries(rs_dcp_reading *r, const rs_pickle_node *dict);

#endif
