/* SPDX-License-Identifier: Apache-2.0 */
/*
 * predict.c - the time of a plan, rank by rank. What a rank sends and receives in a stage is a
 * short list of regular families of moves; where a family steps from peer to peer, those on the
 * rank's own node are counted by arithmetic, so that an exchange of all with all costs a few steps
 * for each rank, and not one for each pair.
 */
#include <reshard/plan_inspect.h>
#include <reshard/predict.h>

#include "base/context.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/options.h"
#include "base/shape.h"
#include "plan/effort.h"
#include "plan/plan.h"
#include "predict/predict.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

struct reshard_prediction {
    reshard_context *context;
    double seconds;
    int32_t stage_count;
    reshard_stage_prediction stages[];
};

/* What one rank does in one stage. */
typedef struct load {
    uint64_t nic_out, nic_in, intra_out, intra_in, kept;
    int64_t peers_out, peers_in;
} load;

/* ---- one rank -------------------------------------------------------------------------------- */

/* Of the peers first, first + step, .. (count of them), how many are of lowest .. highest? */
static int64_t count_between(int64_t first, int64_t step, int64_t count, int64_t lowest,
                             int64_t highest)
{
    assert(step != 0 && count > 0);
    if (step < 0) { /* the same peers, from the other end */
        first += (count - 1) * step;
        step = -step;
    }
    int64_t begin = first >= lowest ? 0 : (lowest - first + step - 1) / step;
    int64_t end = highest < first ? 0 : (highest - first) / step + 1;
    if (end > count)
        end = count;
    return end > begin ? end - begin : 0;
}

/* Families of up to this many peers are gone through to find which of them were seen before; the
 * peers of larger ones are taken for new, which those of one exchange of all with all are. */
enum { PEERS_MARKED_MAX = 256 };

typedef struct walk {
    int64_t node_first, node_last; /* ranks of this rank's node */
    uint64_t between, within;      /* bytes */
    int64_t peers;
    int64_t *seen; /* for each rank, the last walk that met it */
    int64_t number;
} walk;

static void count_peers(walk *w, int64_t first, int64_t step, int64_t count)
{
    if (count > PEERS_MARKED_MAX) {
        w->peers += count;
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t *mark = &w->seen[first + i * step];
        w->peers += *mark != w->number;
        *mark = w->number;
    }
}

/* Adds a record from loop `level` on. The innermost loop over peers is counted, not gone
 * through. */
static void add_record(walk *w, const reshard_move *record, int32_t level, int64_t peer,
                       uint64_t bytes)
{
    int32_t next = level;
    while (next < record->loop_count && record->loops[next].peer_step == 0)
        bytes *= (uint64_t)record->loops[next++].count;
    int32_t last = record->loop_count;
    for (int32_t i = next + 1; i < record->loop_count && last == record->loop_count; i++) {
        if (record->loops[i].peer_step != 0)
            last = i;
    }
    if (next < record->loop_count && last < record->loop_count) { /* another one follows */
        for (int64_t i = 0; i < record->loops[next].count; i++)
            add_record(w, record, next + 1, peer + i * record->loops[next].peer_step, bytes);
        return;
    }
    int64_t count = 1, step = 1;
    if (next < record->loop_count) {
        count = record->loops[next].count;
        step = record->loops[next].peer_step;
        for (int32_t i = next + 1; i < record->loop_count; i++)
            bytes *= (uint64_t)record->loops[i].count;
    }
    int64_t here = count_between(peer, step, count, w->node_first, w->node_last);
    w->within += bytes * (uint64_t)here;
    w->between += bytes * (uint64_t)(count - here);
    count_peers(w, peer, step, count);
}

static void add_list(walk *w, const reshard_moves *moves, bool sending, uint64_t element_bytes)
{
    for (int64_t i = 0; i < moves->count; i++) {
        const reshard_move *record = &moves->items[i];
        uint64_t bytes = element_bytes * (uint64_t)rs_volume(record->ndim, record->size);
        add_record(w, record, 0, sending ? record->target_rank : record->source_rank, bytes);
    }
}

static uint64_t kept_bytes(const reshard_moves *keeps, uint64_t element_bytes)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < keeps->count; i++) {
        const reshard_move *record = &keeps->items[i];
        bytes += element_bytes * (uint64_t)rs_volume(record->ndim, record->size) *
                 (uint64_t)reshard_move_count(record);
    }
    return bytes;
}

static reshard_status read_load(const reshard_plan *plan, const reshard_cluster *cluster,
                                const reshard_part *part, int32_t rank, int32_t stage,
                                int64_t *seen, load *out)
{
    int64_t first = rank / cluster->per_node * (int64_t)cluster->per_node;
    walk out_walk = {.node_first = first, .node_last = first + cluster->per_node - 1};
    walk in_walk = out_walk;
    /* Each walk has a number of its own, from 1 on; two follow each other for every stage. */
    int64_t turn = (int64_t)rank * reshard_plan_stage_count(plan) + stage;
    out_walk.number = 2 * turn + 1;
    in_walk.number = 2 * turn + 2;
    out_walk.seen = seen;
    in_walk.seen = seen + reshard_plan_rank_count(plan);
    *out = (load){0};
    for (int32_t l = 0; l < reshard_plan_stage_link_count(plan, stage); l++) {
        reshard_stage_link link = {.size = sizeof link};
        reshard_status status = reshard_plan_stage_link(plan, stage, l, &link);
        if (status != RESHARD_OK)
            return status;
        uint64_t target = rs_element_bytes(link.target_dtype);
        uint64_t source = link.source < 0 ? target : rs_element_bytes(link.source_dtype);
        uint64_t wire = source < target ? source : target; /* the narrower type travels */
        const reshard_part_moves *moves = reshard_part_link(part, stage, l);
        add_list(&out_walk, &moves->sends, true, wire);
        add_list(&in_walk, &moves->receives, false, wire);
        out->kept += kept_bytes(&moves->keeps, target);
    }
    int64_t others = reshard_plan_rank_count(plan) - 1;
    out->nic_out = out_walk.between;
    out->intra_out = out_walk.within;
    out->nic_in = in_walk.between;
    out->intra_in = in_walk.within;
    out->peers_out = out_walk.peers < others ? out_walk.peers : others;
    out->peers_in = in_walk.peers < others ? in_walk.peers : others;
    return RESHARD_OK;
}

/* ---- all of them ----------------------------------------------------------------------------- */

/* The busiest link is the one that takes longest; of equals the first stays. */
static void offer(reshard_stage_prediction *stage, double *longest, reshard_bottleneck kind,
                  int32_t which, uint64_t bytes, double speed)
{
    double seconds = speed > 0 ? (double)bytes / speed : 0;
    if (seconds <= *longest)
        return;
    *longest = seconds;
    stage->bottleneck = kind;
    stage->which = which;
    stage->bytes = bytes;
}

/* Sums that ranks are added to, one after the other. */
typedef struct sums {
    double longest;      /* of a link so far */
    uint64_t node_bytes; /* copied within the node of the current rank */
} sums;

static void add_rank(reshard_stage_prediction *stage, sums *s, const reshard_cluster *cluster,
                     int32_t rank, const load *l)
{
    offer(stage, &s->longest, RESHARD_BOTTLENECK_NIC_OUT, rank, l->nic_out, cluster->nic);
    offer(stage, &s->longest, RESHARD_BOTTLENECK_NIC_IN, rank, l->nic_in, cluster->nic);
    offer(stage, &s->longest, RESHARD_BOTTLENECK_INTRA_OUT, rank, l->intra_out, cluster->intra);
    offer(stage, &s->longest, RESHARD_BOTTLENECK_INTRA_IN, rank, l->intra_in, cluster->intra);
    if (rank % cluster->per_node == 0)
        s->node_bytes = 0;
    s->node_bytes += l->intra_in + l->kept;
    offer(stage, &s->longest, RESHARD_BOTTLENECK_MEMORY, rank / cluster->per_node, s->node_bytes,
          cluster->memory);
    int64_t peers = l->peers_out > l->peers_in ? l->peers_out : l->peers_in;
    stage->peers = peers > stage->peers ? (int32_t)peers : stage->peers;
    stage->bytes_between_nodes += l->nic_in;
    stage->bytes_within_nodes += l->intra_in;
    stage->bytes_kept += l->kept;
}

static reshard_status go_through_ranks(reshard_plan *plan, const reshard_cluster *cluster,
                                       reshard_prediction *prediction, sums *stage_sums,
                                       int64_t *seen)
{
    int32_t ranks = reshard_plan_rank_count(plan);
    for (int32_t rank = 0; rank < ranks; rank++) {
        if (rs_context_cancelled(plan->context))
            return rs_fail(RESHARD_ERR_CANCELLED, "cancelled at rank %d of %d", rank, ranks);
        rs_context_progress(plan->context, "predicting", (uint64_t)rank, (uint64_t)ranks);
        reshard_part *part = NULL;
        reshard_status status = reshard_part_create(plan->context, plan, rank, &part);
        for (int32_t i = 0; i < prediction->stage_count && status == RESHARD_OK; i++) {
            load one;
            status = read_load(plan, cluster, part, rank, i, seen, &one);
            if (status == RESHARD_OK)
                add_rank(&prediction->stages[i], &stage_sums[i], cluster, rank, &one);
        }
        reshard_part_destroy(part);
        if (status != RESHARD_OK)
            return status;
    }
    rs_context_progress(plan->context, "predicting", (uint64_t)ranks, (uint64_t)ranks);
    return RESHARD_OK;
}

reshard_status rs_cluster_read(const reshard_plan *plan, const reshard_cluster *given,
                               reshard_cluster *out_cluster)
{
    int32_t ranks = reshard_plan_rank_count(plan);
    reshard_status status = rs_options_read("cluster", given, out_cluster, sizeof *out_cluster);
    if (status != RESHARD_OK)
        return status;
    if (out_cluster->nodes < 0 || out_cluster->per_node < 0 || out_cluster->latency < 0)
        return rs_fail(RESHARD_ERR_INVALID, "cluster: a number below zero");
    if (out_cluster->nodes == 0)
        out_cluster->nodes = 1;
    if (out_cluster->per_node == 0)
        out_cluster->per_node = ranks / out_cluster->nodes + (ranks % out_cluster->nodes != 0);
    if (out_cluster->per_node == 0)
        out_cluster->per_node = 1;
    if ((int64_t)out_cluster->nodes * out_cluster->per_node < ranks)
        return rs_fail(RESHARD_ERR_INVALID,
                       "cluster: %" PRId32 " nodes of %" PRId32
                       " ranks are too few for a plan of %" PRId32 " ranks",
                       out_cluster->nodes, out_cluster->per_node, ranks);
    return RESHARD_OK;
}

static void add_up(reshard_prediction *prediction, const sums *stage_sums, double latency)
{
    for (int32_t i = 0; i < prediction->stage_count; i++) {
        reshard_stage_prediction *stage = &prediction->stages[i];
        stage->latency_seconds = latency * stage->peers;
        stage->seconds = stage_sums[i].longest + stage->latency_seconds;
        prediction->seconds += stage->seconds;
    }
}

static size_t prediction_bytes(int32_t stage_count)
{
    return sizeof(reshard_prediction) + (size_t)stage_count * sizeof(reshard_stage_prediction);
}

reshard_status reshard_plan_predict(reshard_plan *plan, const reshard_cluster *given,
                                    reshard_prediction **out_prediction)
{
    reshard_cluster cluster;
    reshard_status status = rs_cluster_read(plan, given, &cluster);
    if (status == RESHARD_OK)
        status = rs_effort_check_all(rs_plan_forward(plan), false);
    if (status != RESHARD_OK)
        return status;
    int32_t stage_count = reshard_plan_stage_count(plan);
    size_t sums_bytes = (size_t)stage_count * sizeof(sums);
    size_t seen_bytes = 2 * (size_t)reshard_plan_rank_count(plan) * sizeof(int64_t);
    sums *stage_sums = rs_allocate_zeroed(plan->context, sums_bytes);
    reshard_prediction *made = rs_allocate_zeroed(plan->context, prediction_bytes(stage_count));
    int64_t *seen = rs_allocate_zeroed(plan->context, seen_bytes);
    if (stage_sums == NULL || made == NULL || seen == NULL)
        status = rs_allocation_status();
    if (status == RESHARD_OK) {
        made->context = plan->context;
        made->stage_count = stage_count;
        status = go_through_ranks(plan, &cluster, made, stage_sums, seen);
    }
    if (status == RESHARD_OK) {
        add_up(made, stage_sums, cluster.latency);
        *out_prediction = made;
        made = NULL;
    }
    if (made != NULL)
        rs_release(plan->context, made, prediction_bytes(stage_count));
    if (stage_sums != NULL)
        rs_release(plan->context, stage_sums, sums_bytes);
    if (seen != NULL)
        rs_release(plan->context, seen, seen_bytes);
    return status;
}

void reshard_prediction_destroy(reshard_prediction *prediction)
{
    if (prediction != NULL)
        rs_release(prediction->context, prediction, prediction_bytes(prediction->stage_count));
}

/* ---- asking ---------------------------------------------------------------------------------- */

double reshard_prediction_seconds(const reshard_prediction *prediction)
{
    return prediction->seconds;
}

reshard_status reshard_prediction_stage(const reshard_prediction *prediction, int32_t stage,
                                        reshard_stage_prediction *out_stage)
{
    if (stage < 0 || stage >= prediction->stage_count)
        return rs_fail(RESHARD_ERR_RANGE, "stage %" PRId32 " of %" PRId32, stage,
                       prediction->stage_count);
    return rs_report_write("stage prediction", &prediction->stages[stage],
                           sizeof prediction->stages[stage], out_stage);
}

const char *reshard_bottleneck_name(reshard_bottleneck bottleneck)
{
    switch (bottleneck) {
    case RESHARD_BOTTLENECK_NONE:
        break;
    case RESHARD_BOTTLENECK_NIC_OUT:
        return "sending to other nodes";
    case RESHARD_BOTTLENECK_NIC_IN:
        return "receiving from other nodes";
    case RESHARD_BOTTLENECK_INTRA_OUT:
        return "sending within its node";
    case RESHARD_BOTTLENECK_INTRA_IN:
        return "receiving within its node";
    case RESHARD_BOTTLENECK_MEMORY:
        return "copying within the node";
    }
    return "nothing";
}
