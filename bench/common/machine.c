/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - which moves tell what about a machine. */
#include "bench/common/machine.h"

#include "cli/common/failure.h"
#include "cli/common/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS_LARGE = 9, RUNS_SMALL = 301, SMALL_SIDE = 64, MEMCPY_TURNS = 7 };
enum { STAY, TO_THE_NEXT, ALL_TO_ALL };

void bench_machine_plan(const bench_machine *machine, int32_t side,
                        bench_timing timings[BENCH_MACHINE_TIMINGS])
{
    int32_t n = machine->ranks;
    for (int i = 0; i < BENCH_MACHINE_TIMINGS; i++) {
        bench_timing *t = &timings[i];
        int32_t own = i == ALL_TO_ALL ? SMALL_SIDE : side;
        *t = (bench_timing){.dtype = RESHARD_F32,
                            .plain = machine->plain,
                            .messages = machine->messages,
                            .runs = i == ALL_TO_ALL ? RUNS_SMALL : RUNS_LARGE};
        snprintf(t->shape, sizeof t->shape, "%" PRId32 "x%" PRId32, own, own);
        snprintf(t->from, sizeof t->from, "%" PRId32 ": S(0)", n);
        if (i == TO_THE_NEXT && n > 1)
            snprintf(t->to, sizeof t->to, "%" PRId32 "[%" PRId32 ",0..%" PRId32 "]: S(0)", n, n - 1,
                     n - 2);
        else
            snprintf(t->to, sizeof t->to, "%" PRId32 ": S(%d)", n, i == ALL_TO_ALL);
    }
}

void bench_machine_read(bench_machine *machine, const bench_timing timings[BENCH_MACHINE_TIMINGS])
{
    int32_t n = machine->ranks;
    machine->memory = (double)timings[STAY].bytes / timings[STAY].seconds;
    machine->link = (double)timings[TO_THE_NEXT].bytes / n / timings[TO_THE_NEXT].seconds;
    machine->latency = timings[ALL_TO_ALL].seconds / (n > 1 ? n - 1 : 1);
}

const char *bench_machine_cluster(const bench_machine *machine, const bench_disk *disk,
                                  char text[BENCH_CLUSTER_TEXT])
{
    int32_t n = machine->ranks;
    int length = snprintf(
        text, BENCH_CLUSTER_TEXT,
        "nodes=%" PRId32 ",per_node=%" PRId32 ",%s=%.0fKB/s,memory=%.0fKB/s,latency=%.3fus",
        machine->messages ? n : 1, machine->messages ? 1 : n, machine->messages ? "nic" : "intra",
        machine->link / 1e3 + 1, machine->memory / 1e3 + 1, machine->latency * 1e6);
    if (disk != NULL)
        snprintf(text + length, BENCH_CLUSTER_TEXT - (size_t)length,
                 ",read=%.0fKB/s,write=%.0fKB/s,copy=%.0fKB/s", disk->read / 1e3 + 1,
                 disk->write / 1e3 + 1, disk->copy / 1e3 + 1);
    return text;
}

/* ---- memcpy ---------------------------------------------------------------------------------- */

typedef struct copying {
    size_t bytes;    /* of one thread */
    double *seconds; /* of each thread in each turn */
} copying;

static reshard_status run_rank(void *user, reshard_group *group)
{
    const copying *c = user;
    int32_t rank = reshard_group_rank(group);
    reshard_status status = RESHARD_OK;
    char *from = cli_allocate(c->bytes, 1), *to = cli_allocate(c->bytes, 1);
    memset(from, 1, c->bytes);
    memset(to, 2, c->bytes);
    for (int i = 0; i < MEMCPY_TURNS && status == RESHARD_OK; i++) {
        status = reshard_group_barrier(group);
        double began = cli_seconds();
        memcpy(to, from, c->bytes);
        if (status == RESHARD_OK)
            status = reshard_group_barrier(group);
        c->seconds[rank * MEMCPY_TURNS + i] = cli_seconds() - began;
    }
    free(from);
    free(to);
    return status;
}

/* The shortest turn; a turn took as long as for the thread that saw most of it. */
static double find_best(const copying *c, int32_t threads)
{
    double best = 0;
    for (int i = 0; i < MEMCPY_TURNS; i++) {
        double longest = 0;
        for (int32_t rank = 0; rank < threads; rank++) {
            double seconds = c->seconds[rank * MEMCPY_TURNS + i];
            longest = seconds > longest ? seconds : longest;
        }
        best = i == 0 || longest < best ? longest : best;
    }
    return best;
}

int bench_machine_memcpy(size_t bytes, int32_t threads, double *out_rate)
{
    copying c = {.bytes = bytes / (size_t)threads + 1};
    c.seconds = cli_allocate((size_t)threads, MEMCPY_TURNS * sizeof *c.seconds);
    reshard_status status = reshard_group_run(NULL, threads, run_rank, &c);
    if (status == RESHARD_OK)
        *out_rate = (double)c.bytes * threads / find_best(&c, threads);
    free(c.seconds);
    return status == RESHARD_OK ? CLI_DONE : cli_fail_status(status);
}
