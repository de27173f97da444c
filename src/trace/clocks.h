/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clocks.h - one clock over ranks. A rank on another host than rank 0 learns how far its clock is
 * from rank 0's: rank 0 asks for its time again and again, and the answer of the shortest round
 * trip is taken to have been given halfway (Cristian 1989), which is wrong by half of that round
 * trip at most. Two such points, when a trace is made and when it is written, give a line; between
 * them clocks that run at different speeds are told apart too.
 */
#ifndef RS_TRACE_CLOCKS_H
#define RS_TRACE_CLOCKS_H

#include <reshard/group.h>

#include <stdbool.h>

typedef struct rs_trace_clock {
    uint64_t (*now)(void *user); /* ns */
    void *user;
    uint64_t identity[2]; /* as rs_clock_identity */
} rs_trace_clock;

/* This host's. */
rs_trace_clock rs_trace_clock_here(void);

/* What was known at one moment. */
typedef struct rs_clock_point {
    int64_t local;      /* the moment, by this rank's clock */
    int64_t offset;     /* rank 0's clock is ahead by this */
    int64_t round_trip; /* 0: it is rank 0's clock */
} rs_clock_point;

/* From this rank's times to those of the file. */
typedef struct rs_clock_line {
    rs_clock_point begin, end;
    int64_t origin; /* the file's 0, by rank 0's clock */
} rs_clock_line;

/* Collective; without a group, Local. */
reshard_status rs_clock_measure(reshard_group *group, const rs_trace_clock *clock,
                                rs_clock_point *out_point);
/* A time of this rank by rank 0's clock. */
int64_t rs_clock_at_zero(const rs_clock_line *line, uint64_t local);

#endif
