/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_reading.h - state shared by the sources that read a `.metadata`. There may be a million
 * chunks and entries, so they are taken out of the pickle in batches while it is read. Names, files
 * and offsets repeat, and each is kept once.
 */
#ifndef RS_CHECKPOINT_DCP_DCP_READING_H
#define RS_CHECKPOINT_DCP_DCP_READING_H

#include "base/intern.h"
#include "checkpoint/dcp/dcp_metadata.h"

/* A batch of chunks that was taken from a list. */
typedef struct rs_dcp_batch {
    uint32_t list; /* the list, by `at` of its node */
    int32_t ndim;
    int64_t first, count;
} rs_dcp_batch;

/* An entry of storage_data. Name and file are numbers in `names` and `files`. */
typedef struct rs_dcp_found {
    int32_t name, file;
    int32_t ndim; /* -1: a byte entry */
    bool is_zstd;
    const int64_t *offset;
    uint64_t at, bytes;
} rs_dcp_found;

typedef struct rs_dcp_reading {
    rs_arena *arena;
    rs_dcp_metadata made;
    rs_pickle_index paths; /* planner_data, by name */
    uint64_t left;         /* budget of text bytes and numbers that may still be copied */
    rs_intern names, files, rows;
    /* The globals of these classes, as last seen. */
    const rs_pickle_node *chunk_class, *index_class, *info_class, *size_class;
    int64_t batch_count, batch_capacity;
    rs_dcp_batch *batches; /* sorted by list */
    int64_t chunk_count, chunk_capacity;
    rs_dcp_chunk *chunks;
    uint32_t dict; /* the dict that entries were taken from, by `at` of its node; 0: none */
    int64_t found_count, found_capacity;
    rs_dcp_found *found;
} rs_dcp_reading;

/* ---- objects (dcp_objects.c) ----------------------------------------------------------------- */

/* Spends from `left`. Shared nodes are copied each time, so a small pickle could stand for a huge
 * list. Errors: RANGE once much more was spent than the pickle has bytes. */
reshard_status rs_dcp_spend(rs_dcp_reading *r, uint64_t amount);
/* Is it an object of a class of PyTorch or Megatron with this name? */
bool rs_dcp_is_of(const rs_pickle_node *node, const char *name);
/* Likewise, for a class with many objects: *known caches the global that was found to be the
 * class. */
bool rs_dcp_is_again(const rs_pickle_node *node, const char *name, const rs_pickle_node **known);
/* A field of an object; NULL if it is absent, which means the class's default. */
const rs_pickle_node *rs_dcp_field(const rs_pickle_node *object, const char *name);
/* Fails because `node` is not what is wanted. */
reshard_status rs_dcp_fail_kind(const rs_pickle_node *node, const char *wanted);
/* Copies a text into the arena, followed by a NUL. */
reshard_status rs_dcp_copy_text(rs_dcp_reading *r, rs_slice text, rs_slice *out_copy);
/* Like rs_torch_numbers; equal rows share their memory. */
reshard_status rs_dcp_copy_numbers(rs_dcp_reading *r, const rs_pickle_node *node,
                                   int32_t *out_count, const int64_t **out_numbers);

/* ---- storage_data (dcp_places.c) ------------------------------------------------------------- */

/* Adds one pair of storage_data to `found`. Errors: CORRUPT, UNSUPPORTED, RANGE. */
reshard_status rs_dcp_find_entry(rs_dcp_reading *r, const rs_pickle_node *key,
                                 const rs_pickle_node *info);
/* Reads the rest of storage_data, adds what was taken from it, and fills in the sorted entries and
 * the files. */
reshard_status rs_dcp_read_entries(rs_dcp_reading *r, const rs_pickle_node *dict);

#endif
