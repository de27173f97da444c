/* SPDX-License-Identifier: Apache-2.0 */
/* buffers.c - allocates, fills and checks the shards of a rank. */
#include "bench/common/buffers.h"

#include "cli/common/input.h"
#include "cli/common/memory.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ALIGNMENT 4096

static size_t element_bytes(const bench_buffers *b)
{
    return (size_t)reshard_dtype_bits(b->dtype) / 8;
}

static int64_t shard_volume(const reshard_shard *shard)
{
    int64_t volume = 1;
    for (int32_t d = 0; d < shard->ndim; d++)
        volume *= shard->shape[d];
    return volume;
}

size_t bench_buffers_bytes(const bench_buffers *b, int64_t shard)
{
    return (size_t)shard_volume(&b->shards->items[shard]) * element_bytes(b);
}

void bench_buffers_clear(const bench_buffers *b)
{
    for (int64_t i = 0; i < b->shards->count; i++) {
        if (b->items[i] != NULL)
            memset(b->items[i], 0xa5, bench_buffers_bytes(b, i));
    }
}

/* Bytes for all shards, each starting on its own page. */
static size_t find_room(const bench_buffers *b)
{
    size_t room = ALIGNMENT;
    for (int64_t i = 0; i < b->shards->count; i++)
        room += (bench_buffers_bytes(b, i) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return room;
}

static reshard_status allocate(bench_buffers *b, reshard_group *group, int plain, size_t room)
{
    if (!plain) {
        reshard_status status = reshard_group_alloc(group, room, &b->memory);
        b->group = status == RESHARD_OK ? group : NULL;
        return status;
    }
    b->memory = malloc(room);
    return reshard_group_agree(
        group, b->memory != NULL
                   ? RESHARD_OK
                   : reshard_error_set(RESHARD_ERR_NO_MEMORY, "no memory for the shards"));
}

reshard_status bench_buffers_init(bench_buffers *b, const reshard_layout *layout,
                                  reshard_group *group, int plain, reshard_dtype dtype)
{
    *b = (bench_buffers){.ndim = cli_layout_info(layout).ndim,
                         .shape = cli_layout_info(layout).shape,
                         .dtype = dtype};
    reshard_status status = reshard_layout_shards(layout, reshard_group_rank(group), &b->shards);
    status = reshard_group_agree(group, status);
    if (status == RESHARD_OK)
        status = allocate(b, group, plain, find_room(b));
    if (status != RESHARD_OK)
        return status;
    b->items = cli_allocate((size_t)b->shards->count, sizeof *b->items);
    char *next = (char *)(((uintptr_t)b->memory + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    for (int64_t i = 0; i < b->shards->count; i++) {
        size_t bytes = bench_buffers_bytes(b, i);
        b->bytes += bytes;
        b->items[i] = bytes != 0 ? next : NULL;
        next += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    }
    bench_buffers_clear(b);
    return RESHARD_OK;
}

void bench_buffers_release(bench_buffers *b)
{
    if (b->group != NULL)
        reshard_group_free(b->group, b->memory);
    else
        free(b->memory);
    free(b->items);
    reshard_shards_destroy(b->shards);
    *b = (bench_buffers){0};
}

/* ---- elements -------------------------------------------------------------------------------- */

static void encode(reshard_dtype dtype, size_t bytes, int64_t index, unsigned char *out)
{
    if (dtype == RESHARD_F32) {
        float value = (float)index;
        memcpy(out, &value, sizeof value);
    } else if (dtype == RESHARD_F64) {
        double value = (double)index;
        memcpy(out, &value, sizeof value);
    } else {
        uint64_t value = (uint64_t)index;
        for (size_t i = 0; i < bytes; i++)
            out[i] = (unsigned char)(i < sizeof value ? value >> (8 * i) : 0);
    }
}

/* What one contributor holds, such that the reduction of all contributions gives the index. */
static int64_t contribution(const reshard_shard *shard, int64_t index)
{
    if (!shard->partial || shard->contributor == 0)
        return index;
    if (shard->reduction == RESHARD_SUM)
        return 0;
    return shard->reduction == RESHARD_PROD ? 1 : index;
}

typedef int64_t (*element_fn)(const bench_buffers *b, const reshard_shard *shard, unsigned char *at,
                              int64_t index);

static int64_t write_element(const bench_buffers *b, const reshard_shard *shard, unsigned char *at,
                             int64_t index)
{
    encode(b->dtype, element_bytes(b), contribution(shard, index), at);
    return 0;
}

static int64_t check_element(const bench_buffers *b, const reshard_shard *shard, unsigned char *at,
                             int64_t index)
{
    (void)shard;
    unsigned char wanted[16];
    encode(b->dtype, element_bytes(b), index, wanted);
    return memcmp(at, wanted, element_bytes(b)) != 0;
}

static int64_t visit_piece(const bench_buffers *b, const reshard_shard *shard,
                           const reshard_piece *piece, unsigned char *memory, int32_t dim,
                           int64_t at, int64_t index, element_fn fn)
{
    if (dim == b->ndim)
        return fn(b, shard, memory + (size_t)at * element_bytes(b), index);
    int64_t sum = 0;
    for (int64_t x = 0; x < piece->box.size[dim]; x++)
        sum += visit_piece(b, shard, piece, memory, dim + 1, at + x * piece->strides[dim],
                           index * b->shape[dim] + piece->box.offset[dim] + x, fn);
    return sum;
}

static int64_t visit_all(const bench_buffers *b, element_fn fn)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < b->shards->count; i++) {
        const reshard_shard *shard = &b->shards->items[i];
        for (int64_t p = 0; p < shard->piece_count; p++)
            sum += visit_piece(b, shard, &shard->pieces[p], b->items[i], 0, shard->pieces[p].at, 0,
                               fn);
    }
    return sum;
}

void bench_buffers_fill(const bench_buffers *b)
{
    (void)visit_all(b, write_element);
}

int64_t bench_buffers_count_wrong(const bench_buffers *b)
{
    int partial = b->shards->count > 0 && b->shards->items[0].partial;
    return partial ? 0 : visit_all(b, check_element);
}

int bench_buffers_dump(const bench_buffers *b, const char *folder)
{
    for (int64_t i = 0; i < b->shards->count; i++) {
        const reshard_shard *shard = &b->shards->items[i];
        char path[4096];
        (void)snprintf(path, sizeof path, "%s/rank-%" PRId32 "-shard-%" PRId32 ".bin", folder,
                       shard->rank, shard->index);
        FILE *file = fopen(path, "wb");
        if (file == NULL)
            return -1;
        size_t bytes = bench_buffers_bytes(b, i);
        int failed = bytes != 0 && fwrite(b->items[i], 1, bytes, file) != bytes;
        if (fclose(file) != 0 || failed)
            return -1;
    }
    return 0;
}
