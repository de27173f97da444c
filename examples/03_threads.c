/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 03_threads.c - introduces groups and execs: four ranks, which are threads, carry out a plan that
 * takes a matrix from a split by rows to a split by columns. Each rank fills its rows with the
 * index of every element, and checks the indices in its columns afterwards.
 */
#include <reshard/reshard.h>

#include "examples/example.h"

enum { RANKS = 4, ROWS = 8, COLUMNS = 12 };

static reshard_status run_rank(void *user, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    reshard_exec *exec = NULL;
    int32_t rows[ROWS / RANKS][COLUMNS], columns[ROWS][COLUMNS / RANKS];
    int32_t rank = reshard_group_rank(group);
    for (int r = 0; r < ROWS / RANKS; r++)
        for (int c = 0; c < COLUMNS; c++)
            rows[r][c] = (rank * (ROWS / RANKS) + r) * COLUMNS + c;

    TRY(reshard_exec_create(NULL, user, group, NULL, &exec));
    TRY(reshard_exec_start(exec, (const void *[]){rows}, (void *[]){columns}));
    TRY(reshard_exec_wait(exec));

    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS / RANKS; c++)
            TRY(check(columns[r][c] == r * COLUMNS + rank * (COLUMNS / RANKS) + c,
                      "an element is not where it should be"));
out:
    reshard_exec_destroy(exec);
    return status;
}

int main(void)
{
    reshard_status status = RESHARD_OK;
    int64_t shape[] = {ROWS, COLUMNS};
    reshard_layout *rows = NULL, *columns = NULL;
    reshard_plan *plan = NULL;
    TRY(reshard_layout_parse(NULL, "4: S(0)", 2, shape, &rows));
    TRY(reshard_layout_parse(NULL, "4: S(1)", 2, shape, &columns));
    TRY(reshard_plan_create_simple(NULL, rows, columns, RESHARD_I32, NULL, &plan));
    TRY(reshard_group_run(NULL, RANKS, run_rank, plan));
    printf("%d ranks have their columns\n", RANKS);
out:
    reshard_plan_release(plan);
    reshard_layout_release(columns);
    reshard_layout_release(rows);
    return finish(status);
}
