/* SPDX-License-Identifier: Apache-2.0 */
/*
 * predict.c - the model: how long the loads of ranks (load.c) take on a cluster. A stage lasts as
 * long as its busiest link or memory, plus the latencies of the rank with the most peers.
 */
#include <reshard/plan_inspect.h>
#include <reshard/predict.h>

#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "plan/effort.h"
#include "plan/plan.h"
#include "predict/predict.h"

#include <inttypes.h>
#include <string.h>

struct reshard_prediction {
    reshard_context *context;
    uint64_t plan[2]; /* the digest of the plan that it was made from */
    double seconds;
    int32_t stage_count;
    reshard_stage_prediction stages[];
};

/* ---- all ranks ------------------------------------------------------------------------------- */

double rs_copy_seconds(const reshard_cluster *cluster, rs_copied copied)
{
    double slow = cluster->scattered > 0 ? cluster->scattered : cluster->memory;
    return rs_seconds_over(copied.bytes - copied.scattered, cluster->memory) +
           rs_seconds_over(copied.scattered, slow);
}

double rs_pack_seconds(const reshard_cluster *cluster, rs_copied packed)
{
    return rs_copy_seconds(cluster, packed) * cluster->per_node;
}

/* Makes this link or memory the bottleneck if it takes longer than all before it. */
static void offer(reshard_stage_prediction *stage, double *longest, reshard_bottleneck kind,
                  int32_t which, uint64_t bytes, double seconds)
{
    if (seconds <= *longest)
        return;
    *longest = seconds;
    stage->bottleneck = kind;
    stage->which = which;
    stage->bytes = bytes;
}

/* What is summed up over the ranks, in order, for one stage. */
typedef struct sums {
    double longest; /* seconds of the busiest link or memory so far */
    rs_copied node; /* copied so far within the current rank's node */
} sums;

static void offer_links(reshard_stage_prediction *stage, double *longest,
                        const reshard_cluster *cluster, int32_t rank, const rs_load *l)
{
    double nic_out = rs_seconds_over(l->nic_out, cluster->nic);
    double nic_in = rs_seconds_over(l->nic_in, cluster->nic);
    offer(stage, longest, RESHARD_BOTTLENECK_NIC_OUT, rank, l->nic_out,
          nic_out + rs_pack_seconds(cluster, l->packed_out));
    offer(stage, longest, RESHARD_BOTTLENECK_NIC_IN, rank, l->nic_in,
          nic_in + rs_pack_seconds(cluster, l->packed_in));
    offer(stage, longest, RESHARD_BOTTLENECK_INTRA_OUT, rank, l->intra_out,
          rs_seconds_over(l->intra_out, cluster->intra));
    offer(stage, longest, RESHARD_BOTTLENECK_INTRA_IN, rank, l->intra_in,
          rs_seconds_over(l->intra_in, cluster->intra));
}

static void add_rank(reshard_stage_prediction *stage, sums *s, const reshard_cluster *cluster,
                     int32_t rank, const rs_load *l)
{
    offer_links(stage, &s->longest, cluster, rank, l);
    if (rank % cluster->per_node == 0)
        s->node = (rs_copied){0};
    rs_copied_add(&s->node, l->copied);
    offer(stage, &s->longest, RESHARD_BOTTLENECK_MEMORY, rank / cluster->per_node, s->node.bytes,
          rs_copy_seconds(cluster, s->node));
    int64_t peers = l->peers_out > l->peers_in ? l->peers_out : l->peers_in;
    stage->peers = peers > stage->peers ? (int32_t)peers : stage->peers;
    stage->bytes_between_nodes += l->nic_in;
    stage->bytes_within_nodes += l->intra_in;
    stage->bytes_kept += l->copied.bytes - l->intra_in;
    stage->bytes_scattered += l->copied.scattered;
    stage->bytes_packed += l->packed_out.bytes + l->packed_in.bytes;
}

static reshard_status go_through_ranks(reshard_plan *plan, const reshard_cluster *cluster,
                                       reshard_prediction *prediction, sums *stage_sums,
                                       int64_t *seen)
{
    int32_t ranks = rs_plan_forward(plan)->rank_count;
    for (int32_t rank = 0; rank < ranks; rank++) {
        if (rs_context_cancelled(plan->context))
            return rs_fail(RESHARD_ERR_CANCELLED, "cancelled at rank %d of %d", rank, ranks);
        rs_context_progress(plan->context, "predicting", (uint64_t)rank, (uint64_t)ranks);
        reshard_part *part = NULL;
        reshard_status status = reshard_part_create(plan->context, plan, rank, &part);
        for (int32_t i = 0; i < prediction->stage_count && status == RESHARD_OK; i++) {
            rs_load one;
            status = rs_load_read(plan, cluster, part, rank, i, seen, &one);
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

/* Of the numbers that plans are predicted from. */
static reshard_status check_numbers(const reshard_cluster *c)
{
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"nic", c->nic},
                   {"intra", c->intra},
                   {"memory", c->memory},
                   {"latency", c->latency},
                   {"scattered", c->scattered}};
    if (c->nodes < 0 || c->per_node < 0)
        return rs_fail(RESHARD_ERR_INVALID, "cluster: %d nodes of %d ranks", c->nodes, c->per_node);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        if (!(numbers[i].value >= 0)) /* NaN is not, either */
            return rs_fail(RESHARD_ERR_INVALID, "cluster: %s is %g, not 0 or more", numbers[i].name,
                           numbers[i].value);
    }
    return RESHARD_OK;
}

reshard_status rs_cluster_read(const reshard_plan *plan, const reshard_cluster *given,
                               reshard_cluster *out_cluster)
{
    int32_t ranks = rs_plan_forward(plan)->rank_count;
    reshard_status status = rs_options_read("cluster", given, out_cluster, sizeof *out_cluster);
    if (status == RESHARD_OK)
        status = check_numbers(out_cluster);
    if (status != RESHARD_OK)
        return status;
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
    int32_t stage_count = rs_plan_forward(plan)->stage_count;
    size_t sums_bytes = (size_t)stage_count * sizeof(sums);
    size_t seen_bytes = 2 * (size_t)rs_plan_forward(plan)->rank_count * sizeof(int64_t);
    sums *stage_sums = rs_allocate_zeroed(plan->context, sums_bytes);
    reshard_prediction *made = rs_allocate_zeroed(plan->context, prediction_bytes(stage_count));
    int64_t *seen = rs_allocate_zeroed(plan->context, seen_bytes);
    if (stage_sums == NULL || made == NULL || seen == NULL)
        status = rs_allocation_status();
    if (status == RESHARD_OK) {
        made->context = plan->context;
        made->stage_count = stage_count;
        rs_plan_digest(plan, made->plan);
        status = go_through_ranks(plan, &cluster, made, stage_sums, seen);
    }
    if (status == RESHARD_OK) {
        add_up(made, stage_sums, cluster.latency);
        *out_prediction = made;
        made = NULL;
    }
    rs_release(plan->context, made);
    rs_release(plan->context, stage_sums);
    rs_release(plan->context, seen);
    return status;
}

void reshard_prediction_destroy(reshard_prediction *prediction)
{
    if (prediction != NULL)
        rs_release(prediction->context, prediction);
}

/* ---- queries --------------------------------------------------------------------------------- */

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

bool rs_prediction_is_of(const reshard_prediction *prediction, const reshard_plan *plan)
{
    uint64_t digest[2];
    rs_plan_digest(plan, digest);
    return digest[0] == prediction->plan[0] && digest[1] == prediction->plan[1];
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
