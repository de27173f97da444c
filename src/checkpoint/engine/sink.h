/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink.h - what one thread works with, and what sinks are made of. A sink is one function that does
 * a block. Those that want the block in the order of the target's files share rs_block_read and
 * rs_block_emit, and only differ in what they do with a range of bytes that is ready.
 */
#ifndef RS_CHECKPOINT_ENGINE_SINK_H
#define RS_CHECKPOINT_ENGINE_SINK_H

#include "checkpoint/engine/engine.h"

/* The box of the tensor that a block is. */
typedef struct rs_block_box {
    int64_t offset[RESHARD_NDIM_MAX];
    int64_t size[RESHARD_NDIM_MAX];
} rs_block_box;

/* What the block has of one source piece, in memory. */
typedef struct rs_block_part {
    int64_t piece;
    char *memory; /* of the element at offset */
    int64_t offset[RESHARD_NDIM_MAX];
    int64_t size[RESHARD_NDIM_MAX];
    int64_t strides[RESHARD_NDIM_MAX];
} rs_block_part;

typedef struct rs_worker {
    rs_engine *engine;
    char *memory; /* as allocated */
    size_t memory_bytes;
    char *buffer; /* the part of it from the first multiple of the alignment on */
    size_t buffer_bytes;
    char *target;         /* within the buffer, behind what was read */
    size_t alignment;     /* of each part that is read */
    rs_block_part *parts; /* that were read, by piece */
    int64_t part_count, part_capacity;
    rs_block_sums sums;
    int64_t overflows;     /* of casts, in the block at hand */
    rs_trace_track *track; /* NULL: nothing is recorded */
    const rs_route *named; /* whose tensor */
    int32_t tensor;        /* has this number in the trace */
    uint64_t bytes_read;   /* by this thread */
} rs_worker;

/* What the compare sink reads of a target's file at once, behind the thread's memory. */
#define RS_COMPARE_BYTES ((size_t)256 << 10)

struct rs_sink {
    /* Does one block. */
    reshard_status (*run)(rs_worker *worker, const rs_route *route, const rs_block_box *box);
    size_t extra_bytes;  /* of the buffer, behind the thread's, for the sink alone */
    rs_trace_kind takes; /* what it is called to take a range */
};

/* What a thread does from begin to end, if that is recorded. */
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

/* Counts bytes of the source's files. */
static inline void rs_worker_count_read(rs_worker *worker, uint64_t bytes)
{
    worker->bytes_read += bytes;
    atomic_fetch_add(&worker->engine->bytes_read, bytes);
}

/* Reads what the block has of each source piece, each byte once and in as few reads as the file
 * allows, and sums it. */
reshard_status rs_block_read(rs_worker *worker, const rs_route *route, const rs_block_box *box);

/* Takes `count` bytes that belong at byte `at` of a target file. */
typedef reshard_status rs_range_fn(rs_worker *worker, const rs_route *route, int32_t file,
                                   const char *bytes, size_t count, uint64_t at);
/* Brings what was read into the order of the target's pieces, sums it, and hands out its ranges. */
reshard_status rs_block_emit(rs_worker *worker, const rs_route *route, const rs_block_box *box,
                             rs_range_fn *take);

/* The byte of the source or target file where the move has a place of the tensor. */
uint64_t rs_move_source_byte(const rs_route *route, const rs_route_move *move,
                             const int64_t *place);
uint64_t rs_move_target_byte(const rs_route *route, const rs_route_move *move,
                             const int64_t *place);
/* Cuts a block to what it has of a move; false when that is nothing. */
bool rs_move_clip(const rs_route *route, const rs_route_move *move, const rs_block_box *box,
                  rs_block_box *out_inside);

#endif
