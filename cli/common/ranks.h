/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.h - runs a body on ranks: threads of this process, or the processes that mpirun has
 * started. The MPI backend is a library of its own, which is loaded only then.
 */
#ifndef CLI_RANKS_H
#define CLI_RANKS_H

#include <reshard/reshard.h>

/* How many ranks there will be: under mpirun as many as it started, otherwise `wanted`. */
int32_t cli_ranks_count(int32_t wanted);
/* Runs the body on all ranks. Returns CLI_DONE, or prints a message and returns another code. Under
 * mpirun, only the first rank reports an error of the body; the others return CLI_DONE. */
int cli_ranks_run(int32_t count, reshard_rank_fn body, void *user);
/* For work that ranks may share: under mpirun, runs the body with a group of all ranks; otherwise
 * runs it in this thread with a NULL group. Errors have the code CLI_FAILED, and their text begins
 * with "*subject: " unless it already names the subject; *subject may be NULL, and may change while
 * the body runs. find_hint (may be NULL) returns text to add for a status, or NULL, because the
 * library does not know the command's options. Otherwise like cli_ranks_run. */
int cli_ranks_share(reshard_rank_fn body, void *user, const char *const *subject,
                    const char *(*find_hint)(reshard_status status));
/* Whether this process is the first rank, which prints for all. */
int cli_ranks_are_first(void);
/* Whether this process may report errors. Until the ranks are connected, all find the same
 * mistakes, and only the first one reports them and fails. */
int cli_ranks_may_fail(void);
int cli_ranks_are_threads(void);
/* "threads" or "MPI". */
const char *cli_ranks_kind(void);

#endif
