/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracing.h - what an exec records in a trace. exec->tracing is NULL when there is none, and
 * callers look at that first: an exec without a trace does nothing here.
 *
 * Bytes add up: those of all "receive", "unpack" and "copy" spans are what the plan moves, and what
 * "copy" and "combine" spans say was kept is what stays. Arrows go from the send
 * of a segment to where it is taken. Between ranks that see each other's memory nothing is sent:
 * where the target walks, they go from the source's "ready" to the target's first copy; where the
 * source walks, from its first copy to the target's "done".
 */
#ifndef RS_EXEC_TRACING_H
#define RS_EXEC_TRACING_H

#include <reshard/exec.h>

#include "exec/operation.h"
#include "exec/traffic.h"
#include "trace/record.h"

typedef struct rs_exec_tracing {
    rs_trace_track *track;
    uint64_t began;        /* when the exec was made; of the ready of this stage */
    int32_t run;           /* the number of this one */
    int32_t **tensors;     /* by stage and link: the numbers of names */
    unsigned char **ways;  /* by stage and peer: bits of tracing.c */
    bool copies;           /* a span of copies is open */
    rs_trace_event copied; /* that span */
    uint64_t waits_from;   /* 0: this rank does not wait */
    int32_t waits_for;     /* a peer */
} rs_exec_tracing;

/* Takes this thread's track. The exec has its group. */
reshard_status rs_tracing_create(reshard_exec *exec, reshard_trace *trace);
/* The stages are built. */
reshard_status rs_tracing_prepare(reshard_exec *exec);
/* The exec is made: that was the planning. */
void rs_tracing_planned(reshard_exec *exec);
void rs_tracing_destroy(reshard_exec *exec);

/* A span that begins now, and ends the wait. */
rs_trace_event rs_tracing_begin(reshard_exec *exec, rs_trace_kind kind);
void rs_tracing_end(reshard_exec *exec, rs_trace_event *event);

/* This rank begins to wait, unless it does so already; it has ended waiting. */
void rs_tracing_wait(reshard_exec *exec);
void rs_tracing_end_wait(reshard_exec *exec);

/* A stage: this rank has told peers that its memory is ready, since `event` began; the ways are
 * known; peers from..to-1 have told that they are done. */
void rs_tracing_ready(reshard_exec *exec, rs_trace_event *event);
void rs_tracing_enter(reshard_exec *exec);
void rs_tracing_done(reshard_exec *exec, int64_t from, int64_t to);

/* Copies: a walk begins (keeps have no arrows), some operations are about to run, the walk is over.
 * Copies of one peer and tensor are one span, up to 4 MiB, and so are very small ones of several:
 * to look at the clock takes as long as to copy a few KiB. */
void rs_tracing_begin_walk(reshard_exec *exec, bool arrows);
void rs_tracing_copies(reshard_exec *exec, int64_t count, const rs_operation *const *operations);
void rs_tracing_end_walk(reshard_exec *exec);

/* A segment: what a span about it tells, and the arrow that begins or ends with the span. */
void rs_tracing_describe(const reshard_exec *exec, const rs_traffic *traffic,
                         const rs_parcel *parcel, rs_trace_event *event);
void rs_tracing_arrow(reshard_exec *exec, const rs_traffic *traffic, const rs_parcel *parcel,
                      const rs_trace_event *event);

#endif
