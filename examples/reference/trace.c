/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.c - records the move of ../03_threads.c as a trace. Open the file, trace.json or the one
 * given as argument, in chrome://tracing or Perfetto; it has a row for each rank.
 */
#include <reshard/reshard.h>

#include <stdio.h>

enum { RANKS = 4, ROWS = 512, COLUMNS = 512 };

typedef struct job {
    reshard_plan *plan;
    const char *path;
    int32_t rows[ROWS][COLUMNS], columns[RANKS][ROWS][COLUMNS / RANKS];
} job;

static reshard_status move(reshard_exec *exec, job *work, int32_t rank)
{
    reshard_status status = reshard_exec_start(
        exec, (const void *[]){work->rows[rank * (ROWS / RANKS)]}, (void *[]){work->columns[rank]});
    return status == RESHARD_OK ? reshard_exec_wait(exec) : status;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    job *work = user;
    reshard_trace *trace = NULL;
    reshard_exec *exec = NULL;
    reshard_status status = reshard_trace_create(NULL, group, work->path, NULL, &trace);
    if (status == RESHARD_OK)
        status = reshard_exec_create(NULL, work->plan, group,
                                     RESHARD_OPTIONS(reshard_exec_options, .trace = trace), &exec);
    if (status == RESHARD_OK)
        status = move(exec, work, reshard_group_rank(group));
    if (status == RESHARD_OK)
        status = reshard_trace_write(trace);
    reshard_exec_destroy(exec);
    reshard_trace_destroy(trace);
    return status;
}

static int check(const job *work)
{
    for (int r = 0; r < ROWS; r++)
        for (int c = 0; c < COLUMNS; c++)
            if (work->columns[c / (COLUMNS / RANKS)][r][c % (COLUMNS / RANKS)] != r * COLUMNS + c)
                return fprintf(stderr, "an element is not where it should be\n");
    return 0;
}

int main(int argc, char **argv)
{
    static job work;
    int64_t shape[] = {ROWS, COLUMNS};
    reshard_layout *rows = NULL, *columns = NULL;
    work.path = argc > 1 ? argv[1] : "trace.json";
    for (int i = 0; i < ROWS * COLUMNS; i++)
        work.rows[i / COLUMNS][i % COLUMNS] = i;
    int failed = reshard_layout_parse(NULL, "4: S(0)", 2, shape, &rows) ||
                 reshard_layout_parse(NULL, "4: S(1)", 2, shape, &columns) ||
                 reshard_plan_create_simple(NULL, rows, columns, RESHARD_I32, NULL, &work.plan) ||
                 reshard_group_run(NULL, RANKS, run_rank, &work);
    if (failed)
        fprintf(stderr, "%s\n", reshard_error_text());
    else
        failed = check(&work);
    if (!failed)
        printf("%s tells what %d ranks did when\n", work.path, RANKS);
    reshard_plan_release(work.plan);
    reshard_layout_release(columns);
    reshard_layout_release(rows);
    return failed != 0;
}
