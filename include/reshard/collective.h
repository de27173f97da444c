/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective.h - the usual exchanges between all ranks of a group, and PyTorch's two functions that
 * reshard one local tensor.
 *
 * Each of them is a plan between two layouts: it is made, carried out and forgotten in one call. A
 * plan and an exec that the caller keeps do the same without the set-up, which costs several small
 * messages. With K ranks and counts c0, c1, ... the layouts are, for a tensor of one dimension:
 *
 *   all_gather         K: S(0=c0,c1,..)   to   K: R
 *   reduce_scatter     K: P(sum)          to   K: S(0=c0,c1,..)
 *   all_reduce         K: P(sum)          to   K: R
 *   broadcast          1[root]: R         to   K: R
 *   scatter            1[root]: R         to   K: S(0=c0,c1,..)
 *   gather             K: S(0=c0,c1,..)   to   1[root]: R
 *   reduce             K: P(sum)          to   1[root]: R
 *   all_to_all_single  K: S(0)            to   K: S(1)       of KxKxc, when all counts are c;
 *                                                            else boxes
 *
 * What holds for all of these calls:
 *  - They are Collective and return when this rank's target is complete and its source no longer
 *    needed. The context may differ from rank to rank.
 *  - Ranks are ranks of the group, roots too, also in a sub-group.
 *  - dtype is of whole bytes. Counts are in elements and may be 0. `counts` has one for each rank
 *    and is the same on all ranks; NULL: `count` for each.
 *  - Buffers are dense and aligned to their element; no source may overlap a target. Those that
 *    hold nothing on this rank may be NULL.
 *  - Errors of set-up are agreed by all ranks, and name a rank: INVALID (a missing or overlapping
 *    buffer, an unknown dtype or reduction), RANGE (a negative count, a root that is not in the
 *    group, sizes that overflow), UNSUPPORTED (a reduction that the dtype does not have), MISMATCH
 *    (ranks ask for different things), NO_MEMORY, MEMORY_LIMIT. The group can be used after them.
 *    Errors of the exchange itself are those of a broken group.
 *  - Reductions combine in the order of ranks, so that every rank gets the same bits each time.
 */
#ifndef RESHARD_COLLECTIVE_H
#define RESHARD_COLLECTIVE_H

#include <reshard/group.h>
#include <reshard/spec.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- everybody ------------------------------------------------------------------------------- */

/* Collective. target: what all ranks gave, in the order of ranks. This rank gives its count. */
RESHARD_API reshard_status reshard_all_gather(reshard_context *context, reshard_group *group,
                                              reshard_dtype dtype, int64_t count,
                                              const int64_t *counts, const void *source,
                                              void *target);
/* Collective. source: as long as all counts together, on every rank. target: this rank's part, in
 * the order of ranks, of their reduction. */
RESHARD_API reshard_status reshard_reduce_scatter(reshard_context *context, reshard_group *group,
                                                  reshard_dtype dtype, reshard_reduction reduction,
                                                  int64_t count, const int64_t *counts,
                                                  const void *source, void *target);
/* Collective. target: the reduction of all sources, element by element. */
RESHARD_API reshard_status reshard_all_reduce(reshard_context *context, reshard_group *group,
                                              reshard_dtype dtype, reshard_reduction reduction,
                                              int64_t count, const void *source, void *target);

/* ---- one rank and the others ----------------------------------------------------------------- */

/* Collective. target, on every rank and root too: the root's source. Other sources are not read. */
RESHARD_API reshard_status reshard_broadcast(reshard_context *context, reshard_group *group,
                                             reshard_dtype dtype, int32_t root, int64_t count,
                                             const void *source, void *target);
/* Collective. target: this rank's part, in the order of ranks, of the root's source. */
RESHARD_API reshard_status reshard_scatter(reshard_context *context, reshard_group *group,
                                           reshard_dtype dtype, int32_t root, int64_t count,
                                           const int64_t *counts, const void *source, void *target);
/* Collective. target, on the root only: what all ranks gave, in the order of ranks. */
RESHARD_API reshard_status reshard_gather(reshard_context *context, reshard_group *group,
                                          reshard_dtype dtype, int32_t root, int64_t count,
                                          const int64_t *counts, const void *source, void *target);
/* Collective. target, on the root only: the reduction of all sources, element by element. */
RESHARD_API reshard_status reshard_reduce(reshard_context *context, reshard_group *group,
                                          reshard_dtype dtype, reshard_reduction reduction,
                                          int32_t root, int64_t count, const void *source,
                                          void *target);

/* ---- everybody to everybody ------------------------------------------------------------------ */

/*
 * Collective. This rank sends send_counts[r] elements to rank r and gets receive_counts[r] from it.
 * source: what goes to rank 0, to rank 1, ...; target: what comes from rank 0, from rank 1, ...
 * Every rank gets to know all counts, so that time and memory grow with the square of the number of
 * ranks. Errors: MISMATCH naming two ranks when one expects another count than the other sends.
 */
RESHARD_API reshard_status reshard_all_to_all_single(reshard_context *context, reshard_group *group,
                                                     reshard_dtype dtype,
                                                     const int64_t *send_counts,
                                                     const int64_t *receive_counts,
                                                     const void *source, void *target);
/* Collective. The same with one buffer for each rank: sources[r] goes to rank r, targets[r] gets
 * what rank r sends. */
RESHARD_API reshard_status reshard_all_to_all(reshard_context *context, reshard_group *group,
                                              reshard_dtype dtype, const int64_t *send_counts,
                                              const int64_t *receive_counts,
                                              const void *const *sources, void *const *targets);

/* ---- PyTorch's local shards ------------------------------------------------------------------ */

/* PyTorch's ChunkShardingSpec: chunk i of dim on ranks[i]. Chunks have ceil(n / count) elements,
 * the last ones fewer or none. */
typedef struct reshard_chunks {
    int32_t dim;          /* may be negative: counts from the end */
    int32_t count;        /* as many as ranks of the group, or others */
    const int32_t *ranks; /* all different; NULL: chunk i is on rank i */
} reshard_chunks;

/* How many elements of a tensor cut like this are on a rank: 0 when it has no chunk. Local. Errors:
 * INVALID, RANGE. */
RESHARD_API reshard_status reshard_local_shard_volume(reshard_context *context, int32_t ndim,
                                                      const int64_t *shape,
                                                      const reshard_chunks *chunks, int32_t rank,
                                                      int64_t *out_volume);
/*
 * Collective. reshard_local_shard: from chunks of one dim on some ranks to chunks of another or the
 * same dim on other or the same ranks. source: this rank's chunk of `from`, row-major; target: room
 * for its chunk of `to` (reshard_local_shard_volume), which is all the memory that results take.
 * Right for any order of ranks, uneven and empty chunks. Where nothing changes, chunks are copied
 * and nothing is sent. Errors: as above; RANGE also for a dim that the tensor does not have and for
 * a rank that the group does not have.
 */
RESHARD_API reshard_status reshard_reshard_local_shard(reshard_context *context,
                                                       reshard_group *group, int32_t ndim,
                                                       const int64_t *shape, reshard_dtype dtype,
                                                       const reshard_chunks *from,
                                                       const reshard_chunks *to, const void *source,
                                                       void *target);
/* Collective. reshuffle_local_shard: the same where only the ranks change. Errors: also INVALID
 * when the dims are not the same one; -1 and 1 are, in a matrix. */
RESHARD_API reshard_status reshard_reshuffle_local_shard(reshard_context *context,
                                                         reshard_group *group, int32_t ndim,
                                                         const int64_t *shape, reshard_dtype dtype,
                                                         const reshard_chunks *from,
                                                         const reshard_chunks *to,
                                                         const void *source, void *target);

#ifdef __cplusplus
}
#endif
#endif
