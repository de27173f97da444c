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
/* What this process is about to do, a command's name. Ranks that were started for different jobs
 * refuse to begin. */
void cli_ranks_name_job(const char *name);
/* Runs the body on all ranks. Returns CLI_DONE, or prints a message and returns another code. Under
 * mpirun, only the first rank reports an error of the body; the others return CLI_DONE. A rank on
 * which the body cannot begin fails by itself, and mpirun ends the others, which wait for it. */
int cli_ranks_run(int32_t count, reshard_rank_fn body, void *user);
/* For work that ranks may share: under mpirun, runs the body with a group of all ranks; otherwise
 * runs it in this thread with a NULL group. Errors have the code CLI_FAILED, and their text begins
 * with "*path: " unless they are about this path or one inside of it; path and *path may be NULL,
 * and *path may change while the body runs. Otherwise like cli_ranks_run. */
int cli_ranks_share(reshard_rank_fn body, void *user, const char *const *path);
/* For a job that the first rank does for all: makes sure that every rank was started for it, since
 * those that share another one would wait for it for ever. Returns CLI_DONE, on the first rank only
 * if all were; otherwise it has said what is wrong. */
int cli_ranks_meet(const char *name);
/* Whether this process is the first rank, which prints for all. */
int cli_ranks_are_first(void);
/* This process's number; 0 without mpirun. */
int32_t cli_ranks_rank(void);
/* Whether the ranks are connected, so that errors reach all of them. Until then all ranks are
 * likely to find the same mistakes, and the first one reports them. */
int cli_ranks_are_connected(void);
/* For a rank that fails before the ranks are connected. Waits as long as mpirun may need to end the
 * job if the first rank has failed too. Returns 0 if a signal says so, and 1 if this rank is still
 * there: it has something to report that the first one does not know. */
int cli_ranks_outlive_first(void);
int cli_ranks_are_threads(void);
/* "threads" or "MPI". */
const char *cli_ranks_kind(void);

#endif
