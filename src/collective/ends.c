/* SPDX-License-Identifier: Apache-2.0 */
/* ends.c - see ends.h. */
#include "collective/ends.h"

#include "base/context.h"
#include "base/shape.h"
#include "layout/derive.h"

#include <assert.h>
#include <string.h>

/* ---- boxes ----------------------------------------------------------------------------------- */

static void add_piece(const rs_ends *e, int64_t offset, int64_t count, reshard_shard *shard,
                      reshard_piece *piece)
{
    if (count == 0)
        return; /* pieces are not empty */
    piece->box.ndim = e->ndim;
    memcpy(piece->box.size, e->shape, (size_t)e->ndim * sizeof *e->shape);
    piece->box.offset[0] = offset;
    piece->box.size[0] = count;
    rs_dense_strides(e->ndim, e->shape, piece->strides);
    piece->at = shard->shape[0] * piece->strides[0];
    shard->shape[0] += count;
    shard->piece_count++;
}

/* Lists each rank's blocks by the rank at their other end. offsets: where each block begins. */
static void list_shards(const rs_ends *e, bool receiving, const int64_t *offsets,
                        reshard_piece *pieces, reshard_shard *shards)
{
    int64_t next = 0, size = e->rank_count;
    for (int32_t rank = 0; rank < size; rank++) {
        for (int64_t i = 0; i < size; i++, next++) {
            int64_t block = receiving ? i * size + rank : rank * size + i;
            reshard_shard *shard = &shards[e->joined ? rank : next];
            if (!e->joined || i == 0) {
                shard->rank = rank;
                shard->ndim = e->ndim;
                memcpy(shard->shape, e->shape, (size_t)e->ndim * sizeof *e->shape);
                shard->shape[0] = 0;
                shard->pieces = &pieces[next];
            }
            /* Empty pieces are left out without a gap: the pieces of a shard follow each other. */
            reshard_piece *piece = &pieces[shard->pieces - pieces + shard->piece_count];
            add_piece(e, offsets[block], e->matrix[block], shard, piece);
        }
    }
}

static reshard_status make_boxes(const rs_ends *e, bool receiving, reshard_layout **out_layout)
{
    assert(e->matrix != NULL && e->ndim >= 1);
    size_t blocks = (size_t)e->rank_count * (size_t)e->rank_count;
    size_t shard_count = e->joined ? (size_t)e->rank_count : blocks;
    reshard_spec *spec = NULL;
    int64_t *offsets = rs_allocate_zeroed(e->context, blocks * sizeof *offsets);
    reshard_piece *pieces = rs_allocate_zeroed(e->context, blocks * sizeof *pieces);
    reshard_shard *shards = rs_allocate_zeroed(e->context, shard_count * sizeof *shards);
    bool made = offsets != NULL && pieces != NULL && shards != NULL;
    reshard_status status = made ? RESHARD_OK : rs_allocation_status();
    if (status == RESHARD_OK) {
        for (size_t i = 1; i < blocks; i++)
            offsets[i] = offsets[i - 1] + e->matrix[i - 1];
        list_shards(e, receiving, offsets, pieces, shards);
        status = reshard_spec_boxes(e->context, 0, e->ndim, e->shape, (int64_t)shard_count, shards,
                                    &spec);
    }
    status = rs_layout_take(e->context, status, spec, e->ndim, e->shape, out_layout);
    rs_release(e->context, shards);
    rs_release(e->context, pieces);
    rs_release(e->context, offsets);
    return status;
}

/* ---- cuts ------------------------------------------------------------------------------------ */

static bool are_equal(const rs_ends *e)
{
    bool equal = true;
    for (int32_t i = 1; e->counts != NULL && i < e->rank_count; i++)
        equal = equal && e->counts[i] == e->counts[0];
    return equal;
}

reshard_status rs_ends_make(const rs_ends *e, rs_form form, reshard_layout **out_layout)
{
    reshard_placement placement = {.kind = RESHARD_REPLICATE};
    if (form == RS_FORM_SENT || form == RS_FORM_RECEIVED)
        return make_boxes(e, form == RS_FORM_RECEIVED, out_layout);
    if (form == RS_FORM_CONTRIBUTIONS) {
        placement.kind = RESHARD_PARTIAL;
        placement.reduction = e->reduction;
    }
    if (form == RS_FORM_PARTS) {
        /* Equal counts are kept as arithmetic, different ones as a list. */
        placement.kind = RESHARD_SHARD;
        placement.rule = are_equal(e) ? RESHARD_CHUNK : RESHARD_RAGGED;
        if (placement.rule == RESHARD_RAGGED) {
            placement.count = e->rank_count;
            placement.values = e->counts;
        }
    }
    return rs_layout_simple(e->context, e->rank_count, form == RS_FORM_AT_ROOT ? e->root : -1,
                            &placement, e->ndim, e->shape, out_layout);
}
