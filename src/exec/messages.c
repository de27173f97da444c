/* SPDX-License-Identifier: Apache-2.0 */
/*
 * messages.c - a stage between ranks that do not see each other's memory. Each ordered pair of
 * ranks has one stream of bytes (plan.h), cut into segments that are packed, sent, received and
 * unpacked through staging memory of a fixed size.
 *
 * Rounds keep it from getting stuck: in round k rank r sends to r+k and receives from r-k, and both
 * sides go through rounds and segments in order, a few at a time. Of all segments that are not
 * through, one of the lowest round is the first that its sender has not sent and the first that its
 * receiver has not received, so it is under way on both sides.
 *
 * Contributions that have to be combined are unpacked into memory of their own, and combined in
 * order when all have come: so results do not depend on who was faster.
 */
#include "exec/messages.h"

#include "base/checked.h"
#include "base/context.h"
#include "exec/exec.h"
#include "exec/segment.h"

#include <string.h>

/* ---- structures ------------------------------------------------------------------------------ */

typedef struct flow {
    int32_t peer;
    reshard_stream *stream;
    uint64_t bytes;
    /* receiving: where each move is kept until it is combined; -1: goes to its place */
    int64_t *scratch_at;
    char carry[16];
} flow;

typedef struct slot {
    reshard_request request;
    char *memory;
    int64_t flow;
    uint64_t from, to; /* bytes of the flow's stream */
} slot;

/* All that this rank sends in a stage, or all that it receives. */
typedef struct traffic {
    bool sending;
    int64_t flow_count;
    flow *flows; /* by round */
    /* the run: segments are started and finished in order */
    int64_t next_flow;
    uint64_t next_byte;
    int64_t started, finished;
} traffic;

typedef struct stage_messages {
    traffic out, in;
    rs_operation *operations; /* keeps, and what is combined from scratch; in order */
    int64_t operation_count;
} stage_messages;

struct rs_messages {
    reshard_exec *exec;
    stage_messages stages[RS_STAGES_MAX];
    int64_t slot_count; /* of each side */
    slot *out_slots, *in_slots;
    size_t segment_bytes;
    char *staging;
    size_t staging_bytes;
    char *scratch;
    size_t scratch_bytes;
};

/* ---- making ---------------------------------------------------------------------------------- */

static reshard_status make_flow(rs_messages *m, int32_t stage, int32_t peer, bool sending,
                                flow *out)
{
    out->peer = peer;
    reshard_status status =
        reshard_stream_create(m->exec->part, stage, peer, sending, &out->stream);
    if (status == RESHARD_OK)
        out->bytes = out->stream->offsets[out->stream->count];
    return status;
}

static reshard_status make_traffic(rs_messages *m, int32_t stage, bool sending, traffic *t)
{
    reshard_exec *exec = m->exec;
    const rs_exec_stage *s = &exec->stages[stage];
    int32_t size = reshard_group_size(exec->group), rank = exec->part->rank;
    t->sending = sending;
    t->flows = rs_arena_allocate_array(&exec->arena, (size_t)s->peer_count, sizeof *t->flows);
    if (t->flows == NULL)
        return rs_allocation_status();
    memset(t->flows, 0, (size_t)s->peer_count * sizeof *t->flows);
    for (int32_t k = 1; k < size; k++) {
        int32_t peer = sending ? (rank + k) % size : (rank - k + size) % size;
        bool known = false;
        for (int64_t i = 0; i < s->peer_count; i++)
            known = known || s->peers[i].rank == peer;
        if (!known)
            continue;
        flow *f = &t->flows[t->flow_count];
        reshard_status status = make_flow(m, stage, peer, sending, f);
        t->flow_count += status == RESHARD_OK; /* so that it is destroyed with the others */
        if (status != RESHARD_OK)
            return status;
        if (f->bytes == 0) {
            reshard_stream_destroy(f->stream);
            memset(f, 0, sizeof *f);
            t->flow_count--;
        }
    }
    return RESHARD_OK;
}

static bool is_ordered(reshard_move_kind kind)
{
    return kind == RESHARD_MOVE_COMBINE || kind == RESHARD_MOVE_ADD;
}

static int64_t move_volume(const reshard_move *move)
{
    int64_t volume = 1;
    for (int32_t d = 0; d < move->ndim; d++)
        volume *= move->size[d];
    return volume;
}

/* Places in scratch for what is to be combined; each stage uses it anew. */
static reshard_status place_scratch(rs_messages *m, int32_t stage, int64_t *out_count)
{
    traffic *in = &m->stages[stage].in;
    size_t used = 0;
    *out_count = 0;
    for (int64_t i = 0; i < in->flow_count; i++) {
        flow *f = &in->flows[i];
        f->scratch_at = rs_arena_allocate_array(&m->exec->arena, (size_t)f->stream->count,
                                                sizeof *f->scratch_at);
        if (f->scratch_at == NULL)
            return rs_allocation_status();
        for (int64_t k = 0; k < f->stream->count; k++) {
            f->scratch_at[k] = -1;
            if (!is_ordered(f->stream->moves[k].kind))
                continue;
            reshard_stage_link link;
            (void)reshard_plan_stage_link(m->exec->plan, stage, f->stream->links[k], &link);
            f->scratch_at[k] = (int64_t)used;
            size_t bytes = (size_t)reshard_dtype_bits(link.source_dtype) / 8;
            used += ((size_t)move_volume(&f->stream->moves[k]) * bytes + 15) / 16 * 16;
            ++*out_count;
        }
    }
    if (used > m->scratch_bytes)
        m->scratch_bytes = used;
    return RESHARD_OK;
}

static reshard_status make_operations(rs_messages *m, int32_t stage, int64_t scratch_count)
{
    reshard_exec *exec = m->exec;
    stage_messages *s = &m->stages[stage];
    rs_exec_list keeps = {0};
    reshard_status status = rs_exec_list_keeps(exec, stage, scratch_count, &keeps);
    for (int64_t i = 0; i < s->in.flow_count && status == RESHARD_OK; i++) {
        const flow *f = &s->in.flows[i];
        for (int64_t k = 0; k < f->stream->count && status == RESHARD_OK; k++) {
            if (f->scratch_at[k] >= 0)
                status =
                    rs_exec_list_add_dense(exec, stage, f->stream->links[k], &f->stream->moves[k],
                                           (size_t)f->scratch_at[k], &keeps);
        }
    }
    if (status == RESHARD_OK)
        rs_exec_list_sort(&keeps);
    s->operations = keeps.items;
    s->operation_count = keeps.count;
    return status;
}

static void link_slots(rs_messages *m)
{
    for (int64_t i = 0; i < m->slot_count; i++) {
        m->out_slots[i].memory = m->staging + (size_t)(2 * i) * m->segment_bytes;
        m->in_slots[i].memory = m->staging + (size_t)(2 * i + 1) * m->segment_bytes;
    }
}

#define SLOTS_MAX 8 /* of each side: enough to pack one while others are under way */

static reshard_status make_staging(rs_messages *m)
{
    reshard_exec *exec = m->exec;
    size_t cap = rs_plan_forward(exec->plan)->options.staging_bytes_max;
    m->segment_bytes = reshard_plan_segment_bytes(exec->plan);
    if (m->segment_bytes > rs_group_message_bytes_max(exec->group))
        m->segment_bytes = rs_group_message_bytes_max(exec->group);
    m->slot_count = rs_min(SLOTS_MAX, (int64_t)(cap / (2 * m->segment_bytes)));
    m->staging_bytes = (size_t)(2 * m->slot_count) * m->segment_bytes;
    m->staging = rs_allocate(exec->context, m->staging_bytes);
    m->scratch = rs_allocate(exec->context, m->scratch_bytes);
    m->out_slots =
        rs_arena_allocate_array(&exec->arena, (size_t)m->slot_count, sizeof *m->out_slots);
    m->in_slots = rs_arena_allocate_array(&exec->arena, (size_t)m->slot_count, sizeof *m->in_slots);
    if (m->staging == NULL || m->scratch == NULL || m->out_slots == NULL || m->in_slots == NULL)
        return rs_allocation_status();
    link_slots(m);
    return RESHARD_OK;
}

reshard_status rs_messages_create(reshard_exec *exec, rs_messages **out_messages)
{
    rs_messages *m = rs_allocate_zeroed(exec->context, sizeof *m);
    if (m == NULL)
        return rs_allocation_status();
    m->exec = exec;
    *out_messages = m; /* destroyed with the exec, also when what follows fails */
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < exec->stage_count && status == RESHARD_OK; i++) {
        int64_t scratch_count = 0;
        status = make_traffic(m, i, true, &m->stages[i].out);
        if (status == RESHARD_OK)
            status = make_traffic(m, i, false, &m->stages[i].in);
        if (status == RESHARD_OK)
            status = place_scratch(m, i, &scratch_count);
        if (status == RESHARD_OK)
            status = make_operations(m, i, scratch_count);
    }
    return status == RESHARD_OK ? make_staging(m) : status;
}

void rs_messages_destroy(rs_messages *m)
{
    if (m == NULL)
        return;
    reshard_context *context = m->exec->context;
    for (int32_t i = 0; i < RS_STAGES_MAX; i++) {
        for (int64_t k = 0; k < m->stages[i].out.flow_count; k++)
            reshard_stream_destroy(m->stages[i].out.flows[k].stream);
        for (int64_t k = 0; k < m->stages[i].in.flow_count; k++)
            reshard_stream_destroy(m->stages[i].in.flows[k].stream);
    }
    rs_release(context, m->staging, m->staging_bytes);
    rs_release(context, m->scratch, m->scratch_bytes);
    rs_release(context, m, sizeof *m);
}

/* ---- segments -------------------------------------------------------------------------------- */

/* The last move that begins at or before a byte. */
static int64_t find_move(const reshard_stream *stream, uint64_t byte)
{
    int64_t low = 0, high = stream->count;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (stream->offsets[middle] <= byte)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static reshard_dtype narrower(const reshard_stage_link *link)
{
    return reshard_dtype_bits(link->target_dtype) < reshard_dtype_bits(link->source_dtype)
               ? link->target_dtype
               : link->source_dtype;
}

/* This end of a move: its slot's memory, or scratch in which it lies densely. */
static void find_memory(rs_messages *m, int32_t stage, const flow *f, bool sending, int64_t index,
                        int64_t *dense_strides, rs_segment_move *out)
{
    const reshard_move *move = &f->stream->moves[index];
    reshard_stage_link link;
    (void)reshard_plan_stage_link(m->exec->plan, stage, f->stream->links[index], &link);
    *out = (rs_segment_move){.move = move, .wire = narrower(&link)};
    if (!sending && f->scratch_at[index] >= 0) {
        int64_t step = 1;
        for (int32_t d = move->ndim - 1; d >= 0; d--) {
            dense_strides[d] = step;
            step *= move->size[d];
        }
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
    out->memory = (char *)m->exec->slots[slot_index] + at * (reshard_dtype_bits(out->dtype) / 8);
}

static void transfer_segment(rs_messages *m, const traffic *t, const slot *s)
{
    flow *f = &t->flows[s->flow];
    int64_t index = find_move(f->stream, s->from);
    char *bytes = s->memory;
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
            rs_segment_unpack(&move, at - begin, end - begin, bytes, f->carry);
        bytes += end - at;
        at = end;
    }
}

/* ---- running --------------------------------------------------------------------------------- */

static int32_t data_channel(const reshard_exec *exec)
{
    return exec->channel - exec->group->channel + RS_CHANNEL_DATA;
}

static reshard_status start_segment(rs_messages *m, traffic *t, slot *s)
{
    flow *f = &t->flows[t->next_flow];
    s->flow = t->next_flow;
    s->from = t->next_byte;
    s->to = f->bytes - s->from < m->segment_bytes ? f->bytes : s->from + m->segment_bytes;
    t->next_byte = s->to;
    if (t->next_byte == f->bytes) {
        t->next_flow++;
        t->next_byte = 0;
    }
    t->started++;
    size_t count = (size_t)(s->to - s->from);
    if (!t->sending)
        return rs_group_receive(m->exec->group, f->peer, data_channel(m->exec), s->memory, count,
                                &s->request);
    transfer_segment(m, t, s);
    return rs_group_send(m->exec->group, f->peer, data_channel(m->exec), s->memory, count,
                         &s->request);
}

/* Finishes what has come or gone, oldest first, and starts as much as there are slots for. */
static reshard_status advance(rs_messages *m, traffic *t, slot *slots)
{
    for (;;) {
        bool moved = false;
        if (t->finished < t->started) {
            slot *oldest = &slots[t->finished % m->slot_count];
            bool done = false;
            reshard_status status = rs_group_test(m->exec->group, &oldest->request, &done);
            if (status != RESHARD_OK)
                return status;
            if (done) {
                if (!t->sending)
                    transfer_segment(m, t, oldest);
                t->finished++;
                moved = true;
            }
        }
        if (t->next_flow < t->flow_count && t->started - t->finished < m->slot_count) {
            reshard_status status = start_segment(m, t, &slots[t->started % m->slot_count]);
            if (status != RESHARD_OK)
                return status;
            moved = true;
        }
        if (!moved)
            return RESHARD_OK;
    }
}

static bool is_over(const traffic *t)
{
    return t->next_flow == t->flow_count && t->finished == t->started;
}

static void reset(traffic *t)
{
    t->next_flow = 0;
    t->next_byte = 0;
    t->started = t->finished = 0;
}

reshard_status rs_messages_begin(rs_messages *m)
{
    stage_messages *s = &m->stages[m->exec->stage];
    reset(&s->out);
    reset(&s->in);
    reshard_status status = advance(m, &s->in, m->in_slots);
    return status == RESHARD_OK ? advance(m, &s->out, m->out_slots) : status;
}

/* Keeps and combinations come last, in their order: when all contributions are here. */
static void run_operations(rs_messages *m, const stage_messages *s)
{
    for (int64_t i = 0; i < s->operation_count; i++) {
        const rs_operation *o = &s->operations[i];
        const char *source = o->source_slot == RS_SLOT_SCRATCH ? m->scratch
                             : o->source_slot < 0              ? NULL
                                                               : m->exec->slots[o->source_slot];
        if (source != NULL)
            source += o->source_offset;
        rs_operation_run(o, source, (char *)m->exec->slots[o->target_slot] + o->target_offset);
    }
}

reshard_status rs_messages_progress(rs_messages *m, bool *out_done)
{
    stage_messages *s = &m->stages[m->exec->stage];
    *out_done = false;
    reshard_status status = advance(m, &s->in, m->in_slots);
    if (status == RESHARD_OK)
        status = advance(m, &s->out, m->out_slots);
    if (status != RESHARD_OK || !is_over(&s->in) || !is_over(&s->out))
        return status;
    run_operations(m, s);
    *out_done = true;
    return RESHARD_OK;
}
