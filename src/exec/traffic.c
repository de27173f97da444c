/* SPDX-License-Identifier: Apache-2.0 */
/*
 * traffic.c - runs the traffic of a stage, a few parcels at a time.
 *
 * Rounds prevent deadlocks: in round k, rank r sends to r+k and receives from r-k, and both sides
 * go through rounds and segments in order. Of all unfinished segments, one of the lowest round is
 * the first that its sender has not sent and the first that its receiver has not received, so it is
 * under way on both sides. Both ends leave out pairs whose bytes go directly.
 *
 * For a near peer, a segment is packed into the sender's shared staging, and is small enough to
 * stay in the cache. A notice says where it is; the peer unpacks it from there and answers, and the
 * staging is free again. For a far peer, the segment itself is the message: packed, or sent from
 * where it lies if its bytes are contiguous there.
 */
#include "exec/traffic.h"

#include "base/checked.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/search.h"
#include "base/shape.h"
#include "exec/exec.h"
#include "exec/segment.h"

#include <assert.h>

/* ---- segments -------------------------------------------------------------------------------- */

int64_t rs_stream_find(const reshard_stream *stream, uint64_t byte)
{
    assert(stream->count > 0 && byte < stream->offsets[stream->count]);
    int64_t next;
    RS_FIND_FIRST(next, stream->count, stream->offsets[next] > byte);
    return next - 1;
}

static reshard_dtype narrower(const reshard_stage_link *link)
{
    return reshard_dtype_bits(link->target_dtype) < reshard_dtype_bits(link->source_dtype)
               ? link->target_dtype
               : link->source_dtype;
}

/* Finds the memory of a move at this end: in its slot, or densely in scratch. */
static void find_memory(reshard_exec *exec, const rs_lane *lane, int64_t index,
                        int64_t *dense_strides, rs_segment_move *out)
{
    const reshard_move *move = &lane->stream->moves[index];
    reshard_stage_link link =
        rs_plan_stage_link(exec->plan, exec->stage, lane->stream->links[index]);
    *out = (rs_segment_move){.move = move, .wire = narrower(&link)};
    if (!lane->sending && lane->scratch_at[index] >= 0) {
        rs_dense_strides(move->ndim, move->size, dense_strides);
        out->memory = exec->traffic->scratch + lane->scratch_at[index];
        out->strides = dense_strides;
        out->dtype = link.source_dtype;
        return;
    }
    out->dtype = lane->sending ? link.source_dtype : link.target_dtype;
    out->strides = lane->sending ? move->source_strides : move->target_strides;
    int64_t at = lane->sending ? move->source_at : move->target_at;
    int64_t slot = rs_exec_slot(exec, &link, lane->sending,
                                lane->sending ? move->source_shard : move->target_shard);
    out->memory = (char *)exec->addresses->slots[slot] + at * (int64_t)rs_element_bytes(out->dtype);
}

/* Packs the segment of a parcel into `bytes`, or unpacks it from there. */
static void pack_or_unpack(reshard_exec *exec, const rs_parcel *parcel, char *bytes)
{
    rs_lane *lane = parcel->lane;
    const uint64_t *offsets = lane->stream->offsets;
    int64_t index = rs_stream_find(lane->stream, parcel->from);
    for (uint64_t at = parcel->from; at < parcel->to; index++) {
        uint64_t begin = offsets[index];
        uint64_t end = offsets[index + 1] < parcel->to ? offsets[index + 1] : parcel->to;
        int64_t dense_strides[RESHARD_FACTORS_MAX];
        rs_segment_move move;
        find_memory(exec, lane, index, dense_strides, &move);
        if (lane->sending)
            rs_segment_pack(&move, at - begin, end - begin, bytes);
        else
            rs_segment_unpack(&move, at - begin, end - begin, bytes, lane->cut_element);
        bytes += end - at;
        at = end;
    }
}

/* The address of a segment that is part of one move and lies in memory exactly as in the stream;
 * otherwise NULL. */
static char *find_place(reshard_exec *exec, const rs_parcel *parcel)
{
    const reshard_stream *stream = parcel->lane->stream;
    int64_t index = rs_stream_find(stream, parcel->from);
    if (parcel->to > stream->offsets[index + 1])
        return NULL;
    int64_t dense_strides[RESHARD_FACTORS_MAX];
    rs_segment_move move;
    find_memory(exec, parcel->lane, index, dense_strides, &move);
    char *first = rs_segment_dense(&move);
    return first != NULL ? first + (parcel->from - stream->offsets[index]) : NULL;
}

static void pack_or_unpack_traced(reshard_exec *exec, const rs_parcel *parcel, char *bytes)
{
    if (exec->tracing == NULL) {
        pack_or_unpack(exec, parcel, bytes);
        return;
    }
    bool sending = parcel->lane->sending;
    rs_trace_event event = rs_tracing_begin(exec, sending ? RS_TRACE_PACK : RS_TRACE_UNPACK);
    rs_tracing_describe(exec, parcel, &event);
    if (!sending)
        rs_tracing_arrow(exec, parcel, &event);
    pack_or_unpack(exec, parcel, bytes);
    rs_tracing_end(exec, &event);
}

/* ---- starting -------------------------------------------------------------------------------- */

static rs_way way_of(const rs_lane *lane)
{
    return lane->sending ? lane->peer->out : lane->peer->in;
}

static void skip_direct(rs_lanes *lanes)
{
    while (lanes->next < lanes->count && way_of(&lanes->items[lanes->next]) == RS_WAY_DIRECT)
        lanes->next++;
}

/* Cuts the next segment. Both ends of a lane make the same cuts. */
static void cut_segment(rs_lanes *lanes, rs_parcel *parcel)
{
    assert(lanes->next < lanes->count && lanes->next_byte < lanes->items[lanes->next].bytes);
    rs_lane *lane = &lanes->items[lanes->next];
    size_t most = lane->segment_bytes;
    parcel->lane = lane;
    parcel->from = lanes->next_byte;
    parcel->number = (int64_t)(parcel->from / most);
    parcel->to = lane->bytes - parcel->from < most ? lane->bytes : parcel->from + most;
    parcel->taken = false;
    assert(parcel->from < parcel->to && parcel->to <= lane->bytes);
    lanes->next_byte = parcel->to;
    if (lanes->next_byte == lane->bytes) {
        lanes->next++;
        lanes->next_byte = 0;
        skip_direct(lanes);
    }
    lanes->started++;
}

/* Sends the segment itself, or the notice that says where it is. */
static reshard_status send(reshard_exec *exec, rs_parcel *parcel, const void *bytes, size_t count)
{
    int32_t data = rs_exec_channel(exec, RS_CHANNEL_DATA), rank = parcel->lane->peer->rank;
    if (exec->tracing == NULL)
        return rs_group_send(exec->group, rank, data, bytes, count, &parcel->request);
    rs_trace_event event = rs_tracing_begin(exec, RS_TRACE_SEND);
    rs_tracing_describe(exec, parcel, &event);
    rs_tracing_arrow(exec, parcel, &event);
    reshard_status status = rs_group_send(exec->group, rank, data, bytes, count, &parcel->request);
    rs_tracing_end(exec, &event);
    return status;
}

static reshard_status start_send(reshard_exec *exec, rs_parcel *parcel)
{
    if (way_of(parcel->lane) == RS_WAY_MESSAGES) {
        parcel->place = find_place(exec, parcel);
        if (parcel->place == NULL) {
            parcel->place = parcel->memory;
            pack_or_unpack_traced(exec, parcel, parcel->memory);
        }
        return send(exec, parcel, parcel->place, (size_t)(parcel->to - parcel->from));
    }
    reshard_status status = rs_group_touch(exec->group, true);
    if (status != RESHARD_OK)
        return status;
    assert(parcel->lane->peer->near); /* others could not read the staging */
    parcel->notice = parcel->memory;
    pack_or_unpack_traced(exec, parcel, parcel->memory);
    rs_copy_fence();
    status = rs_group_touch(exec->group, false);
    if (status == RESHARD_OK)
        status =
            rs_group_receive(exec->group, parcel->lane->peer->rank,
                             rs_exec_channel(exec, RS_CHANNEL_TAKEN), NULL, 0, &parcel->answer);
    return status == RESHARD_OK ? send(exec, parcel, &parcel->notice, sizeof parcel->notice)
                                : status;
}

static reshard_status start_receive(reshard_exec *exec, rs_parcel *parcel)
{
    void *bytes = &parcel->notice;
    size_t count = sizeof parcel->notice;
    if (way_of(parcel->lane) == RS_WAY_MESSAGES) {
        parcel->place = find_place(exec, parcel);
        if (parcel->place == NULL)
            parcel->place = parcel->memory;
        bytes = parcel->place;
        count = (size_t)(parcel->to - parcel->from);
    }
    return rs_group_receive(exec->group, parcel->lane->peer->rank,
                            rs_exec_channel(exec, RS_CHANNEL_DATA), bytes, count, &parcel->request);
}

/* ---- finishing ------------------------------------------------------------------------------- */

static reshard_status take_from_staging(reshard_exec *exec, rs_parcel *parcel)
{
    int32_t rank = parcel->lane->peer->rank;
    size_t bytes = (size_t)(parcel->to - parcel->from);
    reshard_status status = rs_group_touch(exec->group, true);
    if (status != RESHARD_OK)
        return status;
    char *seen = rs_group_map(exec->group, rank, parcel->notice, bytes);
    if (seen != NULL)
        pack_or_unpack_traced(exec, parcel, seen);
    rs_copy_fence();
    status = rs_group_touch(exec->group, false);
    if (seen == NULL)
        return rs_fail(RESHARD_ERR_GROUP_BROKEN,
                       "the transport cannot map %zu bytes of rank %d, which shares them", bytes,
                       rank);
    if (status == RESHARD_OK)
        status = rs_group_send(exec->group, rank, rs_exec_channel(exec, RS_CHANNEL_TAKEN), NULL, 0,
                               &parcel->answer);
    return status;
}

/* Records that the transport has put a segment straight where it belongs. */
static void note_arrival(reshard_exec *exec, const rs_parcel *parcel)
{
    rs_trace_event event = rs_tracing_begin(exec, RS_TRACE_RECEIVE);
    rs_tracing_describe(exec, parcel, &event);
    rs_tracing_arrow(exec, parcel, &event);
    rs_tracing_end(exec, &event);
}

/* Called when a parcel's request is complete. */
static reshard_status take_parcel(reshard_exec *exec, rs_parcel *parcel)
{
    assert(!parcel->taken); /* a segment is unpacked once */
    parcel->taken = true;
    if (parcel->lane->sending)
        return RESHARD_OK;
    if (way_of(parcel->lane) == RS_WAY_STAGING)
        return take_from_staging(exec, parcel);
    if (parcel->place == parcel->memory)
        pack_or_unpack_traced(exec, parcel, parcel->memory);
    else if (exec->tracing != NULL)
        note_arrival(exec, parcel);
    return RESHARD_OK;
}

/* Finds out whether a parcel can be used again. */
static reshard_status finish_parcel(reshard_exec *exec, rs_parcel *parcel, bool *out_done)
{
    *out_done = true;
    reshard_status status = RESHARD_OK;
    if (!parcel->taken) {
        status = rs_group_test(exec->group, &parcel->request, out_done);
        if (status == RESHARD_OK && *out_done)
            status = take_parcel(exec, parcel);
    }
    if (status == RESHARD_OK && *out_done && way_of(parcel->lane) == RS_WAY_STAGING)
        status = rs_group_test(exec->group, &parcel->answer, out_done);
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Finishes parcels that are complete, oldest first, and starts as many as there is room for. */
static reshard_status advance(reshard_exec *exec, rs_lanes *lanes, const rs_parcels *parcels)
{
    bool moved = true;
    while (moved) {
        reshard_status status = RESHARD_OK;
        moved = false;
        assert(lanes->finished <= lanes->started &&
               lanes->started - lanes->finished <= parcels->count);
        if (lanes->finished < lanes->started) {
            status = finish_parcel(exec, &parcels->items[lanes->finished % parcels->count], &moved);
            lanes->finished += moved;
        }
        if (status == RESHARD_OK && lanes->next < lanes->count &&
            lanes->started - lanes->finished < parcels->count) {
            rs_parcel *parcel = &parcels->items[lanes->started % parcels->count];
            cut_segment(lanes, parcel);
            status = parcel->lane->sending ? start_send(exec, parcel) : start_receive(exec, parcel);
            moved = true;
        }
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

static bool is_over(const rs_lanes *lanes)
{
    return lanes->next == lanes->count && lanes->finished == lanes->started;
}

static void reset(rs_lanes *lanes)
{
    lanes->next = 0;
    lanes->next_byte = 0;
    lanes->started = lanes->finished = 0;
    skip_direct(lanes);
}

reshard_status rs_traffic_begin(reshard_exec *exec)
{
    rs_traffic *traffic = exec->traffic;
    bool received, sent;
    reset(&traffic->stages[exec->stage].in);
    reset(&traffic->stages[exec->stage].out);
    return rs_traffic_progress(exec, &received, &sent);
}

reshard_status rs_traffic_progress(reshard_exec *exec, bool *out_received, bool *out_sent)
{
    rs_traffic *traffic = exec->traffic;
    rs_lanes *in = &traffic->stages[exec->stage].in, *out = &traffic->stages[exec->stage].out;
    reshard_status status = advance(exec, in, &traffic->in);
    if (status == RESHARD_OK)
        status = advance(exec, out, &traffic->out);
    *out_received = is_over(in);
    *out_sent = is_over(out);
    return status;
}
