/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi_run.h - runs a body on all ranks that mpirun has started, without a type of MPI in sight: a
 * program that is not linked with MPI may load libreshard_mpi and look this call up by its name,
 * "reshard_mpi_run". Load with RTLD_NOW | RTLD_GLOBAL, because MPI's own plugins look for MPI's
 * symbols. A program that is linked with libreshard.a must export its symbols (-rdynamic), or it
 * and libreshard_mpi would have an error text each.
 */
#ifndef RESHARD_MPI_RUN_H
#define RESHARD_MPI_RUN_H

#include <reshard/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/*
 * Initialises MPI unless that is done, runs `body` with the group of all ranks, and finalizes MPI
 * if it had initialised it. All ranks get the same status and text: those of the rank that failed
 * first, behind "rank r: ". If several failed before they heard of each other, the lowest counts.
 * Collective over all ranks that mpirun has started.
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
