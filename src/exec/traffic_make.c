/* SPDX-License-Identifier: Apache-2.0 */
/* traffic_make.c - sets up what traffic.c runs: streams, parcels for segments, and scratch memory
 * for contributions, which are combined in order when all have arrived. */
#include "exec/traffic.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/dtype.h"
#include "base/shape.h"
#include "exec/exec.h"
#include "plan/plan.h"

#include <string.h>

/* ---- streams --------------------------------------------------------------------------------- */

#define CACHE_BYTES ((size_t)256 << 10) /* a segment of this size stays in the cache */

static reshard_status add_lane(rs_messages *m, int32_t stage, int64_t peer, rs_traffic *t)
{
    rs_lane *f = &t->lanes[t->lane_count];
    const rs_exec_peer *other = &m->exec->stages[stage].peers[peer];
    memset(f, 0, sizeof *f);
    f->peer = peer;
    f->segment_bytes =
        other->near && m->segment_bytes > CACHE_BYTES ? CACHE_BYTES : m->segment_bytes;
    reshard_status status =
        reshard_stream_create(m->exec->part, stage, other->rank, t->sending, &f->stream);
    if (status != RESHARD_OK)
        return status;
    f->bytes = f->stream->offsets[f->stream->count];
    if (f->bytes != 0)
        t->lane_count++;
    else
        reshard_stream_destroy(f->stream);
    return RESHARD_OK;
}

/* Rounds: peers are listed from the next higher rank on, so sends go through the list forwards and
 * receives backwards. */
static reshard_status make_traffic(rs_messages *m, int32_t stage, bool sending, rs_traffic *t)
{
    const rs_exec_stage *s = &m->exec->stages[stage];
    t->sending = sending;
    t->lanes = rs_arena_allocate_array(&m->exec->arena, (size_t)s->peer_count, sizeof *t->lanes);
    if (t->lanes == NULL)
        return rs_allocation_status();
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < s->peer_count && status == RESHARD_OK; i++)
        status = add_lane(m, stage, sending ? i : s->peer_count - 1 - i, t);
    return status;
}

/* ---- contributions --------------------------------------------------------------------------- */

/* Gives each contribution its place in scratch. Every stage uses scratch from the beginning. */
static reshard_status place_scratch(rs_messages *m, int32_t stage, int64_t *out_count)
{
    rs_traffic *in = &m->stages[stage].in;
    size_t used = 0;
    *out_count = 0;
    for (int64_t i = 0; i < in->lane_count; i++) {
        rs_lane *f = &in->lanes[i];
        f->scratch_at = rs_arena_allocate_array(&m->exec->arena, (size_t)f->stream->count,
                                                sizeof *f->scratch_at);
        if (f->scratch_at == NULL)
            return rs_allocation_status();
        for (int64_t k = 0; k < f->stream->count; k++) {
            f->scratch_at[k] = -1;
            if (!rs_move_is_ordered(f->stream->moves[k].kind))
                continue;
            reshard_stage_link link = rs_plan_stage_link(m->exec->plan, stage, f->stream->links[k]);
            f->scratch_at[k] = (int64_t)used;
            size_t bytes = rs_element_bytes(link.source_dtype);
            const reshard_move *move = &f->stream->moves[k];
            used += ((size_t)rs_volume(move->ndim, move->size) * bytes + 15) / 16 * 16;
            ++*out_count;
        }
    }
    if (used > m->scratch_bytes)
        m->scratch_bytes = used;
    return RESHARD_OK;
}

/* Adds the operations on scratch to those of the stage. */
static reshard_status add_operations(rs_messages *m, int32_t stage, int64_t scratch_count)
{
    reshard_exec *exec = m->exec;
    rs_exec_stage *s = &exec->stages[stage];
    if (scratch_count == 0)
        return RESHARD_OK;
    rs_operation *all = rs_arena_allocate_array(
        &exec->arena, (size_t)(s->operation_count + scratch_count), sizeof *all);
    if (all == NULL)
        return rs_allocation_status();
    if (s->operation_count != 0)
        memcpy(all, s->operations, (size_t)s->operation_count * sizeof *all);
    s->operations = all;
    s->ordered = true;
    reshard_status status = RESHARD_OK;
    const rs_traffic *in = &m->stages[stage].in;
    for (int64_t i = 0; i < in->lane_count && status == RESHARD_OK; i++) {
        const rs_lane *f = &in->lanes[i];
        for (int64_t k = 0; k < f->stream->count && status == RESHARD_OK; k++) {
            if (f->scratch_at[k] >= 0)
                status = rs_exec_add_dense(exec, stage, f->stream->links[k], &f->stream->moves[k],
                                           (size_t)f->scratch_at[k], (int32_t)f->peer);
        }
    }
    rs_exec_sort(s);
    return status == RESHARD_OK ? rs_exec_list_direct(exec, s) : status;
}

/* ---- staging --------------------------------------------------------------------------------- */

#define PARCEL_ALIGNMENT ((size_t)64)
#define PARCELS_MAX 8 /* in each direction: enough to pack one while others are under way */

/* Makes no more and no larger parcels than the busiest stage can fill. */
static reshard_status make_window(rs_messages *m, bool sending, rs_window *w)
{
    uint64_t segments = 1;
    size_t longest = 1;
    for (int32_t i = 0; i < m->exec->stage_count; i++) {
        const rs_traffic *t = sending ? &m->stages[i].out : &m->stages[i].in;
        uint64_t count = 0;
        for (int64_t k = 0; k < t->lane_count; k++) {
            const rs_lane *f = &t->lanes[k];
            size_t most = f->bytes < f->segment_bytes ? (size_t)f->bytes : f->segment_bytes;
            longest = most > longest ? most : longest;
            count += (f->bytes - 1) / f->segment_bytes + 1;
        }
        segments = count > segments ? count : segments;
    }
    size_t cap = rs_plan_forward(m->exec->plan)->options.staging_bytes_max;
    w->parcel_bytes = (longest + PARCEL_ALIGNMENT - 1) / PARCEL_ALIGNMENT * PARCEL_ALIGNMENT;
    w->parcel_count = rs_min(PARCELS_MAX, (int64_t)(cap / (2 * m->segment_bytes)));
    if (segments < (uint64_t)w->parcel_count)
        w->parcel_count = (int64_t)segments;
    w->parcels =
        rs_arena_allocate_array(&m->exec->arena, (size_t)w->parcel_count, sizeof *w->parcels);
    return w->parcels == NULL ? rs_allocation_status() : RESHARD_OK;
}

static reshard_status make_windows(rs_messages *m)
{
    m->scratch = rs_allocate(m->exec->context, m->scratch_bytes);
    reshard_status status = m->scratch == NULL ? rs_allocation_status() : RESHARD_OK;
    if (status == RESHARD_OK)
        status = make_window(m, true, &m->out);
    return status == RESHARD_OK ? make_window(m, false, &m->in) : status;
}

size_t rs_messages_staging_bytes(const rs_messages *m)
{
    return (size_t)m->out.parcel_count * m->out.parcel_bytes +
           (size_t)m->in.parcel_count * m->in.parcel_bytes;
}

void rs_messages_place(rs_messages *m, char *staging)
{
    for (int64_t i = 0; i < m->out.parcel_count; i++, staging += m->out.parcel_bytes)
        m->out.parcels[i].memory = staging;
    for (int64_t i = 0; i < m->in.parcel_count; i++, staging += m->in.parcel_bytes)
        m->in.parcels[i].memory = staging;
}

const char *rs_messages_scratch(const rs_messages *m)
{
    return m->scratch;
}

/* ---- all ------------------------------------------------------------------------------------- */

reshard_status rs_messages_create(reshard_exec *exec, rs_messages **out_messages)
{
    rs_messages *m = rs_allocate_zeroed(exec->context, sizeof *m);
    if (m == NULL)
        return rs_allocation_status();
    m->exec = exec;
    m->segment_bytes = rs_plan_forward(exec->plan)->segment_bytes;
    if (m->segment_bytes > rs_group_message_bytes_max(exec->group))
        m->segment_bytes = rs_group_message_bytes_max(exec->group);
    *out_messages = m; /* destroyed with the exec, even if the rest fails */
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < exec->stage_count && status == RESHARD_OK; i++) {
        int64_t scratch_count = 0;
        status = make_traffic(m, i, true, &m->stages[i].out);
        if (status == RESHARD_OK)
            status = make_traffic(m, i, false, &m->stages[i].in);
        if (status == RESHARD_OK)
            status = place_scratch(m, i, &scratch_count);
        if (status == RESHARD_OK)
            status = add_operations(m, i, scratch_count);
    }
    return status == RESHARD_OK ? make_windows(m) : status;
}

void rs_messages_destroy(rs_messages *m)
{
    if (m == NULL)
        return;
    reshard_context *context = m->exec->context;
    for (int32_t i = 0; i < RS_STAGES_MAX; i++) {
        for (int64_t k = 0; k < m->stages[i].out.lane_count; k++)
            reshard_stream_destroy(m->stages[i].out.lanes[k].stream);
        for (int64_t k = 0; k < m->stages[i].in.lane_count; k++)
            reshard_stream_destroy(m->stages[i].in.lanes[k].stream);
    }
    rs_release(context, m->scratch, m->scratch_bytes);
    rs_release(context, m, sizeof *m);
}
