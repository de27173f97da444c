/* SPDX-License-Identifier: Apache-2.0 */
/* rank_arrays.h - the local arrays of one tensor in rank files: which rank has which. */
#ifndef RS_CHECKPOINT_FORMAT_RANK_ARRAYS_H
#define RS_CHECKPOINT_FORMAT_RANK_ARRAYS_H

#include "checkpoint/store/store.h"

typedef struct rs_rank_arrays {
    const rs_occurrence *items; /* sorted by file */
    int64_t count;
    const int32_t *file_of;  /* by position in the mesh: the rank's file, or its group of files */
    const int32_t *group_of; /* by file: its group; NULL: each rank has one file */
} rs_rank_arrays;

/* The array of the rank at a position; NULL: it has none. */
const rs_occurrence *rs_rank_array_at(const rs_rank_arrays *arrays, int32_t position);
/* Checks that there is at most one for each rank, and that all agree on what the whole tensor is.
 * Errors: CORRUPT. */
reshard_status rs_rank_arrays_check(const reshard_checkpoint *checkpoint,
                                    const rs_rank_arrays *arrays);

#endif
