/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.h - what a trace is made of. record.c fills it, write.c writes it: each rank turns its own
 * events into text (events.c), with times of rank 0's clock (clocks.c), and rank 0 puts them into
 * the file as they come, so that nobody holds the text of all.
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
    reshard_group *group; /* retained; NULL: alone */
    rs_trace_clock clock;
    rs_clock_point begin; /* when it was made */
    uint64_t made;        /* then, by this rank's clock */
    int64_t thread_events_max;
    const char *origin; /* what the times are, where that is not a clock; static */
    int32_t ranks_left_out;
    char *path;
    rs_file *file; /* of rank 0 */
    bool is_new;   /* the file was not there before */
    bool is_whole; /* it was written */
    uint64_t dropped_by_all;

    rs_mutex mutex; /* of what follows */
    bool has_mutex;
    rs_trace_track *tracks; /* youngest first */
    rs_arena arena;
    rs_intern names;
};

/* The same as reshard_trace_create by another clock, for tests. */
reshard_status rs_trace_create_by(reshard_context *context, reshard_group *group, const char *path,
                                  const reshard_trace_options *options, const rs_trace_clock *clock,
                                  reshard_trace **out_trace);

/* ---- as JSON (events.c) ---------------------------------------------------------------------- */

/* Names of the rank and the thread of a track. */
void rs_trace_write_labels(rs_json_writer *writer, const rs_trace_track *track);
/* One event; `clocks` brings its times to those of the file. */
void rs_trace_write_event(rs_json_writer *writer, const rs_trace_track *track,
                          const rs_trace_event *event, const rs_clock_line *clocks);

#endif
