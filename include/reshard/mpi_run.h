/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi_run.h - runs a body on all ranks that mpirun started. It uses no MPI type, so a program that
 * is not linked with MPI can load libreshard_mpi at run time and look this call up by name,
 * "reshard_mpi_run". Load the library with RTLD_NOW | RTLD_GLOBAL, because MPI's own plugins look
 * for MPI's symbols. A program linked with libreshard.a must export its symbols (-rdynamic);
 * otherwise it and libreshard_mpi would each keep an error text of their own.
 */
#ifndef RESHARD_MPI_RUN_H
#define RESHARD_MPI_RUN_H

#include <reshard/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== advanced ===================================================================================
 * For programs that load libreshard_mpi only when they are started under mpirun, as the command
 * does.
 */

/*
 * Initialises MPI if necessary, runs `body` with the group of all ranks, and finalizes MPI if this
 * call initialised it. All ranks get the same status and error text: those of the first rank that
 * failed, after "rank r: ", or of the lowest if several failed before they heard of each other.
 * Collective over all ranks that mpirun started.
 */
RESHARD_API reshard_status reshard_mpi_run(reshard_context *context, reshard_rank_fn body,
                                           void *user);
/* The type of reshard_mpi_run, for dlsym. */
typedef reshard_status (*reshard_mpi_run_fn)(reshard_context *context, reshard_rank_fn body,
                                             void *user);

#ifdef __cplusplus
}
#endif
#endif
