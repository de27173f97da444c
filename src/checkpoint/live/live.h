/* SPDX-License-Identifier: Apache-2.0 */
/* live.h - what loading and saving have in common, and shards of one rank read from files. */
#ifndef RS_CHECKPOINT_LIVE_LIVE_H
#define RS_CHECKPOINT_LIVE_LIVE_H

#include <reshard/checkpoint_live.h>

#include "checkpoint/store/store.h"

/* Checks that files can hold a tensor of this dtype, layout and ranks. Errors, naming it: INVALID,
 * UNSUPPORTED, RANGE. */
reshard_status rs_live_check(const reshard_live_tensor *tensor, const reshard_group *group);

/* A stored tensor that is to be read into memory. */
typedef struct rs_live_reading {
    const reshard_checkpoint *checkpoint;
    const rs_stored_tensor *stored;
    rs_file *const *files; /* the checkpoint's */
    reshard_dtype dtype;   /* of the memory */
    int32_t threads;       /* that read at most; 0: one */
    reshard_trace *trace;  /* NULL: nothing is recorded */
    int32_t trace_rank;    /* as a rank of all */
} rs_live_reading;

/* Reads all that a rank holds of a layout, whose dims are those of the tensor. What the layout has
 * beyond the tensor's shape is left alone. */
reshard_status rs_live_read_shards(const rs_live_reading *reading, const reshard_layout *layout,
                                   int32_t rank, void *const *memory);

#endif
