/* SPDX-License-Identifier: Apache-2.0 */
/*
 * partial.h - the folder beside the target that a conversion writes into, and its journal.
 *
 * What may be relied on after a crash at any point:
 *  1. The target's name does not exist before everything in it is on disk.
 *  2. A block that the journal calls done is on disk: files are synced before the line is written.
 *  3. The journal says which conversion it is of: another one does not go on with it.
 *
 * The journal is text: a line with a version, one with the digest of source, target and options and
 * the size of blocks, then "done FIRST COUNT" lines. A last line without its end is one that a
 * crash cut off, and does not count.
 */
#ifndef RS_CHECKPOINT_CONVERT_PARTIAL_H
#define RS_CHECKPOINT_CONVERT_PARTIAL_H

#include "base/file.h"

#include <stdatomic.h>

typedef struct rs_partial {
    reshard_context *context;
    char *path;         /* target.partial */
    const char *target; /* as given */
    rs_file *journal;
    uint64_t journal_bytes;
    bool resumed;
    bool complete; /* the folder has the target's name; only the journal is still in it */
    uint64_t digest[2];
    uint64_t thread_bytes; /* of the blocks it counts; 0 until known */
    char *text;            /* of the journal as found */
    size_t text_bytes;
} rs_partial;

/* Was the last conversion to `target` interrupted after it had given the name, so that the journal
 * is still in there? */
reshard_status rs_partial_is_complete(reshard_context *context, const char *target, bool *out_is);
/* Makes the folder and its journal, or with `resume` takes those of an interrupted conversion of
 * the same digest. release in any case. Errors: INVALID when something is in the way, with words
 * about what to do; IO. */
reshard_status rs_partial_init(rs_partial *partial, reshard_context *context, const char *target,
                               const uint64_t digest[2], bool resume);
/* The folder that another rank has made, to make files in it. release in any case. */
reshard_status rs_partial_enter(rs_partial *partial, reshard_context *context, const char *target);
/* Removes the folder and what is in it, as far as that goes. */
void rs_partial_discard(rs_partial *partial);
/* Closes; the folder stays as it is. */
void rs_partial_release(rs_partial *partial);

/* Opens the journal for blocks of this size: writes its head when it is new. */
reshard_status rs_partial_begin(rs_partial *partial, uint64_t thread_bytes);
/* Sets done[i] to 1 for each block that the journal calls done, and counts them. */
int64_t rs_partial_recall(const rs_partial *partial, int64_t block_count, atomic_uchar *done);
/* Appends runs of blocks whose done is 2, syncs the journal, and sets them to 3. */
reshard_status rs_partial_record(rs_partial *partial, int64_t block_count, atomic_uchar *done,
                                 bool sync);
/* A file in the folder: of exactly this size when it is taken over, else new. begun: an earlier run
 * has written to it; errors: INVALID when it is not as that run left it. like: a file whose blocks
 * it shall share if they can be, so that no room is asked for; its first 4096 bytes may then be
 * any. NULL: none. */
reshard_status rs_partial_file(rs_partial *partial, const char *name, uint64_t bytes, bool begun,
                               const rs_file *like, rs_file **out_file);
/* Removes the journal, makes all names last and gives the folder the target's name. */
reshard_status rs_partial_finish(rs_partial *partial, bool sync);

#endif
