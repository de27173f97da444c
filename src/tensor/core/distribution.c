/* SPDX-License-Identifier: Apache-2.0 */
/*
 * distribution.c - distributed tensors underneath: shards with a layout and a group, agreement, and
 * the one move from any layout to any other that everything above is made of.
 *
 * Every collective call begins with rs_agree and allocates what it needs before it: after the
 * agreement only the group can fail.
 */
#include "tensor/core/distribution.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "layout/layout.h"
#include "transport/group.h"

#include <reshard/group.h>
#include <reshard/ops.h>

#include <string.h>

/* ---- making ---------------------------------------------------------------------------------- */

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
    for (int64_t i = 0; i < distribution->shard_count; i++)
        reshard_tensor_release(distribution->shards[i]);
    rs_release(distribution->context, distribution->shards,
               (size_t)distribution->shard_count * sizeof *distribution->shards);
    reshard_layout_release(distribution->layout);
    rs_exec_cache_release(distribution->cache);
    rs_release(distribution->context, distribution, sizeof *distribution);
}

static reshard_status make_distribution(reshard_context *context, rs_exec_cache *cache,
                                        reshard_layout *layout, rs_distribution **out_distribution)
{
    int32_t rank = reshard_group_rank(rs_exec_cache_group(cache));
    int64_t count = rs_layout_shard_count(layout, rank);
    rs_distribution *made = rs_allocate_zeroed(context, sizeof *made);
    if (made == NULL)
        return rs_allocation_status();
    atomic_init(&made->references, 1);
    made->context = context;
    made->cache = rs_exec_cache_retain(cache);
    made->layout = reshard_layout_retain(layout);
    made->shards = rs_allocate_zeroed(context, (size_t)count * sizeof *made->shards);
    if (made->shards == NULL) {
        reshard_status status = rs_allocation_status();
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

/* Takes over the distribution. */
static reshard_status make_tensor(rs_distribution *distribution, reshard_dtype dtype,
                                  reshard_tensor **out_tensor)
{
    reshard_context *context = distribution->context;
    const reshard_layout *layout = distribution->layout;
    reshard_tensor *tensor = rs_allocate_zeroed(context, sizeof *tensor);
    if (tensor == NULL) {
        reshard_status status = rs_allocation_status();
        rs_distribution_release(distribution);
        return status;
    }
    atomic_init(&tensor->references, 1);
    tensor->context = context;
    tensor->dtype = dtype;
    tensor->ndim = layout->ndim;
    tensor->volume = layout->volume;
    memcpy(tensor->shape, layout->shape, sizeof tensor->shape);
    rs_shape_strides(tensor->ndim, tensor->shape, tensor->strides);
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
        status = reshard_tensor_is_contiguous(shards[i])
                     ? rs_tensor_alias(context, shards[i], &made->shards[i])
                     : rs_tensor_densify(context, shards[i], &made->shards[i]);
    if (status == RESHARD_OK)
        return make_tensor(made, dtype, out_tensor);
    rs_distribution_release(made);
    return status;
}

reshard_group *rs_distributed_group(const reshard_tensor *tensor)
{
    return rs_exec_cache_group(tensor->distribution->cache);
}

/* The rank, in one group, of a member of another; -1 when it is not in it. */
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

bool rs_distributed_same(const reshard_tensor *a, const reshard_tensor *b)
{
    return a->distribution->cache == b->distribution->cache &&
           rs_layout_same(a->distribution->layout, b->distribution->layout);
}

/* ---- agreement ------------------------------------------------------------------------------- */

typedef struct offer {
    uint64_t digest[2];
    int32_t status;
    int32_t flag;
} offer;

static reshard_status judge(reshard_group *group, reshard_status status, const offer *all,
                            const char *what, bool *out_all_true)
{
    int32_t size = reshard_group_size(group);
    bool failed = false, all_true = true;
    for (int32_t i = 0; i < size; i++) {
        failed = failed || all[i].status != RESHARD_OK;
        all_true = all_true && all[i].flag != 0;
    }
    if (failed)
        return reshard_group_agree(group, status);
    for (int32_t i = 1; i < size; i++) {
        if (memcmp(all[i].digest, all[0].digest, sizeof all[0].digest) != 0)
            return rs_fail(RESHARD_ERR_MISMATCH,
                           "%s: rank %d asks for something else than rank 0 does", what, i);
    }
    if (out_all_true != NULL)
        *out_all_true = all_true;
    return RESHARD_OK;
}

static void note_agreed(void)
{
    if (rs_thread_state_get()->scope != NULL)
        rs_thread_state_get()->scope->agreed = true;
}

reshard_status rs_agree(reshard_group *group, reshard_status status, const uint64_t digest[2],
                        const char *what, bool flag, bool *out_all_true)
{
    offer few[64], mine = {.status = status, .flag = flag};
    int32_t size = reshard_group_size(group);
    size_t bytes = (size_t)size * sizeof *few;
    offer *all = few;
    if (digest != NULL)
        memcpy(mine.digest, digest, sizeof mine.digest);
    rs_scope_use_group(group);
    if (size > (int32_t)(sizeof few / sizeof *few))
        all = rs_allocate(NULL, bytes);
    if (all == NULL) {
        /* The others cannot be told in words that this rank has no memory to read theirs. */
        status = rs_allocation_status();
        reshard_group_break(group, reshard_error_text());
        return status;
    }
    reshard_status sent = reshard_group_gather_bytes(group, &mine, sizeof mine, all);
    status = sent == RESHARD_OK ? judge(group, status, all, what, out_all_true) : sent;
    if (all != few)
        rs_release(NULL, all, bytes);
    if (status != RESHARD_OK)
        note_agreed();
    return status;
}

void rs_agree_on_failure(void)
{
    const reshard_scope *scope = rs_thread_state_get()->scope;
    if (scope == NULL || scope->status == RESHARD_OK || scope->agreed || scope->group == NULL)
        return;
    (void)rs_agree(scope->group, reshard_scope_status(scope), NULL, "", false, NULL);
}

/* ---- moving ---------------------------------------------------------------------------------- */

/* What a run needs, allocated before the ranks agree. */
typedef struct ends {
    reshard_context *context;
    int64_t source_count, target_count;
    void **sources, **targets;
} ends;

static void **list_data(reshard_context *context, const rs_distribution *distribution)
{
    void **list = rs_allocate_array(context, (size_t)distribution->shard_count, sizeof *list);
    for (int64_t i = 0; list != NULL && i < distribution->shard_count; i++)
        list[i] = distribution->shards[i]->data;
    return list;
}

static reshard_status list_ends(reshard_context *context, const reshard_tensor *source,
                                const reshard_tensor *target, ends *out_ends)
{
    out_ends->context = context;
    out_ends->source_count = source->distribution->shard_count;
    out_ends->target_count = target->distribution->shard_count;
    out_ends->sources = list_data(context, source->distribution);
    out_ends->targets = list_data(context, target->distribution);
    bool made = out_ends->sources != NULL && out_ends->targets != NULL;
    return made ? RESHARD_OK : rs_allocation_status();
}

static void release_ends(ends *e)
{
    rs_release(e->context, e->sources, (size_t)e->source_count * sizeof *e->sources);
    rs_release(e->context, e->targets, (size_t)e->target_count * sizeof *e->targets);
}

reshard_status rs_redistribute_keyed(reshard_context *context, const reshard_tensor *source,
                                     const rs_exec_key *key, reshard_tensor **out_tensor)
{
    rs_exec_cache *cache = source->distribution->cache;
    reshard_layout *layout = key->adjoint ? key->source : key->target;
    reshard_dtype dtype = key->adjoint ? key->source_dtype : key->target_dtype;
    bool same = !key->adjoint && source->dtype == dtype &&
                rs_layouts_lie_alike(source->distribution->layout, layout);
    uint64_t digest[2];
    bool all_hit = false;
    ends e = {0};
    reshard_tensor *target = NULL;
    reshard_exec *exec = NULL;
    rs_exec_key_digest(key, digest);
    reshard_status status = same ? rs_distributed_wrap(context, cache, layout, dtype,
                                                       source->distribution->shards, &target)
                                 : rs_distributed_make(context, cache, layout, dtype, &target);
    if (status == RESHARD_OK && !same)
        status = list_ends(context, source, target, &e);
    if (status == RESHARD_OK && !same)
        exec = rs_exec_cache_find(cache, digest);
    status = rs_agree(rs_exec_cache_group(cache), status, digest, "redistribute", exec != NULL,
                      &all_hit);
    if (status == RESHARD_OK && !same && !all_hit)
        status = rs_exec_cache_make(cache, status, key, digest, &exec);
    if (status == RESHARD_OK && !same)
        status = reshard_exec_start(exec, (const void *const *)e.sources, e.targets);
    if (status == RESHARD_OK && !same)
        status = reshard_exec_wait(exec);
    release_ends(&e);
    if (status == RESHARD_OK) {
        *out_tensor = target;
    } else {
        reshard_tensor_release(target);
        note_agreed(); /* past the agreement, what fails fails on all ranks */
    }
    return status;
}

reshard_status rs_redistribute(reshard_context *context, const reshard_tensor *source,
                               reshard_layout *layout, reshard_dtype dtype,
                               reshard_tensor **out_tensor)
{
    rs_exec_key key = {source->distribution->layout, layout, source->dtype, dtype, false};
    return rs_redistribute_keyed(context, source, &key, out_tensor);
}

/* ---- gradients ------------------------------------------------------------------------------- */

reshard_status rs_gradient_layout(reshard_layout *layout, reshard_layout **out_layout)
{
    const reshard_placement replicate = {.kind = RESHARD_REPLICATE};
    return rs_layout_replace_partial(layout, &replicate, out_layout);
}

static reshard_status add_shards(const reshard_tensor *a, const reshard_tensor *b,
                                 reshard_tensor **out_sum)
{
    const rs_distribution *x = a->distribution, *y = b->distribution;
    reshard_context *context = rs_scope_context();
    reshard_tensor **sums = rs_allocate_array(context, (size_t)x->shard_count, sizeof *sums);
    reshard_status status = sums != NULL ? RESHARD_OK : rs_allocation_status();
    for (int64_t i = 0; i < x->shard_count && status == RESHARD_OK; i++) {
        sums[i] = reshard_add(x->shards[i], y->shards[i]);
        if (sums[i] == NULL)
            status = reshard_scope_status(rs_thread_state_get()->scope);
    }
    if (status == RESHARD_OK)
        status = rs_distributed_wrap(context, x->cache, x->layout, a->dtype, sums, out_sum);
    rs_release(context, sums, (size_t)x->shard_count * sizeof *sums);
    return status;
}

reshard_tensor *rs_gradient_add(reshard_tensor *a, reshard_tensor *b)
{
    if (a->distribution == NULL)
        return reshard_add(a, b);
    reshard_tensor *moved = NULL, *sum = NULL;
    reshard_status status =
        rs_redistribute(rs_scope_context(), b, a->distribution->layout, b->dtype, &moved);
    if (status == RESHARD_OK)
        status = add_shards(a, moved, &sum);
    reshard_tensor_release(moved);
    return status == RESHARD_OK ? rs_scope_own(sum) : rs_scope_fail(status);
}
