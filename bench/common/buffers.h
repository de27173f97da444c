/* SPDX-License-Identifier: Apache-2.0 */
/*
 * buffers.h - the shards of one rank, in memory whose elements show where they belong: each is its
 * row-major index in the global tensor, as a number of the dtype. Integers wrap around; f16 and
 * bf16 hold the low bits of the index.
 */
#ifndef BENCH_BUFFERS_H
#define BENCH_BUFFERS_H

#include <reshard/reshard.h>

typedef struct bench_buffers {
    reshard_shards *shards;
    int32_t ndim; /* of the tensor */
    const int64_t *shape;
    reshard_dtype dtype;
    size_t bytes; /* of all shards */
    void **items; /* one for each shard */
    void *memory; /* contains all items: the group's memory, or plain memory if group is NULL */
    reshard_group *group;
} bench_buffers;

/* Collective. Allocates this rank's shards, aligned, and touches their pages. Items of empty shards
 * are NULL. plain: use memory that other processes do not see. Errors, agreed by all ranks:
 * NO_MEMORY, RANGE. The caller releases the buffers, even after a failure. */
reshard_status bench_buffers_init(bench_buffers *buffers, const reshard_layout *layout,
                                  reshard_group *group, int plain, reshard_dtype dtype);
void bench_buffers_release(bench_buffers *buffers);

/* The size of one shard. */
size_t bench_buffers_bytes(const bench_buffers *buffers, int64_t shard);
/* Overwrites everything with a value that is not an index. */
void bench_buffers_clear(const bench_buffers *buffers);
/* Writes indices, or contributions that reduce to them. */
void bench_buffers_fill(const bench_buffers *buffers);
/* Counts elements that do not hold their index. Partial targets are not checked. */
int64_t bench_buffers_count_wrong(const bench_buffers *buffers);
/* Writes rank-R-shard-S.bin to the folder. Returns 0, or -1 with errno. */
int bench_buffers_dump(const bench_buffers *buffers, const char *folder);

#endif
