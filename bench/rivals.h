/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rivals.h - other ways to do what a plan does, measured in the same run as reshard: memcpy and a
 * streaming copy of as many bytes; MPI's own collectives, if the ranks are MPI's; and an all-reduce
 * written by hand, if the ranks are threads.
 */
#ifndef BENCH_RIVALS_H
#define BENCH_RIVALS_H

#include "bench/common/buffers.h"

typedef enum bench_rival_kind {
    BENCH_RIVAL_MEMCPY,
    BENCH_RIVAL_STREAMING,
    BENCH_RIVAL_ALLTOALLW,
    BENCH_RIVAL_ALLTOALLV,
    BENCH_RIVAL_BY_HAND,
    BENCH_RIVAL_COUNT
} bench_rival_kind;

/* "memcpy", "streaming", "alltoallw", ... */
const char *bench_rival_name(bench_rival_kind kind);

/* Shared by all ranks of one process. */
typedef struct bench_rivals_shared {
    const float **sources; /* by rank */
    float **targets;
} bench_rivals_shared;

/* The rivals of one rank. */
typedef struct bench_rivals bench_rivals;

/* Collective. The buffers must outlive the rivals. */
reshard_status bench_rivals_create(bench_rivals_shared *shared, reshard_plan *plan,
                                   reshard_group *group, const bench_buffers *from,
                                   const bench_buffers *to, bench_rivals **out_rivals);
/* Collective. */
void bench_rivals_destroy(bench_rivals *rivals);
/* Whether this rival exists here; the same on all ranks. */
int bench_rivals_have(const bench_rivals *rivals, bench_rival_kind kind);
/* Whether it only copies as many bytes, without moving the right ones. */
int bench_rival_is_copy(bench_rival_kind kind);
/* Collective. Fills the targets; mere copies fill them with arbitrary bytes. */
reshard_status bench_rivals_run(bench_rivals *rivals, bench_rival_kind kind);

#endif
