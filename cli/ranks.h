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
/* Returns CLI_DONE, or another code after a message, which under mpirun one rank alone prints. */
int cli_ranks_run(int32_t count, reshard_rank_fn body, void *user);
/* A call of the MPI backend by its name, while a body runs; NULL when ranks are threads, or the
 * backend lacks it. */
void *cli_ranks_find(const char *name);
/* Whether this process speaks for all. */
int cli_ranks_are_first(void);
int cli_ranks_are_threads(void);
/* "threads" or "MPI". */
const char *cli_ranks_kind(void);

#endif
