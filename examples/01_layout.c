/* SPDX-License-Identifier: Apache-2.0 */
/* 01_layout.c - a spec and a shape make a layout: who owns which box. `reshard layout '4: S(0)'
 * --shape 10x7` does the same. */
#include <reshard/reshard.h>

#include <stdio.h>

int main(void)
{
    int64_t shape[] = {10, 7};
    reshard_layout *layout = NULL;
    reshard_shards *shards = NULL;
    if (reshard_layout_parse(NULL, "4: S(0)", 2, shape, &layout) != RESHARD_OK ||
        reshard_layout_all_shards(layout, &shards) != RESHARD_OK) {
        fprintf(stderr, "%s\n", reshard_error_text());
        return 1;
    }
    for (int64_t i = 0; i < shards->count; i++) {
        const reshard_shard *shard = &shards->items[i];
        printf("rank %d has %lld rows from row %lld on\n", shard->rank, (long long)shard->shape[0],
               (long long)shard->offset[0]);
    }
    reshard_shards_destroy(shards);
    reshard_layout_release(layout);
    return 0;
}
