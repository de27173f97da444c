/* SPDX-License-Identifier: Apache-2.0 */
/*
 * output.h - the folder that is written into, target.partial, until it is renamed to the target.
 *
 *  1. After a crash at any point, even of the machine, either the target does not exist, or
 *     everything in it is on disk and its journal says so.
 *  2. The folder holds only what this conversion puts there: a file that an earlier run left is
 *     continued according to its journal, or created again, and anybody else's file is an error.
 *
 * The order of steps, each on disk before the next:
 *
 *     folder, journal with its head | names of both | files | names of files | "finished" |
 *     the target's name | its mode | removal of the journal
 *
 * If the target is one file, the folder holds it and the journal. At the end the file gets the
 * target's name, and the folder is removed; in between, a folder with nothing but a finished
 * journal is left.
 */
#ifndef RS_CHECKPOINT_CONVERT_OUTPUT_H
#define RS_CHECKPOINT_CONVERT_OUTPUT_H

#include "checkpoint/convert/journal.h"

typedef struct rs_output {
    reshard_context *context;
    char *target; /* as given, without trailing slashes */
    char *path;   /* where the files are: target.partial, or the target itself */
    rs_journal journal;
    rs_names names;       /* of the files that belong in the folder */
    const char *one_file; /* the target is this file of the folder; NULL: the folder */
    bool resumed;
    bool named; /* folder or file already has the target's name, and is finished */
} rs_output;

typedef enum rs_output_kind {
    RS_OUTPUT_OTHER,     /* nothing, or nothing that a conversion left */
    RS_OUTPUT_FINISHED,  /* complete: the run was interrupted before it removed the journal */
    RS_OUTPUT_UNFINISHED /* an unfinished folder that somebody renamed to the target */
} rs_output_kind;

/* Finds out what exists under the target's name. A file is finished if its folder is left. */
reshard_status rs_output_look(reshard_context *context, const char *target,
                              rs_output_kind *out_kind);
/* The path of the target's partial folder, to be released with strlen + 1. NULL: no memory. */
char *rs_output_partial(reshard_context *context, const char *target);
/* Fails as rs_output_create does without `resume` if the target's partial folder exists. */
reshard_status rs_output_check(reshard_context *context, const char *target);
/* one_file: the file that will be the target; NULL: the folder will. Must outlive the output.
 * Creates the folder and its journal or, with `resume`, takes over those of an interrupted
 * conversion with the same digest. Release in any case, even after an error. Errors: UNFINISHED if
 * an interrupted conversion is in the way and `resume` is not set; INVALID for anything else in the
 * way, with advice; IO. */
reshard_status rs_output_create(rs_output *output, reshard_context *context, const char *target,
                                const char *one_file, const rs_journal_head *head, bool resume,
                                bool sync);
/* Opens the folder that rank 0 has created or taken over, whose journal has this nonce. Release in
 * any case. Errors: MISMATCH if this rank sees a different folder. */
reshard_status rs_output_join(rs_output *output, reshard_context *context, const char *target,
                              const char *one_file, bool named, uint64_t nonce);
/* Removes the folder and what is in it, as far as possible. */
void rs_output_discard(rs_output *output);
/* Closes everything and leaves the folder as it is. */
void rs_output_release(rs_output *output);

/* Notes that a file of this name belongs in the folder, whoever creates it. */
reshard_status rs_output_expect(rs_output *output, const char *name);
/* Checks that the folder holds nothing else than the expected files and, with `all`, that none of
 * them is missing. Errors: INVALID, naming the file. */
reshard_status rs_output_check_names(rs_output *output, bool all);

/* Makes the names of all files durable, in the folder and in those that names lead through. */
reshard_status rs_output_sync(const rs_output *output);
/* Opens a file of this size in the folder. begun: an earlier run has written to it, so it is
 * continued; errors: INVALID if it is not as that run left it. Otherwise it is created, filled with
 * zeros. like: a file whose blocks it will share if possible, so that no space is allocated; its
 * first 4096 bytes are then undefined. May be NULL. */
reshard_status rs_output_file(rs_output *output, const char *name, uint64_t bytes, bool begun,
                              const rs_file *like, rs_file **out_file);
/* Opens an existing file of the folder: for writing, unless it is a link to the source's or the
 * folder is finished. Errors: INVALID if its size is different. */
reshard_status rs_output_open_file(const rs_output *output, const char *name, uint64_t bytes,
                                   rs_file **out_file);
/* Makes a file of the folder a link to another one, and opens it. If links cannot be made (for
 * example across file systems), *out_file does not change. */
reshard_status rs_output_link(rs_output *output, const char *name, const rs_file *source,
                              rs_file **out_file);
/* Checks all names and makes them durable, renames the folder to the target, and removes the
 * journal. */
reshard_status rs_output_publish(rs_output *output, bool sync);

#endif
