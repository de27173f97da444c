/* SPDX-License-Identifier: Apache-2.0 */
/*
 * predict.h - how long a plan would take on a machine that is described by a few numbers.
 *
 *     reshard_cluster cluster = {.size = sizeof cluster};
 *     reshard_cluster_parse("nodes=128,per_node=8,nic=50GB/s,intra=400GB/s,latency=5us", &cluster);
 *     reshard_plan_predict(plan, &cluster, &prediction);
 *     printf("%g s\n", reshard_prediction_seconds(prediction));
 *
 * The bytes are the plan's own, the model is the plain one: each rank has a link to other nodes and
 * one within its node, in each direction; a node has a memory, which may be slower for short runs;
 * each message to another rank costs the latency, and what does not lie in one piece is packed
 * before it goes to another node. Links work side by side, and stages follow each other, so a stage
 * takes as long as its busiest link. What the model leaves out: contention between nodes, skew
 * between ranks, and the overlap of one stage with the next.
 */
#ifndef RESHARD_PREDICT_H
#define RESHARD_PREDICT_H

#include <reshard/plan.h>
#include <reshard/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Speeds are in bytes a second; 0: without limit. */
typedef struct reshard_cluster {
    size_t size;             /* sizeof(reshard_cluster), set by the caller */
    int32_t nodes, per_node; /* ranks r .. r+per_node-1 share a node, from 0 on */
    double nic;              /* of one rank to other nodes, in each direction */
    double intra;            /* of one rank to its own node, in each direction */
    double memory;  /* of one node: what its ranks copy within it, what they keep included */
    double latency; /* seconds for each message to another rank */
    /* Of the disk or the page cache, for conversions of checkpoints (reshard_conversion_predict):
     * reading to memory, writing from it, and copies that are left to the kernel. */
    double read, write, copy;
    /* Like memory, for what it copies in runs of at most 4 KiB; 0: the same as memory. */
    double scattered;
} reshard_cluster;

/*
 * The text form: "name=value" joined by commas, in any order, all optional; without nodes there is
 * one, without per_node all ranks are on it. Speeds: "50GB/s", "400MiB/s"; times: "5us", "1.5ms",
 * "0.1s". Errors: SYNTAX, RANGE, with the part that is wrong. Local.
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
    double seconds;                /* of the whole stage */
    double latency_seconds;        /* of which: the messages of the rank with the most peers */
    reshard_bottleneck bottleneck; /* what the rest is spent on */
    int32_t which;                 /* the lowest rank or node that is as busy as any */
    uint64_t bytes;                /* that go over it */
    int32_t peers;                 /* the most ranks that one rank sends to or receives from */
    uint64_t bytes_between_nodes, bytes_within_nodes, bytes_kept; /* of all ranks */
    /* Of those within nodes and kept: in runs of at most 4 KiB. Of those between nodes: packed
     * before they are sent, and unpacked, counted once for each. */
    uint64_t bytes_scattered, bytes_packed;
} reshard_stage_prediction;

typedef struct reshard_prediction reshard_prediction;

/*
 * Goes through all ranks. Errors: INVALID (fewer places in the cluster than the plan has ranks),
 * RANGE (more ranks or moves than can be gone through), NO_MEMORY, CANCELLED. Local.
 */
RESHARD_API reshard_status reshard_plan_predict(reshard_plan *plan, const reshard_cluster *cluster,
                                                reshard_prediction **out_prediction);
RESHARD_API void reshard_prediction_destroy(reshard_prediction *prediction);

/* Of all stages together. Local. */
RESHARD_API double reshard_prediction_seconds(const reshard_prediction *prediction);
/* Of one stage, 0 <= stage < reshard_plan_stage_count. Errors: RANGE, INVALID for a size that was
 * not set. Local. */
RESHARD_API reshard_status reshard_prediction_stage(const reshard_prediction *prediction,
                                                    int32_t stage,
                                                    reshard_stage_prediction *out_stage);

/*
 * Records the prediction in a trace, as if it had happened: for each rank a row of spans for each
 * of its links, message after message in the order of rounds, and a row of stages (docs/trace.md).
 * The plan and the cluster are those that were predicted. The trace has no group and nothing else
 * in it. At most 1,024 ranks and about a million events are recorded: *out_ranks, which may be
 * NULL, is how many ranks have all of theirs, the others have none. Errors: INVALID, NO_MEMORY,
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
