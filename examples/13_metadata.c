/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 13_metadata.c - for users of PyTorch: build_reshard_metadata, remote devices, and the check that
 * shards do not overlap. docs/pytorch.md lists the names on both sides.
 */
#include <reshard/reshard.h>

#include <stdio.h>

enum { RANKS = 4 };

/* Which rank each placement names, as in ChunkShardingSpec(0, ["rank:3/cuda:0", ..]). */
static reshard_status read_placements(int32_t ranks[RANKS])
{
    static const char *const texts[RANKS] = {"rank:3/cuda:0", "rank:1/cuda:1", "rank:0", "rank:2"};
    reshard_remote_device device, before = {.rank = -1};
    for (int i = 0; i < RANKS; i++) {
        char text[RESHARD_REMOTE_DEVICE_TEXT];
        reshard_status status = reshard_remote_device_parse(texts[i], &device);
        if (status != RESHARD_OK)
            return status;
        reshard_remote_device_text(&device, text, sizeof text);
        printf("chunk %d is on %s%s\n", i, text,
               reshard_remote_device_equals(&device, &before) ? " too" : "");
        ranks[i] = device.rank;
        before = device;
    }
    return RESHARD_OK;
}

int main(void)
{
    int64_t shape[] = {10, 7};
    int32_t ranks[RANKS], order[RANKS], index = -1;
    reshard_shards *shards = NULL;
    reshard_status status = read_placements(ranks);
    if (status == RESHARD_OK)
        status = reshard_placement_index(ranks, RANKS, 0, &index);
    if (status == RESHARD_OK)
        status = reshard_build_metadata(NULL, 2, shape, 0, ranks, RANKS, order, &shards);
    if (status == RESHARD_OK)
        status = reshard_shards_check_overlap(NULL, shards->count, shards->items);
    if (status != RESHARD_OK) {
        fprintf(stderr, "%s\n", reshard_error_text());
        return 1;
    }
    printf("rank 0 has chunk %d\n", index);
    for (int64_t i = 0; i < shards->count; i++)
        printf("rank %d has %lld rows from row %lld on\n", shards->items[i].rank,
               (long long)shards->items[i].shape[0], (long long)shards->items[i].offset[0]);
    reshard_shards_destroy(shards);
    return 0;
}
