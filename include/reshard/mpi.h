/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi.h - groups whose ranks are those of an MPI communicator. In a library of its own,
 * libreshard_mpi; neither reshard.h nor any other header includes this one.
 *
 * Ranks on the same node see each other's memory where it came from the endpoint's share call;
 * others exchange messages of at most 1 GiB.
 *
 * A rank that fails tells the others, and all calls of all ranks then give RESHARD_ERR_GROUP_BROKEN
 * and say which rank failed and why. A rank that dies is MPI's matter: mpirun ends the job.
 */
#ifndef RESHARD_MPI_H
#define RESHARD_MPI_H

#include <mpi.h>
#include <reshard/group.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct reshard_mpi_options {
    size_t size; /* sizeof(reshard_mpi_options) */
    /* A rank that has waited this long without any message of its own coming to an end breaks the
     * group, and gets RESHARD_ERR_TIMEOUT; 0: never. */
    double timeout_seconds;
} reshard_mpi_options;

/*
 * A group of the ranks of `comm`, in its order. Collective over comm, which is duplicated, so it
 * may be used and freed at will. options NULL: defaults.
 *
 * The last release of the group on each rank, sub-groups included, is Collective too: it returns
 * when all ranks have come to theirs, or the group is broken. It has to come before MPI_Finalize.
 * What a broken group had of MPI (communicators, windows) is left for MPI_Finalize to clean up.
 *
 * The group's own communicators return errors. But MPICH calls the error handler of MPI_COMM_WORLD
 * when a message turns out to be longer than its receiver expects: unless that is
 * MPI_ERRORS_RETURN, such a mistake ends the job.
 *
 * Only one thread at a time may call the group, and MPI too when it was initialised with less than
 * MPI_THREAD_MULTIPLE. Errors: INVALID, NO_MEMORY, GROUP_BROKEN when MPI fails; all ranks agree.
 */
RESHARD_API reshard_status reshard_group_from_mpi(reshard_context *context, MPI_Comm comm,
                                                  const reshard_mpi_options *options,
                                                  reshard_group **out_group);

#ifdef __cplusplus
}
#endif
#endif
