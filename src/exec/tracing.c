/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/tracing.h"

#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "exec/exec.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

/* What goes directly between this rank and a peer: in which direction, and who copies. */
enum { IN_PULLED = 1, IN_PUSHED = 2, OUT_PULLED = 4, OUT_PUSHED = 8 };

/* Take the place of a segment in the numbers of arrows. */
enum { SEGMENT_PULLED = -1, SEGMENT_PUSHED = -2 };

#define COPIES_BYTES_MAX ((uint64_t)4 << 20)  /* limit of a span for one peer and tensor */
#define COPIES_BYTES_MIN ((uint64_t)64 << 10) /* a span below this limit takes in any next copy */

/* ---- ranks and arrows ------------------------------------------------------------------------ */

/* The number of a rank in the trace: its rank in the whole transport. */
static int32_t rank_of(const reshard_exec *exec, int32_t rank)
{
    return rs_group_root_rank(exec->group, rank);
}

/* Traffic goes in rounds: in round k, rank r sends to r+k. */
static int32_t round_of(const reshard_exec *exec, int32_t source, int32_t target)
{
    int32_t size = reshard_group_size(exec->group);
    return (target - source + size) % size;
}

/* Both ends of an arrow compute the same number. */
static uint64_t number_arrow(const reshard_exec *exec, int32_t source, int32_t target,
                             int64_t segment)
{
    uint64_t words[2];
    rs_digest digest;
    rs_digest_init(&digest);
    rs_digest_u64(&digest, (uint64_t)exec->channel);
    rs_digest_u64(&digest, (uint64_t)exec->tracing->run);
    rs_digest_u64(&digest, (uint64_t)exec->stage);
    rs_digest_u64(&digest, (uint64_t)rank_of(exec, source));
    rs_digest_u64(&digest, (uint64_t)rank_of(exec, target));
    rs_digest_u64(&digest, (uint64_t)segment);
    rs_digest_finish(&digest, words);
    return words[0] != 0 ? words[0] : 1;
}

/* ---- making ---------------------------------------------------------------------------------- */

reshard_status rs_tracing_create(reshard_exec *exec, reshard_trace *trace)
{
    exec->tracing = rs_arena_allocate(&exec->arena, sizeof *exec->tracing);
    if (exec->tracing == NULL)
        return rs_allocation_status();
    *exec->tracing = (rs_exec_tracing){.run = -1};
    reshard_status status = rs_trace_take(trace, rank_of(exec, reshard_group_rank(exec->group)), 0,
                                          0, &exec->tracing->track);
    if (status == RESHARD_OK)
        exec->tracing->began = rs_trace_now(exec->tracing->track);
    else
        exec->tracing = NULL;
    return status;
}

static reshard_status name_links(reshard_exec *exec, int32_t stage)
{
    const reshard_plan *plan = rs_plan_forward(exec->plan);
    int32_t count = reshard_plan_stage_link_count(exec->plan, stage);
    int32_t *numbers = rs_arena_allocate_array(&exec->arena, (size_t)count, sizeof *numbers);
    if (numbers == NULL)
        return rs_allocation_status();
    exec->tracing->tensors[stage] = numbers;
    reshard_status status = RESHARD_OK;
    for (int32_t l = 0; l < count && status == RESHARD_OK; l++) {
        int32_t link = rs_plan_stage_link(exec->plan, stage, l).link;
        int32_t target = link >= 0 ? plan->links[link].plain.target : 0;
        const char *name = link >= 0 ? plan->targets[target].name : "zeros";
        char made[24];
        (void)snprintf(made, sizeof made, "#%d", target);
        status =
            rs_trace_name(exec->tracing->track->trace,
                          rs_slice_of(name != NULL && name[0] != '\0' ? name : made), &numbers[l]);
    }
    return status;
}

typedef struct marking {
    int32_t rank;
    unsigned char in, out; /* flags to set for receives and sends */
    const int32_t *places; /* by rank: index into the stage's list of peers */
    unsigned char *ways;
} marking;

static reshard_status mark(void *user, const reshard_move *move)
{
    marking *m = user;
    if (move->source_rank == m->rank)
        m->ways[m->places[move->target_rank]] |= m->out;
    else
        m->ways[m->places[move->source_rank]] |= m->in;
    return RESHARD_OK;
}

/* `places` has room for each rank of the group. */
static reshard_status mark_ways(reshard_exec *exec, int32_t stage, int32_t *places)
{
    const rs_exec_stage *built = &exec->stages[stage];
    unsigned char *ways = rs_arena_allocate(&exec->arena, (size_t)built->peer_count);
    if (ways == NULL)
        return rs_allocation_status();
    memset(ways, 0, (size_t)built->peer_count);
    exec->tracing->ways[stage] = ways;
    for (int64_t i = 0; i < built->peer_count; i++)
        places[built->peers[i].rank] = (int32_t)i;
    reshard_status status = RESHARD_OK;
    for (int32_t l = 0; l < reshard_plan_stage_link_count(exec->plan, stage); l++) {
        const reshard_part_moves *moves = reshard_part_link(exec->part, stage, l);
        bool pushes = built->link_pushes[l];
        marking m = {.rank = exec->part->rank,
                     .in = pushes ? IN_PUSHED : IN_PULLED,
                     .out = pushes ? OUT_PUSHED : OUT_PULLED,
                     .places = places,
                     .ways = ways};
        status = rs_moves_each(&moves->receives, m.rank, -1, mark, &m);
        if (status == RESHARD_OK)
            status = rs_moves_each(&moves->sends, m.rank, -1, mark, &m);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

reshard_status rs_tracing_prepare(reshard_exec *exec)
{
    rs_exec_tracing *t = exec->tracing;
    size_t stages = (size_t)exec->stage_count, ranks = (size_t)reshard_group_size(exec->group);
    t->tensors = rs_arena_allocate_array(&exec->arena, stages, sizeof *t->tensors);
    t->ways = rs_arena_allocate_array(&exec->arena, stages, sizeof *t->ways);
    int32_t *places = rs_allocate_array(exec->context, ranks, sizeof *places);
    reshard_status status = t->tensors != NULL && t->ways != NULL && places != NULL
                                ? RESHARD_OK
                                : rs_allocation_status();
    for (int32_t s = 0; s < exec->stage_count && status == RESHARD_OK; s++) {
        status = name_links(exec, s);
        if (status == RESHARD_OK)
            status = mark_ways(exec, s, places);
    }
    rs_release(exec->context, places);
    return status;
}

void rs_tracing_planned(reshard_exec *exec)
{
    rs_trace_event event = rs_trace_span(RS_TRACE_PLAN, exec->tracing->began);
    event.exec = exec->channel;
    rs_trace_end(exec->tracing->track, &event);
}

void rs_tracing_destroy(reshard_exec *exec)
{
    if (exec->tracing != NULL)
        rs_trace_give_back(exec->tracing->track);
}

/* ---- spans ----------------------------------------------------------------------------------- */

static rs_trace_event make_span(const reshard_exec *exec, rs_trace_kind kind, uint64_t begin)
{
    rs_trace_event event = rs_trace_span(kind, begin);
    event.exec = exec->channel;
    event.run = exec->tracing->run;
    event.stage = exec->stage < exec->stage_count ? (int16_t)exec->stage : RS_TRACE_NONE;
    return event;
}

static uint64_t look_at_clock(reshard_exec *exec)
{
    rs_exec_tracing *t = exec->tracing;
    uint64_t now = rs_trace_now(t->track);
    if (t->waits_from == 0)
        return now;
    rs_trace_event event = make_span(exec, RS_TRACE_WAIT, t->waits_from);
    event.peer = t->waits_for;
    event.end = now;
    rs_trace_add(t->track, &event);
    t->waits_from = 0;
    return now;
}

rs_trace_event rs_tracing_begin(reshard_exec *exec, rs_trace_kind kind)
{
    uint64_t now = look_at_clock(exec);
    return make_span(exec, kind, now);
}

void rs_tracing_end(reshard_exec *exec, rs_trace_event *event)
{
    rs_trace_end(exec->tracing->track, event);
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* The peer that this rank is waiting for, as far as that is known. */
static int32_t find_awaited(const reshard_exec *exec)
{
    if (exec->stage >= exec->stage_count)
        return RS_TRACE_NONE;
    const rs_exec_stage *stage = &exec->stages[exec->stage];
    if (exec->ready_count < stage->peer_count)
        return rank_of(exec, stage->peers[exec->ready_count].rank);
    if (exec->traffic != NULL) {
        const rs_lanes *in = &exec->traffic->stages[exec->stage].in;
        const rs_parcels *parcels = &exec->traffic->in;
        if (in->finished < in->started)
            return rank_of(exec, parcels->items[in->finished % parcels->count].lane->peer->rank);
    }
    return exec->done_count < stage->peer_count ? rank_of(exec, stage->peers[exec->done_count].rank)
                                                : RS_TRACE_NONE;
}

void rs_tracing_wait(reshard_exec *exec)
{
    if (exec->tracing->waits_from != 0)
        return;
    exec->tracing->waits_from = rs_trace_now(exec->tracing->track);
    exec->tracing->waits_for = find_awaited(exec);
}

void rs_tracing_end_wait(reshard_exec *exec)
{
    if (exec->tracing->waits_from != 0)
        (void)look_at_clock(exec);
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* Adds the arrows of this kind between this rank and those near peers with which bytes go directly.
 * `ways` is one flag. */
static void add_arrows(reshard_exec *exec, unsigned char ways, uint64_t at)
{
    const rs_exec_stage *stage = &exec->stages[exec->stage];
    const unsigned char *known = exec->tracing->ways[exec->stage];
    int32_t mine = reshard_group_rank(exec->group);
    bool begins = ways == OUT_PULLED || ways == OUT_PUSHED;
    int64_t segment = (ways & (IN_PULLED | OUT_PULLED)) != 0 ? SEGMENT_PULLED : SEGMENT_PUSHED;
    for (int64_t i = 0; i < stage->peer_count; i++) {
        const rs_exec_peer *peer = &stage->peers[i];
        if ((known[i] & ways) == 0 || !peer->near ||
            (begins ? peer->out : peer->in) != RS_WAY_DIRECT)
            continue;
        uint64_t number = begins ? number_arrow(exec, mine, peer->rank, segment)
                                 : number_arrow(exec, peer->rank, mine, segment);
        rs_trace_flow(exec->tracing->track, begins ? RS_TRACE_FLOW_BEGIN : RS_TRACE_FLOW_END, at,
                      number);
    }
}

void rs_tracing_ready(reshard_exec *exec, rs_trace_event *event)
{
    exec->tracing->began = event->begin;
    rs_tracing_end(exec, event);
}

/* The ways are not known before now, but the arrows begin where the peers were told. */
void rs_tracing_enter(reshard_exec *exec)
{
    add_arrows(exec, OUT_PULLED, exec->tracing->began);
}

void rs_tracing_done(reshard_exec *exec, int64_t from, int64_t to)
{
    const rs_exec_stage *stage = &exec->stages[exec->stage];
    const unsigned char *known = exec->tracing->ways[exec->stage];
    for (int64_t i = from; i < to; i++) {
        const rs_exec_peer *peer = &stage->peers[i];
        if ((known[i] & IN_PUSHED) == 0 || !peer->near || peer->in != RS_WAY_DIRECT)
            continue;
        rs_trace_event event = rs_tracing_begin(exec, RS_TRACE_DONE);
        event.peer = rank_of(exec, peer->rank);
        rs_trace_flow(
            exec->tracing->track, RS_TRACE_FLOW_END, event.begin,
            number_arrow(exec, peer->rank, reshard_group_rank(exec->group), SEGMENT_PUSHED));
        rs_tracing_end(exec, &event);
    }
}

/* ---- copies ---------------------------------------------------------------------------------- */

void rs_tracing_begin_copies(reshard_exec *exec, bool arrows)
{
    rs_exec_tracing *t = exec->tracing;
    t->copies = false;
    t->copied.begin = look_at_clock(exec);
    if (!arrows)
        return;
    add_arrows(exec, IN_PULLED, t->copied.begin);
    add_arrows(exec, OUT_PUSHED, t->copied.begin);
}

/* Ends the open span, and begins one right after it. */
static void begin_copies(reshard_exec *exec, rs_trace_kind kind)
{
    rs_exec_tracing *t = exec->tracing;
    uint64_t begin = t->copied.begin; /* at first, when the copies began */
    if (t->copies) {
        rs_tracing_end(exec, &t->copied);
        begin = t->copied.end;
    }
    t->copied = make_span(exec, kind, begin);
    t->copies = true;
}

/* Adds an operation to the open span, whether or not it is like those in it. */
static void join_copies(reshard_exec *exec, const rs_operation *operation, bool is_first)
{
    rs_trace_event *open = &exec->tracing->copied;
    bool keeps = operation->peer_index < 0;
    int32_t mine = reshard_group_rank(exec->group), peer = keeps ? mine : operation->peer;
    int32_t shown = keeps ? RS_TRACE_NONE : rank_of(exec, peer);
    int32_t tensor = exec->tracing->tensors[exec->stage][operation->link];
    int32_t round = operation->pushing ? round_of(exec, mine, peer) : round_of(exec, peer, mine);
    open->peer = is_first || open->peer == shown ? shown : RS_TRACE_SEVERAL;
    open->tensor = is_first || open->tensor == tensor ? tensor : RS_TRACE_SEVERAL;
    open->round = open->peer >= 0 ? round : RS_TRACE_NONE;
    if (keeps)
        open->kept += operation->bytes;
    else if (open->kind == RS_TRACE_COMBINE || operation->source_slot != RS_SLOT_SCRATCH)
        open->bytes += operation->bytes; /* what lies in scratch was counted when it arrived */
}

void rs_tracing_copies(reshard_exec *exec, int64_t count, const rs_operation *const *operations)
{
    const rs_operation *first = operations[0];
    const rs_trace_event *open = &exec->tracing->copied;
    bool combines = true; /* only contributions that have arrived */
    for (int64_t i = 0; i < count; i++)
        combines = combines && operations[i]->source_slot == RS_SLOT_SCRATCH;
    rs_trace_kind kind = combines ? RS_TRACE_COMBINE : RS_TRACE_COPY;
    int32_t peer = first->peer_index < 0 ? RS_TRACE_NONE : rank_of(exec, first->peer);
    bool alike =
        open->peer == peer && open->tensor == exec->tracing->tensors[exec->stage][first->link];
    uint64_t most = alike ? COPIES_BYTES_MAX : COPIES_BYTES_MIN;
    bool is_first =
        !exec->tracing->copies || open->kind != kind || open->bytes + open->kept >= most;
    if (is_first)
        begin_copies(exec, kind);
    for (int64_t i = 0; i < count; i++)
        join_copies(exec, operations[i], is_first && i == 0);
}

void rs_tracing_end_copies(reshard_exec *exec)
{
    rs_exec_tracing *t = exec->tracing;
    if (t->copies)
        rs_tracing_end(exec, &t->copied);
    t->copies = false;
}

/* ---- segments -------------------------------------------------------------------------------- */

void rs_tracing_describe(const reshard_exec *exec, const rs_parcel *parcel, rs_trace_event *event)
{
    const reshard_stream *stream = parcel->lane->stream;
    const int32_t *tensors = exec->tracing->tensors[exec->stage];
    int32_t mine = reshard_group_rank(exec->group), peer = parcel->lane->peer->rank;
    int32_t first = tensors[stream->links[rs_stream_find(stream, parcel->from)]];
    int32_t last = tensors[stream->links[rs_stream_find(stream, parcel->to - 1)]];
    event->tensor = first == last ? first : RS_TRACE_SEVERAL;
    event->bytes = parcel->to - parcel->from;
    event->peer = rank_of(exec, peer);
    event->round = parcel->lane->sending ? round_of(exec, mine, peer) : round_of(exec, peer, mine);
    event->segment = (int32_t)parcel->number;
}

void rs_tracing_arrow(reshard_exec *exec, const rs_parcel *parcel, const rs_trace_event *event)
{
    int32_t mine = reshard_group_rank(exec->group), peer = parcel->lane->peer->rank;
    bool sends = parcel->lane->sending;
    rs_trace_flow(exec->tracing->track, sends ? RS_TRACE_FLOW_BEGIN : RS_TRACE_FLOW_END,
                  event->begin,
                  number_arrow(exec, sends ? mine : peer, sends ? peer : mine, parcel->number));
}
