/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.h - the folder that is written into, target.partial, until it gets the target's name.
 *
 *  1. After a crash at any point, also of the machine, the target's name does not exist, or
 *     everything in it is on disk and its journal says so.
 *  2. The folder holds what this conversion puts there and nothing else: a file that an earlier run
 *     left is taken over as its journal tells, or made anew, and a file of somebody else is an
 *     error.
 *
 * The order that this takes, each step on disk before the next:
 *
 *     folder, journal with its head | names of both | files | names of files | "finished" |
 *     the target's name | its mode | the journal goes
 */
#ifndef RS_CHECKPOINT_CONVERT_OUTPUT_H
#define RS_CHECKPOINT_CONVERT_OUTPUT_H

#include "checkpoint/convert/journal.h"

typedef struct rs_output {
    reshard_context *context;
    char *target; /* as given, without slashes at the end */
    char *path;   /* where the files are: target.partial, or the target itself */
    rs_journal journal;
    rs_names names; /* of the files that belong into the folder */
    bool resumed;
    bool named; /* the folder has the target's name already; it is finished */
} rs_output;

typedef enum rs_output_kind {
    RS_OUTPUT_OTHER,     /* nothing, or nothing that a conversion left */
    RS_OUTPUT_FINISHED,  /* complete: the run was interrupted before it removed the journal */
    RS_OUTPUT_UNFINISHED /* an unfinished folder that somebody gave the target's name */
} rs_output_kind;

/* What there is under the target's name. */
reshard_status rs_output_look(reshard_context *context, const char *target,
                              rs_output_kind *out_kind);
/* Makes the folder and its journal, or with `resume` takes those of an interrupted conversion of
 * the same digest. release in any case. Errors: UNFINISHED when an interrupted conversion is in the
 * way and resume is not asked for; INVALID for anything else in the way, with words about what to
 * do; IO. */
reshard_status rs_output_create(rs_output *output, reshard_context *context, const char *target,
                                const rs_journal_head *head, bool resume, bool sync);
/* The folder that another rank has made or taken, with the nonce of its journal. release in any
 * case. Errors: MISMATCH when the folder that this rank sees is another one. */
reshard_status rs_output_join(rs_output *output, reshard_context *context, const char *target,
                              bool named, uint64_t nonce);
/* Removes the folder and what is in it, as far as possible. */
void rs_output_discard(rs_output *output);
/* Closes; the folder stays as it is. */
void rs_output_release(rs_output *output);

/* A file of this name belongs into the folder, whoever makes it. */
reshard_status rs_output_expect(rs_output *output, const char *name);
/* Is there anything in the folder that does not belong there? all: is everything there that does?
 * Errors: INVALID, naming it. */
reshard_status rs_output_check_names(rs_output *output, bool all);

/* A file in the folder, of this size. begun: an earlier run has written to it, and it is taken
 * over; errors: INVALID when it is not as that run left it. Else it is new, and all zeros. like: a
 * file whose blocks it shall share if they can be, so that no room is asked for; its first 4096
 * bytes may then be any. NULL: none. */
reshard_status rs_output_file(rs_output *output, const char *name, uint64_t bytes, bool begun,
                              const rs_file *like, rs_file **out_file);
/* A file of the folder that is there already. For writing, unless it is a link to the source's or
 * the folder is finished. Errors: INVALID when its size is another one. */
reshard_status rs_output_open_file(const rs_output *output, const char *name, uint64_t bytes,
                                   rs_file **out_file);
/* Makes a file of the folder a link to another one, and opens it. Where links cannot be made
 * (across file systems, say) *out_file stays as it is. */
reshard_status rs_output_link(rs_output *output, const char *name, const rs_file *source,
                              rs_file **out_file);
/* Checks and makes durable all names, gives the folder the target's name, and removes the
 * journal. */
reshard_status rs_output_publish(rs_output *output, bool sync);

#endif
