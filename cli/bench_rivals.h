/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_rivals.h - other ways to do what a plan does, to measure reshard beside them in one run:
 * memcpy of as many bytes; MPI's own collectives, where ranks are MPI's; and an all-reduce written
 * by hand, where ranks are threads.
 */
#ifndef CLI_BENCH_RIVALS_H
#define CLI_BENCH_RIVALS_H

#include "bench_buffers.h"

typedef enum cli_rival_kind {
    CLI_RIVAL_MEMCPY,
    CLI_RIVAL_ALLTOALLW,
    CLI_RIVAL_ALLTOALLV,
    CLI_RIVAL_BY_HAND,
    CLI_RIVAL_COUNT
} cli_rival_kind;

/* "memcpy", "alltoallw", ... */
const char *cli_rival_name(cli_rival_kind kind);

/* What all ranks of one process know. */
typedef struct cli_rivals_shared {
    const float **sources; /* by rank */
    float **targets;
} cli_rivals_shared;

/* One rank's. */
typedef struct cli_rivals cli_rivals;

/* Collective. The buffers must live as long. */
reshard_status cli_rivals_create(cli_rivals_shared *shared, reshard_plan *plan,
                                 reshard_group *group, const cli_buffers *from,
                                 const cli_buffers *to, cli_rivals **out_rivals);
/* Collective. */
void cli_rivals_destroy(cli_rivals *rivals);
/* The same answer on all ranks. */
int cli_rivals_have(const cli_rivals *rivals, cli_rival_kind kind);
/* Collective. Fills the targets, with memcpy by anything. */
reshard_status cli_rivals_run(cli_rivals *rivals, cli_rival_kind kind);

#endif
