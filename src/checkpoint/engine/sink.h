/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink.h - the state of one thread, and what sinks are made of. A sink is one function that does a
 * block. Sinks that need the block in the order of the target's files share rs_block_read and
 * rs_block_emit, and differ only in what they do with each finished range of bytes.
 */
#ifndef RS_CHECKPOINT_ENGINE_SINK_H
#define RS_CHECKPOINT_ENGINE_SINK_H

#include "checkpoint/engine/engine.h"

/* The box of the tensor that a block covers. */
typedef struct rs_block_box {
    int64_t offset[RESHARD_NDIM_MAX];
    int64_t size[RESHARD_NDIM_MAX];
} rs_block_box;

/* A block's share of one source piece, in memory. */
typedef struct rs_block_part {
    int64_t piece;
    char *memory; /* the element at `offset` */
    int64_t offset[RESHARD_NDIM_MAX];
    int64_t size[RESHARD_NDIM_MAX];
    int64_t strides[RESHARD_NDIM_MAX];
} rs_block_part;

typedef struct rs_worker {
    rs_engine *engine;
    char *memory; /* as allocated */
    size_t memory_bytes;
    char *buffer; /* `memory`, from its first multiple of RS_BLOCK_ALIGNMENT on */
    size_t buffer_bytes;
    char *target;         /* within the buffer, after the source bytes */
    size_t alignment;     /* of each part; 1: parts are packed */
    rs_block_part *parts; /* the parts that were read, sorted by piece */
    int64_t part_count, part_capacity;
    rs_block_sums sums;
    int64_t overflows;     /* casts that overflowed in the current block */
    rs_trace_track *track; /* NULL: nothing is traced */
    const rs_route *named; /* route whose tensor was named last in the trace */
    int32_t tensor;        /* that tensor's number in the trace */
    uint64_t bytes_read;   /* by this thread */
} rs_worker;

/* How much of a target file the compare sink reads at once. That buffer lies after the thread's
 * own. */
#define RS_COMPARE_BYTES ((size_t)256 << 10)

struct rs_sink {
    /* Carries out one block. */
    reshard_status (*run)(rs_worker *worker, const rs_route *route, const rs_block_box *box);
    size_t extra_bytes;  /* buffer for the sink alone, after the thread's */
    rs_trace_kind takes; /* trace event for handling a range */
};

/* Begin and end an event of the thread, if it is traced. */
static inline void rs_worker_begin(const rs_worker *worker, rs_trace_kind kind,
                                   rs_trace_event *out_event)
{
    if (worker->track == NULL)
        return;
    *out_event = rs_trace_begin(worker->track, kind);
    out_event->tensor = worker->tensor;
}

static inline void rs_worker_end(const rs_worker *worker, rs_trace_event *event, uint64_t bytes)
{
    if (worker->track == NULL)
        return;
    event->bytes = bytes;
    rs_trace_end(worker->track, event);
}

/* Counts bytes that were read from the source's files. */
static inline void rs_worker_count_read(rs_worker *worker, uint64_t bytes)
{
    worker->bytes_read += bytes;
    atomic_fetch_add(&worker->engine->bytes_read, bytes);
}

/* Reads a block's share of each source piece, each byte once and in as few reads as the file
 * allows, and sums it. */
reshard_status rs_block_read(rs_worker *worker, const rs_route *route, const rs_block_box *box);

/* Consumes `count` bytes that belong at byte `at` of a target file. */
typedef reshard_status rs_range_fn(rs_worker *worker, const rs_route *route, int32_t file,
                                   const char *bytes, size_t count, uint64_t at);
/* Rearranges what was read into the order of the target's pieces, sums it, and hands out its
 * ranges. */
reshard_status rs_block_emit(rs_worker *worker, const rs_route *route, const rs_block_box *box,
                             rs_range_fn *take);

/* The byte of the source or target file at which the move has an element, given by its place in the
 * tensor. */
uint64_t rs_move_source_byte(const rs_route *route, const rs_route_move *move,
                             const int64_t *place);
uint64_t rs_move_target_byte(const rs_route *route, const rs_route_move *move,
                             const int64_t *place);
/* The part of a move that lies in a block. Returns false if there is none. */
bool rs_move_clip(const rs_route *route, const rs_route_move *move, const rs_block_box *box,
                  rs_block_box *out_inside);

#endif
