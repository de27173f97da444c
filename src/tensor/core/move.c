/* SPDX-License-Identifier: Apache-2.0 */
/*
 * move.c - moves values from any layout to any other, once the ranks have agreed to do so.
 *
 * Every collective call begins with rs_agree and allocates what it needs before that, so that only
 * the group can fail after the agreement.
 */
#include "tensor/core/move.h"

#include "base/context.h"
#include "base/error.h"

#include <reshard/group.h>

#include <assert.h>

/* The addresses of the shards at both ends of a move, listed before the ranks agree. */
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
    rs_release(e->context, e->sources);
    rs_release(e->context, e->targets);
}

reshard_status rs_move_begin(reshard_context *context, reshard_status status,
                             const reshard_tensor *source, const rs_exec_key *key, bool still,
                             const reshard_tensor *target, reshard_exec **out_exec)
{
    rs_exec_cache *cache = source->distribution->cache;
    uint64_t digest[2];
    bool all_hit = false;
    ends e = {0};
    reshard_exec *exec = NULL;
    rs_exec_key_digest(key, digest);
    if (status == RESHARD_OK && !still)
        status = list_ends(context, source, target, &e);
    if (status == RESHARD_OK && !still)
        exec = rs_exec_cache_find(cache, digest);
    status = rs_agree_on(rs_exec_cache_group(cache), status, digest, "redistribute",
                         rs_exec_number(exec), &all_hit);
    if (status == RESHARD_OK && !still && !all_hit)
        status = rs_exec_cache_make(cache, status, key, digest, &exec);
    if (status == RESHARD_OK && !still)
        status = reshard_exec_start(exec, (const void *const *)e.sources, e.targets);
    release_ends(&e);
    if (status == RESHARD_OK)
        *out_exec = exec;
    else
        /* From the agreement on, all ranks fail together. */
        rs_scope_note_told(rs_exec_cache_group(cache));
    return status;
}

/* The same, and waits for the exec. */
static reshard_status move(reshard_context *context, reshard_status status,
                           const reshard_tensor *source, const rs_exec_key *key, bool still,
                           const reshard_tensor *target)
{
    reshard_exec *exec = NULL;
    status = rs_move_begin(context, status, source, key, still, target, &exec);
    if (status == RESHARD_OK && exec != NULL) {
        status = reshard_exec_wait(exec);
        if (status != RESHARD_OK)
            rs_scope_note_told(rs_exec_cache_group(source->distribution->cache));
    }
    return status;
}

reshard_status rs_move_target(reshard_context *context, const reshard_tensor *source,
                              const rs_exec_key *key, reshard_tensor **out_target, bool *out_still)
{
    rs_exec_cache *cache = source->distribution->cache;
    reshard_layout *layout = key->adjoint ? key->source : key->target;
    reshard_dtype dtype = key->adjoint ? key->source_dtype : key->target_dtype;
    *out_still = !key->adjoint && source->dtype == dtype &&
                 rs_layouts_lie_alike(source->distribution->layout, layout);
    return *out_still ? rs_distributed_wrap(context, cache, layout, dtype,
                                            source->distribution->shards, out_target)
                      : rs_distributed_make(context, cache, layout, dtype, out_target);
}

reshard_status rs_redistribute_keyed(reshard_context *context, const reshard_tensor *source,
                                     const rs_exec_key *key, reshard_tensor **out_tensor)
{
    reshard_tensor *target = NULL;
    bool still = false;
    reshard_status status = rs_move_target(context, source, key, &target, &still);
    status = move(context, status, source, key, still, target);
    return rs_tensor_hand_out(status, target, out_tensor);
}

/* Whether a shard of one lies in the same memory as a shard of the other. */
static bool share_memory(const rs_distribution *a, const rs_distribution *b)
{
    for (int64_t i = 0; i < a->shard_count; i++) {
        for (int64_t k = 0; k < b->shard_count; k++) {
            if (a->shards[i]->storage == b->shards[k]->storage)
                return true;
        }
    }
    return false;
}

reshard_status rs_redistribute_into(reshard_status status, const reshard_tensor *source,
                                    reshard_tensor *target)
{
    if (status != RESHARD_OK)
        return rs_agree(rs_distributed_group(source), status, "copy");
    rs_distribution *from = source->distribution, *to = target->distribution;
    rs_exec_key key = {from->layout, to->layout, source->dtype, target->dtype, false};
    if (share_memory(from, to))
        status = rs_fail(RESHARD_ERR_INVALID, "the target shares memory with the source");
    for (int64_t i = 0; i < to->shard_count && status == RESHARD_OK; i++)
        (void)reshard_tensor_write(to->shards[i]);
    return move(source->context, status, source, &key, false, target);
}

reshard_status rs_redistribute(reshard_context *context, const reshard_tensor *source,
                               reshard_layout *layout, reshard_dtype dtype,
                               reshard_tensor **out_tensor)
{
    assert(source->distribution != NULL && layout != NULL);
    rs_exec_key key = {source->distribution->layout, layout, source->dtype, dtype, false};
    return rs_redistribute_keyed(context, source, &key, out_tensor);
}

reshard_status rs_redistribute_after(reshard_status status, reshard_group *group, const char *what,
                                     reshard_context *context, const reshard_tensor *source,
                                     reshard_layout *layout, reshard_dtype dtype,
                                     reshard_tensor **out_tensor)
{
    if (status != RESHARD_OK)
        return rs_agree(group, status, what);
    return rs_redistribute(context, source, layout, dtype, out_tensor);
}

reshard_status rs_gather_whole(reshard_context *context, reshard_status status, const char *what,
                               const reshard_tensor *source, int32_t root,
                               reshard_tensor **out_local)
{
    reshard_group *group = rs_distributed_group(source);
    reshard_layout *layout = NULL;
    reshard_tensor *whole = NULL;
    if (status == RESHARD_OK)
        status = rs_layout_simple(context, reshard_group_size(group), root, NULL, source->ndim,
                                  source->shape, &layout);
    status =
        rs_redistribute_after(status, group, what, context, source, layout, source->dtype, &whole);
    if (status == RESHARD_OK)
        *out_local = whole->distribution->shard_count > 0
                         ? reshard_tensor_retain(whole->distribution->shards[0])
                         : NULL;
    reshard_tensor_release(whole);
    reshard_layout_release(layout);
    return status;
}
