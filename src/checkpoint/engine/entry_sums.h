/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry_sums.h - CRCs of the entries of target files, for formats whose archives have them. They
 * are summed while ranges are written, in any order, by threads and ranks, and added up at the end.
 * What an earlier run wrote, and zeros that nobody writes, are read back.
 */
#ifndef RS_CHECKPOINT_ENGINE_ENTRY_SUMS_H
#define RS_CHECKPOINT_ENGINE_ENTRY_SUMS_H

#include "checkpoint/archive/zip_write.h"
#include "checkpoint/engine/team.h"
#include "system/thread.h"

/* Where an entry lies. */
typedef struct rs_entry_range {
    int32_t file;
    uint64_t at, bytes;
} rs_entry_range;

typedef struct rs_entry_sums {
    reshard_context *context;
    int64_t count;
    const rs_entry_range *ranges; /* by file, then by place; not owned */
    rs_mutex mutex;               /* guards items while threads run */
    rs_zip_sum *items;            /* of each range */
} rs_entry_sums;

/* Ranges do not overlap, and outlive the sums. */
reshard_status rs_entry_sums_create(reshard_context *context, int64_t count,
                                    const rs_entry_range *ranges, rs_entry_sums **out_sums);
/* Takes NULL. */
void rs_entry_sums_destroy(rs_entry_sums *sums);
/* Adds what is written at byte `at` of a file. It lies in one entry, and comes once. Any thread. */
void rs_entry_sums_add(rs_entry_sums *sums, int32_t file, const void *bytes, size_t count,
                       uint64_t at);
/* Adds the sums of all ranks to each rank's. Collective. */
reshard_status rs_entry_sums_merge(rs_entry_sums *sums, const rs_team *team);
/* Reads back the entries that did not all come by. Errors: IO; CANCELLED. */
reshard_status rs_entry_sums_complete(rs_entry_sums *sums, rs_file *const *files);

#endif
