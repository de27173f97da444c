/* SPDX-License-Identifier: Apache-2.0 */
/*
 * predict.h - predicts how long a plan would take on a machine described by a few numbers.
 *
 *     reshard_cluster cluster = {.size = sizeof cluster};
 *     reshard_cluster_parse("nodes=128,per_node=8,nic=50GB/s,intra=400GB/s,latency=5us", &cluster);
 *     reshard_plan_predict(plan, &cluster, &prediction);
 *     printf("%g s\n", reshard_prediction_seconds(prediction));
 *
 * The byte counts are exact, taken from the plan; the model of the machine is simple. Each rank has
 * one link to other nodes and one within its node, in each direction. Each node has a memory, which
 * may be slower for short runs. Each message to another rank costs the latency. Data that is not
 * contiguous is packed before it goes to another node. Links work in parallel and stages follow
 * each other, so a stage takes as long as its busiest link. The model leaves out contention between
 * nodes, skew between ranks, and the overlap of one stage with the next.
 */
#ifndef RESHARD_PREDICT_H
#define RESHARD_PREDICT_H

#include <reshard/plan.h>
#include <reshard/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== explicit ===================================================================================
 * Describe a cluster, predict, ask for each stage.
 */

/* Speeds are in bytes per second; 0: no limit. */
typedef struct reshard_cluster {
    size_t size;             /* sizeof(reshard_cluster), set by the caller */
    int32_t nodes, per_node; /* node n has ranks n*per_node .. (n+1)*per_node-1 */
    double nic;              /* one rank's link to other nodes, in each direction */
    double intra;            /* one rank's link within its node, in each direction */
    double memory;  /* one node's memory: all that its ranks copy within it, kept bytes included */
    double latency; /* seconds per message to another rank */
    /* The disk or the page cache, for conversions of checkpoints (reshard_conversion_predict):
     * reading into memory, writing from it, and copies made by the kernel. */
    double read, write, copy;
    /* Like memory, for copies in runs of at most 4 KiB; 0: the same as memory. */
    double scattered;
    /* Conversions: how fast elements become another dtype, in bytes of what is read, beyond reading
     * and writing them. */
    double cast;
} reshard_cluster;

/*
 * Parses the text form: "name=value" pairs separated by commas, in any order, all optional. Without
 * nodes there is one node; without per_node the ranks are spread evenly over the nodes. Speeds are
 * written "50GB/s" or "400MiB/s", times "5us", "1.5ms" or "0.1s". Errors: SYNTAX, RANGE; the error
 * text quotes the wrong part. Local.
 */
RESHARD_API reshard_status reshard_cluster_parse(const char *text, reshard_cluster *out_cluster);

typedef enum reshard_bottleneck {
    RESHARD_BOTTLENECK_NONE,    /* nothing has a limit, or nothing moves */
    RESHARD_BOTTLENECK_NIC_OUT, /* `which` is a rank */
    RESHARD_BOTTLENECK_NIC_IN,
    RESHARD_BOTTLENECK_INTRA_OUT,
    RESHARD_BOTTLENECK_INTRA_IN,
    RESHARD_BOTTLENECK_MEMORY, /* `which` is a node */
} reshard_bottleneck;

/* "sending to other nodes" and the like. Local. */
RESHARD_API const char *reshard_bottleneck_name(reshard_bottleneck bottleneck);

typedef struct reshard_stage_prediction {
    size_t size;                   /* sizeof(reshard_stage_prediction), set by the caller */
    double seconds;                /* the whole stage */
    double latency_seconds;        /* the part spent on messages, by the rank with the most peers */
    reshard_bottleneck bottleneck; /* what the rest of the time is spent on */
    int32_t which;                 /* the busiest rank or node; the lowest of several */
    uint64_t bytes;                /* that pass through the bottleneck */
    int32_t peers;                 /* the most ranks that one rank sends to or receives from */
    uint64_t bytes_between_nodes, bytes_within_nodes, bytes_kept; /* sums over all ranks */
    /* bytes_scattered: those within nodes and kept that are copied in runs of at most 4 KiB.
     * bytes_packed: those between nodes that are packed before they are sent or unpacked after it,
     * counted once for each. */
    uint64_t bytes_scattered, bytes_packed;
} reshard_stage_prediction;

typedef struct reshard_prediction reshard_prediction;

/*
 * Goes through all ranks. Errors: INVALID (the plan has more ranks than the cluster, a number is
 * negative or NaN), RANGE (too many ranks or moves to go through), NO_MEMORY, CANCELLED. Local.
 */
RESHARD_API reshard_status reshard_plan_predict(reshard_plan *plan, const reshard_cluster *cluster,
                                                reshard_prediction **out_prediction);
RESHARD_API void reshard_prediction_destroy(reshard_prediction *prediction);

/* The predicted time of all stages together. Local. */
RESHARD_API double reshard_prediction_seconds(const reshard_prediction *prediction);
/* The prediction for one stage, 0 <= stage < stage_count of the plan. Errors: RANGE, INVALID if
 * size was not set. Local. */
RESHARD_API reshard_status reshard_prediction_stage(const reshard_prediction *prediction,
                                                    int32_t stage,
                                                    reshard_stage_prediction *out_stage);

/* ==== advanced ===================================================================================
 * A prediction as a trace, beside which a real one can be laid.
 */

/*
 * Records the prediction in a trace, as if it had happened: each rank gets a row of spans for each
 * of its links, one message after another in the order of rounds, and a row of stages
 * (docs/trace.md). Pass the plan and the cluster that the prediction was made from, and a trace
 * that has no group and has recorded nothing else. At most 1,024 ranks and about a million events
 * are recorded: each rank is recorded completely or not at all, and *out_ranks (which may be NULL)
 * is how many were. Errors: INVALID (also for another plan than the prediction's), NO_MEMORY,
 * CANCELLED. Local.
 */
RESHARD_API reshard_status reshard_prediction_trace(const reshard_prediction *prediction,
                                                    reshard_plan *plan,
                                                    const reshard_cluster *cluster,
                                                    reshard_trace *trace, int32_t *out_ranks);

#ifdef __cplusplus
}
#endif
#endif
