/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.h - the folder beside the target that is written into, target.partial, until it gets the
 * target's name.
 *
 * After a crash at any point the target's name does not exist, or everything in it is on disk.
 */
#ifndef RS_CHECKPOINT_CONVERT_OUTPUT_H
#define RS_CHECKPOINT_CONVERT_OUTPUT_H

#include "checkpoint/convert/journal.h"

typedef struct rs_output {
    reshard_context *context;
    char *path;   /* target.partial */
    char *target; /* as given, without slashes at the end */
    rs_journal journal;
    bool resumed;
    bool complete; /* the folder has the target's name; only the journal is still in it */
} rs_output;

/* Was the last conversion to `target` interrupted after it had given the name, so that the journal
 * is still in there? */
reshard_status rs_output_is_complete(reshard_context *context, const char *target, bool *out_is);
/* Makes the folder and its journal, or with `resume` takes those of an interrupted conversion of
 * the same digest. release in any case. Errors: UNFINISHED when an interrupted conversion is in the
 * way and resume is not asked for; INVALID for anything else in the way, with words about what to
 * do; IO. */
reshard_status rs_output_create(rs_output *output, reshard_context *context, const char *target,
                                const uint64_t digest[2], bool resume);
/* The folder that another rank has made, to make files in it. release in any case. */
reshard_status rs_output_enter(rs_output *output, reshard_context *context, const char *target);
/* Removes the folder and what is in it, as far as possible. */
void rs_output_discard(rs_output *output);
/* Closes; the folder stays as it is. */
void rs_output_release(rs_output *output);

/* A file in the folder: of exactly this size when it is taken over, else new. begun: an earlier run
 * has written to it; errors: INVALID when it is not as that run left it. like: a file whose blocks
 * it shall share if they can be, so that no room is asked for; its first 4096 bytes may then be
 * any. NULL: none. */
reshard_status rs_output_file(const rs_output *output, const char *name, uint64_t bytes, bool begun,
                              const rs_file *like, rs_file **out_file);
/* A file of the folder that is there already, for writing; a link to the source's is opened for
 * reading only. */
reshard_status rs_output_open_file(const rs_output *output, const char *name, rs_file **out_file);
/* Makes a file of the folder a link to another one, and opens it. Where links cannot be made
 * (across file systems, say) *out_file stays as it is. */
reshard_status rs_output_link(const rs_output *output, const char *name, const rs_file *source,
                              rs_file **out_file);
/* Makes all names durable, gives the folder the target's name, and removes the journal. */
reshard_status rs_output_publish(rs_output *output, bool sync);

#endif
