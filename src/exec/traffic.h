/* SPDX-License-Identifier: Apache-2.0 */
/*
 * traffic.h - everything that does not go directly in a stage. Each ordered pair of ranks has one
 * stream of bytes (plan.h), cut into segments that are sent through staging memory of a fixed size.
 * traffic_make.c makes this, traffic.c runs it.
 */
#ifndef RS_EXEC_TRAFFIC_H
#define RS_EXEC_TRAFFIC_H

#include <reshard/exec.h>
#include <reshard/transport.h>

#include "plan/plan.h"

#include <stdbool.h>

/* One pair's stream, seen from one of its ends. */
typedef struct rs_lane {
    int64_t peer; /* index among the stage's */
    reshard_stream *stream;
    uint64_t bytes;
    size_t segment_bytes; /* where it is cut: both ends cut alike */
    /* of a receiver: where in scratch each move waits to be combined; -1: it goes to its place */
    int64_t *scratch_at;
    char carry[16];
} rs_lane;

/* A segment under way, and the staging it passes through. */
typedef struct rs_parcel {
    reshard_request request, answer;
    char *memory;
    char *place; /* where the message's bytes are: in `memory`, or in the shard */
    int64_t lane;
    int64_t number;    /* of the lane's segments */
    uint64_t from, to; /* bytes of the lane's stream */
    void *notice;      /* through staging: where the sender has put it, in the sender's memory */
    bool taken;        /* received and unpacked */
} rs_parcel;

/* All that this rank sends in a stage, or all that it receives. */
typedef struct rs_traffic {
    bool sending;
    int64_t lane_count;
    rs_lane *lanes; /* by round */
    /* the run: segments are started and finished in order */
    int64_t next_lane;
    uint64_t next_byte;
    int64_t started, finished;
} rs_traffic;

/* How much can be under way on one side. The two ends of a lane may have different windows. */
typedef struct rs_window {
    int64_t parcel_count;
    rs_parcel *parcels;
    size_t parcel_bytes;
} rs_window;

typedef struct rs_messages {
    reshard_exec *exec;
    struct {
        rs_traffic out, in;
    } stages[RS_STAGES_MAX];
    size_t segment_bytes; /* where lanes to peers that are not near are cut */
    rs_window out, in;
    char *scratch;
    size_t scratch_bytes;
} rs_messages;

/* Makes everything but the staging. *out_messages must be destroyed even after a failure. */
reshard_status rs_messages_create(reshard_exec *exec, rs_messages **out_messages);
void rs_messages_destroy(rs_messages *messages);
size_t rs_messages_staging_bytes(const rs_messages *messages);
void rs_messages_place(rs_messages *messages, char *staging);
/* Scratch: contributions that have arrived and wait to be combined. */
const char *rs_messages_scratch(const rs_messages *messages);

/* Run the stage exec->stage. The ways of its peers must be known. */
/* The last move of a stream that begins at or before a byte. */
int64_t rs_stream_find(const reshard_stream *stream, uint64_t byte);

reshard_status rs_messages_begin(rs_messages *messages);
reshard_status rs_messages_progress(rs_messages *messages, bool *out_received, bool *out_sent);

#endif
