/* SPDX-License-Identifier: Apache-2.0 */
/* machine.c - which moves reveal what about a machine. */
#include "bench/common/machine.h"

#include "cli/common/failure.h"
#include "cli/common/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RUNS_LARGE = 9, RUNS_SMALL = 301, SMALL_SIDE = 64, MEMCPY_TURNS = 7 };
enum { STAY, TO_THE_NEXT, ALL_TO_ALL, SHORT_RUNS };
/* f32 elements per short run: 128 bytes. */
enum { RUN_ELEMENTS = 32 };

static int count_timings(const bench_machine *machine)
{
    int has_runs = machine->ranks > 1 && !machine->plain && !machine->messages;
    return has_runs ? SHORT_RUNS + 1 : SHORT_RUNS;
}

static void write_target(int which, int32_t n, char text[BENCH_SPEC_TEXT])
{
    if (which == TO_THE_NEXT && n > 1)
        snprintf(text, BENCH_SPEC_TEXT, "%" PRId32 "[%" PRId32 ",0..%" PRId32 "]: S(0)", n, n - 1,
                 n - 2);
    else if (which == SHORT_RUNS)
        snprintf(text, BENCH_SPEC_TEXT, "%" PRId32 ": S(1/%d)", n, RUN_ELEMENTS);
    else
        snprintf(text, BENCH_SPEC_TEXT, "%" PRId32 ": S(%d)", n, which == ALL_TO_ALL);
}

int bench_machine_plan(const bench_machine *machine, int32_t side,
                       bench_timing timings[BENCH_MACHINE_TIMINGS_MAX])
{
    int32_t n = machine->ranks;
    int count = count_timings(machine);
    for (int i = 0; i < count; i++) {
        bench_timing *t = &timings[i];
        int32_t own = i == ALL_TO_ALL ? SMALL_SIDE : side;
        *t = (bench_timing){.dtype = RESHARD_F32,
                            .plain = machine->plain,
                            .messages = machine->messages,
                            .runs = i == ALL_TO_ALL ? RUNS_SMALL : RUNS_LARGE};
        snprintf(t->shape, sizeof t->shape, "%" PRId32 "x%" PRId32, own, own);
        snprintf(t->from, sizeof t->from, "%" PRId32 ": S(0)", n);
        write_target(i, n, t->to);
    }
    return count;
}

static double speed_of(const bench_timing *t)
{
    return (double)t->bytes / t->seconds;
}

void bench_machine_read(bench_machine *machine, const bench_timing *timings)
{
    int32_t n = machine->ranks;
    machine->memory = speed_of(&timings[STAY]);
    machine->link = speed_of(&timings[TO_THE_NEXT]) / n;
    machine->latency = timings[ALL_TO_ALL].seconds / (n > 1 ? n - 1 : 1);
    machine->scattered = count_timings(machine) > SHORT_RUNS ? speed_of(&timings[SHORT_RUNS]) : 0;
}

/* Adds ",name=speed". The unit is small enough to keep three digits even for a slow disk. */
static void add_speed(char text[BENCH_CLUSTER_TEXT], const char *name, double speed)
{
    size_t length = strlen(text);
    snprintf(text + length, BENCH_CLUSTER_TEXT - length, ",%s=%.0fKB/s", name, speed / 1e3 + 1);
}

const char *bench_machine_cluster(const bench_machine *machine, const bench_disk *disk,
                                  char text[BENCH_CLUSTER_TEXT])
{
    int32_t nodes = machine->messages ? machine->ranks : 1;
    snprintf(text, BENCH_CLUSTER_TEXT, "nodes=%" PRId32 ",per_node=%" PRId32, nodes,
             machine->ranks / nodes);
    add_speed(text, machine->messages ? "nic" : "intra", machine->link);
    add_speed(text, "memory", machine->memory / nodes);
    if (machine->scattered > 0)
        add_speed(text, "scattered", machine->scattered / nodes);
    size_t length = strlen(text);
    snprintf(text + length, BENCH_CLUSTER_TEXT - length, ",latency=%.3fus", machine->latency * 1e6);
    if (disk != NULL) {
        add_speed(text, "read", disk->read);
        add_speed(text, "write", disk->write);
        add_speed(text, "copy", disk->copy);
        add_speed(text, "cast", disk->cast);
    }
    return text;
}

/* ---- memcpy ---------------------------------------------------------------------------------- */

typedef struct copying {
    size_t bytes;    /* of one thread */
    double *seconds; /* of each thread, in each turn */
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

/* The shortest turn; a turn takes as long as its slowest thread. */
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
