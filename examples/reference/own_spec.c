/* SPDX-License-Identifier: Apache-2.0 */
/*
 * own_spec.c - a split that the spec language lacks: a callback gives rows to the ranks in
 * reverse order. The layout is checked like any other, and a context counts its memory.
 */
#include <reshard/reshard.h>

#include <stdio.h>

enum { RANKS = 4 };

/* Supplies one shard for each rank: the last rows go to rank 0, the first ones to the last rank. */
static reshard_status deal_backwards(void *user, int32_t ndim, const int64_t *shape,
                                     reshard_shard_sink *sink)
{
    (void)user;
    int64_t split = 0;
    reshard_status status = reshard_split_size(shape[0], RANKS, &split);
    for (int32_t i = 0; i < RANKS && status == RESHARD_OK; i++) {
        int64_t rows = 0;
        status = reshard_chunk_size(shape[0], split, i, &rows);
        reshard_piece piece = {.box = {ndim, {i * split, 0}, {rows, shape[1]}},
                               .strides = {shape[1], 1}};
        reshard_shard shard = {.rank = RANKS - 1 - i,
                               .ndim = ndim,
                               .shape = {rows, shape[1]},
                               .piece_count = rows != 0,
                               .pieces = &piece};
        if (status == RESHARD_OK)
            status = reshard_shard_sink_add(sink, &shard);
    }
    return status;
}

static reshard_status run(reshard_context *context, reshard_spec **spec, reshard_layout **layout,
                          reshard_layout **same, reshard_shards **shards)
{
    int64_t shape[] = {10, 7};
    reshard_status status = reshard_spec_callback(context, 0, deal_backwards, NULL, NULL, spec);
    if (status == RESHARD_OK)
        status = reshard_layout_create(context, *spec, 2, shape, layout);
    if (status == RESHARD_OK)
        status = reshard_layout_parse(context, "4[3,2,1,0]: S(0)", 2, shape, same);
    if (status == RESHARD_OK)
        status = reshard_layout_shards(*layout, RESHARD_ALL_RANKS, shards);
    if (status != RESHARD_OK)
        return status;
    for (int64_t i = 0; i < (*shards)->count; i++) {
        const reshard_shard *shard = &(*shards)->items[i];
        printf("rank %d has %lld rows from row %lld on\n", shard->rank, (long long)shard->shape[0],
               (long long)shard->offset[0]);
    }
    /* The shards are the same, but layouts are compared by their texts, and a callback has none. */
    printf("known to equal 4[3,2,1,0]: S(0): %s\n",
           reshard_layout_equals(*layout, *same) ? "yes" : "no");
    reshard_memory_info memory = {.size = sizeof memory};
    (void)reshard_context_get_memory(context, &memory);
    printf("%zu bytes in use\n", memory.bytes);
    return RESHARD_OK;
}

int main(void)
{
    reshard_context *context = NULL;
    reshard_spec *spec = NULL;
    reshard_layout *layout = NULL, *same = NULL;
    reshard_shards *shards = NULL;
    if (reshard_abi_version() != RESHARD_ABI_VERSION)
        return fprintf(stderr, "compiled for another library\n") != 0;
    reshard_status status = reshard_context_create(NULL, &context);
    if (status == RESHARD_OK)
        status = run(context, &spec, &layout, &same, &shards);
    if (status != RESHARD_OK)
        fprintf(stderr, "%s: %s\n", reshard_status_name(status), reshard_error_text());
    reshard_shards_destroy(shards);
    reshard_layout_release(same);
    reshard_layout_release(layout);
    reshard_spec_release(spec);
    reshard_context_destroy(context);
    return status != RESHARD_OK;
}
