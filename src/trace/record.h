/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - records events, for the layers that move bytes.
 *
 * A track is a row of the picture: one thread of one rank. A thread takes its track before it
 * records and gives it back when it is done; if it takes a track twice, it gets the same one.
 * Recording claims the next place in the track's array and fills it, without a lock or an
 * allocation. When the array is full, events are dropped but still counted.
 *
 *     rs_trace_event event = rs_trace_begin(track, RS_TRACE_PACK); event.bytes = ..
 *     rs_trace_end(track, &event);
 */
#ifndef RS_TRACE_RECORD_H
#define RS_TRACE_RECORD_H

#include <reshard/trace.h>

#include "base/slice.h"

#include <stdatomic.h>
#include <stdbool.h>

/* Kinds of events, with their name and category in the file: spans, and flows, which are the arrows
 * from span to span. */
#define RS_TRACE_KINDS(X)           \
    X(PLAN, "plan", "plan")         \
    X(READY, "ready", "exec")       \
    X(COPY, "copy", "exec")         \
    X(COMBINE, "combine", "exec")   \
    X(PACK, "pack", "exec")         \
    X(SEND, "send", "exec")         \
    X(RECEIVE, "receive", "exec")   \
    X(UNPACK, "unpack", "exec")     \
    X(WAIT, "wait", "exec")         \
    X(DONE, "done", "exec")         \
    X(VERIFY, "verify", "exec")     \
    X(READ, "read", "disk")         \
    X(WRITE, "write", "disk")       \
    X(ARRANGE, "copy", "disk")      \
    X(SHARE, "kernel copy", "disk") \
    X(COMPARE, "compare", "disk")   \
    X(SYNC, "sync", "disk")         \
    X(STAGE, "stage", "predicted")  \
    X(FLOW_BEGIN, "bytes", "flow")  \
    X(FLOW_END, "bytes", "flow")

typedef enum rs_trace_kind {
#define RS_TRACE_ENUM(name, text, category) RS_TRACE_##name,
    RS_TRACE_KINDS(RS_TRACE_ENUM) RS_TRACE_KIND_COUNT
#undef RS_TRACE_ENUM
} rs_trace_kind;

/* Used in place of a number: there is none, or there are several different ones. */
enum { RS_TRACE_NONE = -1, RS_TRACE_SEVERAL = -2 };

typedef struct rs_trace_event {
    uint64_t begin, end; /* ns; a flow has only begin */
    uint64_t bytes;      /* 0 if unknown */
    union {
        uint64_t kept; /* bytes that stay on their rank; 0 if unknown */
        uint64_t flow; /* flows only: the number that both ends share */
    };
    int32_t tensor; /* number of the tensor's name (rs_trace_name) */
    int32_t peer;   /* rank of the whole group */
    int32_t round, segment;
    int32_t exec, run;
    int16_t stage;
    uint8_t kind; /* rs_trace_kind */
} rs_trace_event;

typedef struct rs_trace_track {
    reshard_trace *trace;
    int32_t rank, thread;
    const char *label; /* name of the thread (static), or NULL to use its number */
    rs_trace_event *events;
    int64_t capacity;
    atomic_int_fast64_t claimed; /* events recorded; those beyond the capacity are dropped */
    const void *holder;          /* the thread that holds the track */
    int32_t holds;               /* how many times it has taken it */
    struct rs_trace_track *next;
} rs_trace_track;

/* Takes the track of this thread for a rank: the one that it holds already, or else the first one
 * from `thread` on that no thread holds. A new track has room for `capacity` events; 0 means the
 * number in the trace's options. */
reshard_status rs_trace_take(reshard_trace *trace, int32_t rank, int32_t thread, int64_t capacity,
                             rs_trace_track **out_track);
/* Takes NULL. Recorded events stay. */
void rs_trace_give_back(rs_trace_track *track);
/* Returns the number of a name, and keeps its first 1024 bytes. */
reshard_status rs_trace_name(reshard_trace *trace, rs_slice name, int32_t *out_number);
/* Says that the times of this trace are not read from a clock; `text`, which must be static, says
 * what they are. */
void rs_trace_set_origin(reshard_trace *trace, const char *text);
/* Notes how many ranks were left out because there would be too many events. */
void rs_trace_leave_out(reshard_trace *trace, int32_t ranks);

uint64_t rs_trace_now(const rs_trace_track *track);
void rs_trace_add(rs_trace_track *track, const rs_trace_event *event);
/* An event with only its kind and its beginning set. */
rs_trace_event rs_trace_span(rs_trace_kind kind, uint64_t begin);
/* Records where an arrow begins or ends. Both ends have the same number, which is not 0. */
void rs_trace_flow(rs_trace_track *track, rs_trace_kind kind, uint64_t at, uint64_t flow);

static inline rs_trace_event rs_trace_begin(const rs_trace_track *track, rs_trace_kind kind)
{
    return rs_trace_span(kind, rs_trace_now(track));
}

static inline void rs_trace_end(rs_trace_track *track, rs_trace_event *event)
{
    event->end = rs_trace_now(track);
    rs_trace_add(track, event);
}

#endif
