/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.c - shards of live ranks filled from a checkpoint.
 *
 * Every rank reads the boxes that its shards are made of: straight into a shard where a box lies
 * densely in it and has the stored dtype, else through a small buffer, block by block. Read once, a
 * tensor is first split evenly over all ranks as a line of elements, which files mostly hold in
 * long runs, and a plan brings it from there to where it belongs.
 */
#include "base/shape.h"
#include "checkpoint/live/live.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/text.h"
#include "checkpoint/store/store.h"
#include "kernel/cast.h"
#include "layout/flat.h"
#include "layout/layout.h"

#include <reshard/exec.h>

#include <stdio.h>
#include <string.h>

#define BUFFER_BYTES ((size_t)4 << 20)

reshard_status rs_live_check(const reshard_live_tensor *tensor, const reshard_group *group)
{
    const reshard_layout *layout = tensor->layout;
    if (tensor->name == NULL || layout == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "a live tensor without a %s",
                       tensor->name == NULL ? "name" : "layout");
    if (reshard_dtype_bits(tensor->dtype) % 8 != 0 || reshard_dtype_bits(tensor->dtype) == 0)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "tensor \"%.200s\": elements are not of whole bytes", tensor->name);
    if (layout->partial)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "tensor \"%.200s\": its layout is partial; redistribute it first",
                       tensor->name);
    for (int32_t i = 0; i < reshard_layout_rank_count(layout); i++) {
        int32_t rank = reshard_layout_rank_at(layout, i);
        if (rank >= reshard_group_size(group))
            return rs_fail(RESHARD_ERR_RANGE,
                           "tensor \"%.200s\": its layout has rank %d, the group only %d ranks",
                           tensor->name, rank, reshard_group_size(group));
    }
    return RESHARD_OK;
}

/* ---- boxes ----------------------------------------------------------------------------------- */

typedef struct reading {
    const reshard_checkpoint *checkpoint;
    const rs_stored_tensor *stored;
    reshard_dtype dtype; /* of the memory */
    char *buffer;        /* halves: what is read, and scratch for the reader */
} reading;

static int64_t box_volume(const reshard_box *box)
{
    int64_t volume = 1;
    for (int32_t d = 0; d < box->ndim; d++)
        volume *= box->size[d];
    return volume;
}

static reshard_status read_box(const reading *r, const reshard_box *box, void *memory)
{
    return rs_store_read_box(r->checkpoint, r->stored, box->offset, box->size, memory,
                             r->buffer + BUFFER_BYTES / 2, BUFFER_BYTES / 2);
}

/* A box that fits the buffer, to its place. */
static reshard_status read_through_buffer(const reading *r, const reshard_box *box,
                                          const int64_t *strides, char *memory)
{
    int64_t dense[RESHARD_NDIM_MAX], step = 1;
    for (int32_t d = box->ndim - 1; d >= 0; d--) {
        dense[d] = step;
        step *= box->size[d];
    }
    reshard_status status = read_box(r, box, r->buffer);
    if (status != RESHARD_OK)
        return status;
    if (r->dtype == r->stored->dtype) {
        rs_copy copy;
        rs_copy_prepare(&copy, r->stored->element_bytes, box->ndim, box->size, dense, strides);
        rs_copy_run(&copy, r->buffer, memory);
        rs_copy_fence();
    } else {
        rs_cast cast;
        rs_cast_prepare(&cast, r->stored->dtype, r->dtype, box->ndim, box->size, dense, strides);
        rs_cast_run(&cast, r->buffer, memory);
    }
    return RESHARD_OK;
}

/* Boxes that are too large for the buffer are halved along their first dim that can be. */
static reshard_status read_piece(const reading *r, const reshard_box *box, const int64_t *strides,
                                 char *memory)
{
    int64_t volume = box_volume(box);
    if (volume == 0)
        return RESHARD_OK;
    if (r->dtype == r->stored->dtype && rs_strides_are_dense(box->ndim, box->size, strides))
        return read_box(r, box, memory);
    if ((uint64_t)volume <= BUFFER_BYTES / 2 / (uint64_t)r->stored->element_bytes)
        return read_through_buffer(r, box, strides, memory);
    int32_t d = 0;
    while (box->size[d] == 1)
        d++;
    reshard_box first = *box, second = *box;
    first.size[d] = box->size[d] / 2;
    second.offset[d] += first.size[d];
    second.size[d] -= first.size[d];
    reshard_status status = read_piece(r, &first, strides, memory);
    if (status != RESHARD_OK)
        return status;
    return read_piece(r, &second, strides,
                      memory + first.size[d] * strides[d] * (reshard_dtype_bits(r->dtype) / 8));
}

/* All that a rank has of a layout, in memory of the reading's dtype. */
static reshard_status read_shards(const reading *r, const reshard_layout *layout, int32_t rank,
                                  void *const *memory)
{
    reshard_shards *shards = NULL;
    reshard_status status = reshard_layout_shards(layout, rank, &shards);
    for (int64_t i = 0; status == RESHARD_OK && i < shards->count; i++) {
        const reshard_shard *shard = &shards->items[i];
        for (int64_t k = 0; status == RESHARD_OK && k < shard->piece_count; k++) {
            const reshard_piece *piece = &shard->pieces[k];
            status = read_piece(r, &piece->box, piece->strides,
                                (char *)memory[i] + piece->at * (reshard_dtype_bits(r->dtype) / 8));
        }
    }
    reshard_shards_destroy(shards);
    return status;
}

/* ---- one tensor ------------------------------------------------------------------------------ */

static reshard_status check_shape(const reshard_live_tensor *tensor, const rs_stored_tensor *stored)
{
    int32_t ndim = reshard_layout_ndim(tensor->layout);
    const int64_t *shape = reshard_layout_shape(tensor->layout);
    bool same = ndim == stored->ndim;
    for (int32_t d = 0; same && d < ndim; d++)
        same = shape[d] == stored->shape[d];
    if (same)
        return RESHARD_OK;
    char words[256];
    rs_text text;
    rs_text_init(&text, words, sizeof words);
    rs_text_add_shape(&text, ndim, shape);
    rs_text_add(&text, " here and ");
    rs_text_add_shape(&text, stored->ndim, stored->shape);
    return rs_fail(RESHARD_ERR_MISMATCH, "tensor \"%.200s\": its shape is %s on disk", tensor->name,
                   words);
}

static reshard_status find_stored(const reshard_checkpoint *checkpoint, const reshard_group *group,
                                  const reshard_live_tensor *tensor,
                                  const rs_stored_tensor **out_stored)
{
    reshard_status status = rs_live_check(tensor, group);
    if (status != RESHARD_OK)
        return status;
    int64_t index = rs_store_find(checkpoint, (rs_slice){tensor->name, strlen(tensor->name)});
    if (index < 0)
        return rs_fail(RESHARD_ERR_NOT_FOUND, "there is no tensor \"%.200s\" in the checkpoint",
                       tensor->name);
    const rs_stored_tensor *stored = &checkpoint->tensors[index];
    if (stored->opaque)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "tensor \"%.200s\" cannot be cut as it is stored",
                       tensor->name);
    if (stored->dtype != tensor->dtype && !rs_cast_supports(stored->dtype, tensor->dtype))
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "tensor \"%.200s\": cannot be cast from %s, as it is stored, to %s",
                       tensor->name, reshard_dtype_name(stored->dtype),
                       reshard_dtype_name(tensor->dtype));
    *out_stored = stored;
    return check_shape(tensor, stored);
}

/* What a rank reads of a tensor that is read once: its share of the line of elements. */
static reshard_status make_shares(const reshard_checkpoint *checkpoint, const reshard_group *group,
                                  const reshard_live_tensor *tensor, reshard_layout **out_layout)
{
    char spec[64];
    int32_t ndim = reshard_layout_ndim(tensor->layout);
    (void)snprintf(spec, sizeof spec, ndim == 0 ? "1: R" : "%d: S(flat)",
                   reshard_group_size(group));
    return reshard_layout_parse(checkpoint->context, spec, ndim,
                                reshard_layout_shape(tensor->layout), out_layout);
}

typedef struct sharing {
    reshard_layout *shares;
    reshard_plan *plan;
    reshard_exec *exec;
    void *memory;
    size_t bytes;
} sharing;

static reshard_status read_share(const reading *r, reshard_group *group,
                                 const reshard_live_tensor *tensor, sharing *s)
{
    int32_t rank = reshard_group_rank(group);
    reading mine = *r;
    mine.dtype = r->stored->dtype; /* casts are the plan's */
    reshard_status status = make_shares(r->checkpoint, group, tensor, &s->shares);
    if (status != RESHARD_OK)
        return status;
    reshard_plan_tensor from = {.name = tensor->name, .layout = s->shares, .dtype = mine.dtype};
    reshard_plan_tensor to = {
        .name = tensor->name, .layout = tensor->layout, .dtype = tensor->dtype};
    s->bytes = (size_t)rs_layout_shard_volume(s->shares, rank) * (size_t)r->stored->element_bytes;
    s->memory = rs_allocate(r->checkpoint->context, s->bytes);
    if (s->memory == NULL)
        return rs_allocation_status();
    reshard_link link = reshard_link_whole(0, 0);
    status =
        reshard_plan_create(r->checkpoint->context, 1, &from, 1, &to, 1, &link, NULL, &s->plan);
    if (status == RESHARD_OK)
        status = read_shards(&mine, s->shares, rank, &s->memory);
    return status;
}

/* Collective. */
static reshard_status load_once(const reading *r, reshard_status status, reshard_group *group,
                                const reshard_live_tensor *tensor)
{
    reshard_context *context = r->checkpoint->context;
    sharing s = {0};
    if (status == RESHARD_OK)
        status = read_share(r, group, tensor, &s);
    status = reshard_group_agree(group, status);
    if (status == RESHARD_OK)
        status = reshard_exec_create(context, s.plan, group, NULL, &s.exec);
    const void *const sources[] = {s.memory};
    if (status == RESHARD_OK)
        status = reshard_exec_start(s.exec, sources, tensor->shards);
    if (status == RESHARD_OK)
        status = reshard_exec_wait(s.exec);
    reshard_exec_destroy(s.exec);
    reshard_plan_release(s.plan);
    reshard_layout_release(s.shares);
    rs_release(context, s.memory, s.bytes);
    return status;
}

reshard_status reshard_checkpoint_load(const reshard_checkpoint *checkpoint, reshard_group *group,
                                       int64_t count, const reshard_live_tensor *tensors,
                                       const reshard_checkpoint_load_options *options)
{
    reshard_status status = RESHARD_OK;
    bool once = options != NULL && options->read_once;
    reading r = {.checkpoint = checkpoint};
    if (options != NULL && options->size != sizeof *options)
        status = rs_fail(RESHARD_ERR_INVALID, "load options: size is %zu, not %zu", options->size,
                         sizeof *options);
    if (status == RESHARD_OK) {
        r.buffer = rs_allocate(checkpoint->context, BUFFER_BYTES);
        status = r.buffer == NULL ? rs_allocation_status() : RESHARD_OK;
    }
    for (int64_t i = 0; i < count && (status == RESHARD_OK || once); i++) {
        if (status == RESHARD_OK)
            status = find_stored(checkpoint, group, &tensors[i], &r.stored);
        r.dtype = tensors[i].dtype;
        if (once) {
            status = load_once(&r, status, group, &tensors[i]);
            if (status != RESHARD_OK)
                goto out; /* which all ranks do */
        } else if (status == RESHARD_OK) {
            status =
                read_shards(&r, tensors[i].layout, reshard_group_rank(group), tensors[i].shards);
        }
    }
    status = reshard_group_agree(group, status);
out:
    rs_release(checkpoint->context, r.buffer, BUFFER_BYTES);
    return status;
}
