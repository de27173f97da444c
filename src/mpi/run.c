/* SPDX-License-Identifier: Apache-2.0 */
/* run.c - runs a body on all ranks that mpirun started, for programs that are not linked with
 * MPI. */
#include <reshard/mpi_run.h>

#include "mpi/endpoint.h"

/* Initialises MPI unless the program has done so. *out_started tells whether it did. */
static reshard_status start_mpi(bool *out_started)
{
    int initialized = 0, finalized = 0, threads = 0;
    (void)MPI_Initialized(&initialized);
    (void)MPI_Finalized(&finalized);
    if (finalized)
        return rs_mpi_fail(RESHARD_ERR_INVALID, "MPI has been finalized, and cannot start again");
    *out_started = !initialized;
    /* Different threads may call a group, but only one at a time. */
    if (!initialized && MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, &threads) != MPI_SUCCESS)
        return rs_mpi_fail(RESHARD_ERR_GROUP_BROKEN, "MPI_Init_thread failed");
    /* MPICH reports errors of completed requests to this handler, whatever that of their
     * communicator is. */
    if (!initialized)
        (void)MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    return RESHARD_OK;
}

reshard_status reshard_mpi_run(reshard_context *context, reshard_rank_fn body, void *user)
{
    bool started = false;
    reshard_status status = start_mpi(&started);
    if (status != RESHARD_OK)
        return status;
    rs_mpi *endpoint = NULL;
    reshard_group *group = NULL;
    status = rs_mpi_open(context, MPI_COMM_WORLD, NULL, &endpoint, &group);
    reshard_group *before = reshard_group_retain(reshard_group_default());
    reshard_group_set_default(NULL);
    if (status == RESHARD_OK) {
        status = body(user, group);
        reshard_group_set_default(NULL); /* that of the body would hold the endpoint */
        status = rs_mpi_leave(endpoint, status);
    }
    reshard_group_set_default(before);
    reshard_group_release(before);
    reshard_group_release(group);
    if (started)
        (void)MPI_Finalize();
    return status;
}
