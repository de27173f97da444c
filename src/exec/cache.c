/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache.c - a table of execs, searched from end to end: it is short, and an exec costs far more
 * than the search.
 */
#include "exec/cache.h"

#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "layout/layout.h"
#include "transport/group.h"

#include <string.h>

typedef struct entry {
    uint64_t digest[2];
    uint64_t used; /* when: a count of uses */
    reshard_exec *exec;
} entry;

struct rs_exec_cache {
    rs_references references;
    reshard_group *group;
    int64_t hits, misses;
    uint64_t uses;
    int32_t count;
    entry entries[RS_EXEC_CACHE_MAX];
};

reshard_status rs_exec_cache_of(reshard_group *group, rs_exec_cache **out_cache)
{
    if (group->attachment != NULL) {
        *out_cache = rs_exec_cache_retain(group->attachment);
        return RESHARD_OK;
    }
    rs_exec_cache *cache = rs_allocate_zeroed(group->context, sizeof *cache);
    if (cache == NULL)
        return rs_allocation_status();
    atomic_init(&cache->references, 1);
    cache->group = reshard_group_retain(group);
    group->attachment = cache;
    *out_cache = cache;
    return RESHARD_OK;
}

rs_exec_cache *rs_exec_cache_retain(rs_exec_cache *cache)
{
    if (cache != NULL)
        rs_reference_add(&cache->references);
    return cache;
}

void rs_exec_cache_release(rs_exec_cache *cache)
{
    if (cache == NULL || !rs_reference_drop(&cache->references))
        return;
    reshard_group *group = cache->group;
    reshard_context *context = group->context;
    for (int32_t i = 0; i < cache->count; i++)
        reshard_exec_destroy(cache->entries[i].exec);
    group->attachment = NULL;
    rs_release(context, cache, sizeof *cache);
    reshard_group_release(group);
}

reshard_group *rs_exec_cache_group(const rs_exec_cache *cache)
{
    return cache->group;
}

void rs_exec_key_digest(const rs_exec_key *key, uint64_t out_digest[2])
{
    rs_digest digest;
    rs_digest_init(&digest);
    rs_digest_u64(&digest, key->source->digest[0]);
    rs_digest_u64(&digest, key->source->digest[1]);
    rs_digest_u64(&digest, key->target->digest[0]);
    rs_digest_u64(&digest, key->target->digest[1]);
    rs_digest_u64(&digest, (uint64_t)key->source_dtype);
    rs_digest_u64(&digest, (uint64_t)key->target_dtype);
    rs_digest_u64(&digest, key->adjoint);
    rs_digest_finish(&digest, out_digest);
}

static entry *find_entry(rs_exec_cache *cache, const uint64_t digest[2])
{
    for (int32_t i = 0; i < cache->count; i++) {
        if (memcmp(cache->entries[i].digest, digest, sizeof cache->entries[i].digest) == 0)
            return &cache->entries[i];
    }
    return NULL;
}

reshard_exec *rs_exec_cache_find(rs_exec_cache *cache, const uint64_t digest[2])
{
    entry *found = find_entry(cache, digest);
    if (found == NULL) {
        cache->misses++;
        return NULL;
    }
    cache->hits++;
    found->used = ++cache->uses;
    return found->exec;
}

static entry *find_room(rs_exec_cache *cache, const uint64_t digest[2])
{
    entry *oldest = find_entry(cache, digest);
    if (oldest == NULL && cache->count < RS_EXEC_CACHE_MAX)
        return &cache->entries[cache->count++];
    for (int32_t i = 0; oldest == NULL && i < cache->count; i++) {
        if (i == 0 || cache->entries[i].used < oldest->used)
            oldest = &cache->entries[i];
    }
    reshard_exec_destroy(oldest->exec);
    return oldest;
}

static reshard_status make_plan(reshard_context *context, const rs_exec_key *key,
                                reshard_plan **out_plan)
{
    reshard_plan_tensor source = {.layout = key->source, .dtype = key->source_dtype};
    reshard_plan_tensor target = {.layout = key->target, .dtype = key->target_dtype};
    reshard_link link = reshard_link_whole(0, 0);
    reshard_plan *plan = NULL, *adjoint = NULL;
    reshard_status status =
        reshard_plan_create(context, 1, &source, 1, &target, 1, &link, NULL, &plan);
    if (status == RESHARD_OK && key->adjoint) {
        status = reshard_plan_adjoint(plan, &adjoint);
        reshard_plan_release(plan);
        plan = adjoint;
    }
    if (status == RESHARD_OK)
        *out_plan = plan;
    return status;
}

reshard_status rs_exec_cache_make(rs_exec_cache *cache, reshard_status status,
                                  const rs_exec_key *key, const uint64_t digest[2],
                                  reshard_exec **out_exec)
{
    reshard_context *context = cache->group->context;
    reshard_plan *plan = NULL;
    reshard_exec *exec = NULL;
    if (status == RESHARD_OK)
        status = make_plan(context, key, &plan);
    if (status == RESHARD_OK)
        status = reshard_exec_create(context, plan, cache->group, NULL, &exec);
    else
        status = reshard_group_agree(cache->group, status);
    reshard_plan_release(plan);
    if (status != RESHARD_OK)
        return status;
    entry *room = find_room(cache, digest);
    memcpy(room->digest, digest, sizeof room->digest);
    room->used = ++cache->uses;
    room->exec = exec;
    *out_exec = exec;
    return RESHARD_OK;
}

rs_exec_cache_counts rs_exec_cache_count(const rs_exec_cache *cache)
{
    return (rs_exec_cache_counts){cache->hits, cache->misses, cache->count};
}
