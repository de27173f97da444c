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
 * Execs, conversions, loads and saves take a trace in their options and record spans of time in it;
 * docs/trace.md lists the names of the spans and what they mean. Each rank is a process in the
 * file, and each of its threads a thread. Times are those of CLOCK_MONOTONIC on rank 0's host.
 * Ranks on other hosts compare their clock with it when the trace is made and when it is written,
 * by the shortest of several round trips, and times in between are interpolated. The file states
 * these round trips.
 *
 * Memory is bounded: each thread keeps a fixed number of events and drops later ones; the file says
 * how many were dropped. Without a trace, recording costs a branch.
 */
#ifndef RESHARD_TRACE_H
#define RESHARD_TRACE_H

#include <reshard/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== explicit ===================================================================================
 * Make a trace, hand it to execs, conversions and loads, write it.
 */

typedef struct reshard_trace reshard_trace;

typedef struct reshard_trace_options {
    size_t size;               /* sizeof(reshard_trace_options) */
    int64_t thread_events_max; /* events kept for each thread, of 64 bytes; 0: 65536 */
} reshard_trace_options;

/*
 * Collective over the group, which is retained: each rank makes a trace of its own, and all go into
 * one file. group NULL: the current one. If there is none, this is Local: all threads of this
 * process may record in the trace, whichever rank they are.
 *
 * Rank 0 opens the file at once, so that a path that cannot be written is found before any work is
 * done. If the file is an older trace, it is replaced when the new one is written. Errors: INVALID
 * (the file exists and is not a trace, a number below zero), IO, NO_MEMORY.
 */
RESHARD_API reshard_status reshard_trace_create(reshard_context *context, reshard_group *group,
                                                const char *path,
                                                const reshard_trace_options *options,
                                                reshard_trace **out_trace);
/* Local. Destroy whatever records in the trace first. If the trace was never written completely,
 * its file is removed. */
RESHARD_API void reshard_trace_destroy(reshard_trace *trace);

/*
 * Writes everything recorded so far. No thread may record meanwhile. May be called again later.
 * Local or Collective, as create was. Errors, agreed by all ranks: IO, NO_MEMORY.
 */
RESHARD_API reshard_status reshard_trace_write(reshard_trace *trace);

/* How many events were dropped: by all ranks once the trace has been written, before that by this
 * rank. Local. */
RESHARD_API uint64_t reshard_trace_dropped(const reshard_trace *trace);

#ifdef __cplusplus
}
#endif
#endif
