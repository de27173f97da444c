/* SPDX-License-Identifier: Apache-2.0 */
/*
 * distribution.c - makes distributed tensors out of shards, a layout and a group, and tells whether
 * ranks hold the same shards.
 */
#include "tensor/core/distribution.h"

#include "base/context.h"
#include "base/digest.h"
#include "base/thread_state.h"
#include "layout/derive.h"
#include "layout/layout.h"
#include "spec/spec.h"
#include "transport/group.h"

#include <reshard/group.h>

#include <assert.h>
#include <string.h>

rs_distribution *rs_distribution_retain(rs_distribution *distribution)
{
    if (distribution != NULL)
        rs_reference_add(&distribution->references);
    return distribution;
}

void rs_distribution_release(rs_distribution *distribution)
{
    if (distribution == NULL || !rs_reference_drop(&distribution->references))
        return;
    rs_flight_destroy(distribution->flight);
    for (int64_t i = 0; i < distribution->shard_count; i++)
        reshard_tensor_release(distribution->shards[i]);
    rs_release(distribution->context, distribution->shards);
    reshard_layout_release(distribution->layout);
    rs_exec_cache_release(distribution->cache);
    rs_release(distribution->context, distribution);
}

reshard_status rs_distribution_bare(reshard_context *context, rs_exec_cache *cache,
                                    reshard_layout *layout, rs_distribution **out_distribution)
{
    assert(cache != NULL && layout != NULL);
    rs_distribution *made = rs_allocate_zeroed(context, sizeof *made);
    if (made == NULL)
        return rs_allocation_status();
    atomic_init(&made->references, 1);
    made->context = context;
    made->cache = rs_exec_cache_retain(cache);
    made->layout = reshard_layout_retain(layout);
    *out_distribution = made;
    return RESHARD_OK;
}

static reshard_status make_distribution(reshard_context *context, rs_exec_cache *cache,
                                        reshard_layout *layout, rs_distribution **out_distribution)
{
    int32_t rank = reshard_group_rank(rs_exec_cache_group(cache));
    int64_t count = rs_layout_shard_count(layout, rank);
    rs_distribution *made = NULL;
    reshard_status status = rs_distribution_bare(context, cache, layout, &made);
    if (status != RESHARD_OK)
        return status;
    made->shards = rs_allocate_zeroed(context, (size_t)count * sizeof *made->shards);
    if (made->shards == NULL) {
        status = rs_allocation_status();
        rs_distribution_release(made);
        return status;
    }
    made->shard_count = count;
    *out_distribution = made;
    return RESHARD_OK;
}

static reshard_status make_shards(rs_distribution *distribution, reshard_dtype dtype)
{
    reshard_shards *shards = NULL;
    int32_t rank = reshard_group_rank(rs_exec_cache_group(distribution->cache));
    reshard_status status = reshard_layout_shards(distribution->layout, rank, &shards);
    for (int64_t i = 0; status == RESHARD_OK && i < shards->count; i++)
        status = rs_tensor_make(distribution->context, dtype, shards->items[i].ndim,
                                shards->items[i].shape, &distribution->shards[i]);
    reshard_shards_destroy(shards);
    return status;
}

/* Takes over the distribution, on failure too. */
static reshard_status make_tensor(rs_distribution *distribution, reshard_dtype dtype,
                                  reshard_tensor **out_tensor)
{
    const reshard_layout *layout = distribution->layout;
    reshard_tensor *tensor =
        rs_tensor_header(distribution->context, dtype, layout->ndim, layout->shape, layout->volume);
    if (tensor == NULL) {
        reshard_status status = rs_allocation_status();
        rs_distribution_release(distribution);
        return status;
    }
    tensor->distribution = distribution;
    *out_tensor = tensor;
    return RESHARD_OK;
}

reshard_status rs_distributed_make(reshard_context *context, rs_exec_cache *cache,
                                   reshard_layout *layout, reshard_dtype dtype,
                                   reshard_tensor **out_tensor)
{
    rs_distribution *made = NULL;
    reshard_status status = make_distribution(context, cache, layout, &made);
    if (status == RESHARD_OK)
        status = make_shards(made, dtype);
    if (status == RESHARD_OK)
        return make_tensor(made, dtype, out_tensor);
    rs_distribution_release(made);
    return status;
}

reshard_status rs_distributed_wrap(reshard_context *context, rs_exec_cache *cache,
                                   reshard_layout *layout, reshard_dtype dtype,
                                   reshard_tensor *const *shards, reshard_tensor **out_tensor)
{
    rs_distribution *made = NULL;
    reshard_status status = make_distribution(context, cache, layout, &made);
    if (status != RESHARD_OK)
        return status;
    for (int64_t i = 0; i < made->shard_count && status == RESHARD_OK; i++)
        status = rs_tensor_is_contiguous(shards[i])
                     ? rs_tensor_alias(context, shards[i], &made->shards[i])
                     : rs_tensor_densify(context, shards[i], &made->shards[i]);
    if (status == RESHARD_OK)
        return make_tensor(made, dtype, out_tensor);
    rs_distribution_release(made);
    return status;
}

reshard_group *rs_distributed_group(const reshard_tensor *tensor)
{
    assert(tensor->distribution != NULL);
    return rs_exec_cache_group(tensor->distribution->cache);
}

/* Finds which rank of `group` a member of `other` is; -1 if it is none. Both have the same root. */
static int32_t find_member(const reshard_group *group, const reshard_group *other, int32_t rank)
{
    int32_t root = other->root_ranks != NULL ? other->root_ranks[rank] : rank;
    if (group->root_ranks == NULL)
        return root;
    for (int32_t i = 0; i < group->size; i++) {
        if (group->root_ranks[i] == root)
            return i;
    }
    return -1;
}

rs_sameness rs_layout_sameness(const reshard_layout *layout, const reshard_group *group)
{
    const reshard_group *replicas = rs_thread_state_get()->replicas;
    int32_t mine[RESHARD_AXES_MAX], theirs[RESHARD_AXES_MAX], axes[RESHARD_AXES_MAX];
    int32_t count = rs_layout_list_axes(layout, axes);
    if (count < 0 || replicas == NULL || replicas->root != group->root)
        return count == 0 ? RS_SAME_YES : RS_SAME_NO;
    bool same = rs_layout_coordinates(layout, group->rank, mine);
    for (int32_t r = 0; r < replicas->size && same; r++) {
        int32_t rank = find_member(group, replicas, r);
        same = rank >= 0 && rs_layout_coordinates(layout, rank, theirs);
        for (int32_t i = 0; i < count && same; i++)
            same = mine[axes[i]] == theirs[axes[i]];
    }
    return same ? RS_SAME_YES : RS_SAME_NO;
}

int64_t rs_group_number(const reshard_group *group)
{
    return (int64_t)group->channel + 1;
}

rs_kin rs_layout_kin(const reshard_layout *layout, const reshard_group *group)
{
    int32_t mine[RESHARD_AXES_MAX], axes[RESHARD_AXES_MAX];
    int32_t count = rs_layout_list_axes(layout, axes);
    bool inside = count >= 0 && rs_layout_coordinates(layout, group->rank, mine);
    bool whole = count == 0 && !layout->spec->mesh->repeated && layout->rank_count >= group->size;
    if (whole && group->root_ranks == NULL)
        return (rs_kin){0, 0}; /* the same on all ranks there are */
    rs_digest digest;
    uint64_t made[2];
    rs_digest_init(&digest);
    for (int32_t i = 0; i < group->size; i++)
        rs_digest_u64(&digest, (uint64_t)rs_group_root_rank(group, i));
    if (!whole) {
        rs_digest_bytes(&digest, layout->digest, sizeof layout->digest);
        rs_digest_u64(&digest, inside);
        for (int32_t i = 0; i < count && inside; i++)
            rs_digest_u64(&digest, (uint64_t)mine[axes[i]]);
        if (count < 0) /* boxes: each rank has its own */
            rs_digest_u64(&digest, (uint64_t)group->rank);
    }
    rs_digest_finish(&digest, made);
    return (rs_kin){made[0] | 1, whole ? rs_group_number(group) : 0};
}

bool rs_distributed_same(const reshard_tensor *a, const reshard_tensor *b)
{
    assert(a->distribution != NULL && b->distribution != NULL);
    return a->distribution->cache == b->distribution->cache &&
           rs_layout_same(a->distribution->layout, b->distribution->layout);
}
