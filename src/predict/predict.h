/* SPDX-License-Identifier: Apache-2.0 */
/* predict.h - internals shared by the files of this folder. */
#ifndef RS_PREDICT_PREDICT_H
#define RS_PREDICT_PREDICT_H

#include <reshard/plan_inspect.h>
#include <reshard/predict.h>

#include <stdbool.h>

/* ---- the work of ranks ----------------------------------------------------------------------- */

/* Bytes that are copied, and how many of them are in short runs. */
typedef struct rs_copied {
    uint64_t bytes, scattered;
} rs_copied;

static inline void rs_copied_add(rs_copied *sum, rs_copied more)
{
    sum->bytes += more.bytes;
    sum->scattered += more.scattered;
}

/* What one rank has to do in one stage. */
typedef struct rs_load {
    uint64_t nic_out, nic_in, intra_out, intra_in;
    rs_copied copied;                /* what it receives within the node, and what it keeps */
    rs_copied packed_out, packed_in; /* packed for other nodes, and unpacked from them */
    int64_t peers_out, peers_in;
} rs_load;

/* Counts the load of one rank in one stage. `seen` has two numbers for each rank of the plan, all
 * zero at first, and must be passed to all calls, for each rank in order and each stage in order.
 * If it is NULL, the numbers of peers may be too large. */
reshard_status rs_load_read(const reshard_plan *plan, const reshard_cluster *cluster,
                            const reshard_part *part, int32_t rank, int32_t stage, int64_t *seen,
                            rs_load *out_load);

/* The bytes of an element on the wire: those of the narrower type. */
uint64_t rs_wire_bytes(const reshard_stage_link *link);
/* Whether a record's elements are copied in short runs. */
bool rs_record_is_scattered(const reshard_move *record, uint64_t element_bytes);
/* Whether a record's moves have to be packed before they are sent, or unpacked after they are
 * received. */
bool rs_record_is_packed(const reshard_move *record, const reshard_stage_link *link, bool sending);

/* ---- the time it takes ----------------------------------------------------------------------- */

/* Reads the cluster for a plan and fills in the fields that follow from others. Errors: INVALID. */
reshard_status rs_cluster_read(const reshard_plan *plan, const reshard_cluster *given,
                               reshard_cluster *out_cluster);

static inline double rs_seconds_over(uint64_t bytes, double speed)
{
    return speed > 0 ? (double)bytes / speed : 0;
}

/* Seconds that a node takes to copy, and that one rank takes to pack or unpack with its share of
 * the node's memory. */
double rs_copy_seconds(const reshard_cluster *cluster, rs_copied copied);
double rs_pack_seconds(const reshard_cluster *cluster, rs_copied packed);

/* Whether the prediction was made from this plan, or from an equal one. */
bool rs_prediction_is_of(const reshard_prediction *prediction, const reshard_plan *plan);

#endif
