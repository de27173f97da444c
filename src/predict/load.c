/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c - counts what one rank has to do in one stage. Its moves are a short list of regular
 * families. Where a family steps from peer to peer, the peers on the rank's own node are counted by
 * arithmetic, so that an all-to-all exchange costs a few steps for each rank, not one for each
 * pair.
 *
 * Two properties of memory are considered. Copies in short runs are slower, because processors read
 * ahead within a page and each run begins anew. The runs are those that an exec copies: elements
 * that are contiguous on both sides, over all loops of a family that stay with one peer. And a
 * message has to be packed unless its bytes lie in the sender's memory in the order in which they
 * travel, and unpacked unless they lie so in the receiver's.
 */
#include "base/dtype.h"
#include "base/shape.h"
#include "plan/plan.h"
#include "predict/predict.h"

#include <assert.h>

/* ---- runs ------------------------------------------------------------------------------------ */

/* Runs of up to a page are short. */
#define SHORT_RUN_BYTES 4096

/* Whether a dim or loop with these steps continues a run of `run` elements. A fill has no
 * source. */
static bool continues(const reshard_move *record, int64_t run, int64_t source_step,
                      int64_t target_step)
{
    return target_step == run && (source_step == run || record->kind == RESHARD_MOVE_FILL);
}

/* The length of the run, in elements, extended by the first dim or loop that continues it. */
static int64_t extend(const reshard_move *record, int64_t run)
{
    for (int32_t d = 0; d < record->ndim; d++) {
        if (record->size[d] > 1 &&
            continues(record, run, record->source_strides[d], record->target_strides[d]))
            return run * record->size[d];
    }
    for (int32_t i = 0; i < record->loop_count; i++) {
        const reshard_move_loop *loop = &record->loops[i];
        if (loop->count > 1 && loop->peer_step == 0 && loop->contributor_step == 0 &&
            continues(record, run, loop->source_step, loop->target_step))
            return run * loop->count;
    }
    return run;
}

bool rs_record_is_scattered(const reshard_move *record, uint64_t element_bytes)
{
    int64_t run = 1;
    for (int64_t longer = extend(record, run); longer != run; longer = extend(record, run))
        run = longer;
    return (uint64_t)run * element_bytes <= SHORT_RUN_BYTES;
}

bool rs_record_is_packed(const reshard_move *record, const reshard_stage_link *link, bool sending)
{
    const int64_t *strides = sending ? record->source_strides : record->target_strides;
    uint64_t own = rs_element_bytes(sending ? link->source_dtype : link->target_dtype);
    return own != rs_wire_bytes(link) || !rs_strides_are_dense(record->ndim, record->size, strides);
}

uint64_t rs_wire_bytes(const reshard_stage_link *link)
{
    uint64_t target = rs_element_bytes(link->target_dtype);
    uint64_t source = link->source < 0 ? target : rs_element_bytes(link->source_dtype);
    return source < target ? source : target;
}

/* ---- one list of records --------------------------------------------------------------------- */

/* How many of the `count` peers first, first + step, .. are between lowest and highest,
 * inclusive. */
static int64_t count_between(int64_t first, int64_t step, int64_t count, int64_t lowest,
                             int64_t highest)
{
    assert(step != 0 && count > 0);
    if (step < 0) { /* count the same peers from the other end */
        first += (count - 1) * step;
        step = -step;
    }
    int64_t begin = first >= lowest ? 0 : (lowest - first + step - 1) / step;
    int64_t end = highest < first ? 0 : (highest - first) / step + 1;
    if (end > count)
        end = count;
    return end > begin ? end - begin : 0;
}

/* Families of up to this many peers are enumerated, to find which peers were seen before. The peers
 * of larger families count as new, which is right for an all-to-all exchange. */
enum { PEERS_MARKED_MAX = 256 };

typedef struct walk {
    int64_t node_first, node_last; /* the ranks of this rank's node */
    uint64_t between, within;      /* bytes to or from other nodes, and inside the node */
    uint64_t scattered;            /* bytes inside the node that are copied in short runs */
    rs_copied packed;              /* bytes to or from other nodes that are packed */
    int64_t peers;
    int64_t *seen; /* for each rank, the number of the last walk that met it */
    int64_t number;
} walk;

static void count_peers(walk *w, int64_t first, int64_t step, int64_t count)
{
    if (count > PEERS_MARKED_MAX || w->seen == NULL) {
        w->peers += count;
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        int64_t *mark = &w->seen[first + i * step];
        w->peers += *mark != w->number;
        *mark = w->number;
    }
}

/* Adds a record, from loop `level` on. The innermost loop over peers is counted, not enumerated. */
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
    /* another loop over peers follows */
    if (next < record->loop_count && last < record->loop_count) {
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

static void add_list(walk *w, const reshard_moves *moves, const reshard_stage_link *link,
                     bool sending)
{
    uint64_t element = rs_wire_bytes(link);
    for (int64_t i = 0; i < moves->count; i++) {
        const reshard_move *record = &moves->items[i];
        uint64_t bytes = element * (uint64_t)rs_volume(record->ndim, record->size);
        uint64_t between = w->between, within = w->within; /* before this record */
        add_record(w, record, 0, sending ? record->target_rank : record->source_rank, bytes);
        bool scattered = rs_record_is_scattered(record, element);
        if (scattered)
            w->scattered += w->within - within;
        if (rs_record_is_packed(record, link, sending))
            rs_copied_add(&w->packed,
                          (rs_copied){w->between - between, scattered ? w->between - between : 0});
    }
}

static rs_copied count_kept(const reshard_moves *keeps, uint64_t element_bytes)
{
    rs_copied sum = {0};
    for (int64_t i = 0; i < keeps->count; i++) {
        const reshard_move *record = &keeps->items[i];
        uint64_t bytes = element_bytes * (uint64_t)rs_volume(record->ndim, record->size) *
                         (uint64_t)reshard_move_count(record);
        bool scattered = rs_record_is_scattered(record, element_bytes);
        rs_copied_add(&sum, (rs_copied){bytes, scattered ? bytes : 0});
    }
    return sum;
}

/* ---- one rank -------------------------------------------------------------------------------- */

reshard_status rs_load_read(const reshard_plan *plan, const reshard_cluster *cluster,
                            const reshard_part *part, int32_t rank, int32_t stage, int64_t *seen,
                            rs_load *out)
{
    int64_t first = rank / cluster->per_node * (int64_t)cluster->per_node;
    walk out_walk = {.node_first = first, .node_last = first + cluster->per_node - 1};
    walk in_walk = out_walk;
    /* Number the walks from 1 on, two for each stage of each rank, so that marks of earlier walks
     * do not count. */
    int64_t turn = (int64_t)rank * rs_plan_forward(plan)->stage_count + stage;
    out_walk.number = 2 * turn + 1;
    in_walk.number = 2 * turn + 2;
    out_walk.seen = seen;
    in_walk.seen = seen == NULL ? NULL : seen + rs_plan_forward(plan)->rank_count;
    *out = (rs_load){0};
    for (int32_t l = 0; l < reshard_plan_stage_link_count(plan, stage); l++) {
        reshard_stage_link link = {.size = sizeof link};
        reshard_status status = reshard_plan_stage_link(plan, stage, l, &link);
        if (status != RESHARD_OK)
            return status;
        const reshard_part_moves *moves = reshard_part_link(part, stage, l);
        add_list(&out_walk, &moves->sends, &link, true);
        add_list(&in_walk, &moves->receives, &link, false);
        rs_copied_add(&out->copied, count_kept(&moves->keeps, rs_element_bytes(link.target_dtype)));
    }
    int64_t others = rs_plan_forward(plan)->rank_count - 1;
    out->nic_out = out_walk.between;
    out->intra_out = out_walk.within;
    out->nic_in = in_walk.between;
    out->intra_in = in_walk.within;
    rs_copied_add(&out->copied, (rs_copied){in_walk.within, in_walk.scattered});
    out->packed_out = out_walk.packed;
    out->packed_in = in_walk.packed;
    out->peers_out = out_walk.peers < others ? out_walk.peers : others;
    out->peers_in = in_walk.peers < others ? in_walk.peers : others;
    return RESHARD_OK;
}
