/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.h - this machine as the few numbers that predictions need (reshard/predict.h), found by
 * moves of a number of ranks: everything stays, everything goes to the next rank, hardly anything
 * goes from all to all, and everything goes from all to all in short runs. The last one is left out
 * where bytes go through messages, which would take longer than the copies.
 */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include "bench/common/disk.h"
#include "bench/common/timing.h"

typedef struct bench_machine {
    /* Set by the caller: */
    int32_t ranks;
    int plain, messages; /* as of timings; with messages, each rank is a node */
    /* Found: */
    double memory;    /* bytes a second that all ranks copy together */
    double scattered; /* the same in short runs; 0: not measured */
    double link;      /* bytes a second that each rank sends while all do */
    double latency;   /* seconds for each peer of an exchange */
} bench_machine;

enum { BENCH_MACHINE_TIMINGS_MAX = 4, BENCH_CLUSTER_TEXT = 256 };

/* Fills in what has to be measured, over a square of side x side f32, and returns how many timings
 * that is; then reads the results. */
int bench_machine_plan(const bench_machine *machine, int32_t side,
                       bench_timing timings[BENCH_MACHINE_TIMINGS_MAX]);
void bench_machine_read(bench_machine *machine, const bench_timing *timings);

/* What `--cluster` takes. disk may be NULL. Returns the text. */
const char *bench_machine_cluster(const bench_machine *machine, const bench_disk *disk,
                                  char text[BENCH_CLUSTER_TEXT]);

/* Bytes a second that memcpy copies on so many threads, bytes in all. Returns CLI_DONE, or prints a
 * message and returns another code. */
int bench_machine_memcpy(size_t bytes, int32_t threads, double *out_rate);

#endif
