/* SPDX-License-Identifier: Apache-2.0 */
/* live.h - what loading and saving share, and reading one rank's shards from files. */
#ifndef RS_CHECKPOINT_LIVE_LIVE_H
#define RS_CHECKPOINT_LIVE_LIVE_H

#include <reshard/checkpoint_live.h>

#include "checkpoint/store/store.h"

#include <stdbool.h>

/* Checks that files can hold a tensor of this dtype and layout, that the group has its ranks, and
 * that this rank's shards have memory. Errors, naming the tensor: INVALID, UNSUPPORTED, RANGE. */
reshard_status rs_live_check(const reshard_live_tensor *tensor, const reshard_group *group);
/* Refuses a negative number of tensors. */
reshard_status rs_live_check_count(int64_t count);

/* Checks that all shards of a rank have memory, unless they are empty. Errors: INVALID. */
reshard_status rs_live_check_memory(rs_slice name, const reshard_layout *layout, int32_t rank,
                                    void *const *memory);

/* How tensors are read into memory. */
typedef struct rs_live_reading {
    const reshard_checkpoint *checkpoint;
    rs_file *const *files; /* the checkpoint's files */
    int32_t threads;       /* most threads that read; 0: one */
    reshard_trace *trace;  /* may be NULL */
    int32_t trace_rank;    /* this rank's number in the trace */
    bool reports;          /* report progress, over all tensors */
    uint64_t *overflowed;  /* values that a cast makes infinite or NaN are added; may be NULL */
} rs_live_reading;

/* What to read of one tensor. */
typedef struct rs_live_item {
    const rs_stored_tensor *stored;
    const reshard_layout *layout; /* has as many dims as the tensor */
    reshard_dtype dtype;          /* of the memory */
    void *const *memory;          /* one for each shard of the rank */
} rs_live_item;

/* Reads all shards of a rank, for each item. A layout may be larger than its tensor: memory beyond
 * the tensor is set to zero. */
reshard_status rs_live_read_shards(const rs_live_reading *reading, int32_t rank, int64_t count,
                                   const rs_live_item *items);

#endif
