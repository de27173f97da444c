/* SPDX-License-Identifier: Apache-2.0 */
/*
 * faults.c - does a program survive a message that fails? One plan moves two tensors between
 * simulated ranks. It is run once for every message, and each time another message fails. No rank
 * may hang, and a run that succeeds must have the right numbers.
 */
#include <reshard/reshard.h>
#include <reshard/sim.h>

#include "examples/example.h"

#include <stdio.h>
#include <stdlib.h>

enum { RANKS = 3, ROWS = 6, COLUMNS = 3, LENGTH = 9 };

/* Buffers are listed tensor by tensor, and each rank has one shard of each. */
static reshard_status move_both(reshard_exec *exec, int32_t rank)
{
    int32_t rows[ROWS / RANKS][COLUMNS], columns[ROWS], part[LENGTH / RANKS], whole[LENGTH];
    const void *sources[] = {rows, part};
    void *targets[] = {columns, whole};
    for (int i = 0; i < ROWS / RANKS * COLUMNS; i++)
        rows[i / COLUMNS][i % COLUMNS] = rank * (ROWS / RANKS) * COLUMNS + i;
    for (int i = 0; i < LENGTH / RANKS; i++)
        part[i] = 100 + rank * (LENGTH / RANKS) + i;
    reshard_status status = reshard_exec_start(exec, sources, targets);
    int done = 0;
    while (status == RESHARD_OK && !done)
        status = reshard_exec_test(exec, &done);
    int wrong = 0;
    for (int i = 0; i < ROWS && status == RESHARD_OK; i++)
        wrong += columns[i] != i * COLUMNS + rank;
    for (int i = 0; i < LENGTH && status == RESHARD_OK; i++)
        wrong += whole[i] != 100 + i;
    return wrong == 0 ? status : reshard_error_set(RESHARD_ERR_CHECK, "a number is wrong");
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    reshard_exec *exec = NULL;
    reshard_status status = reshard_exec_create(NULL, user, group, NULL, &exec);
    if (status == RESHARD_OK)
        status = move_both(exec, reshard_group_rank(group));
    reshard_exec_destroy(exec);
    return status;
}

/* One tensor goes from rows to columns, the other from chunks to replicas. */
static reshard_status make_plan(reshard_plan **out_plan)
{
    const int64_t matrix[] = {ROWS, COLUMNS}, line[] = {LENGTH};
    reshard_plan_tensor from[2] = {{.dtype = RESHARD_I32}, {.dtype = RESHARD_I32}};
    reshard_plan_tensor to[2] = {{.dtype = RESHARD_I32}, {.dtype = RESHARD_I32}};
    const reshard_link links[] = {reshard_link_whole(0, 0), reshard_link_whole(1, 1)};
    reshard_status status = reshard_layout_parse(NULL, "3: S(0)", 2, matrix, &from[0].layout);
    if (status == RESHARD_OK)
        status = reshard_layout_parse(NULL, "3: S(1)", 2, matrix, &to[0].layout);
    if (status == RESHARD_OK)
        status = reshard_layout_parse(NULL, "3: S(0)", 1, line, &from[1].layout);
    if (status == RESHARD_OK)
        status = reshard_layout_parse(NULL, "3: R", 1, line, &to[1].layout);
    if (status == RESHARD_OK)
        status = reshard_plan_create(NULL, 2, from, 2, to, 2, links, NULL, out_plan);
    for (int i = 0; i < 2; i++) {
        reshard_layout_release(from[i].layout);
        reshard_layout_release(to[i].layout);
    }
    return status;
}

int main(void)
{
    reshard_plan *plan = NULL;
    int64_t failures = 0;
    int reached = 1;
    reshard_status status = make_plan(&plan);
    while (status == RESHARD_OK && reached) {
        reshard_sim_options options = {.size = sizeof options,
                                       .seed = (uint64_t)failures,
                                       .fail_message = failures + 1,
                                       .out_reached = &reached};
        status = reshard_sim_run(NULL, RANKS, &options, run_rank, plan);
        if (reached && status == RESHARD_ERR_GROUP_BROKEN) {
            status = RESHARD_OK; /* all ranks got the error and returned */
            failures++;
        }
    }
    if (status == RESHARD_OK)
        printf("%d messages failed, one in each run\n", (int)failures);
    reshard_plan_release(plan);
    return finish(status);
}
