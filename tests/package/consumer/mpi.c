/* SPDX-License-Identifier: Apache-2.0 */
/* A user of the MPI backend. It is compiled and linked only: what runs is in tests/mpi/. */
#include <reshard/mpi.h>
#include <reshard/mpi_run.h>

static reshard_status body(void *user, reshard_group *group)
{
    reshard_group *again = NULL;
    reshard_status status = reshard_group_from_mpi(user, MPI_COMM_WORLD, NULL, &again);
    reshard_group_release(again);
    return status == RESHARD_OK ? reshard_group_barrier(group) : status;
}

int main(void)
{
    return reshard_mpi_run(NULL, body, NULL) != RESHARD_OK;
}
