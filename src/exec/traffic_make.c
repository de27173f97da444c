/* SPDX-License-Identifier: Apache-2.0 */
/* traffic_make.c - sets up what traffic.c runs: a lane for each stream, parcels for segments, and
 * scratch memory, in which build.c gives contributions their places. */
#include "exec/traffic.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/dtype.h"
#include "exec/exec.h"
#include "plan/plan.h"

#include <assert.h>
#include <string.h>

/* ---- lanes ----------------------------------------------------------------------------------- */

#define CACHE_BYTES ((size_t)256 << 10) /* a segment of this size stays in the cache */

static reshard_status add_lane(reshard_exec *exec, int32_t stage, const rs_exec_peer *peer,
                               bool sending, rs_lanes *lanes)
{
    rs_lane *lane = &lanes->items[lanes->count];
    size_t most = exec->traffic->segment_bytes;
    memset(lane, 0, sizeof *lane);
    lane->sending = sending;
    lane->peer = peer;
    lane->segment_bytes = peer->near && most > CACHE_BYTES ? CACHE_BYTES : most;
    reshard_status status =
        reshard_stream_create(exec->part, stage, peer->rank, sending, &lane->stream);
    if (status != RESHARD_OK)
        return status;
    lane->bytes = lane->stream->offsets[lane->stream->count];
    if (lane->bytes == 0) {
        reshard_stream_destroy(lane->stream);
        return RESHARD_OK;
    }
    lanes->count++;
    if (sending)
        return RESHARD_OK;
    lane->scratch_at = rs_arena_allocate_array(&exec->arena, (size_t)lane->stream->count,
                                               sizeof *lane->scratch_at);
    return lane->scratch_at == NULL ? rs_allocation_status() : RESHARD_OK;
}

#ifndef NDEBUG
/* Both ends work out their streams alone, from the same plan, so each must have all that the plan
 * moves there. */
static bool are_complete(const reshard_exec *exec, int32_t stage, const rs_lanes *lanes,
                         bool sending)
{
    uint64_t planned = 0, bytes = 0;
    for (int32_t l = 0; l < reshard_plan_stage_link_count(exec->plan, stage); l++) {
        reshard_stage_link link = rs_plan_stage_link(exec->plan, stage, l);
        const rs_template_moves *moves = rs_part_moves(exec->part, stage, l);
        size_t source = rs_element_bytes(link.source_dtype);
        size_t target = rs_element_bytes(link.target_dtype);
        planned += (sending ? moves->elements_out : moves->elements_in) *
                   (source < target ? source : target);
    }
    for (int64_t i = 0; i < lanes->count; i++)
        bytes += lanes->items[i].bytes;
    return bytes == planned;
}
#endif

/* Rounds: peers are listed from the next higher rank on, so sends go through the list forwards and
 * receives backwards. */
reshard_status rs_traffic_make_lanes(reshard_exec *exec, int32_t stage)
{
    const rs_exec_stage *built = &exec->stages[stage];
    rs_lanes *out = &exec->traffic->stages[stage].out, *in = &exec->traffic->stages[stage].in;
    size_t peers = (size_t)built->peer_count;
    out->items = rs_arena_allocate_array(&exec->arena, peers, sizeof *out->items);
    in->items = rs_arena_allocate_array(&exec->arena, peers, sizeof *in->items);
    if (out->items == NULL || in->items == NULL)
        return rs_allocation_status();
    reshard_status status = RESHARD_OK;
    for (size_t i = 0; i < peers && status == RESHARD_OK; i++) {
        status = add_lane(exec, stage, &built->peers[i], true, out);
        if (status == RESHARD_OK)
            status = add_lane(exec, stage, &built->peers[peers - 1 - i], false, in);
    }
    assert(status != RESHARD_OK ||
           (are_complete(exec, stage, out, true) && are_complete(exec, stage, in, false)));
    return status;
}

/* ---- staging --------------------------------------------------------------------------------- */

#define PARCEL_ALIGNMENT ((size_t)64)
#define PARCELS_MAX 8 /* in each direction: enough to pack one while others are under way */

/* Makes no more and no larger parcels than the busiest stage can fill. */
static reshard_status make_parcels(reshard_exec *exec, bool sending, rs_parcels *parcels)
{
    const rs_traffic *traffic = exec->traffic;
    uint64_t segments = 1;
    size_t longest = 1;
    for (int32_t i = 0; i < exec->stage_count; i++) {
        const rs_lanes *lanes = sending ? &traffic->stages[i].out : &traffic->stages[i].in;
        uint64_t count = 0;
        for (int64_t k = 0; k < lanes->count; k++) {
            const rs_lane *lane = &lanes->items[k];
            size_t most =
                lane->bytes < lane->segment_bytes ? (size_t)lane->bytes : lane->segment_bytes;
            longest = most > longest ? most : longest;
            count += (lane->bytes - 1) / lane->segment_bytes + 1;
        }
        segments = count > segments ? count : segments;
    }
    size_t cap = rs_plan_forward(exec->plan)->options.staging_bytes_max;
    parcels->bytes = (longest + PARCEL_ALIGNMENT - 1) / PARCEL_ALIGNMENT * PARCEL_ALIGNMENT;
    parcels->count = rs_min(PARCELS_MAX, (int64_t)(cap / (2 * traffic->segment_bytes)));
    if (segments < (uint64_t)parcels->count)
        parcels->count = (int64_t)segments;
    parcels->items =
        rs_arena_allocate_array(&exec->arena, (size_t)parcels->count, sizeof *parcels->items);
    return parcels->items == NULL ? rs_allocation_status() : RESHARD_OK;
}

reshard_status rs_traffic_make_parcels(reshard_exec *exec)
{
    rs_traffic *traffic = exec->traffic;
    traffic->scratch = rs_allocate(exec->context, traffic->scratch_bytes);
    reshard_status status = traffic->scratch == NULL ? rs_allocation_status() : RESHARD_OK;
    if (status == RESHARD_OK)
        status = make_parcels(exec, true, &traffic->out);
    return status == RESHARD_OK ? make_parcels(exec, false, &traffic->in) : status;
}

size_t rs_traffic_staging_bytes(const rs_traffic *traffic)
{
    return (size_t)traffic->out.count * traffic->out.bytes +
           (size_t)traffic->in.count * traffic->in.bytes;
}

void rs_traffic_place(rs_traffic *traffic, char *staging)
{
    for (int64_t i = 0; i < traffic->out.count; i++, staging += traffic->out.bytes)
        traffic->out.items[i].memory = staging;
    for (int64_t i = 0; i < traffic->in.count; i++, staging += traffic->in.bytes)
        traffic->in.items[i].memory = staging;
}

/* ---- all ------------------------------------------------------------------------------------- */

reshard_status rs_traffic_create(reshard_exec *exec)
{
    exec->traffic = rs_allocate_zeroed(exec->context, sizeof *exec->traffic);
    if (exec->traffic == NULL)
        return rs_allocation_status();
    size_t most = rs_group_message_bytes_max(exec->group);
    exec->traffic->segment_bytes = rs_plan_forward(exec->plan)->segment_bytes;
    if (exec->traffic->segment_bytes > most)
        exec->traffic->segment_bytes = most;
    return RESHARD_OK;
}

static void destroy_streams(const rs_lanes *lanes)
{
    for (int64_t i = 0; i < lanes->count; i++)
        reshard_stream_destroy(lanes->items[i].stream);
}

void rs_traffic_destroy(reshard_exec *exec)
{
    rs_traffic *traffic = exec->traffic;
    if (traffic == NULL)
        return;
    for (int32_t i = 0; i < exec->stage_count; i++) {
        destroy_streams(&traffic->stages[i].out);
        destroy_streams(&traffic->stages[i].in);
    }
    rs_release(exec->context, traffic->scratch);
    rs_release(exec->context, traffic);
}
