/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 03_threads.c - four ranks, which are threads, take a matrix from a split by rows to a split by
 * columns. Each rank fills its rows with the index of every element, and checks the indices in its
 * columns afterwards.
 */
#include <reshard/reshard.h>

#include <stdio.h>

enum { RANKS = 4, ROWS = 8, COLUMNS = 12 };

static reshard_status run_rank(void *user, reshard_group *group)
{
    int32_t rows[ROWS / RANKS][COLUMNS], columns[ROWS][COLUMNS / RANKS];
    int32_t rank = reshard_group_rank(group);
    for (int r = 0; r < ROWS / RANKS; r++)
        for (int c = 0; c < COLUMNS; c++)
            rows[r][c] = (rank * (ROWS / RANKS) + r) * COLUMNS + c;

    reshard_exec *exec = NULL;
    reshard_status status = reshard_exec_create(NULL, user, group, NULL, &exec);
    if (status == RESHARD_OK)
        status = reshard_exec_start(exec, (const void *[]){rows}, (void *[]){columns});
    if (status == RESHARD_OK)
        status = reshard_exec_wait(exec);
    reshard_exec_destroy(exec);
    if (status != RESHARD_OK)
        return status;

    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS / RANKS; c++)
            if (columns[r][c] != r * COLUMNS + rank * (COLUMNS / RANKS) + c)
                return reshard_error_set(RESHARD_ERR_CHECK, "an element is not where it should be");
    return RESHARD_OK;
}

int main(void)
{
    int64_t shape[] = {ROWS, COLUMNS};
    reshard_layout *rows = NULL, *columns = NULL;
    reshard_plan *plan = NULL;
    int failed = reshard_layout_parse(NULL, "4: S(0)", 2, shape, &rows) ||
                 reshard_layout_parse(NULL, "4: S(1)", 2, shape, &columns) ||
                 reshard_plan_create_simple(NULL, rows, columns, RESHARD_I32, NULL, &plan) ||
                 reshard_group_run(NULL, RANKS, run_rank, plan);
    if (failed)
        fprintf(stderr, "%s\n", reshard_error_text());
    else
        printf("%d ranks have their columns\n", RANKS);
    reshard_plan_release(plan);
    reshard_layout_release(columns);
    reshard_layout_release(rows);
    return failed;
}
