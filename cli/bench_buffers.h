/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench_buffers.h - the shards of one rank as memory whose elements know where they belong: each
 * holds its row-major index in the global tensor, as a number of the dtype. Integers wrap around;
 * f16 and bf16 hold the low bits of the index.
 */
#ifndef CLI_BENCH_BUFFERS_H
#define CLI_BENCH_BUFFERS_H

#include <reshard/reshard.h>

typedef struct cli_buffers {
    reshard_shards *shards;
    int32_t ndim; /* of the tensor */
    const int64_t *shape;
    reshard_dtype dtype;
    size_t bytes; /* of all */
    void **items; /* one for each shard */
    void *memory; /* that they lie in: the group's, or plain when group is NULL */
    reshard_group *group;
} cli_buffers;

/* Collective. This rank's shards, aligned and written to, so that pages are there. NULL items for
 * empty shards. plain: memory that other processes do not see. Errors, agreed by all: NO_MEMORY,
 * RANGE. Released by the caller, also when this failed. */
reshard_status cli_buffers_init(cli_buffers *buffers, const reshard_layout *layout,
                                reshard_group *group, int plain, reshard_dtype dtype);
void cli_buffers_release(cli_buffers *buffers);

/* Of one shard. */
size_t cli_buffers_bytes(const cli_buffers *buffers, int64_t shard);
/* Makes everything something that is no index. */
void cli_buffers_clear(const cli_buffers *buffers);
/* Indices, or contributions that reduce to them. */
void cli_buffers_fill(const cli_buffers *buffers);
/* How many elements do not hold their index. Partial targets are not looked at. */
int64_t cli_buffers_count_wrong(const cli_buffers *buffers);
/* rank-R-shard-S.bin in the folder. Returns 0, or -1 with errno. */
int cli_buffers_dump(const cli_buffers *buffers, const char *folder);

#endif
