/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pytorch.h - functions of PyTorch's torch/distributed/_shard that have no other place here: remote
 * devices, chunk arithmetic, and the two calls that reshard a tensor's local shard. They mean the
 * same as there, without its defects. docs/pytorch.md says what the rest of PyTorch is called here;
 * new programs use specs, layouts and plans instead.
 */
#ifndef RESHARD_PYTORCH_H
#define RESHARD_PYTORCH_H

#include <reshard/group.h>
#include <reshard/layout.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== explicit ===================================================================================
 * For programs that come from PyTorch's ShardedTensor and keep its way of counting chunks.
 */

/* ---- remote devices -------------------------------------------------------------------------- */

#define RESHARD_WORKER_MAX 127 /* longest worker name */

/* Where a shard lives, as PyTorch writes it: "rank:0/cpu", "trainer/cuda:1", "cpu". */
typedef struct reshard_remote_device {
    int32_t rank;                        /* -1: none */
    char worker[RESHARD_WORKER_MAX + 1]; /* "": none */
    char device[32];                     /* "cpu", "cuda", ... */
    int32_t device_index;                /* -1: none; "cpu:0" is not "cpu" */
} reshard_remote_device;

/* Errors: INVALID where PyTorch raises ValueError, SYNTAX where its device parser raises
 * RuntimeError. */
RESHARD_API reshard_status reshard_remote_device_parse(const char *text,
                                                       reshard_remote_device *out_device);
/* Always writes owner/device: "rank:0" becomes "rank:0/cpu". Equal devices have equal texts, and
 * others have not. Needs up to RESHARD_REMOTE_DEVICE_TEXT
 * bytes. */
#define RESHARD_REMOTE_DEVICE_TEXT 192
RESHARD_API void reshard_remote_device_text(const reshard_remote_device *device, char *buffer,
                                            size_t capacity);

/* ---- chunks and placements ------------------------------------------------------------------- */

/* get_split_size: ceil(n / chunks). Errors: RANGE if n < 0 or chunks < 1. */
RESHARD_API reshard_status reshard_split_size(int64_t n, int64_t chunks, int64_t *out_size);
/* get_chunked_dim_size: the length of chunk `index` when chunks have split_size. Errors: RANGE. */
RESHARD_API reshard_status reshard_chunk_size(int64_t n, int64_t split_size, int64_t index,
                                              int64_t *out_size);
/* get_idx_from_placements: the first index whose rank is `rank`. Errors: NOT_FOUND. */
RESHARD_API reshard_status reshard_placement_index(const int32_t *ranks, int32_t count,
                                                   int32_t rank, int32_t *out_index);
/* build_reshard_metadata: chunk i of dim is on ranks[i]. out_shards->items holds `count` shards
 * ordered by rank, with offsets clamped; out_order (room for `count`) gets the ranks in placement
 * order. Unlike PyTorch, this reports a rank named twice as an error and counts negative dims from
 * the end. Errors: INVALID, RANGE. */
RESHARD_API reshard_status reshard_build_metadata(reshard_context *context, int32_t ndim,
                                                  const int64_t *shape, int32_t dim,
                                                  const int32_t *ranks, int32_t count,
                                                  int32_t *out_order, reshard_shards **out_shards);

/* ---- PyTorch's local shards ------------------------------------------------------------------ */

/* PyTorch's ChunkShardingSpec: chunk i of dim is on ranks[i]. Chunks have ceil(n / count) elements,
 * the last ones fewer or none. */
typedef struct reshard_chunks {
    int32_t dim;          /* may be negative: counts from the end */
    int32_t count;        /* need not be the group's size */
    const int32_t *ranks; /* all different; NULL: chunk i is on rank i */
} reshard_chunks;

/* For programs that make room for the target: how many elements of a tensor that is cut like this
 * are on a rank; 0 if the rank has no chunk.
 * Local. Errors: INVALID, RANGE. */
RESHARD_API reshard_status reshard_local_shard_volume(reshard_context *context, int32_t ndim,
                                                      const int64_t *shape,
                                                      const reshard_chunks *chunks, int32_t rank,
                                                      int64_t *out_volume);
/*
 * PyTorch's reshard_local_shard, and its reshuffle_local_shard: goes from chunks of one dim on some
 * ranks to chunks of any dim on any ranks. source: this rank's chunk of `from`, row-major; target:
 * room for its chunk of `to` (reshard_local_shard_volume elements). Ranks may be in any order, and
 * chunks may be uneven or empty. If nothing changes, chunks are copied and nothing is sent.
 * Collective. Errors: as above; RANGE also for a dim that the tensor lacks or a rank that the group
 * lacks.
 */
RESHARD_API reshard_status reshard_reshard_local_shard(reshard_context *context,
                                                       reshard_group *group, int32_t ndim,
                                                       const int64_t *shape, reshard_dtype dtype,
                                                       const reshard_chunks *from,
                                                       const reshard_chunks *to, const void *source,
                                                       void *target);
#ifdef __cplusplus
}
#endif
#endif
