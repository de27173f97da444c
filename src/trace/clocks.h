/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clocks.h - one clock for all ranks. A rank on another host than rank 0 learns how far its clock
 * is from rank 0's. Rank 0 asks for its time several times, keeps the answer with the shortest
 * round trip, and assumes that it was given halfway (Cristian 1989); the error is at most half of
 * that round trip. Two such points, one when a trace is created and one when it is written, make a
 * line, which also corrects for clocks that run at different speeds.
 */
#ifndef RS_TRACE_CLOCKS_H
#define RS_TRACE_CLOCKS_H

#include <reshard/group.h>

#include <stdbool.h>

typedef struct rs_trace_clock {
    uint64_t (*now)(void *user); /* ns */
    void *user;
    uint64_t identity[2]; /* see rs_clock_identity */
} rs_trace_clock;

/* This host's clock. */
rs_trace_clock rs_trace_clock_here(void);

/* One measurement of the offset between this rank's clock and rank 0's. */
typedef struct rs_clock_point {
    int64_t local;      /* the time of the measurement, by this rank's clock */
    int64_t offset;     /* how far rank 0's clock is ahead */
    int64_t round_trip; /* 0 if this rank reads rank 0's clock */
} rs_clock_point;

/* Converts this rank's times to those of the file. */
typedef struct rs_clock_line {
    rs_clock_point begin, end;
    int64_t origin; /* the file's time 0, by rank 0's clock */
} rs_clock_line;

/* Measures one point. Collective; Local if group is NULL. */
reshard_status rs_clock_measure(reshard_group *group, const rs_trace_clock *clock,
                                rs_clock_point *out_point);
/* Converts a time of this rank to rank 0's clock. */
int64_t rs_clock_at_zero(const rs_clock_line *line, uint64_t local);

#endif
