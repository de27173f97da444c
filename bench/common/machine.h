/* SPDX-License-Identifier: Apache-2.0 */
/*
 * machine.h - measures the few numbers about this machine that predictions need
 * (reshard/predict.h), by four moves: everything stays, everything goes to the next rank, very
 * little goes from all ranks to all, and everything goes from all ranks to all in short runs. The
 * last one is left out if bytes travel as messages, because these would take longer than the
 * copies.
 */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include "bench/common/disk.h"
#include "bench/common/timing.h"

typedef struct bench_machine {
    /* Set by the caller: */
    int32_t ranks;
    int plain, messages; /* as in bench_timing; with messages, each rank is a node */
    /* Results: */
    double memory;    /* bytes per second that all ranks together copy */
    double scattered; /* the same for short runs; 0: not measured */
    double link;      /* bytes per second that each rank sends while all send */
    double latency;   /* seconds per peer in an exchange */
} bench_machine;

enum { BENCH_MACHINE_TIMINGS_MAX = 4, BENCH_CLUSTER_TEXT = 256 };

/* bench_machine_plan fills in the timings to be measured, over a matrix of side x side f32, and
 * returns how many there are; bench_machine_read computes the machine's numbers from the measured
 * ones. */
int bench_machine_plan(const bench_machine *machine, int32_t side,
                       bench_timing timings[BENCH_MACHINE_TIMINGS_MAX]);
void bench_machine_read(bench_machine *machine, const bench_timing *timings);

/* Writes the text that `--cluster` takes, and returns it. disk may be NULL. */
const char *bench_machine_cluster(const bench_machine *machine, const bench_disk *disk,
                                  char text[BENCH_CLUSTER_TEXT]);

/* Measures memcpy of `bytes` bytes in all on several threads; *out_rate is in bytes per second.
 * Returns CLI_DONE, or prints a message and returns another code. */
int bench_machine_memcpy(size_t bytes, int32_t threads, double *out_rate);

#endif
