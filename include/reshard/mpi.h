/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi.h - groups whose ranks are those of an MPI communicator. It belongs to a separate library,
 * libreshard_mpi; neither reshard.h nor any other header includes it.
 *
 * Ranks on the same node see each other's memory if it came from the endpoint's share call; others
 * exchange messages of at most 1 GiB.
 *
 * A rank that fails tells the others; every call of every rank then returns
 * RESHARD_ERR_GROUP_BROKEN, and the error text says which rank failed and why. If a rank dies,
 * mpirun ends the job.
 */
#ifndef RESHARD_MPI_H
#define RESHARD_MPI_H

#include <mpi.h>
#include <reshard/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * A group over a communicator; everything else is in group.h.
 */

typedef struct reshard_mpi_options {
    size_t size; /* sizeof(reshard_mpi_options) */
    /* A rank that waits this long without completing any of its messages breaks the group and gets
     * RESHARD_ERR_TIMEOUT; 0: never. */
    double timeout_seconds;
} reshard_mpi_options;

/*
 * Makes a group of the ranks of `comm`, in its order. Collective over comm, which is duplicated, so
 * the caller may go on using it and free it. options NULL: all zero.
 *
 * The last release of the group on each rank, sub-groups included, is Collective too: it returns
 * when all ranks have reached theirs, or the group is broken. It must come before MPI_Finalize. A
 * broken group leaves its communicators and windows for MPI_Finalize to clean up.
 *
 * The group's own communicators return errors. But if a message is longer than its receiver
 * expects, MPICH calls the error handler of MPI_COMM_WORLD, which ends the job unless it is
 * MPI_ERRORS_RETURN.
 *
 * Only one thread at a time may call the group; if MPI was initialised with less than
 * MPI_THREAD_MULTIPLE, this includes calls of MPI itself. Errors, agreed by all ranks: INVALID,
 * NO_MEMORY, GROUP_BROKEN (MPI failed).
 */
RESHARD_API reshard_status reshard_group_from_mpi(reshard_context *context, MPI_Comm comm,
                                                  const reshard_mpi_options *options,
                                                  reshard_group **out_group);

#ifdef __cplusplus
}
#endif
#endif
