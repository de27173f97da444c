/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi_bench.h - what MPI's own collectives make of a plan, to measure reshard beside. Without a
 * type of MPI in sight, so that a program that has loaded libreshard_mpi (mpi_run.h) can look these
 * calls up by their names. For measuring only: nothing in reshard uses it to move data.
 */
#ifndef RESHARD_MPI_BENCH_H
#define RESHARD_MPI_BENCH_H

#include <reshard/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct reshard_mpi_rival reshard_mpi_rival;

typedef enum reshard_mpi_rival_kind {
    RESHARD_MPI_ALLTOALLW, /* datatypes made of subarrays, one call, no copy of our own */
    RESHARD_MPI_ALLTOALLV  /* packed, exchanged and unpacked; what stays is copied directly */
} reshard_mpi_rival_kind;

/*
 * Binds the plan to buffers as reshard_exec_start takes them, which must live as long. Collective
 * over MPI_COMM_WORLD, whose ranks are those of the plan. Errors, agreed by all ranks: UNSUPPORTED
 * when the plan is more than copies between two layouts of one dtype in one stage, or counts do not
 * fit into MPI's int; NO_MEMORY; GROUP_BROKEN when MPI fails.
 */
RESHARD_API reshard_status reshard_mpi_rival_create(reshard_plan *plan, const void *const *sources,
                                                    void *const *targets,
                                                    reshard_mpi_rival **out_rival);
/* Collective over the same. Errors: GROUP_BROKEN. */
RESHARD_API reshard_status reshard_mpi_rival_run(reshard_mpi_rival *rival,
                                                 reshard_mpi_rival_kind kind);
/* Collective over the same. */
RESHARD_API void reshard_mpi_rival_destroy(reshard_mpi_rival *rival);

/* Their types, for dlsym. */
typedef reshard_status (*reshard_mpi_rival_create_fn)(reshard_plan *plan,
                                                      const void *const *sources,
                                                      void *const *targets,
                                                      reshard_mpi_rival **out_rival);
typedef reshard_status (*reshard_mpi_rival_run_fn)(reshard_mpi_rival *rival,
                                                   reshard_mpi_rival_kind kind);
typedef void (*reshard_mpi_rival_destroy_fn)(reshard_mpi_rival *rival);

#ifdef __cplusplus
}
#endif
#endif
