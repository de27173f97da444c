/* SPDX-License-Identifier: Apache-2.0 */
/*
 * trace.c - writes a prediction as a trace. Each link of a rank is a row, on which its messages
 * follow each other in the order of rounds. A message takes its bytes over the link's speed, the
 * time to pack it if it goes to another node, and one latency. So the longest row of a stage ends
 * with the stage or, if another rank has more peers, earlier: the model adds the latencies of the
 * rank that has the most.
 */
#include "base/context.h"
#include "base/error.h"
#include "base/shape.h"
#include "plan/part.h"
#include "plan/plan.h"
#include "predict/predict.h"
#include "trace/record.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* Viewers cannot show more than this. */
#define EVENTS_MAX 1000000
#define RANKS_MAX 1024

/* The rows of a rank. */
enum { STAGES, NIC_OUT, NIC_IN, INTRA_OUT, INTRA_IN, MEMORY, ROWS };

static const char *const labels[ROWS] = {"stages",      "to other nodes", "from other nodes",
                                         "to its node", "from its node",  "memory of the node"};

/* What one rank sends to another in one stage, or receives from it. */
typedef struct message {
    uint64_t bytes;
    rs_copied packed; /* how much of it is packed or unpacked if it crosses nodes */
} message;

typedef struct tracing {
    const reshard_prediction *prediction;
    reshard_plan *plan;
    reshard_cluster cluster;
    reshard_trace *trace;
    int32_t rank_count, stage_count;
    int64_t events;             /* number of events so far */
    message *out, *in;          /* indexed by peer: messages of one rank in one stage */
    rs_copied *node;            /* indexed by stage: copied so far within the current rank's node */
    rs_trace_track *rows[ROWS]; /* tracks of the current rank */
} tracing;

/* ---- the work of one rank -------------------------------------------------------------------- */

typedef struct adding {
    message *messages; /* indexed by peer */
    bool sending, scattered, packed;
    uint64_t element_bytes;
} adding;

static reshard_status add_move(void *user, const reshard_move *move)
{
    const adding *a = user;
    message *to = &a->messages[a->sending ? move->target_rank : move->source_rank];
    uint64_t bytes = a->element_bytes * (uint64_t)rs_volume(move->ndim, move->size);
    to->bytes += bytes;
    if (a->packed)
        rs_copied_add(&to->packed, (rs_copied){bytes, a->scattered ? bytes : 0});
    return RESHARD_OK;
}

static reshard_status add_list(message *messages, const reshard_moves *moves,
                               const reshard_stage_link *link, int32_t rank, bool sending)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < moves->count && status == RESHARD_OK; i++) {
        const reshard_moves one = {1, &moves->items[i]};
        adding a = {.messages = messages, .sending = sending, .element_bytes = rs_wire_bytes(link)};
        a.scattered = rs_record_is_scattered(one.items, a.element_bytes);
        a.packed = rs_record_is_packed(one.items, link, sending);
        status = rs_moves_each(&one, rank, -1, add_move, &a);
    }
    return status;
}

/* Fills t->out and t->in, and adds what the rank copies to the bytes of its node. */
static reshard_status read_stage(tracing *t, const reshard_part *part, int32_t rank, int32_t stage)
{
    rs_load load;
    memset(t->out, 0, (size_t)t->rank_count * sizeof *t->out);
    memset(t->in, 0, (size_t)t->rank_count * sizeof *t->in);
    reshard_status status = rs_load_read(t->plan, &t->cluster, part, rank, stage, NULL, &load);
    for (int32_t l = 0; l < reshard_plan_stage_link_count(t->plan, stage) && status == RESHARD_OK;
         l++) {
        reshard_stage_link link = rs_plan_stage_link(t->plan, stage, l);
        const reshard_part_moves *moves = reshard_part_link(part, stage, l);
        status = add_list(t->out, &moves->sends, &link, rank, true);
        if (status == RESHARD_OK)
            status = add_list(t->in, &moves->receives, &link, rank, false);
    }
    if (status == RESHARD_OK)
        rs_copied_add(&t->node[stage], load.copied);
    return status;
}

/* Whether this is the last rank of its node, which gets the row of the node's memory. */
static bool ends_node(const tracing *t, int32_t rank)
{
    return rank % t->cluster.per_node == t->cluster.per_node - 1 || rank == t->rank_count - 1;
}

/* Whether the cluster says how long copies within a node take. */
static bool has_memory(const tracing *t)
{
    return t->cluster.memory > 0 || t->cluster.scattered > 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static uint64_t nanoseconds(double seconds)
{
    return (uint64_t)llround(seconds * 1e9);
}

static void add_span(const tracing *t, int row, rs_trace_kind kind, double begin, double end,
                     uint64_t bytes, int32_t stage, int32_t peer, int32_t round)
{
    rs_trace_event event = rs_trace_span(kind, nanoseconds(begin));
    event.end = nanoseconds(end);
    event.bytes = bytes;
    event.stage = (int16_t)stage;
    event.peer = peer;
    event.round = round;
    rs_trace_add(t->rows[row], &event);
}

static double message_seconds(const reshard_cluster *c, const message *m, bool near)
{
    return c->latency + (near ? rs_seconds_over(m->bytes, c->intra)
                              : rs_seconds_over(m->bytes, c->nic) + rs_pack_seconds(c, m->packed));
}

/* Adds the messages of one rank in one direction, in the order of rounds, and returns their
 * bytes. */
static uint64_t add_messages(tracing *t, int32_t rank, int32_t stage, bool sending, double begin)
{
    const reshard_cluster *c = &t->cluster;
    double between = begin, within = begin; /* where the last span of each row ended */
    uint64_t total = 0;
    for (int32_t round = 1; round < t->rank_count; round++) {
        int32_t step = sending ? round : t->rank_count - round;
        int32_t peer = (int32_t)(((int64_t)rank + step) % t->rank_count);
        const message *m = sending ? &t->out[peer] : &t->in[peer];
        if (m->bytes == 0)
            continue;
        bool near = peer / c->per_node == rank / c->per_node;
        double *at = near ? &within : &between;
        double end = *at + message_seconds(c, m, near);
        int row = near ? (sending ? INTRA_OUT : INTRA_IN) : (sending ? NIC_OUT : NIC_IN);
        add_span(t, row, sending ? RS_TRACE_SEND : RS_TRACE_RECEIVE, *at, end, m->bytes, stage,
                 peer, round);
        *at = end;
        total += m->bytes;
    }
    return total;
}

/* Adds the rank's messages in one stage to the numbers of events of its rows. */
static void count_messages(const tracing *t, int32_t rank, int64_t counts[ROWS])
{
    for (int32_t i = 0; i < t->rank_count; i++) {
        bool near = i / t->cluster.per_node == rank / t->cluster.per_node;
        counts[near ? INTRA_OUT : NIC_OUT] += t->out[i].bytes != 0;
        counts[near ? INTRA_IN : NIC_IN] += t->in[i].bytes != 0;
    }
    counts[STAGES]++;
    counts[MEMORY] += has_memory(t) && ends_node(t, rank);
}

static reshard_status take_rows(tracing *t, int32_t rank, const int64_t counts[ROWS])
{
    reshard_status status = RESHARD_OK;
    for (int i = 0; i < ROWS && status == RESHARD_OK; i++) {
        if (counts[i] == 0)
            continue;
        /* Take each row by its number and give it back at once: a thread that still holds a row
         * would get the same one again. */
        status = rs_trace_take(t->trace, rank, i, counts[i], &t->rows[i]);
        if (status == RESHARD_OK) {
            t->rows[i]->label = labels[i];
            rs_trace_give_back(t->rows[i]);
        }
    }
    return status;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

static double stage_seconds(const tracing *t, int32_t stage)
{
    reshard_stage_prediction found = {.size = sizeof found};
    reshard_status status = reshard_prediction_stage(t->prediction, stage, &found);
    assert(status == RESHARD_OK);
    (void)status;
    return found.seconds;
}

static reshard_status trace_part(tracing *t, const reshard_part *part, int32_t rank)
{
    double begin = 0;
    for (int32_t i = 0; i < t->stage_count; i++) {
        double seconds = stage_seconds(t, i);
        reshard_status status = read_stage(t, part, rank, i);
        if (status != RESHARD_OK)
            return status;
        (void)add_messages(t, rank, i, true, begin);
        uint64_t received = add_messages(t, rank, i, false, begin);
        add_span(t, STAGES, RS_TRACE_STAGE, begin, begin + seconds, received, i, RS_TRACE_NONE,
                 RS_TRACE_NONE);
        if (ends_node(t, rank) && has_memory(t) && t->node[i].bytes != 0)
            add_span(t, MEMORY, RS_TRACE_COPY, begin,
                     begin + rs_copy_seconds(&t->cluster, t->node[i]), t->node[i].bytes, i,
                     RS_TRACE_NONE, RS_TRACE_NONE);
        begin += seconds;
    }
    return RESHARD_OK;
}

/* Counts the events of each row. *out_fits says whether there is room for the rank. */
static reshard_status measure_part(tracing *t, const reshard_part *part, int32_t rank,
                                   int64_t counts[ROWS], bool *out_fits)
{
    rs_copied *node = t->node;
    rs_copied unused[RS_STAGES_MAX] = {0};
    reshard_status status = RESHARD_OK;
    t->node = unused;
    for (int32_t i = 0; i < t->stage_count && status == RESHARD_OK; i++) {
        status = read_stage(t, part, rank, i);
        count_messages(t, rank, counts);
    }
    t->node = node;
    for (int i = 0; i < ROWS; i++)
        t->events += counts[i];
    *out_fits = t->events <= EVENTS_MAX && rank < RANKS_MAX;
    return status;
}

static reshard_status trace_rank(tracing *t, int32_t rank, bool *out_fits)
{
    reshard_part *part = NULL;
    int64_t counts[ROWS] = {0};
    if (rs_context_cancelled(t->plan->context))
        return rs_fail(RESHARD_ERR_CANCELLED, "cancelled at rank %d of %d", rank, t->rank_count);
    reshard_status status = reshard_part_create(t->plan->context, t->plan, rank, &part);
    if (status == RESHARD_OK)
        status = measure_part(t, part, rank, counts, out_fits);
    if (status == RESHARD_OK && *out_fits)
        status = take_rows(t, rank, counts);
    if (rank % t->cluster.per_node == 0)
        memset(t->node, 0, (size_t)t->stage_count * sizeof *t->node);
    if (status == RESHARD_OK && *out_fits)
        status = trace_part(t, part, rank);
    reshard_part_destroy(part);
    return status;
}

reshard_status reshard_prediction_trace(const reshard_prediction *prediction, reshard_plan *plan,
                                        const reshard_cluster *cluster, reshard_trace *trace,
                                        int32_t *out_ranks)
{
    rs_copied node[RS_STAGES_MAX] = {0};
    tracing t = {.prediction = prediction,
                 .plan = plan,
                 .trace = trace,
                 .rank_count = rs_plan_forward(plan)->rank_count,
                 .stage_count = rs_plan_forward(plan)->stage_count,
                 .node = node};
    if (!rs_prediction_is_of(prediction, plan))
        return rs_fail(RESHARD_ERR_INVALID, "trace of a prediction: it was made from another plan");
    reshard_status status = rs_cluster_read(plan, cluster, &t.cluster);
    if (status != RESHARD_OK)
        return status;
    size_t bytes = 2 * (size_t)t.rank_count * sizeof *t.out;
    t.out = rs_allocate(plan->context, bytes);
    if (t.out == NULL)
        return rs_allocation_status();
    t.in = t.out + t.rank_count;
    bool fits = true;
    int32_t rank = 0;
    rs_trace_set_origin(trace, "predicted from the plan and a cluster's speeds; nothing was run");
    while (rank < t.rank_count && fits && status == RESHARD_OK) {
        status = trace_rank(&t, rank, &fits);
        rank += fits;
    }
    rs_trace_leave_out(trace, t.rank_count - rank);
    rs_release(plan->context, t.out);
    if (status == RESHARD_OK && out_ranks != NULL)
        *out_ranks = rank;
    return status;
}
