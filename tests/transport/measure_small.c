/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure_small.c - how long a small move takes between two threads, over and over with nothing in
 * between (64x64 f32, S(0) to S(1)), and how long ten round trips take between two threads that
 * only spin: what comes late there is the machine's own delay, which no library can avoid. Prints
 * percentiles of both, as rank 0 sees them.
 *
 *   measure-small [moves]
 */
#include <reshard/reshard.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { SIDE = 64, ROUND_TRIPS = 10, WARM_UP = 1000 };

typedef struct measured {
    reshard_plan *plan;
    long moves;
    double *microseconds;
    _Alignas(128) atomic_long asked;
    _Alignas(128) atomic_long answered;
} measured;

static double read_microseconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void print(const char *what, measured *with)
{
    double *sorted = with->microseconds;
    qsort(sorted, (size_t)with->moves, sizeof *sorted, compare);
    printf("%-38s median %.2f us, 99%% %.2f, 99.9%% %.2f, longest %.0f\n", what,
           sorted[with->moves / 2], sorted[with->moves * 99 / 100],
           sorted[with->moves * 999 / 1000], sorted[with->moves - 1]);
}

/* ---- the move -------------------------------------------------------------------------------- */

/* Rank r has rows 32 r to 32 r + 31 and gets columns 32 r to 32 r + 31. An element is its place. */
static reshard_status check(int32_t rank, const float *to)
{
    for (int i = 0; i < SIDE * SIDE / 2; i++) {
        int row = i / (SIDE / 2), column = rank * SIDE / 2 + i % (SIDE / 2);
        if (to[i] != (float)(row * SIDE + column))
            return reshard_error_set(RESHARD_ERR_CHECK, "an element is wrong");
    }
    return RESHARD_OK;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    measured *with = user;
    int32_t rank = reshard_group_rank(group);
    static float from[2][SIDE * SIDE / 2], to[2][SIDE * SIDE / 2];
    for (int i = 0; i < SIDE * SIDE / 2; i++)
        from[rank][i] = (float)(rank * SIDE * SIDE / 2 + i);
    const void *sources[] = {from[rank]};
    void *targets[] = {to[rank]};
    reshard_exec *exec = NULL;
    reshard_status status = reshard_exec_create(NULL, with->plan, group, NULL, &exec);
    for (long i = -WARM_UP; i < with->moves && status == RESHARD_OK; i++) {
        double start = read_microseconds();
        status = reshard_exec_start(exec, sources, targets);
        if (status == RESHARD_OK)
            status = reshard_exec_wait(exec);
        if (rank == 0 && i >= 0)
            with->microseconds[i] = read_microseconds() - start;
    }
    reshard_exec_destroy(exec);
    return status == RESHARD_OK ? check(rank, to[rank]) : status;
}

static reshard_status measure_moves(measured *with)
{
    int64_t shape[] = {SIDE, SIDE};
    reshard_plan_tensor source = {.dtype = RESHARD_F32}, target = source;
    reshard_link link = reshard_link_whole(0, 0);
    reshard_status status = reshard_layout_parse(NULL, "2: S(0)", 2, shape, &source.layout);
    if (status == RESHARD_OK)
        status = reshard_layout_parse(NULL, "2: S(1)", 2, shape, &target.layout);
    if (status == RESHARD_OK)
        status = reshard_plan_create(NULL, 1, &source, 1, &target, 1, &link, NULL, &with->plan);
    if (status == RESHARD_OK)
        status = reshard_group_run(NULL, 2, run_rank, with);
    reshard_plan_release(with->plan);
    reshard_layout_release(source.layout);
    reshard_layout_release(target.layout);
    return status;
}

/* ---- the machine ----------------------------------------------------------------------------- */

static void *answer(void *user)
{
    measured *with = user;
    for (long i = 1; i <= with->moves * ROUND_TRIPS; i++) {
        while (atomic_load(&with->asked) < i)
            continue;
        atomic_store(&with->answered, i);
    }
    return NULL;
}

static int measure_spinning(measured *with)
{
    pthread_t other;
    if (pthread_create(&other, NULL, answer, with) != 0)
        return 1;
    long asked = 0;
    for (long i = 0; i < with->moves; i++) {
        double start = read_microseconds();
        for (int k = 0; k < ROUND_TRIPS; k++) {
            atomic_store(&with->asked, ++asked);
            while (atomic_load(&with->answered) < asked)
                continue;
        }
        with->microseconds[i] = read_microseconds() - start;
    }
    return pthread_join(other, NULL);
}

int main(int argc, char **argv)
{
    static measured with;
    with.moves = argc > 1 ? atol(argv[1]) : 100000;
    with.microseconds = with.moves > 0 ? malloc((size_t)with.moves * sizeof(double)) : NULL;
    if (with.microseconds == NULL || measure_spinning(&with) != 0)
        return 1;
    print("ten round trips of spinning threads:", &with);
    if (measure_moves(&with) != RESHARD_OK) {
        fprintf(stderr, "%s\n", reshard_error_text());
        return 1;
    }
    print("a move of 64x64 f32:", &with);
    free(with.microseconds);
    return 0;
}
