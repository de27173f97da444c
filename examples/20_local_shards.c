/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 20_local_shards.c - PyTorch's reshard_local_shard and reshuffle_local_shard on plain memory. A
 * matrix goes from chunks of rows on ranks 0, 1, 2 to chunks of columns on ranks 2, 0, which then
 * swap. It has seven rows, so the last chunk is shorter than the others.
 */
#include <reshard/reshard.h>

#include <stdio.h>

enum { RANKS = 3, ROWS = 7, COLUMNS = 4 };

/* Returns from the function with the status of the first call that fails. */
#define TRY(call)                           \
    do {                                    \
        reshard_status try_status = (call); \
        if (try_status != RESHARD_OK)       \
            return try_status;              \
    } while (0)

/* Checks that the elements of these two columns are their indices. */
static int has_columns(const int32_t *shard, int32_t first)
{
    for (int32_t i = 0; i < ROWS * 2; i++)
        if (shard[i] != i / 2 * COLUMNS + first + i % 2)
            return 0;
    return 1;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    static const int32_t order[] = {2, 0}, opposite[] = {0, 2};
    static const int64_t shape[] = {ROWS, COLUMNS};
    const reshard_chunks rows = {.dim = 0, .count = RANKS};
    const reshard_chunks columns = {.dim = -1, .count = 2, .ranks = order};
    const reshard_chunks swapped = {.dim = -1, .count = 2, .ranks = opposite};
    int32_t rank = reshard_group_rank(group), first = rank * 3;
    int32_t mine[3 * COLUMNS], cut[ROWS * COLUMNS / 2], last[ROWS * COLUMNS / 2];
    int64_t volume = 0, wanted = 0;
    (void)user;
    for (int32_t i = 0; i < 3 * COLUMNS; i++)
        mine[i] = first * COLUMNS + i;
    TRY(reshard_local_shard_volume(NULL, 2, shape, &rows, rank, &volume));
    TRY(reshard_local_shard_volume(NULL, 2, shape, &columns, rank, &wanted));
    printf("rank %d has %lld elements, and gets %lld\n", rank, (long long)volume,
           (long long)wanted);
    if (volume != (rank < 2 ? 12 : 4) || wanted != (rank == 1 ? 0 : 14))
        return reshard_error_set(RESHARD_ERR_CHECK, "a chunk has another size");

    TRY(reshard_reshard_local_shard(NULL, group, 2, shape, RESHARD_I32, &rows, &columns, mine,
                                    cut));
    if (rank != 1 && !has_columns(cut, rank == 2 ? 0 : 2))
        return reshard_error_set(RESHARD_ERR_CHECK, "the columns are wrong");
    TRY(reshard_reshuffle_local_shard(NULL, group, 2, shape, RESHARD_I32, &columns, &swapped, cut,
                                      last));
    if (rank != 1 && !has_columns(last, rank == 0 ? 0 : 2))
        return reshard_error_set(RESHARD_ERR_CHECK, "the columns have not changed places");
    return RESHARD_OK;
}

int main(void)
{
    reshard_status status = reshard_group_run(NULL, RANKS, run_rank, NULL);
    if (status != RESHARD_OK)
        fprintf(stderr, "%s\n", reshard_error_text());
    return status != RESHARD_OK;
}
