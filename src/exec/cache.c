/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache.c - a list of execs, searched from end to end: it is short, and making an exec costs far
 * more than the search.
 */
#include "exec/cache.h"

#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/references.h"
#include "exec/exec.h"
#include "layout/derive.h"
#include "layout/layout.h"
#include "spec/spec.h"
#include "transport/group.h"

#include <assert.h>
#include <string.h>

typedef struct entry {
    uint64_t digest[2];
    uint64_t used; /* number of the last use, counting all uses of the cache */
    reshard_exec *exec;
} entry;

struct rs_exec_cache {
    rs_references references;
    reshard_group *group;
    int64_t hits, misses;
    uint64_t uses;
    int32_t count;
    entry entries[RS_EXEC_CACHE_MAX];
    int64_t remembered_count; /* ever; the latest ones are kept */
    uint64_t remembered[RS_EXEC_CACHE_REMEMBERED][2];
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
    rs_release(context, cache);
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

uint64_t rs_exec_number(const reshard_exec *exec)
{
    return exec != NULL ? (uint64_t)exec->channel : 0;
}

/* Of several, the newest: the one that ranks made when they last found different ones. */
static entry *find_entry(rs_exec_cache *cache, const uint64_t digest[2])
{
    entry *found = NULL;
    for (int32_t i = 0; i < cache->count; i++) {
        entry *e = &cache->entries[i];
        if (memcmp(e->digest, digest, sizeof e->digest) == 0 &&
            (found == NULL || rs_exec_number(e->exec) > rs_exec_number(found->exec)))
            found = e;
    }
    return found;
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

/* Finds a place for an exec: that of `old`, or one that is free, or the least recently used. */
static entry *find_room(rs_exec_cache *cache, entry *old)
{
    entry *room = old;
    if (room == NULL && cache->count < RS_EXEC_CACHE_MAX)
        return &cache->entries[cache->count++];
    if (room == NULL) {
        room = &cache->entries[0];
        for (int32_t i = 1; i < cache->count; i++) {
            if (cache->entries[i].used < room->used)
                room = &cache->entries[i];
        }
    }
    reshard_exec_destroy(room->exec);
    return room;
}

static void put(rs_exec_cache *cache, entry *room, const uint64_t digest[2], reshard_exec *exec)
{
    assert(exec != NULL && exec->group == cache->group); /* numbers of execs are the group's */
    memcpy(room->digest, digest, sizeof room->digest);
    room->used = ++cache->uses;
    room->exec = exec;
}

reshard_exec *rs_exec_cache_take(rs_exec_cache *cache, const uint64_t digest[2])
{
    entry *found = find_entry(cache, digest);
    if (found == NULL)
        return NULL;
    reshard_exec *exec = found->exec;
    *found = cache->entries[--cache->count];
    return exec;
}

void rs_exec_cache_give(rs_exec_cache *cache, const uint64_t digest[2], reshard_exec *exec)
{
    put(cache, find_room(cache, NULL), digest, exec);
}

/* ---- making ---------------------------------------------------------------------------------- */

static reshard_status make_plan(reshard_context *context, const rs_exec_key *key,
                                reshard_plan **out_plan)
{
    reshard_plan_tensor source = {.dtype = key->source_dtype};
    reshard_plan_tensor target = {.dtype = key->target_dtype};
    reshard_link link = reshard_link_whole(0, 0);
    reshard_plan *plan = NULL, *adjoint = NULL;
    /* in the group's context, because their own may not live as long as the group */
    reshard_status status = rs_layout_clone(context, key->source, &source.layout);
    if (status == RESHARD_OK)
        status = rs_layout_clone(context, key->target, &target.layout);
    if (status == RESHARD_OK)
        status = reshard_plan_create(context, 1, &source, 1, &target, 1, &link, NULL, &plan);
    reshard_layout_release(source.layout);
    reshard_layout_release(target.layout);
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
    put(cache, find_room(cache, find_entry(cache, digest)), digest, exec);
    *out_exec = exec;
    return RESHARD_OK;
}

rs_exec_cache_counts rs_exec_cache_count(const rs_exec_cache *cache)
{
    return (rs_exec_cache_counts){cache->hits, cache->misses, cache->count};
}

bool rs_exec_cache_knows(const rs_exec_cache *cache, const uint64_t digest[2])
{
    int64_t kept = cache->remembered_count < RS_EXEC_CACHE_REMEMBERED ? cache->remembered_count
                                                                      : RS_EXEC_CACHE_REMEMBERED;
    for (int64_t i = 0; i < kept; i++) {
        if (memcmp(cache->remembered[i], digest, sizeof cache->remembered[i]) == 0)
            return true;
    }
    return false;
}

void rs_exec_cache_remember(rs_exec_cache *cache, const uint64_t digest[2])
{
    memcpy(cache->remembered[cache->remembered_count++ % RS_EXEC_CACHE_REMEMBERED], digest,
           sizeof cache->remembered[0]);
}
