/* SPDX-License-Identifier: Apache-2.0 */
/*
 * traffic.c - runs the messages of a stage, a few segments at a time.
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
static void find_memory(rs_messages *m, int32_t stage, const rs_lane *f, bool sending,
                        int64_t index, int64_t *dense_strides, rs_segment_move *out)
{
    const reshard_move *move = &f->stream->moves[index];
    reshard_stage_link link = rs_plan_stage_link(m->exec->plan, stage, f->stream->links[index]);
    *out = (rs_segment_move){.move = move, .wire = narrower(&link)};
    if (!sending && f->scratch_at[index] >= 0) {
        rs_dense_strides(move->ndim, move->size, dense_strides);
        out->memory = m->scratch + f->scratch_at[index];
        out->strides = dense_strides;
        out->dtype = link.source_dtype;
        return;
    }
    out->dtype = sending ? link.source_dtype : link.target_dtype;
    out->strides = sending ? move->source_strides : move->target_strides;
    int64_t at = sending ? move->source_at : move->target_at;
    int64_t slot_index =
        rs_exec_slot(m->exec, &link, sending, sending ? move->source_shard : move->target_shard);
    out->memory =
        (char *)m->exec->addresses->slots[slot_index] + at * (int64_t)rs_element_bytes(out->dtype);
}

static void pack_or_unpack(rs_messages *m, const rs_traffic *t, const rs_parcel *s, char *bytes)
{
    rs_lane *f = &t->lanes[s->lane];
    int64_t index = rs_stream_find(f->stream, s->from);
    for (uint64_t at = s->from; at < s->to; index++) {
        uint64_t begin = f->stream->offsets[index];
        uint64_t end =
            f->stream->offsets[index + 1] < s->to ? f->stream->offsets[index + 1] : s->to;
        int64_t dense_strides[RESHARD_FACTORS_MAX];
        rs_segment_move move;
        find_memory(m, m->exec->stage, f, t->sending, index, dense_strides, &move);
        if (t->sending)
            rs_segment_pack(&move, at - begin, end - begin, bytes);
        else
            rs_segment_unpack(&move, at - begin, end - begin, bytes, f->cut_element);
        bytes += end - at;
        at = end;
    }
}

/* The address of a segment that is part of one move and lies in memory exactly as in the stream;
 * otherwise NULL. */
static char *find_place(rs_messages *m, const rs_traffic *t, const rs_parcel *s)
{
    const rs_lane *f = &t->lanes[s->lane];
    int64_t index = rs_stream_find(f->stream, s->from);
    if (s->to > f->stream->offsets[index + 1])
        return NULL;
    int64_t dense_strides[RESHARD_FACTORS_MAX];
    rs_segment_move move;
    find_memory(m, m->exec->stage, f, t->sending, index, dense_strides, &move);
    char *first = rs_segment_dense(&move);
    return first != NULL ? first + (s->from - f->stream->offsets[index]) : NULL;
}

/* Packs a segment into `bytes`, or unpacks it from there. */
static void pack_or_unpack_traced(rs_messages *m, const rs_traffic *t, const rs_parcel *s,
                                  char *bytes)
{
    rs_trace_event event;
    if (m->exec->tracing == NULL) {
        pack_or_unpack(m, t, s, bytes);
        return;
    }
    event = rs_tracing_begin(m->exec, t->sending ? RS_TRACE_PACK : RS_TRACE_UNPACK);
    rs_tracing_describe(m->exec, t, s, &event);
    if (!t->sending)
        rs_tracing_arrow(m->exec, t, s, &event);
    pack_or_unpack(m, t, s, bytes);
    rs_tracing_end(m->exec, &event);
}

/* ---- starting -------------------------------------------------------------------------------- */

static rs_way way_of(const rs_messages *m, const rs_traffic *t, const rs_lane *f)
{
    const rs_exec_peer *peer = &m->exec->stages[m->exec->stage].peers[f->peer];
    return t->sending ? peer->out : peer->in;
}

static int32_t rank_of(const rs_messages *m, const rs_lane *f)
{
    return m->exec->stages[m->exec->stage].peers[f->peer].rank;
}

static void skip_direct(const rs_messages *m, rs_traffic *t)
{
    while (t->next_lane < t->lane_count && way_of(m, t, &t->lanes[t->next_lane]) == RS_WAY_DIRECT)
        t->next_lane++;
}

/* Cuts the next segment. Both ends of a lane make the same cuts. */
static void cut_segment(const rs_messages *m, rs_traffic *t, rs_parcel *s)
{
    assert(t->next_lane < t->lane_count && t->next_byte < t->lanes[t->next_lane].bytes);
    const rs_lane *f = &t->lanes[t->next_lane];
    size_t most = f->segment_bytes;
    s->lane = t->next_lane;
    s->from = t->next_byte;
    s->number = (int64_t)(s->from / most);
    s->to = f->bytes - s->from < most ? f->bytes : s->from + most;
    s->taken = false;
    assert(s->from < s->to && s->to <= f->bytes);
    t->next_byte = s->to;
    if (t->next_byte == f->bytes) {
        t->next_lane++;
        t->next_byte = 0;
        skip_direct(m, t);
    }
    t->started++;
}

/* Sends the segment itself, or the notice that says where it is. */
static reshard_status send(rs_messages *m, const rs_traffic *t, rs_parcel *s, const void *bytes,
                           size_t count)
{
    reshard_exec *exec = m->exec;
    int32_t data = rs_exec_channel(exec, RS_CHANNEL_DATA), rank = rank_of(m, &t->lanes[s->lane]);
    if (exec->tracing == NULL)
        return rs_group_send(exec->group, rank, data, bytes, count, &s->request);
    rs_trace_event event = rs_tracing_begin(exec, RS_TRACE_SEND);
    rs_tracing_describe(exec, t, s, &event);
    rs_tracing_arrow(exec, t, s, &event);
    reshard_status status = rs_group_send(exec->group, rank, data, bytes, count, &s->request);
    rs_tracing_end(exec, &event);
    return status;
}

static reshard_status start_send(rs_messages *m, rs_traffic *t, rs_parcel *s)
{
    reshard_exec *exec = m->exec;
    const rs_lane *f = &t->lanes[s->lane];
    int32_t rank = rank_of(m, f);
    if (way_of(m, t, f) == RS_WAY_MESSAGES) {
        s->place = find_place(m, t, s);
        if (s->place == NULL) {
            s->place = s->memory;
            pack_or_unpack_traced(m, t, s, s->memory);
        }
        return send(m, t, s, s->place, (size_t)(s->to - s->from));
    }
    reshard_status status = rs_group_touch(exec->group, true);
    if (status != RESHARD_OK)
        return status;
    s->notice = s->memory;
    pack_or_unpack_traced(m, t, s, s->memory);
    rs_copy_fence();
    status = rs_group_touch(exec->group, false);
    if (status == RESHARD_OK)
        status = rs_group_receive(exec->group, rank, rs_exec_channel(exec, RS_CHANNEL_TAKEN), NULL,
                                  0, &s->answer);
    return status == RESHARD_OK ? send(m, t, s, &s->notice, sizeof s->notice) : status;
}

static reshard_status start_receive(rs_messages *m, rs_traffic *t, rs_parcel *s)
{
    reshard_exec *exec = m->exec;
    const rs_lane *f = &t->lanes[s->lane];
    int32_t data = rs_exec_channel(exec, RS_CHANNEL_DATA), rank = rank_of(m, f);
    if (way_of(m, t, f) != RS_WAY_MESSAGES)
        return rs_group_receive(exec->group, rank, data, &s->notice, sizeof s->notice, &s->request);
    s->place = find_place(m, t, s);
    if (s->place == NULL)
        s->place = s->memory;
    return rs_group_receive(exec->group, rank, data, s->place, (size_t)(s->to - s->from),
                            &s->request);
}

/* ---- finishing ------------------------------------------------------------------------------- */

static reshard_status take_from_staging(rs_messages *m, const rs_traffic *t, rs_parcel *s)
{
    reshard_exec *exec = m->exec;
    int32_t rank = rank_of(m, &t->lanes[s->lane]);
    reshard_status status = rs_group_touch(exec->group, true);
    if (status != RESHARD_OK)
        return status;
    char *seen = rs_group_map(exec->group, rank, s->notice, (size_t)(s->to - s->from));
    if (seen != NULL)
        pack_or_unpack_traced(m, t, s, seen);
    rs_copy_fence();
    status = rs_group_touch(exec->group, false);
    if (seen == NULL)
        return rs_fail(RESHARD_ERR_GROUP_BROKEN,
                       "the transport cannot map %zu bytes of rank %d, which shares them",
                       (size_t)(s->to - s->from), rank);
    if (status == RESHARD_OK)
        status = rs_group_send(exec->group, rank, rs_exec_channel(exec, RS_CHANNEL_TAKEN), NULL, 0,
                               &s->answer);
    return status;
}

/* Records that the transport has put a segment straight where it belongs. */
static void note_arrival(reshard_exec *exec, const rs_traffic *t, const rs_parcel *s)
{
    rs_trace_event event = rs_tracing_begin(exec, RS_TRACE_RECEIVE);
    rs_tracing_describe(exec, t, s, &event);
    rs_tracing_arrow(exec, t, s, &event);
    rs_tracing_end(exec, &event);
}

/* Called when a parcel's request is complete. */
static reshard_status take_segment(rs_messages *m, const rs_traffic *t, rs_parcel *s)
{
    s->taken = true;
    if (t->sending)
        return RESHARD_OK;
    if (way_of(m, t, &t->lanes[s->lane]) == RS_WAY_STAGING)
        return take_from_staging(m, t, s);
    if (s->place == s->memory)
        pack_or_unpack_traced(m, t, s, s->memory);
    else if (m->exec->tracing != NULL)
        note_arrival(m->exec, t, s);
    return RESHARD_OK;
}

/* Finds out whether a parcel can be used again. */
static reshard_status finish_segment(rs_messages *m, const rs_traffic *t, rs_parcel *s,
                                     bool *out_done)
{
    reshard_group *group = m->exec->group;
    *out_done = true;
    reshard_status status = RESHARD_OK;
    if (!s->taken) {
        status = rs_group_test(group, &s->request, out_done);
        if (status == RESHARD_OK && *out_done)
            status = take_segment(m, t, s);
    }
    if (status == RESHARD_OK && *out_done && way_of(m, t, &t->lanes[s->lane]) == RS_WAY_STAGING)
        status = rs_group_test(group, &s->answer, out_done);
    return status;
}

/* ---- running --------------------------------------------------------------------------------- */

/* Finishes parcels that are complete, oldest first, and starts as many as there is room for. */
static reshard_status advance(rs_messages *m, rs_traffic *t, const rs_window *w)
{
    bool moved = true;
    while (moved) {
        reshard_status status = RESHARD_OK;
        moved = false;
        if (t->finished < t->started) {
            status = finish_segment(m, t, &w->parcels[t->finished % w->parcel_count], &moved);
            t->finished += moved;
        }
        if (status == RESHARD_OK && t->next_lane < t->lane_count &&
            t->started - t->finished < w->parcel_count) {
            rs_parcel *s = &w->parcels[t->started % w->parcel_count];
            cut_segment(m, t, s);
            status = t->sending ? start_send(m, t, s) : start_receive(m, t, s);
            moved = true;
        }
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

static bool is_over(const rs_traffic *t)
{
    return t->next_lane == t->lane_count && t->finished == t->started;
}

static void reset(const rs_messages *m, rs_traffic *t)
{
    t->next_lane = 0;
    t->next_byte = 0;
    t->started = t->finished = 0;
    skip_direct(m, t);
}

reshard_status rs_messages_begin(rs_messages *m)
{
    rs_traffic *in = &m->stages[m->exec->stage].in, *out = &m->stages[m->exec->stage].out;
    reset(m, in);
    reset(m, out);
    reshard_status status = advance(m, in, &m->in);
    return status == RESHARD_OK ? advance(m, out, &m->out) : status;
}

reshard_status rs_messages_progress(rs_messages *m, bool *out_received, bool *out_sent)
{
    rs_traffic *in = &m->stages[m->exec->stage].in, *out = &m->stages[m->exec->stage].out;
    reshard_status status = advance(m, in, &m->in);
    if (status == RESHARD_OK)
        status = advance(m, out, &m->out);
    *out_received = is_over(in);
    *out_sent = is_over(out);
    return status;
}
