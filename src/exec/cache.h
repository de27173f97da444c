/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cache.h - execs of one group that are kept for reuse. The key is what they move: two layouts, two
 * dtypes, forward or adjoint. Their number is limited, and the least recently used one goes first.
 * All ranks make the same calls in the same order, so their caches hold the same execs, except for
 * those that are taken out and given back.
 *
 * Execs hold a reference to the group, so the group cannot hold one to its cache: the cache exists
 * only as long as somebody else holds it.
 */
#ifndef RS_EXEC_CACHE_H
#define RS_EXEC_CACHE_H

#include <reshard/exec.h>

#include "base/export.h"

#include <stdbool.h>

#define RS_EXEC_CACHE_MAX 64
#define RS_EXEC_CACHE_REMEMBERED 256

typedef struct rs_exec_cache rs_exec_cache;

/* Returns the group's cache, or a new one if it has none. The caller releases it. Local. */
RS_EXPORT reshard_status rs_exec_cache_of(reshard_group *group, rs_exec_cache **out_cache);
RS_EXPORT rs_exec_cache *rs_exec_cache_retain(rs_exec_cache *cache);
RS_EXPORT void rs_exec_cache_release(rs_exec_cache *cache);
RS_EXPORT reshard_group *rs_exec_cache_group(const rs_exec_cache *cache);

typedef struct rs_exec_key {
    reshard_layout *source, *target;
    reshard_dtype source_dtype, target_dtype;
    bool adjoint; /* from the target's tensor to the source's */
} rs_exec_key;

RS_EXPORT void rs_exec_key_digest(const rs_exec_key *key, uint64_t out_digest[2]);

/* Returns NULL if there is none. Counts a hit or a miss. The exec stays the cache's. Local. */
RS_EXPORT reshard_exec *rs_exec_cache_find(rs_exec_cache *cache, const uint64_t digest[2]);
/* Collective. Makes the exec and keeps it, in place of one with the same digest. `status` is the
 * result of what this rank did before; an error there fails the call on all ranks. */
RS_EXPORT reshard_status rs_exec_cache_make(rs_exec_cache *cache, reshard_status status,
                                            const rs_exec_key *key, const uint64_t digest[2],
                                            reshard_exec **out_exec);

/* A number that the exec has on all ranks, and no other exec of the group has; 0 for NULL. Ranks
 * must compare it before they use what they found: with `take`, their caches may differ. */
RS_EXPORT uint64_t rs_exec_number(const reshard_exec *exec);
/* Takes an exec out of the cache, so that it can be under way while others use the cache; NULL if
 * there is none. It is what rs_exec_cache_find gives. It may be given back in any order, even
 * beside another one of the same digest. Local. */
RS_EXPORT reshard_exec *rs_exec_cache_take(rs_exec_cache *cache, const uint64_t digest[2]);
RS_EXPORT void rs_exec_cache_give(rs_exec_cache *cache, const uint64_t digest[2],
                                  reshard_exec *exec);

/* What the ranks of the group have compared, and need not compare again. The latest
 * RS_EXEC_CACHE_REMEMBERED are known. Local. */
RS_EXPORT bool rs_exec_cache_knows(const rs_exec_cache *cache, const uint64_t digest[2]);
RS_EXPORT void rs_exec_cache_remember(rs_exec_cache *cache, const uint64_t digest[2]);

typedef struct rs_exec_cache_counts {
    int64_t hits, misses, held;
} rs_exec_cache_counts;
RS_EXPORT rs_exec_cache_counts rs_exec_cache_count(const rs_exec_cache *cache);

#endif
