/* SPDX-License-Identifier: Apache-2.0 */
/*
 * entry_sums.h - CRCs of the entries of target files, for formats that store them (archives).
 * Threads and ranks sum the ranges that they write, in any order, and the sums are combined at the
 * end. Bytes that an earlier run wrote, and zeros that nobody writes, are read back from the file.
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
    const rs_entry_range *ranges; /* sorted by file, then by place; not owned */
    rs_mutex mutex;               /* guards items while threads run */
    rs_zip_sum *items;            /* one for each range */
} rs_entry_sums;

/* The ranges must not overlap, and must outlive the sums. */
reshard_status rs_entry_sums_create(reshard_context *context, int64_t count,
                                    const rs_entry_range *ranges, rs_entry_sums **out_sums);
/* Takes NULL. */
void rs_entry_sums_destroy(rs_entry_sums *sums);
/* Adds bytes that are written at byte `at` of a file. They must lie within one entry and be added
 * only once. Any thread. */
void rs_entry_sums_add(rs_entry_sums *sums, int32_t file, const void *bytes, size_t count,
                       uint64_t at);
/* Gives every rank the combined sums of all ranks. Collective. */
reshard_status rs_entry_sums_merge(rs_entry_sums *sums, const rs_team *team);
/* Reads back the entries of which some bytes were not added. Errors: IO; CANCELLED. */
reshard_status rs_entry_sums_complete(rs_entry_sums *sums, rs_file *const *files);

#endif
