/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h - the struct of a trace. record.c fills it, and write.c writes it: each rank turns its
 * own events into text (events.c), with times by rank 0's clock (clocks.c), and rank 0 writes the
 * text to the file as it arrives, so that no rank holds all of it.
 */
#ifndef RS_TRACE_TRACE_H
#define RS_TRACE_TRACE_H

#include "base/intern.h"
#include "system/file.h"
#include "system/thread.h"
#include "text/json_writer.h"
#include "trace/clocks.h"
#include "trace/record.h"

struct reshard_trace {
    reshard_context *context;
    reshard_group *group; /* retained; NULL for a single process */
    rs_trace_clock clock;
    rs_clock_point begin; /* measured when the trace was created */
    uint64_t made;        /* time of creation, by this rank's clock */
    int64_t thread_events_max;
    const char *origin; /* what the times are if they are not from a clock; static */
    int32_t ranks_left_out;
    char *path;
    rs_file *file; /* on rank 0 only */
    bool is_new;   /* the file did not exist before */
    bool is_whole; /* the file was written completely */
    uint64_t dropped_by_all;

    rs_mutex mutex; /* guards the fields below */
    bool has_mutex;
    rs_trace_track *tracks; /* newest first */
    rs_arena arena;
    rs_intern names;
};

/* Like reshard_trace_create, but with a given clock, for tests. */
reshard_status rs_trace_create_by(reshard_context *context, reshard_group *group, const char *path,
                                  const reshard_trace_options *options, const rs_trace_clock *clock,
                                  reshard_trace **out_trace);

/* ---- JSON output (events.c) ------------------------------------------------------------------ */

/* Writes the names of a track's rank and thread. */
void rs_trace_write_labels(rs_json_writer *writer, const rs_trace_track *track);
/* Writes one event; `clocks` converts its times to those of the file. */
void rs_trace_write_event(rs_json_writer *writer, const rs_trace_track *track,
                          const rs_trace_event *event, const rs_clock_line *clocks);

#endif
