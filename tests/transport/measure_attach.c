/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure_attach.c - how fast processes of one machine can read and write each other's plain memory
 * through the kernel (cross-memory attach: process_vm_readv, process_vm_writev), beside memcpy of
 * the same runs within each process. Each process has rows of a matrix and gets columns, as from
 * S(0) to S(1). Every word that arrives is checked. Ratios are medians over the turns.
 *
 *   measure-attach [processes] [bytes of a run] [turns] [huge]      huge: pages of 2 MiB, if there
 *   are
 */
#define _GNU_SOURCE /* process_vm_readv */
#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PROCESSES_MAX = 64, RUNS_MAX = 1024, TURNS_MAX = 99 };
#define TOTAL_BYTES ((size_t)256 << 20)

typedef enum copier { MEMCPY, READ, WRITE, COPIERS } copier;
static const char *const copier_names[] = {"memcpy within", "process_vm_readv",
                                           "process_vm_writev"};

/* Shared by all processes. */
typedef struct board {
    atomic_long entered;
    atomic_int failed;
    pid_t pids[PROCESSES_MAX];
    char *sources[PROCESSES_MAX], *targets[PROCESSES_MAX]; /* addresses in their owner */
} board;

typedef struct process {
    board *board;
    int rank, count;
    long barriers;
    size_t run, rows; /* bytes of a run; rows of one process */
    char *source, *target;
} process;

static double read_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void barrier(process *p)
{
    p->barriers++;
    atomic_fetch_add(&p->board->entered, 1);
    while (atomic_load(&p->board->entered) < p->barriers * p->count)
        sched_yield();
}

/* The run of row `row` that goes from this process to another, or comes from there. */
static char *source_run(const process *p, char *source, int to, size_t row)
{
    return source + (row * (size_t)p->count + (size_t)to) * p->run;
}

static char *target_run(const process *p, char *target, int from, size_t row)
{
    return target + ((size_t)from * p->rows + row) * p->run;
}

/* Moves what goes between this process and a peer, as many runs in a call as the system takes. */
static void attach(process *p, int peer, copier by)
{
    struct iovec strided[RUNS_MAX], dense;
    for (size_t row = 0, count; row < p->rows; row += count) {
        count = p->rows - row < RUNS_MAX ? p->rows - row : RUNS_MAX;
        for (size_t i = 0; i < count; i++) {
            char *from = by == READ ? source_run(p, p->board->sources[peer], p->rank, row + i)
                                    : source_run(p, p->source, peer, row + i);
            strided[i] = (struct iovec){from, p->run};
        }
        char *to = by == READ ? target_run(p, p->target, peer, row)
                              : target_run(p, p->board->targets[peer], p->rank, row);
        dense = (struct iovec){to, count * p->run};
        ssize_t got = by == READ
                          ? process_vm_readv(p->board->pids[peer], &dense, 1, strided, count, 0)
                          : process_vm_writev(p->board->pids[peer], strided, count, &dense, 1, 0);
        if (got != (ssize_t)(count * p->run)) {
            printf("%s: %zd of %zu bytes: %s\n", copier_names[by], got, count * p->run,
                   strerror(errno));
            atomic_store(&p->board->failed, 1);
            return;
        }
    }
}

/* memcpy moves as many bytes in the same runs, all of them this process's own. */
static void move(process *p, copier by)
{
    for (int i = 0; i < p->count; i++) {
        int peer = (p->rank + i) % p->count;
        if (by != MEMCPY && peer != p->rank) {
            attach(p, peer, by);
            continue;
        }
        for (size_t row = 0; row < p->rows; row++)
            memcpy(target_run(p, p->target, peer, row), source_run(p, p->source, p->rank, row),
                   p->run);
    }
}

/* A word of a source says which run of which row of which process it is. */
static uint32_t word_of(const process *p, int rank, int run, size_t row)
{
    return (uint32_t)(((size_t)rank * p->rows + row) * (size_t)p->count + (size_t)run);
}

static void fill(process *p)
{
    for (size_t row = 0; row < p->rows; row++)
        for (int run = 0; run < p->count; run++) {
            uint32_t word = word_of(p, p->rank, run, row);
            for (size_t at = 0; at < p->run; at += sizeof word)
                memcpy(source_run(p, p->source, run, row) + at, &word, sizeof word);
        }
}

static void check(process *p)
{
    for (int from = 0; from < p->count; from++)
        for (size_t row = 0; row < p->rows; row++) {
            uint32_t wanted = word_of(p, from, p->rank, row), word;
            for (size_t at = 0; at < p->run; at += sizeof word) {
                memcpy(&word, target_run(p, p->target, from, row) + at, sizeof word);
                if (word != wanted)
                    atomic_store(&p->board->failed, 1);
            }
        }
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, int count)
{
    double sorted[TURNS_MAX];
    memcpy(sorted, values, (size_t)count * sizeof *values);
    qsort(sorted, (size_t)count, sizeof *sorted, compare);
    return sorted[count / 2];
}

static void measure(process *p, int turns)
{
    static double seconds[COPIERS][TURNS_MAX], ratios[TURNS_MAX];
    for (int turn = -1; turn < turns; turn++) { /* the first one warms up */
        for (copier by = 0; by < COPIERS; by++) {
            memset(p->target, 0xff, (size_t)p->count * p->rows * p->run);
            barrier(p);
            double start = read_seconds();
            move(p, by);
            barrier(p);
            if (turn >= 0)
                seconds[by][turn] = read_seconds() - start;
            if (by != MEMCPY)
                check(p);
        }
    }
    barrier(p);
    for (copier by = 0; by < COPIERS && p->rank == 0; by++) {
        for (int turn = 0; turn < turns; turn++)
            ratios[turn] = seconds[MEMCPY][turn] / seconds[by][turn];
        printf("%-18s %7.1f ms  %.2f of memcpy\n", copier_names[by],
               1e3 * median(seconds[by], turns), median(ratios, turns));
    }
}

static void *map(size_t bytes, int flags)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        perror("mmap");
        exit(1);
    }
    return memory;
}

int main(int argc, char **argv)
{
    process p = {.count = argc > 1 ? atoi(argv[1]) : 4,
                 .run = argc > 2 ? (size_t)atol(argv[2]) / 4 * 4 : 8192};
    int turns = argc > 3 ? atoi(argv[3]) : 9;
    if (p.count < 1 || p.count > PROCESSES_MAX || p.run == 0 || turns < 1 || turns > TURNS_MAX) {
        fprintf(stderr, "measure-attach [processes] [bytes of a run] [turns] [huge]\n");
        return 2;
    }
    p.board = map(sizeof *p.board, MAP_SHARED);
    p.rows = TOTAL_BYTES / (size_t)p.count / (size_t)p.count / p.run;
    for (int i = 1; i < p.count && p.rank == 0; i++)
        p.rank = fork() == 0 ? i : 0;
    size_t bytes = (size_t)p.count * p.rows * p.run;
    p.source = map(bytes, MAP_PRIVATE);
    p.target = map(bytes, MAP_PRIVATE);
    if (argc > 4) {
        (void)madvise(p.source, bytes, MADV_HUGEPAGE);
        (void)madvise(p.target, bytes, MADV_HUGEPAGE);
    }
    fill(&p);
    p.board->pids[p.rank] = getpid();
    p.board->sources[p.rank] = p.source;
    p.board->targets[p.rank] = p.target;
    barrier(&p);
    measure(&p, turns);
    if (p.rank != 0)
        return 0;
    while (wait(NULL) > 0)
        continue;
    if (atomic_load(&p.board->failed))
        printf("something that arrived was wrong, or was refused\n");
    return atomic_load(&p.board->failed);
}
