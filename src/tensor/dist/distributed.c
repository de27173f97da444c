/* SPDX-License-Identifier: Apache-2.0 */
/*
 * distributed.c - makes distributed tensors from data, and answers questions about them. Ranks
 * first tell each other what they have. Each then makes the same checks on the same facts, so that
 * all come to the same verdict without another exchange.
 */
#include <reshard/autograd.h>
#include <reshard/distributed.h>

#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/options.h"
#include "base/shape.h"
#include "layout/layout.h"
#include "tensor/core/move.h"
#include "tensor/core/random.h"
#include "tensor/dist/outline.h"
#include "tensor/dist/spread.h"
#include "tensor/grad/node.h"
#include "transport/group.h"

#include <inttypes.h>
#include <string.h>

/* ---- zeros and random numbers ---------------------------------------------------------------- */

static reshard_status check_ranks(const reshard_layout *layout, reshard_group *group)
{
    if (rs_layout_rank_max(layout) >= reshard_group_size(group))
        return rs_fail(RESHARD_ERR_RANGE, "the layout has a rank %d, and the group %d ranks",
                       rs_layout_rank_max(layout), reshard_group_size(group));
    return RESHARD_OK;
}

static void clear_shards(reshard_tensor *tensor)
{
    for (int64_t i = 0; i < tensor->distribution->shard_count; i++) {
        reshard_tensor *shard = tensor->distribution->shards[i];
        memset(shard->data, 0, shard->storage->byte_count);
    }
}

reshard_status reshard_tensor_create_distributed(reshard_context *context, reshard_group *group,
                                                 reshard_spec *spec, reshard_dtype dtype,
                                                 int32_t ndim, const int64_t *shape,
                                                 reshard_tensor **out_tensor)
{
    rs_exec_cache *cache = NULL;
    reshard_layout *layout = NULL;
    reshard_tensor *tensor = NULL;
    uint64_t digest[2] = {0, 0};
    reshard_status status = rs_group_choose(&group);
    if (status != RESHARD_OK)
        return status;
    status = rs_exec_cache_of(group, &cache);
    if (status == RESHARD_OK)
        status = reshard_layout_create(context, spec, ndim, shape, &layout);
    if (status == RESHARD_OK)
        status = check_ranks(layout, group);
    if (status == RESHARD_OK)
        status = rs_distributed_make(context, cache, layout, dtype, &tensor);
    if (status == RESHARD_OK) {
        clear_shards(tensor);
        rs_exec_key key = {layout, layout, dtype, dtype, false};
        rs_exec_key_digest(&key, digest);
    }
    status = rs_agree_on(group, status, digest, "create_distributed", 0, NULL);
    reshard_layout_release(layout);
    rs_exec_cache_release(cache);
    return rs_tensor_hand_out(status, tensor, out_tensor);
}

reshard_status reshard_tensor_fill_random(reshard_tensor *tensor, reshard_random random,
                                          uint64_t seed)
{
    if (random != RESHARD_UNIFORM && random != RESHARD_NORMAL)
        return rs_fail(RESHARD_ERR_INVALID,
                       "unknown kind %d of random numbers; pass RESHARD_UNIFORM or RESHARD_NORMAL",
                       (int)random);
    rs_random_kind kind = random == RESHARD_NORMAL ? RS_RANDOM_NORMAL : RS_RANDOM_UNIFORM;
    rs_random fill = {kind, seed, 0};
    reshard_status status = rs_tensor_check_given(tensor, "fill_random");
    if (status == RESHARD_OK)
        status = rs_distribution_check_fill(tensor);
    if (status == RESHARD_OK && !rs_tensor_is_contiguous(tensor))
        status = rs_fail(RESHARD_ERR_INVALID, "filling a tensor that is not contiguous");
    return status == RESHARD_OK ? rs_fill_random(tensor, &fill) : status;
}

/* ---- tensors like another one ---------------------------------------------------------------- */

reshard_status reshard_tensor_zeros_like(const reshard_tensor *like, reshard_dtype dtype,
                                         reshard_tensor **out_tensor)
{
    reshard_status status = rs_tensor_check_given(like, "zeros_like");
    if (status != RESHARD_OK)
        return status;
    const rs_distribution *d = like->distribution;
    reshard_tensor *made = NULL;
    if (dtype == RESHARD_DTYPE_NONE)
        dtype = like->dtype;
    if (d == NULL)
        return reshard_tensor_create(like->context, dtype, like->ndim, like->shape, out_tensor);
    status = rs_distributed_make(like->context, d->cache, d->layout, dtype, &made);
    if (status != RESHARD_OK)
        return status;
    clear_shards(made);
    *out_tensor = made;
    return RESHARD_OK;
}

/* ---- one rank's tensor ----------------------------------------------------------------------- */

/* Checks what the ranks ask for, with the same verdict on all ranks. */
static reshard_status compare_sources(reshard_group *group, const rs_outline *all)
{
    int32_t size = reshard_group_size(group);
    for (int32_t i = 1; i < size; i++) {
        if (all[i].number != all[0].number)
            return rs_fail(RESHARD_ERR_MISMATCH,
                           "rank 0 names rank %" PRId64 " as the source and rank %d rank %" PRId64,
                           all[0].number, i, all[i].number);
    }
    if (all[0].number < 0 || all[0].number >= size)
        return rs_fail(RESHARD_ERR_RANGE, "the source is rank %" PRId64 " of a group of %d",
                       all[0].number, size);
    const rs_outline *source = &all[all[0].number];
    if (!source->present)
        return rs_fail(RESHARD_ERR_INVALID, "rank %" PRId64 ", the source, has no tensor",
                       all[0].number);
    for (int32_t i = 0; i < size; i++) {
        if (all[i].present && !rs_outline_same(&all[i], source))
            return rs_fail(RESHARD_ERR_MISMATCH,
                           "rank %d has a tensor of another shape or dtype than rank %" PRId64
                           ", the source",
                           i, all[0].number);
    }
    return RESHARD_OK;
}

/* Wraps the source's tensor as a distributed one that is whole on that rank alone. */
static reshard_status wrap_source(reshard_context *context, reshard_group *group,
                                  const rs_outline *source, int32_t rank, reshard_tensor *tensor,
                                  reshard_tensor **out_tensor)
{
    rs_exec_cache *cache = NULL;
    reshard_layout *layout = NULL;
    reshard_status status = rs_exec_cache_of(group, &cache);
    if (status == RESHARD_OK)
        status = rs_layout_simple(context, reshard_group_size(group), rank, NULL, source->ndim,
                                  source->shape, &layout);
    if (status == RESHARD_OK)
        status = rs_distributed_wrap(context, cache, layout, (reshard_dtype)source->dtype, &tensor,
                                     out_tensor);
    reshard_layout_release(layout);
    rs_exec_cache_release(cache);
    return status;
}

reshard_status reshard_tensor_shard(reshard_context *context, reshard_group *group,
                                    reshard_spec *spec, int32_t source_rank, reshard_tensor *tensor,
                                    reshard_tensor **out_tensor)
{
    rs_outline mine = rs_outline_of(tensor), *all = NULL;
    reshard_layout *layout = NULL;
    reshard_tensor *whole = NULL, *made = NULL;
    mine.number = source_rank;
    reshard_status status = rs_group_choose(&group);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "shard");
    if (tensor != NULL && tensor->distribution != NULL)
        status = rs_fail(RESHARD_ERR_INVALID, "the tensor is distributed already");
    status = rs_outlines_gather(group, rs_fail_within(status, "shard"), "shard", &mine, &all);
    if (status != RESHARD_OK)
        return status;
    status = rs_fail_within(compare_sources(group, all), "shard");
    if (status == RESHARD_OK) {
        const rs_outline *source = &all[source_rank];
        mine = *source;
        status = reshard_layout_create(context, spec, source->ndim, source->shape, &layout);
        if (status == RESHARD_OK)
            status = check_ranks(layout, group);
        if (status == RESHARD_OK)
            status = wrap_source(context, group, source, source_rank, tensor, &whole);
        status = rs_redistribute_after(status, group, "shard", context, whole, layout,
                                       (reshard_dtype)source->dtype, &made);
    }
    if (status == RESHARD_OK)
        made->requires_grad = mine.requires_grad != 0;
    rs_release(NULL, all);
    reshard_layout_release(layout);
    reshard_tensor_release(whole);
    if (status == RESHARD_OK)
        *out_tensor = made;
    return status;
}

/* ---- shards of all ranks --------------------------------------------------------------------- */

typedef struct place {
    int64_t offset[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX];
} place;

/* Checks that a rank's own shards fit together. */
static reshard_status check_own(int32_t ndim, int64_t count, const reshard_local_shard *shards)
{
    if (count < 0)
        return rs_fail(RESHARD_ERR_INVALID, "%" PRId64 " shards", count);
    for (int64_t i = 0; i < count; i++) {
        const reshard_tensor *tensor = shards[i].tensor;
        if (tensor == NULL || tensor->distribution != NULL)
            return rs_fail(RESHARD_ERR_INVALID, "shard %" PRId64 " is not a local tensor", i);
        if (tensor->ndim != ndim)
            return rs_fail(RESHARD_ERR_INVALID, "shard %" PRId64 " is %s, in a tensor of %d dims",
                           i, rs_tensor_describe(tensor).text, ndim);
        if (tensor->dtype != shards[0].tensor->dtype ||
            rs_tensor_requires_grad(tensor) != rs_tensor_requires_grad(shards[0].tensor))
            return rs_fail(RESHARD_ERR_INVALID,
                           "shard %" PRId64 " differs from shard 0 in dtype or requires_grad", i);
    }
    return RESHARD_OK;
}

static reshard_status compare_shards(reshard_group *group, const rs_outline *all,
                                     const rs_outline **out_first, int64_t *out_most)
{
    const rs_outline *first = NULL;
    *out_most = 0;
    for (int32_t i = 0; i < reshard_group_size(group); i++) {
        if (memcmp(all[i].shape, all[0].shape, sizeof all[i].shape) != 0 ||
            all[i].ndim != all[0].ndim)
            return rs_fail(RESHARD_ERR_MISMATCH, "rank %d gives another global shape than rank 0",
                           i);
        if (all[i].number == 0)
            continue;
        if (first != NULL &&
            (all[i].dtype != first->dtype || all[i].requires_grad != first->requires_grad))
            return rs_fail(RESHARD_ERR_MISMATCH,
                           "rank %d has shards of another dtype or requires_grad than rank %d", i,
                           (int)(first - all));
        first = first != NULL ? first : &all[i];
        *out_most = *out_most > all[i].number ? *out_most : all[i].number;
    }
    if (first == NULL)
        return rs_fail(RESHARD_ERR_INVALID, "no rank has a shard");
    *out_first = first;
    return RESHARD_OK;
}

/* Lists all shards in the form that layouts take: dense, with one piece each. */
static void list_shards(reshard_group *group, const rs_outline *all, int32_t ndim, int64_t most,
                        const place *places, reshard_piece *pieces, reshard_shard *shards)
{
    int64_t n = 0;
    for (int32_t r = 0; r < reshard_group_size(group); r++) {
        for (int64_t i = 0; i < all[r].number; i++, n++) {
            const place *p = &places[r * most + i];
            memset(&shards[n], 0, sizeof shards[n]);
            memset(&pieces[n], 0, sizeof pieces[n]);
            shards[n].rank = r;
            shards[n].ndim = pieces[n].box.ndim = ndim;
            memcpy(shards[n].shape, p->size, sizeof p->size);
            memcpy(shards[n].offset, p->offset, sizeof p->offset);
            memcpy(pieces[n].box.offset, p->offset, sizeof p->offset);
            memcpy(pieces[n].box.size, p->size, sizeof p->size);
            rs_dense_strides(ndim, p->size, pieces[n].strides);
            shards[n].piece_count = 1;
            shards[n].pieces = &pieces[n];
        }
    }
}

static reshard_status infer_layout(reshard_context *context, reshard_group *group,
                                   const rs_outline *all, int64_t most, const place *places,
                                   reshard_layout **out_layout)
{
    int64_t count = 0;
    for (int32_t i = 0; i < reshard_group_size(group); i++)
        count += all[i].number;
    size_t piece_bytes = (size_t)count * sizeof(reshard_piece);
    size_t shard_bytes = (size_t)count * sizeof(reshard_shard);
    reshard_piece *pieces = rs_allocate(context, piece_bytes);
    reshard_shard *shards = pieces != NULL ? rs_allocate(context, shard_bytes) : NULL;
    reshard_spec *spec = NULL;
    reshard_status status = shards != NULL ? RESHARD_OK : rs_allocation_status();
    if (status == RESHARD_OK) {
        list_shards(group, all, all[0].ndim, most, places, pieces, shards);
        status = reshard_spec_infer(context, all[0].ndim, all[0].shape, count, shards, &spec);
    }
    status = rs_layout_take(context, status, spec, all[0].ndim, all[0].shape, out_layout);
    rs_release(context, pieces);
    rs_release(context, shards);
    return status;
}

static bool is_shard(const reshard_shard *shard, const reshard_local_shard *given, int32_t ndim)
{
    bool same = true;
    for (int32_t d = 0; d < ndim; d++)
        same = same && shard->shape[d] == given->tensor->shape[d] &&
               (given->tensor->volume == 0 || shard->offset[d] == given->offset[d]);
    return same;
}

/* Makes the tensor. The layout may list this rank's shards in another order than the caller did. */
static reshard_status place_shards(reshard_context *context, rs_exec_cache *cache,
                                   reshard_layout *layout, reshard_dtype dtype, int64_t count,
                                   const reshard_local_shard *given, reshard_tensor **out_tensor)
{
    int32_t rank = reshard_group_rank(rs_exec_cache_group(cache));
    size_t bytes = (size_t)count * sizeof(reshard_tensor *);
    reshard_shards *shards = NULL;
    reshard_tensor **placed = rs_allocate_zeroed(context, bytes);
    reshard_status status = placed != NULL ? RESHARD_OK : rs_allocation_status();
    if (status == RESHARD_OK)
        status = reshard_layout_shards(layout, rank, &shards);
    for (int64_t i = 0; status == RESHARD_OK && i < shards->count && i < count; i++) {
        for (int64_t k = 0; k < count && placed[i] == NULL; k++) {
            bool taken = false;
            for (int64_t j = 0; j < i; j++)
                taken = taken || placed[j] == given[k].tensor;
            if (!taken && is_shard(&shards->items[i], &given[k], layout->ndim))
                placed[i] = given[k].tensor;
        }
        if (placed[i] == NULL)
            status = rs_fail(RESHARD_ERR_CHECK, "shard %" PRId64 " is not where it should be", i);
    }
    if (status == RESHARD_OK && shards->count != count)
        status =
            rs_fail(RESHARD_ERR_CHECK, "%" PRId64 " shards became %" PRId64, count, shards->count);
    if (status == RESHARD_OK)
        status = rs_distributed_wrap(context, cache, layout, dtype, placed, out_tensor);
    reshard_shards_destroy(shards);
    rs_release(context, placed);
    return status;
}

static reshard_status gather_places(reshard_context *context, reshard_group *group, int64_t count,
                                    const reshard_local_shard *shards, int64_t most,
                                    place **out_places)
{
    size_t bytes = (size_t)most * sizeof(place), total = bytes * (size_t)reshard_group_size(group);
    place *mine = rs_allocate_zeroed(context, bytes);
    place *all = mine != NULL ? rs_allocate(context, total) : NULL;
    reshard_status status = all != NULL ? RESHARD_OK : rs_allocation_status();
    for (int64_t i = 0; i < count && status == RESHARD_OK; i++) {
        memcpy(mine[i].offset, shards[i].offset, sizeof mine[i].offset);
        memcpy(mine[i].size, shards[i].tensor->shape, sizeof mine[i].size);
    }
    status = rs_agree(group, status, "from_shards");
    if (status == RESHARD_OK)
        status = reshard_group_gather_bytes(group, mine, bytes, all);
    rs_release(context, mine);
    if (status == RESHARD_OK)
        *out_places = all;
    else
        rs_release(context, all);
    return status;
}

reshard_status reshard_tensor_from_shards(reshard_context *context, reshard_group *group,
                                          int32_t ndim, const int64_t *shape, int64_t count,
                                          const reshard_local_shard *shards,
                                          reshard_tensor **out_tensor)
{
    rs_outline mine = rs_outline_of(count > 0 ? shards[0].tensor : NULL), *all = NULL;
    const rs_outline *first = NULL;
    rs_exec_cache *cache = NULL;
    reshard_layout *layout = NULL;
    reshard_tensor *made = NULL;
    place *places = NULL;
    int64_t volume, most = 0;
    reshard_status status = rs_group_choose(&group);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "from_shards");
    status = rs_extents_check(ndim, shape, &volume);
    if (status == RESHARD_OK)
        status = check_own(ndim, count, shards);
    memset(mine.shape, 0, sizeof mine.shape);
    if (status == RESHARD_OK && ndim > 0)
        memcpy(mine.shape, shape, (size_t)ndim * sizeof *shape);
    mine.ndim = ndim;
    mine.number = count;
    status = rs_outlines_gather(group, rs_fail_within(status, "from_shards"), "from_shards", &mine,
                                &all);
    if (status != RESHARD_OK)
        return status;
    status = rs_fail_within(compare_shards(group, all, &first, &most), "from_shards");
    if (status == RESHARD_OK)
        status = gather_places(context, group, count, shards, most, &places);
    if (status == RESHARD_OK) {
        status = rs_exec_cache_of(group, &cache);
        if (status == RESHARD_OK)
            status = infer_layout(context, group, all, most, places, &layout);
        if (status == RESHARD_OK)
            status = place_shards(context, cache, layout, (reshard_dtype)first->dtype, count,
                                  shards, &made);
        status = rs_agree(group, rs_fail_within(status, "from_shards"), "from_shards");
    }
    if (status == RESHARD_OK) {
        made->requires_grad = first->requires_grad != 0;
        *out_tensor = made;
        made = NULL;
    }
    reshard_tensor_release(made);
    rs_release(context, places);
    reshard_layout_release(layout);
    rs_exec_cache_release(cache);
    rs_release(NULL, all);
    return status;
}

/* ---- queries --------------------------------------------------------------------------------- */

reshard_status reshard_tensor_get_info(const reshard_tensor *tensor, reshard_tensor_info *out_info)
{
    reshard_status status = rs_tensor_check_given(tensor, "tensor info");
    if (status != RESHARD_OK)
        return status;
    const rs_distribution *d = tensor->distribution;
    reshard_tensor_info info = {
        .dtype = tensor->dtype,
        .ndim = tensor->ndim,
        .shape = tensor->shape,
        .strides = d == NULL ? tensor->strides : NULL,
        .volume = tensor->volume,
        .is_contiguous = rs_tensor_is_contiguous(tensor),
        .requires_grad = rs_tensor_requires_grad(tensor),
        .layout = d != NULL ? d->layout : NULL,
        .group = d != NULL ? rs_distributed_group(tensor) : NULL,
        .local_shard_count = d != NULL ? d->shard_count : 0,
    };
    if (d != NULL) {
        rs_exec_cache_counts counts = rs_exec_cache_count(d->cache);
        info.plan_hits = counts.hits;
        info.plan_misses = counts.misses;
        info.plans_held = counts.held;
    }
    return rs_report_write("tensor info", &info, sizeof info, out_info);
}

reshard_tensor *reshard_tensor_local_shard(const reshard_tensor *tensor, int64_t index)
{
    if (tensor == NULL || index < 0 || tensor->distribution == NULL ||
        index >= tensor->distribution->shard_count)
        return NULL;
    return tensor->distribution->shards[index];
}
