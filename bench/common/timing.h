/* SPDX-License-Identifier: Apache-2.0 */
/*
 * timing.h - measures how long moves take: ranks carry out plans, each several times, and every
 * element of the targets is checked after the last time. Moves that are to be compared take turns,
 * because on a shared machine memory may be half as fast a second later.
 */
#ifndef BENCH_TIMING_H
#define BENCH_TIMING_H

#include <reshard/group.h>

#include "cli/common/work.h"

#include <stdint.h>

enum { BENCH_SPEC_TEXT = 96, BENCH_SHAPE_TEXT = 48 };

typedef struct bench_timing {
    /* Set by the caller: */
    char shape[BENCH_SHAPE_TEXT], from[BENCH_SPEC_TEXT], to[BENCH_SPEC_TEXT];
    reshard_dtype dtype;
    int plain;    /* ordinary memory, which other processes do not see */
    int messages; /* messages only, as between nodes */
    int32_t runs;
    /* consecutive timings of the same batch take turns; they must have the same number of ranks */
    int batch;
    /* Results: */
    reshard_layout *source;
    reshard_plan *plan;
    uint64_t bytes; /* written to targets */
    double seconds; /* median of the runs */
} bench_timing;

/* Plans and measures all timings, on as many threads as each plan has ranks or, under mpirun, on as
 * many processes. Returns CLI_DONE, or prints a message and returns another code; only the first
 * rank has the seconds. Release in any case. */
int bench_timings_run(cli_work *work, bench_timing *timings, int count);
void bench_timings_release(bench_timing *timings, int count);

/* median.c - the median of measurements. */

/* The median of at least one number; sorts them. For an even count, the upper of the two in the
 * middle. */
double bench_median(double *numbers, int32_t count);

/* slowest.c - the time of a run that all ranks measured. */

/* Replaces the seconds of each run by the maximum over all ranks, on all ranks. The maximum is the
 * right time because, if ranks share processors, a rank may leave the barrier that starts its clock
 * only after others have already begun. Collective. */
reshard_status bench_take_slowest(reshard_group *group, double *seconds, int32_t runs);

#endif
