/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mpi_large.c - what does not fit into 32 bits, between two processes. RESHARD_TEST_BIG as in
 * exec_large.c.
 */
#include "tests/support/harness.h"
#include "tests/support/large.h"

#include <reshard/mpi.h>
#include <reshard/mpi_run.h>

#include <stdio.h>

int main(int argument_count, char **arguments)
{
    int rank = 0, threads = 0, wrong = 0;
    MPI_Init_thread(&argument_count, &arguments, MPI_THREAD_SERIALIZED, &threads);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int i = 0; i < 6; i++) {
        large l = {.kind = (large_kind)(i / 2), .wide = i % 2};
        l.real_targets = large_is_wanted_real();
        if (l.kind == LARGE_EXCHANGE && (l.wide || harness_scale() < 1))
            continue; /* sanitizers take long over gigabytes */
        double began = MPI_Wtime();
        reshard_status status = reshard_mpi_run(NULL, large_run_rank, &l);
        if (rank == 0)
            printf("case %d: %.3f s %s\n", i, MPI_Wtime() - began,
                   status != RESHARD_OK ? reshard_error_text() : "");
        wrong += status != RESHARD_OK; /* the same on all ranks */
    }
    MPI_Finalize();
    return wrong != 0;
}
