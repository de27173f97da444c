/* SPDX-License-Identifier: Apache-2.0 */
/* traffic_make.c - sets up what traffic.c runs: a lane for each stream, parcels for segments, and
 * scratch memory, in which build.c gives contributions their places. */
#include "exec/traffic.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/dtype.h"
#include "base/shape.h"
#include "exec/exec.h"

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
    if (f->bytes == 0) {
        reshard_stream_destroy(f->stream);
        return RESHARD_OK;
    }
    t->lane_count++;
    f->scratch_at =
        rs_arena_allocate_array(&m->exec->arena, (size_t)f->stream->count, sizeof *f->scratch_at);
    return f->scratch_at == NULL ? rs_allocation_status() : RESHARD_OK;
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

reshard_status rs_messages_make_lanes(rs_messages *m, int32_t stage)
{
    reshard_status status = make_traffic(m, stage, true, &m->stages[stage].out);
    return status == RESHARD_OK ? make_traffic(m, stage, false, &m->stages[stage].in) : status;
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

reshard_status rs_messages_make_windows(rs_messages *m)
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
    m->segment_bytes = reshard_plan_segment_bytes(exec->plan);
    if (m->segment_bytes > rs_group_message_bytes_max(exec->group))
        m->segment_bytes = rs_group_message_bytes_max(exec->group);
    *out_messages = m;
    return RESHARD_OK;
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
