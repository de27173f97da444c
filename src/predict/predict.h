/* SPDX-License-Identifier: Apache-2.0 */
/* predict.h - what the files of this folder share. */
#ifndef RS_PREDICT_PREDICT_H
#define RS_PREDICT_PREDICT_H

#include <reshard/plan_inspect.h>
#include <reshard/predict.h>

#include <stdbool.h>

/* ---- what ranks have to do ------------------------------------------------------------------- */

/* Bytes that are copied, and those of them that lie in short runs. */
typedef struct rs_copied {
    uint64_t bytes, scattered;
} rs_copied;

static inline void rs_copied_add(rs_copied *sum, rs_copied more)
{
    sum->bytes += more.bytes;
    sum->scattered += more.scattered;
}

/* What one rank does in one stage. */
typedef struct rs_load {
    uint64_t nic_out, nic_in, intra_out, intra_in;
    rs_copied copied;                /* received within the node, and kept */
    rs_copied packed_out, packed_in; /* of those to and from other nodes */
    int64_t peers_out, peers_in;
} rs_load;

/* seen has two numbers for each rank of the plan, zero at first, and is kept from rank to rank and
 * from stage to stage, in this order; NULL: peers need not be counted right. */
reshard_status rs_load_read(const reshard_plan *plan, const reshard_cluster *cluster,
                            const reshard_part *part, int32_t rank, int32_t stage, int64_t *seen,
                            rs_load *out_load);

/* Bytes of an element on its way: those of the narrower type. */
uint64_t rs_wire_bytes(const reshard_stage_link *link);
/* Whether a record's elements are copied in short runs. */
bool rs_record_is_scattered(const reshard_move *record, uint64_t element_bytes);
/* Whether a record's moves have to be packed to be sent as messages, or unpacked when they come. */
bool rs_record_is_packed(const reshard_move *record, const reshard_stage_link *link, bool sending);

/* ---- how long that takes --------------------------------------------------------------------- */

/* The cluster for a plan, with the numbers that follow from others filled in. Errors: INVALID. */
reshard_status rs_cluster_read(const reshard_plan *plan, const reshard_cluster *given,
                               reshard_cluster *out_cluster);

static inline double rs_seconds_over(uint64_t bytes, double speed)
{
    return speed > 0 ? (double)bytes / speed : 0;
}

/* Seconds for what a node copies; and for what one rank packs or unpacks, with its share of the
 * node's memory. */
double rs_copy_seconds(const reshard_cluster *cluster, rs_copied copied);
double rs_pack_seconds(const reshard_cluster *cluster, rs_copied packed);

#endif
