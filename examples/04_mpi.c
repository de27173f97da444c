/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 04_mpi.c - introduces MPI: the ranks of a program take a matrix from a split by rows to columns,
 * and then continue with MPI as before. Works with any number of ranks that divides 12:
 *
 *     mpirun -n 3 04_mpi
 */
#include <reshard/mpi.h>
#include <reshard/reshard.h>

#include "examples/example.h"

enum { ROWS = 12, COLUMNS = 24 };

static int32_t rows[ROWS * COLUMNS], columns[ROWS * COLUMNS]; /* enough for a single rank */

static reshard_status turn(reshard_group *group, reshard_layout *from, reshard_layout *to)
{
    reshard_status status = RESHARD_OK;
    reshard_plan *plan = NULL;
    reshard_exec *exec = NULL;
    TRY(reshard_plan_create_simple(NULL, from, to, RESHARD_I32, NULL, &plan));
    TRY(reshard_exec_create(NULL, plan, group, NULL, &exec));
    TRY(reshard_exec_start(exec, (const void *[]){rows}, (void *[]){columns}));
    TRY(reshard_exec_wait(exec));
out:
    reshard_exec_destroy(exec);
    reshard_plan_release(plan);
    return status;
}

int main(int argument_count, char **arguments)
{
    int rank, size, wrong = 0;
    MPI_Init(&argument_count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const int height = ROWS / size, width = COLUMNS / size;
    for (int i = 0; i < height * COLUMNS; i++) /* every element holds its index */
        rows[i] = rank * height * COLUMNS + i;

    int64_t shape[] = {ROWS, COLUMNS};
    char by_rows[32], by_columns[32];
    (void)snprintf(by_rows, sizeof by_rows, "%d: S(0)", size);
    (void)snprintf(by_columns, sizeof by_columns, "%d: S(1)", size);
    reshard_group *group = NULL;
    reshard_layout *from = NULL, *to = NULL;
    int failed = reshard_group_from_mpi(NULL, MPI_COMM_WORLD, NULL, &group) ||
                 reshard_layout_parse(NULL, by_rows, 2, shape, &from) ||
                 reshard_layout_parse(NULL, by_columns, 2, shape, &to) || turn(group, from, to);
    if (failed)
        fprintf(stderr, "rank %d: %s\n", rank, reshard_error_text());
    reshard_layout_release(to);
    reshard_layout_release(from);
    reshard_group_release(group); /* before MPI_Finalize */

    for (int i = 0; i < ROWS * width; i++)
        wrong += columns[i] != i / width * COLUMNS + rank * width + i % width;
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("%d ranks have their columns, %d elements are wrong\n", size, wrong);
    MPI_Finalize();
    return failed || wrong != 0;
}
