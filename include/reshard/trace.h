/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h - what ranks and threads did when, as a file that chrome://tracing and Perfetto show.
 *
 *     reshard_trace_create(NULL, group, "move.json", NULL, &trace);         collective
 *     reshard_exec_options options = {.size = sizeof options, .trace = trace};
 *     ..                                             make execs with these options, and run them
 *     reshard_trace_write(trace);                                           collective
 *     reshard_trace_destroy(trace);
 *
 * Execs, conversions, loads and saves take a trace in their options, and record spans of time in
 * it: their names, and what they tell, are in docs/trace.md. A process of the file is a rank, a
 * thread of it a thread of that rank. Times are those of CLOCK_MONOTONIC on rank 0's host. Ranks on
 * other hosts measure their clock against it when the trace is made and when it is written: the
 * shortest of some round trips counts, and what lies between is interpolated; the file tells the
 * round trips.
 *
 * Memory is bounded: each thread keeps so many events and drops those that come later. How many
 * were dropped is in the file too. Whoever passes no trace pays for a branch.
 */
#ifndef RESHARD_TRACE_H
#define RESHARD_TRACE_H

#include <reshard/group.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct reshard_trace reshard_trace;

typedef struct reshard_trace_options {
    size_t size;               /* sizeof(reshard_trace_options) */
    int64_t thread_events_max; /* kept for each thread, 64 bytes each; 0: 65536 */
} reshard_trace_options;

/*
 * Local when group is NULL: all threads of this process may record in the trace, whichever rank
 * they are. Otherwise Collective: each rank makes a trace of its own, and all go into one file. The
 * group is retained.
 *
 * Rank 0 opens the file at once, so that a path that cannot be written is found before any work is
 * done. A trace that is there is replaced when the new one is written. Errors: INVALID (the path is
 * something else than a trace, a number below zero), IO, NO_MEMORY.
 */
RESHARD_API reshard_status reshard_trace_create(reshard_context *context, reshard_group *group,
                                                const char *path,
                                                const reshard_trace_options *options,
                                                reshard_trace **out_trace);
/* Local. Must outlive what records in it. A file that was never written whole is removed. */
RESHARD_API void reshard_trace_destroy(reshard_trace *trace);

/*
 * Writes all that was recorded so far. Nobody may be recording meanwhile. May be called again.
 * Local or Collective, as create was. Errors, agreed by all ranks: IO, NO_MEMORY.
 */
RESHARD_API reshard_status reshard_trace_write(reshard_trace *trace);

/* How many events did not fit: those of all ranks, once the trace was written; before that, those
 * recorded here. Local. */
RESHARD_API uint64_t reshard_trace_dropped(const reshard_trace *trace);

#ifdef __cplusplus
}
#endif
#endif
