/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.h - runs a body on ranks: threads of this process, or the processes that mpirun has
 * started. The MPI backend is a library of its own, which is loaded only then.
 */
#ifndef CLI_RANKS_H
#define CLI_RANKS_H

#include <reshard/reshard.h>

/* How many ranks there will be when `wanted` are needed: under mpirun as many as it has started. */
int32_t cli_ranks_count(int32_t wanted);
/* Returns CLI_DONE, or another code after a message. Under mpirun one rank alone does that, for
 * all: the others have then nothing to say, and return CLI_DONE. */
int cli_ranks_run(int32_t count, reshard_rank_fn body, void *user);
/* For work that ranks may share: runs the body with a group of all that mpirun has started, or,
 * without it, here and now with none. An error is reported behind "*subject: ", unless its words
 * name the subject, with CLI_FAILED; *subject may change while the body runs, and may be NULL.
 * find_hint, unless it is NULL, may give words to add for a status: the library does not know the
 * command's options. Otherwise as cli_ranks_run. */
int cli_ranks_share(reshard_rank_fn body, void *user, const char *const *subject,
                    const char *(*find_hint)(reshard_status status));
/* Whether this process speaks for all. */
int cli_ranks_are_first(void);
/* Whether it is for this process to say what is wrong: until ranks are connected all find the same
 * mistakes, and the first alone reports them and fails. */
int cli_ranks_may_fail(void);
int cli_ranks_are_threads(void);
/* "threads" or "MPI". */
const char *cli_ranks_kind(void);

#endif
