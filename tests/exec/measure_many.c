/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure_many.c - many small tensors in one plan, such as those of an optimizer's step: how long
 * it takes to make the plan and the exec, and how fast the move is beside memcpy of as many blocks,
 * with one thread for each rank. The best round of each, of the slowest rank.
 *
 *   measure-many [tensors] [side of each, a square of f32] [ranks] [rounds] [columns in a block]
 */
#include <reshard/reshard.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct measured {
    reshard_plan *plan;
    int32_t tensors, rounds, side, block;
    size_t bytes; /* of one rank's part of a tensor */
    double create, move, copy;
} measured;

static double read_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

/* A shard of row r of the whole has r in all its elements, and one of columns one row after the
 * other: it is easy to say what has to arrive. */
static void fill(const measured *with, int32_t rank, int32_t ranks, float **from)
{
    int32_t rows = with->side / ranks;
    for (int32_t i = 0; i < with->tensors; i++)
        for (int32_t k = 0; k < rows * with->side; k++)
            from[i][k] = (float)(rank * rows + k / with->side + i);
}

static int is_right(const measured *with, int32_t ranks, float *const *to)
{
    int32_t columns = with->side / ranks;
    for (int32_t i = 0; i < with->tensors; i++)
        for (int32_t k = 0; k < columns * with->side; k++)
            if (to[i][k] != (float)(k / columns + i))
                return 0;
    return 1;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    measured *with = user;
    int32_t rank = reshard_group_rank(group), ranks = reshard_group_size(group);
    size_t count = (size_t)with->tensors;
    char *memory = aligned_alloc(4096, (2 * count * with->bytes + 4095) / 4096 * 4096);
    float **from = malloc(count * sizeof *from), **to = malloc(count * sizeof *to);
    reshard_status status = RESHARD_OK;
    if (memory == NULL || from == NULL || to == NULL)
        exit(1);
    for (size_t i = 0; i < count; i++) {
        from[i] = (float *)(void *)(memory + i * with->bytes);
        to[i] = (float *)(void *)(memory + (count + i) * with->bytes);
    }
    fill(with, rank, ranks, from);
    reshard_exec *exec = NULL;
    for (int32_t round = 0; round < with->rounds && status == RESHARD_OK; round++) {
        reshard_exec_destroy(exec);
        exec = NULL;
        (void)reshard_group_barrier(group);
        double start = read_seconds();
        status = reshard_exec_create(NULL, with->plan, group, NULL, &exec);
        if (rank == 0)
            with->create = least(with->create, read_seconds() - start);
    }
    for (int32_t round = 0; round < 10 * with->rounds && status == RESHARD_OK; round++) {
        (void)reshard_group_barrier(group);
        double start = read_seconds();
        for (size_t i = 0; i < count; i++)
            memcpy(to[i], from[i], with->bytes);
        (void)reshard_group_barrier(group);
        double middle = read_seconds();
        status = reshard_exec_start(exec, (const void *const *)from, (void *const *)to);
        if (status == RESHARD_OK)
            status = reshard_exec_wait(exec);
        (void)reshard_group_barrier(group);
        if (rank == 0) {
            with->copy = least(with->copy, middle - start);
            with->move = least(with->move, read_seconds() - middle);
        }
    }
    if (status == RESHARD_OK && !is_right(with, ranks, to))
        status = reshard_error_set(RESHARD_ERR_CHECK, "an element is wrong");
    reshard_exec_destroy(exec);
    free(memory);
    free(from);
    free(to);
    return status;
}

static int make_plan(measured *with, int32_t ranks, double *out_seconds)
{
    char rows[32], columns[32];
    int64_t shape[] = {with->side, with->side};
    size_t count = (size_t)with->tensors;
    reshard_plan_tensor *sources = calloc(count, sizeof *sources);
    reshard_plan_tensor *targets = calloc(count, sizeof *targets);
    reshard_link *links = calloc(count, sizeof *links);
    if (sources == NULL || targets == NULL || links == NULL)
        return 1;
    snprintf(rows, sizeof rows, "%d: S(0)", ranks);
    snprintf(columns, sizeof columns, "%d: S(1/%d)", ranks, (int)with->block);
    int failed = 0;
    for (size_t i = 0; i < count && !failed; i++) {
        failed = reshard_layout_parse(NULL, rows, 2, shape, &sources[i].layout) ||
                 reshard_layout_parse(NULL, columns, 2, shape, &targets[i].layout);
        sources[i].dtype = targets[i].dtype = RESHARD_F32;
        links[i] = reshard_link_whole((int32_t)i, (int32_t)i);
    }
    double start = read_seconds();
    failed = failed || reshard_plan_create(NULL, with->tensors, sources, with->tensors, targets,
                                           with->tensors, links, NULL, &with->plan);
    *out_seconds = read_seconds() - start;
    for (size_t i = 0; i < count; i++) {
        reshard_layout_release(sources[i].layout);
        reshard_layout_release(targets[i].layout);
    }
    free(sources);
    free(targets);
    free(links);
    return failed;
}

int main(int argc, char **argv)
{
    measured with = {.tensors = argc > 1 ? atoi(argv[1]) : 1000,
                     .side = argc > 2 ? atoi(argv[2]) : 64,
                     .rounds = argc > 4 ? atoi(argv[4]) : 20,
                     .create = 1e9,
                     .move = 1e9,
                     .copy = 1e9};
    int32_t ranks = argc > 3 ? atoi(argv[3]) : 2;
    double planning = 0;
    if (with.tensors < 1 || ranks < 1 || with.side < ranks || with.rounds < 1)
        return 2;
    with.block = argc > 5 ? atoi(argv[5]) : with.side / ranks;
    if (with.block < 1 || with.side % (ranks * with.block) != 0)
        return 2;
    with.bytes = (size_t)with.side * (size_t)(with.side / ranks) * sizeof(float);
    int failed =
        make_plan(&with, ranks, &planning) || reshard_group_run(NULL, ranks, run_rank, &with);
    if (failed)
        fprintf(stderr, "%s\n", reshard_error_text());
    else
        printf("%d tensors of %d x %d f32, %d ranks: plan %.2f ms, exec %.2f ms, move %.1f us, "
               "memcpy %.1f us, ratio %.2f\n",
               with.tensors, with.side, with.side, ranks, planning * 1e3, with.create * 1e3,
               with.move * 1e6, with.copy * 1e6, with.copy / with.move);
    reshard_plan_release(with.plan);
    return failed;
}
