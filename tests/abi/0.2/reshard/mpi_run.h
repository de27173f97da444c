/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi_run.h - runs a body on all ranks that mpirun started, without using any MPI type: a program
 * that is not linked with MPI can load libreshard_mpi and look this call up by name,
 * "reshard_mpi_run". Load it with RTLD_NOW | RTLD_GLOBAL, because MPI's own plugins look for MPI's
 * symbols. A program linked with libreshard.a must export its symbols (-rdynamic); otherwise it and
 * libreshard_mpi would each have an error text of their own.
 */
#ifndef RESHARD_MPI_RUN_H
#define RESHARD_MPI_RUN_H

#include <reshard/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Initialises MPI if necessary, runs `body` with the group of all ranks, and finalizes MPI if this
 * call initialised it. All ranks get the same status and text: those of the first rank to fail,
 * after "rank r: ". If several failed before they heard of each other, the lowest rank counts.
 * Collective over all ranks that mpirun started.
 */
RESHARD_API reshard_status reshard_mpi_run(reshard_context *context, reshard_rank_fn body,
                                           void *user);
/* Its type, for dlsym. */
typedef reshard_status (*reshard_mpi_run_fn)(reshard_context *context, reshard_rank_fn body,
                                             void *user);

#ifdef __cplusplus
}
#endif
#endif
