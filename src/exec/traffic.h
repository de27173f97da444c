/* SPDX-License-Identifier: Apache-2.0 */
/*
 * traffic.h - everything that does not go directly. Each ordered pair of ranks has one stream of
 * bytes in a stage (plan_inspect.h), cut into segments that pass through staging memory of a fixed
 * size. traffic_make.c sets this up, traffic.c runs it.
 *
 * A lane is one direction to one peer: a stream, seen from one of its ends. A parcel is a segment
 * under way, with its piece of staging.
 */
#ifndef RS_EXEC_TRAFFIC_H
#define RS_EXEC_TRAFFIC_H

#include <reshard/exec.h>
#include <reshard/transport.h>

#include "plan/plan.h"

#include <stdbool.h>

typedef struct rs_lane {
    bool sending;
    const struct rs_exec_peer *peer;
    reshard_stream *stream;
    uint64_t bytes;
    size_t segment_bytes; /* where the stream is cut; the same at both ends */
    /* Receiver only: where each move waits in scratch until it is combined, or -1 if it is written
     * straight to its destination. */
    int64_t *scratch_at;
    char cut_element[16];
} rs_lane;

typedef struct rs_parcel {
    reshard_request request, answer;
    char *memory; /* staging */
    char *place;  /* where the message's bytes are: `memory`, or the shard itself */
    rs_lane *lane;
    int64_t number;    /* of this segment in its lane */
    uint64_t from, to; /* bytes of the lane's stream */
    void *notice;      /* staging only: where the segment is in the sender's memory */
    bool taken;        /* the request is complete; if receiving, the segment is unpacked too */
} rs_parcel;

/* All lanes on which this rank sends in a stage, or all on which it receives. */
typedef struct rs_lanes {
    int64_t count;
    rs_lane *items; /* ordered by round */
    /* The run. Parcels are started and finished in order. */
    int64_t next;       /* the lane of the next segment to be cut */
    uint64_t next_byte; /* where that segment begins */
    int64_t started, finished;
} rs_lanes;

/* What can be under way in one direction. The two ends of a lane may have different numbers. */
typedef struct rs_parcels {
    int64_t count;
    rs_parcel *items;
    size_t bytes; /* of staging for each */
} rs_parcels;

typedef struct rs_traffic {
    struct {
        rs_lanes out, in;
    } stages[RS_STAGES_MAX];
    size_t segment_bytes; /* where lanes to far peers are cut */
    rs_parcels out, in;
    char *scratch; /* contributions that have arrived and wait to be combined */
    size_t scratch_bytes;
} rs_traffic;

/* exec->traffic is made in three steps: empty; then the lanes of each stage, once its peers are
 * known; then parcels and scratch, when all lanes and the places in scratch are known. */
reshard_status rs_traffic_create(reshard_exec *exec);
reshard_status rs_traffic_make_lanes(reshard_exec *exec, int32_t stage);
reshard_status rs_traffic_make_parcels(reshard_exec *exec);
void rs_traffic_destroy(reshard_exec *exec);
/* The memory for all parcels, which the exec allocates. */
size_t rs_traffic_staging_bytes(const rs_traffic *traffic);
void rs_traffic_place(rs_traffic *traffic, char *staging);

/* The last move of a stream that begins at or before a byte. */
int64_t rs_stream_find(const reshard_stream *stream, uint64_t byte);

/* Run the traffic of stage exec->stage. The ways of its peers must be known. */
reshard_status rs_traffic_begin(reshard_exec *exec);
reshard_status rs_traffic_progress(reshard_exec *exec, bool *out_received, bool *out_sent);

#endif
