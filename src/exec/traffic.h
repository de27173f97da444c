/* SPDX-License-Identifier: Apache-2.0 */
/*
 * traffic.h - everything that does not go directly in a stage. Each ordered pair of ranks has one
 * stream of bytes (plan.h), cut into segments that pass through staging memory of a fixed size.
 * traffic_make.c sets this up, traffic.c runs it.
 */
#ifndef RS_EXEC_TRAFFIC_H
#define RS_EXEC_TRAFFIC_H

#include <reshard/exec.h>
#include <reshard/transport.h>

#include "plan/plan.h"

#include <stdbool.h>

/* The stream of one pair of ranks, seen from one of its ends. */
typedef struct rs_lane {
    int64_t peer; /* index into the stage's list of peers */
    reshard_stream *stream;
    uint64_t bytes;
    size_t segment_bytes; /* where the stream is cut; the same at both ends */
    /* Receiver only: where each move waits in scratch until it is combined, or -1 if it is written
     * straight to its destination. */
    int64_t *scratch_at;
    char cut_element[16];
} rs_lane;

/* A segment under way, and the staging it passes through. */
typedef struct rs_parcel {
    reshard_request request, answer;
    char *memory;
    char *place; /* where the message's bytes are: `memory`, or the shard itself */
    int64_t lane;
    int64_t number;    /* of this segment in its lane */
    uint64_t from, to; /* bytes of the lane's stream */
    void *notice;      /* staging only: where the segment is in the sender's memory */
    bool taken;        /* the request is complete; if receiving, the segment is unpacked too */
} rs_parcel;

/* Everything that this rank sends in a stage, or everything that it receives. */
typedef struct rs_traffic {
    bool sending;
    int64_t lane_count;
    rs_lane *lanes; /* ordered by round */
    /* The run. Segments are started and finished in order. */
    int64_t next_lane;
    uint64_t next_byte;
    int64_t started, finished;
} rs_traffic;

/* How much can be under way in one direction. The two ends of a lane may have different windows. */
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
    size_t segment_bytes; /* where lanes to far peers are cut */
    rs_window out, in;
    char *scratch;
    size_t scratch_bytes;
} rs_messages;

/* Made in three steps: empty; then the lanes of each stage, whose peers must be known, as they are
 * built; then, when all lanes and the places in scratch are known, windows and scratch. */
reshard_status rs_messages_create(reshard_exec *exec, rs_messages **out_messages);
reshard_status rs_messages_make_lanes(rs_messages *messages, int32_t stage);
reshard_status rs_messages_make_windows(rs_messages *messages);
void rs_messages_destroy(rs_messages *messages);
size_t rs_messages_staging_bytes(const rs_messages *messages);
void rs_messages_place(rs_messages *messages, char *staging);
/* The memory for contributions that have arrived and wait to be combined. */
const char *rs_messages_scratch(const rs_messages *messages);

/* The last move of a stream that begins at or before a byte. */
int64_t rs_stream_find(const reshard_stream *stream, uint64_t byte);

/* Run the messages of stage exec->stage. The ways of its peers must be known. */
reshard_status rs_messages_begin(rs_messages *messages);
reshard_status rs_messages_progress(rs_messages *messages, bool *out_received, bool *out_sent);

#endif
