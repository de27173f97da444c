/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracing.h - what an exec records in a trace. If there is none, exec->tracing is NULL. Callers
 * check that first, so an exec without a trace does nothing here.
 *
 * Bytes add up: those of all "receive", "unpack" and "copy" spans are what the plan moves, and the
 * kept bytes of "copy" and "combine" spans are what stays. Arrows go from the send of a segment to
 * where it is taken. Between ranks that map each other's memory nothing is sent. Where the target
 * copies, arrows go from the source's "ready" to the target's first copy; where the source copies,
 * from its first copy to the target's "done".
 */
#ifndef RS_EXEC_TRACING_H
#define RS_EXEC_TRACING_H

#include <reshard/exec.h>

#include "exec/operation.h"
#include "exec/traffic.h"
#include "trace/record.h"

typedef struct rs_exec_tracing {
    rs_trace_track *track;
    uint64_t began;        /* at first, of the exec; then, of the "ready" of this stage */
    int32_t run;           /* number of the current run */
    int32_t **tensors;     /* by stage and link: the number of the tensor's name */
    unsigned char **ways;  /* by stage and peer: flags of tracing.c */
    bool copies;           /* a span of copies is open */
    rs_trace_event copied; /* the open span */
    uint64_t waits_from;   /* 0 if this rank is not waiting */
    int32_t waits_for;     /* the peer that it waits for */
} rs_exec_tracing;

/* Takes a track for this thread. The exec must have its group. */
reshard_status rs_tracing_create(reshard_exec *exec, reshard_trace *trace);
/* Called when the stages are built. */
reshard_status rs_tracing_prepare(reshard_exec *exec);
/* Called when the exec is made: records a span for the planning. */
void rs_tracing_planned(reshard_exec *exec);
void rs_tracing_destroy(reshard_exec *exec);

/* Begins a span now. This ends a wait. */
rs_trace_event rs_tracing_begin(reshard_exec *exec, rs_trace_kind kind);
void rs_tracing_end(reshard_exec *exec, rs_trace_event *event);

/* This rank begins to wait, unless it already does; it no longer waits. */
void rs_tracing_wait(reshard_exec *exec);
void rs_tracing_end_wait(reshard_exec *exec);

/* Called in a stage: when this rank has told its peers that its memory is ready, with the span of
 * that; when the ways are known; when peers from .. to - 1 have said that they are done. */
void rs_tracing_ready(reshard_exec *exec, rs_trace_event *event);
void rs_tracing_enter(reshard_exec *exec);
void rs_tracing_done(reshard_exec *exec, int64_t from, int64_t to);

/* Called for copies: when copies begin (those of keeps have no arrows), when some operations are
 * about to run, and when they are over. Copies of one peer and tensor form one span, up to 4
 * MiB, and so do very small ones of several, because reading the clock takes as long as copying a
 * few KiB. */
void rs_tracing_begin_copies(reshard_exec *exec, bool arrows);
void rs_tracing_copies(reshard_exec *exec, int64_t count, const rs_operation *const *operations);
void rs_tracing_end_copies(reshard_exec *exec);

/* For a parcel: fills in a span about it, and adds the arrow that begins or ends with the span. */
void rs_tracing_describe(const reshard_exec *exec, const rs_parcel *parcel, rs_trace_event *event);
void rs_tracing_arrow(reshard_exec *exec, const rs_parcel *parcel, const rs_trace_event *event);

#endif
