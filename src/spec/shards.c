/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards.c - listed shards: checks a single shard, and builds the spec from many.
 *
 * A piece lies in its shard's buffer in one of two ways. In a shard with the tensor's number of
 * dimensions, it is a box of the buffer. In a flat shard (one dimension, where the tensor has
 * another number of them), it is stored dense and row-major somewhere in the line. Other strides
 * have no text form and are refused.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "base/sort.h"
#include "spec/build.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

void rs_piece_memory_box(int32_t ndim, const reshard_shard *shard, const reshard_piece *piece,
                         reshard_box *out_box)
{
    assert(shard->ndim == ndim || shard->ndim == 1);
    out_box->ndim = shard->ndim;
    if (shard->ndim != ndim) {
        out_box->offset[0] = piece->at;
        out_box->size[0] = rs_volume(ndim, piece->box.size);
        return;
    }
    int64_t strides[RESHARD_NDIM_MAX];
    int64_t rest = piece->at;
    rs_dense_strides(ndim, shard->shape, strides);
    for (int32_t d = 0; d < ndim; d++) {
        out_box->offset[d] = rest / strides[d];
        out_box->size[d] = piece->box.size[d];
        rest %= strides[d];
    }
    assert(rest == 0); /* the last stride is 1 */
}

/* ---- one piece ------------------------------------------------------------------------------- */

static reshard_status check_box(int32_t ndim, const int64_t *shape, const reshard_box *box)
{
    if (box->ndim != ndim)
        return rs_fail(RESHARD_ERR_INVALID,
                       "a box of %" PRId32 " dimensions in a tensor of %" PRId32 " dimensions",
                       box->ndim, ndim);
    for (int32_t d = 0; d < ndim; d++) {
        int64_t end;
        if (box->size[d] < 0)
            return rs_fail(RESHARD_ERR_RANGE,
                           "dimension %" PRId32 " has the negative size %" PRId64, d, box->size[d]);
        if (box->offset[d] < 0 || !rs_add(box->offset[d], box->size[d], &end) || end > shape[d])
            return rs_fail(RESHARD_ERR_RANGE,
                           "dimension %" PRId32 ": %" PRId64 " elements from %" PRId64
                           " on are not within 0:%" PRId64,
                           d, box->size[d], box->offset[d], shape[d]);
    }
    return RESHARD_OK;
}

/* Checks that the piece lies in the buffer in one of the two ways, and sets its strides to those of
 * the text form. Where a box has size 1 the stride has no meaning, so callers may pass anything
 * there. */
static reshard_status place_piece(int32_t ndim, const reshard_shard *shard, reshard_piece *piece)
{
    int64_t strides[RESHARD_NDIM_MAX];
    bool flat = shard->ndim != ndim;
    rs_dense_strides(ndim, flat ? piece->box.size : shard->shape, strides);
    for (int32_t d = 0; d < ndim; d++) {
        if (piece->box.size[d] > 1 && piece->strides[d] != strides[d])
            return rs_fail(RESHARD_ERR_UNSUPPORTED,
                           "dimension %" PRId32 " has the stride %" PRId64 "; only %" PRId64
                           " is supported, where the piece is %s",
                           d, piece->strides[d], strides[d],
                           flat ? "dense in a flat shard" : "a box of the shard");
        piece->strides[d] = strides[d];
    }
    int64_t volume = rs_volume(shard->ndim, shard->shape);
    if (piece->at < 0 || piece->at >= volume)
        return rs_fail(RESHARD_ERR_RANGE,
                       "it begins at %" PRId64 " in a shard of %" PRId64 " elements", piece->at,
                       volume);
    reshard_box memory;
    rs_piece_memory_box(ndim, shard, piece, &memory);
    for (int32_t d = 0; d < shard->ndim; d++) {
        if (memory.size[d] > shard->shape[d] - memory.offset[d])
            return rs_fail(RESHARD_ERR_INVALID,
                           "it needs %" PRId64 " elements from %" PRId64
                           " on along dimension %" PRId32 " of a shard that has %" PRId64,
                           memory.size[d], memory.offset[d], d, shard->shape[d]);
    }
    return RESHARD_OK;
}

/* ---- one shard ------------------------------------------------------------------------------- */

static reshard_status check_head(int32_t ndim, const reshard_shard *shard)
{
    if (shard->rank < 0)
        return rs_fail(RESHARD_ERR_RANGE, "a shard of the negative rank %" PRId32, shard->rank);
    if (shard->ndim != ndim && shard->ndim != 1)
        return rs_fail(RESHARD_ERR_INVALID,
                       "shard of rank %" PRId32 ": %" PRId32 " dimensions, of a tensor of %" PRId32,
                       shard->rank, shard->ndim, ndim);
    if (shard->piece_count < 0 || (shard->piece_count > 0 && shard->pieces == NULL))
        return rs_fail(RESHARD_ERR_INVALID, "shard of rank %" PRId32 ": %" PRId64 " pieces at %s",
                       shard->rank, shard->piece_count,
                       shard->pieces == NULL ? "NULL" : "an address");
    reshard_status status = rs_shape_check(shard->ndim, shard->shape);
    return rs_fail_within(status, "shard of rank %" PRId32, shard->rank);
}

/* An empty shard is printed as one empty box: as large as its buffer, or a point if the buffer is
 * flat. */
static reshard_status set_empty(int32_t ndim, const int64_t *shape, const reshard_shard *shard,
                                reshard_shard *out)
{
    if (shard->piece_count > 0)
        memcpy(out->offset, shard->pieces[0].box.offset, (size_t)ndim * sizeof *out->offset);
    if (ndim == 0)
        return rs_fail(RESHARD_ERR_INVALID,
                       "shard of rank %" PRId32 ": a scalar has no empty shards", shard->rank);
    for (int32_t d = 0; shard->ndim == ndim && d < ndim; d++) {
        if (shard->shape[d] > shape[d] - out->offset[d])
            return rs_fail(RESHARD_ERR_RANGE,
                           "shard of rank %" PRId32 ": empty, but %" PRId64
                           " elements from %" PRId64 " on along dimension %" PRId32
                           " are not within 0:%" PRId64,
                           shard->rank, shard->shape[d], out->offset[d], d, shape[d]);
    }
    return RESHARD_OK;
}

static void lower_offset(int32_t ndim, const reshard_piece *piece, bool first, int64_t *offset)
{
    for (int32_t d = 0; d < ndim; d++)
        offset[d] = first ? piece->box.offset[d] : rs_min(offset[d], piece->box.offset[d]);
}

static reshard_status copy_pieces(rs_arena *arena, int32_t ndim, const reshard_shard *shard,
                                  int64_t filled_count, reshard_shard *out)
{
    reshard_piece *pieces = rs_arena_allocate_array(arena, (size_t)filled_count, sizeof *pieces);
    if (pieces == NULL)
        return rs_allocation_status();
    out->pieces = pieces;
    for (int64_t i = 0; i < shard->piece_count; i++) {
        if (rs_volume(ndim, shard->pieces[i].box.size) == 0)
            continue;
        reshard_piece *piece = &pieces[out->piece_count];
        *piece = shard->pieces[i];
        reshard_status status = place_piece(ndim, shard, piece);
        if (status != RESHARD_OK)
            return rs_fail_within(status, "shard of rank %" PRId32 ": piece %" PRId64, shard->rank,
                                  i);
        lower_offset(ndim, piece, out->piece_count == 0, out->offset);
        out->piece_count++;
    }
    assert(out->piece_count == filled_count);
    return RESHARD_OK;
}

reshard_status rs_shard_copy_checked(rs_arena *arena, int32_t ndim, const int64_t *shape,
                                     const reshard_shard *shard, reshard_shard *out_shard)
{
    reshard_status status = check_head(ndim, shard);
    if (status != RESHARD_OK)
        return status;
    int64_t filled_count = 0;
    for (int64_t i = 0; i < shard->piece_count; i++) {
        status = check_box(ndim, shape, &shard->pieces[i].box);
        if (status != RESHARD_OK)
            return rs_fail_within(status, "shard of rank %" PRId32 ": piece %" PRId64, shard->rank,
                                  i);
        filled_count += rs_volume(ndim, shard->pieces[i].box.size) != 0;
    }
    reshard_shard out = {.rank = shard->rank, .ndim = shard->ndim, .contributor_count = 1};
    memcpy(out.shape, shard->shape, (size_t)shard->ndim * sizeof *out.shape);
    if (filled_count == 0)
        status = set_empty(ndim, shape, shard, &out);
    else
        status = copy_pieces(arena, ndim, shard, filled_count, &out);
    if (status == RESHARD_OK)
        status = rs_shard_check_filled(arena->context, ndim, &out);
    if (status == RESHARD_OK)
        *out_shard = out;
    return status;
}

/* ---- the spec -------------------------------------------------------------------------------- */

reshard_status rs_boxes_init(rs_boxes_builder *builder, reshard_context *context, int cover,
                             int32_t ndim, const int64_t *shape)
{
    *builder = (rs_boxes_builder){.context = context};
    reshard_status status = rs_shape_check(ndim, shape);
    if (status == RESHARD_OK)
        status = rs_spec_allocate(context, cover ? RESHARD_SPEC_COVER : RESHARD_SPEC_BOXES,
                                  &builder->spec);
    if (status != RESHARD_OK)
        return status;
    builder->spec->ndim = ndim;
    if (ndim > 0)
        memcpy(builder->spec->shape, shape, (size_t)ndim * sizeof *shape);
    return RESHARD_OK;
}

reshard_status rs_boxes_add(rs_boxes_builder *builder, const reshard_shard *shard)
{
    reshard_spec *spec = builder->spec;
    assert(spec != NULL && builder->shard_count <= builder->capacity);
    if (builder->shard_count == INT32_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "more than 2^31-1 shards");
    reshard_status status = rs_grow(builder->context, &builder->shards, &builder->capacity,
                                    builder->shard_count + 1, sizeof *builder->shards);
    if (status == RESHARD_OK)
        status = rs_shard_copy_checked(&spec->arena, spec->ndim, spec->shape, shard,
                                       &builder->shards[builder->shard_count]);
    if (status == RESHARD_OK)
        builder->shard_count++;
    return status;
}

/* Numbers the shards of each rank in the order in which they were added. */
static reshard_status number_shards(reshard_context *context, int64_t count, reshard_shard *shards)
{
    uint64_t *keys = rs_allocate_array(context, (size_t)count, sizeof *keys);
    if (keys == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; i < count; i++)
        keys[i] = (uint64_t)(uint32_t)shards[i].rank << 32 | (uint64_t)i;
    rs_sort(keys, (size_t)count, sizeof *keys, rs_compare_u64);
    int32_t index = 0;
    for (int64_t i = 0; i < count; i++) {
        index = i > 0 && keys[i] >> 32 == keys[i - 1] >> 32 ? index + 1 : 0;
        shards[keys[i] & UINT32_MAX].index = index;
    }
    rs_release(context, keys);
    return RESHARD_OK;
}

reshard_status rs_boxes_finish(rs_boxes_builder *builder, reshard_spec **out_spec)
{
    reshard_spec *spec = builder->spec;
    if (builder->shard_count == 0)
        return rs_fail(RESHARD_ERR_INVALID, "no shards are given");
    reshard_status status = number_shards(builder->context, builder->shard_count, builder->shards);
    if (status != RESHARD_OK)
        return status;
    spec->shards = rs_arena_copy(&spec->arena, builder->shards, (size_t)builder->shard_count,
                                 sizeof *builder->shards);
    if (spec->shards == NULL)
        return rs_allocation_status();
    spec->shard_count = builder->shard_count;
    *out_spec = spec;
    builder->spec = NULL;
    return RESHARD_OK;
}

void rs_boxes_release(rs_boxes_builder *builder)
{
    rs_release(builder->context, builder->shards);
    reshard_spec_release(builder->spec);
    *builder = (rs_boxes_builder){.context = builder->context};
}

reshard_status reshard_spec_boxes(reshard_context *context, int cover, int32_t ndim,
                                  const int64_t *shape, int64_t shard_count,
                                  const reshard_shard *shards, reshard_spec **out_spec)
{
    if (shard_count < 0 || (shard_count > 0 && shards == NULL))
        return rs_fail(RESHARD_ERR_INVALID, "%" PRId64 " shards at %s", shard_count,
                       shards == NULL ? "NULL" : "an address");
    rs_boxes_builder builder;
    reshard_status status = rs_boxes_init(&builder, context, cover, ndim, shape);
    for (int64_t i = 0; status == RESHARD_OK && i < shard_count; i++)
        status = rs_boxes_add(&builder, &shards[i]);
    if (status == RESHARD_OK)
        status = rs_boxes_finish(&builder, out_spec);
    rs_boxes_release(&builder);
    return status;
}
