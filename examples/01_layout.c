/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 01_layout.c - introduces specs, shapes and layouts: a text that says how a tensor is split, and a
 * shape, make a layout, which knows who owns which box. The command does the same:
 *
 *     reshard layout '4: S(0)' --shape 10x7
 *
 * It also introduces the way all examples fail (example.h).
 */
#include <reshard/reshard.h>

#include "examples/example.h"

int main(void)
{
    reshard_status status = RESHARD_OK;
    int64_t shape[] = {10, 7};
    reshard_layout *layout = NULL;
    reshard_shards *shards = NULL;
    TRY(reshard_layout_parse(NULL, "4: S(0)", 2, shape, &layout));
    TRY(reshard_layout_shards(layout, RESHARD_ALL_RANKS, &shards));
    for (int64_t i = 0; i < shards->count; i++) {
        const reshard_shard *shard = &shards->items[i];
        printf("rank %d has %lld rows from row %lld on\n", shard->rank, (long long)shard->shape[0],
               (long long)shard->offset[0]);
    }
out:
    reshard_shards_destroy(shards);
    reshard_layout_release(layout);
    return finish(status);
}
