/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi_rival.h - carries a plan out by MPI's own collectives, to compare reshard with. These calls
 * are in a separate library, libreshard_mpi_bench, which a program opens at run time to look up
 * BENCH_MPI_CALLS; so no MPI types appear here. For measurements only: nothing in reshard moves
 * data this way.
 */
#ifndef BENCH_MPI_RIVAL_H
#define BENCH_MPI_RIVAL_H

#include <reshard/plan.h>

typedef struct bench_mpi_rival bench_mpi_rival;

typedef enum bench_mpi_rival_kind {
    BENCH_MPI_ALLTOALLW, /* datatypes made of subarrays, one call, no copies of our own */
    BENCH_MPI_ALLTOALLV  /* packed, exchanged and unpacked; bytes that stay are copied directly */
} bench_mpi_rival_kind;

/* All calls are Collective over MPI_COMM_WORLD, whose ranks are those of the plan. */
typedef struct bench_mpi_calls {
    /* Binds the plan to buffers as reshard_exec_start takes them, which must outlive the rival.
     * Errors, agreed by all ranks: UNSUPPORTED if the plan is more than copies of one dtype in one
     * stage, or counts do not fit into MPI's int; NO_MEMORY; GROUP_BROKEN if MPI fails. */
    reshard_status (*create)(reshard_plan *plan, const void *const *sources, void *const *targets,
                             bench_mpi_rival **out_rival);
    /* Errors: GROUP_BROKEN. */
    reshard_status (*run)(bench_mpi_rival *rival, bench_mpi_rival_kind kind);
    void (*destroy)(bench_mpi_rival *rival);
} bench_mpi_calls;

#define BENCH_MPI_CALLS "bench_mpi_rival_calls"
RESHARD_API extern const bench_mpi_calls bench_mpi_rival_calls;

#endif
