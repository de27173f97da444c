/* SPDX-License-Identifier: Apache-2.0 */
/*
 * record.h - recording events, for the layers that move bytes.
 *
 * A track is a row of the picture: one thread of one rank. Whoever is about to record takes the
 * track of its thread and gives it back when it is done with it; a thread that takes twice has the
 * same one twice. To record is to claim the next place of the track's array and to fill it: no lock
 * and no allocation. When the array is full, the claim counts what was dropped.
 *
 *     rs_trace_event event = rs_trace_begin(track, RS_TRACE_PACK);
 *     event.bytes = ..
 *     rs_trace_end(track, &event);
 */
#ifndef RS_TRACE_RECORD_H
#define RS_TRACE_RECORD_H

#include <reshard/trace.h>

#include "base/slice.h"

#include <stdatomic.h>
#include <stdbool.h>

/* What spans are called in the file; then flows, the arrows from span to span. */
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

/* In place of a number: it has none, or several that differ. */
enum { RS_TRACE_NONE = -1, RS_TRACE_SEVERAL = -2 };

typedef struct rs_trace_event {
    uint64_t begin, end; /* ns; of a flow, begin alone */
    uint64_t bytes;      /* 0: not told */
    union {
        uint64_t kept; /* bytes that stay on their rank; 0: not told */
        uint64_t flow; /* of a flow: which one */
    };
    int32_t tensor; /* the number of its name */
    int32_t peer;   /* as a rank of all */
    int32_t round, segment;
    int32_t exec, run;
    int16_t stage;
    uint8_t kind; /* rs_trace_kind */
} rs_trace_event;

typedef struct rs_trace_track {
    reshard_trace *trace;
    int32_t rank, thread;
    const char *label; /* of the thread; static; NULL: its number */
    rs_trace_event *events;
    int64_t capacity;
    atomic_int_fast64_t claimed; /* beyond the capacity: dropped */
    const void *holder;          /* the thread that has it */
    int32_t holds;               /* how often */
    struct rs_trace_track *next;
} rs_trace_track;

/* The track of this thread, as a thread of that rank: the one it has already, or else the first
 * from `thread` on that nobody has. With capacity 0, as many events as the trace's options say. */
reshard_status rs_trace_take(reshard_trace *trace, int32_t rank, int32_t thread, int64_t capacity,
                             rs_trace_track **out_track);
/* Takes NULL. What was recorded stays. */
void rs_trace_give_back(rs_trace_track *track);
/* The number of a name: its first 1024 bytes, kept once. */
reshard_status rs_trace_name(reshard_trace *trace, rs_slice name, int32_t *out_number);
/* The times of this trace are not those of a clock but what the text, which is static, says. */
void rs_trace_set_origin(reshard_trace *trace, const char *text);
/* So many ranks were left out, because there would be too many events. */
void rs_trace_leave_out(reshard_trace *trace, int32_t ranks);

uint64_t rs_trace_now(const rs_trace_track *track);
void rs_trace_add(rs_trace_track *track, const rs_trace_event *event);
/* An event that knows nothing but its kind and its beginning. */
rs_trace_event rs_trace_span(rs_trace_kind kind, uint64_t begin);
/* An arrow begins or ends here; the two ends have the same number, which is not 0. */
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
