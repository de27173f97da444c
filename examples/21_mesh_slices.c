/* SPDX-License-Identifier: Apache-2.0 */
/*
 * 21_mesh_slices.c - eight ranks in a mesh of three axes. A slice leaves one axis out: the ranks of
 * each pipeline stage form a mesh of their own, with collectives that do not involve the other
 * stage.
 */
#include <reshard/reshard.h>

#include <stdio.h>

enum { RANKS = 8, STAGE_RANKS = 4 };

/* Returns from the function with the status of the first call that fails. */
#define TRY(call)                           \
    do {                                    \
        reshard_status try_status = (call); \
        if (try_status != RESHARD_OK)       \
            return try_status;              \
    } while (0)

static reshard_status check(int holds, const char *what)
{
    return holds ? RESHARD_OK : reshard_error_set(RESHARD_ERR_CHECK, what);
}

/* Every rank of the stage sends one number to every rank; buffers may lie anywhere in memory. */
static reshard_status exchange(reshard_group *stage, int32_t stage_number)
{
    static const int64_t ones[STAGE_RANKS] = {1, 1, 1, 1};
    int32_t rank = reshard_group_rank(stage), given[STAGE_RANKS], taken[STAGE_RANKS];
    const void *sources[STAGE_RANKS];
    void *targets[STAGE_RANKS];
    for (int32_t r = 0; r < STAGE_RANKS; r++) {
        given[r] = 100 * stage_number + 10 * rank + r;
        sources[r] = &given[r];
        targets[r] = &taken[STAGE_RANKS - 1 - r]; /* backwards */
    }
    TRY(reshard_all_to_all(NULL, stage, RESHARD_I32, ones, ones, sources, targets));
    for (int32_t r = 0; r < STAGE_RANKS; r++)
        TRY(check(taken[STAGE_RANKS - 1 - r] == 100 * stage_number + 10 * r + rank,
                  "a number came from somebody else"));
    return RESHARD_OK;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    static const char *const kept[] = {"dp", "tp"};
    reshard_device_mesh *world = NULL, *stage = NULL;
    int32_t stages = 0, rank = reshard_group_rank(group);
    TRY(reshard_device_mesh_create(NULL, group, user, &world));
    TRY(reshard_device_mesh_size_of(world, "pp", &stages));
    int32_t number = reshard_device_mesh_coordinate(world, 1);
    TRY(check(stages == 2 && number == rank / 2 % 2, "the second axis has another size"));

    TRY(reshard_device_mesh_slice(world, 2, kept, &stage));
    int32_t position = reshard_device_mesh_position(stage);
    TRY(check(reshard_device_mesh_position(world) == rank && position == rank / 4 * 2 + rank % 2,
              "the slice numbers its ranks otherwise"));
    int64_t sum = -1, mine = rank;
    TRY(reshard_all_reduce(NULL, reshard_device_mesh_group(stage), RESHARD_I64, RESHARD_SUM, 1,
                           &mine, &sum));
    TRY(check(sum == (number == 0 ? 0 + 1 + 4 + 5 : 2 + 3 + 6 + 7),
              "the sum is not that of the stage"));
    TRY(exchange(reshard_device_mesh_group(stage), number));
    reshard_device_mesh_release(stage);
    reshard_device_mesh_release(world);
    return RESHARD_OK;
}

int main(void)
{
    static const char *const names[] = {"dp", "pp", "tp"};
    static const int32_t sizes[] = {2, 2, 2};
    reshard_mesh *mesh = NULL;
    int failed = reshard_mesh_create(NULL, 3, names, sizes, NULL, &mesh) ||
                 reshard_group_run(NULL, RANKS, run_rank, mesh);
    if (failed)
        fprintf(stderr, "%s\n", reshard_error_text());
    else
        printf("two stages of %d ranks keep to themselves\n", STAGE_RANKS);
    reshard_mesh_release(mesh);
    return failed;
}
