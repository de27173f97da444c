/* SPDX-License-Identifier: Apache-2.0 */
/* live.h - what loading and saving have in common, and shards of one rank read from files. */
#ifndef RS_CHECKPOINT_LIVE_LIVE_H
#define RS_CHECKPOINT_LIVE_LIVE_H

#include <reshard/checkpoint_live.h>

#include "checkpoint/store/store.h"

#include <stdbool.h>

/* Checks that files can hold a tensor of this dtype, layout and ranks. Errors, naming it: INVALID,
 * UNSUPPORTED, RANGE. */
reshard_status rs_live_check(const reshard_live_tensor *tensor, const reshard_group *group);

/* How tensors are read into memory. */
typedef struct rs_live_reading {
    const reshard_checkpoint *checkpoint;
    rs_file *const *files; /* the checkpoint's */
    int32_t threads;       /* that read at most; 0: one */
    reshard_trace *trace;  /* NULL: nothing is recorded */
    int32_t trace_rank;    /* as a rank of all */
    bool reports;          /* progress, of all tensors together */
} rs_live_reading;

/* What is read of one tensor. */
typedef struct rs_live_item {
    const rs_stored_tensor *stored;
    const reshard_layout *layout; /* has the dims of the tensor */
    reshard_dtype dtype;          /* of the memory */
    void *const *memory;          /* of each shard of the rank */
} rs_live_item;

/* Reads all that a rank holds of each item. A layout may be larger than the tensor: what it has
 * beyond is zero. */
reshard_status rs_live_read_shards(const rs_live_reading *reading, int32_t rank, int64_t count,
                                   const rs_live_item *items);

#endif
