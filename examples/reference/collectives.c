/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collectives.c - six ranks, which are threads, in a mesh of two replicas of three. Gradients
 * are averaged over the replicas, parameters are gathered within each, and a token is passed around
 * by messages. Work that every step repeats is set up once and restarted.
 */
#include <reshard/reshard.h>

#include "examples/example.h"

#include <stdio.h>

enum { REPLICAS = 2, PARTS = 3, COUNT = 4 };

/* Several steps of an all_reduce along one axis. Other work could be done before each wait. */
static reshard_status average(reshard_group *replicas, float gradient)
{
    reshard_status status = RESHARD_OK;
    float mine[COUNT] = {0}, mean[COUNT];
    reshard_work *work = NULL;
    const reshard_exchange exchange = {.size = sizeof exchange,
                                       .kind = RESHARD_ALL_REDUCE,
                                       .dtype = RESHARD_F32,
                                       .reduction = RESHARD_AVG,
                                       .count = COUNT,
                                       .source = mine,
                                       .target = mean};
    TRY(reshard_exchange_run(NULL, replicas, &exchange, &work));
    TRY(reshard_work_wait(work)); /* the start was also the first run, of zeros */
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < COUNT; i++)
            mine[i] = gradient + (float)(step + i);
        TRY(reshard_work_restart(work));
        int done = 0;
        while (!done)
            TRY(reshard_work_test(work, &done));
        for (int i = 0; i < COUNT; i++)
            TRY(check(mean[i] == 1.5F + (float)(step + i), "a mean is wrong"));
    }
out:
    reshard_work_destroy(work);
    return status;
}

/* Rank r of a replica has r + 1 elements. First all ranks gather all elements, then each gets its
 * share of their sum over the ranks. */
static reshard_status gather_and_reduce(reshard_group *parts)
{
    reshard_status status = RESHARD_OK;
    static const int64_t counts[PARTS] = {1, 2, 3};
    int32_t rank = reshard_group_rank(parts);
    int32_t mine[3] = {rank, rank, rank}, all[6], sums[3];
    TRY(reshard_exchange_run(NULL, parts,
                             RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_GATHER,
                                             .dtype = RESHARD_I32, .count = 0, .counts = counts,
                                             .source = mine, .target = all),
                             NULL));
    TRY(check(all[0] == 0 && all[1] == 1 && all[3] == 2 && all[5] == 2, "a part is misplaced"));
    TRY(reshard_exchange_run(NULL, parts,
                             RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_REDUCE_SCATTER,
                                             .dtype = RESHARD_I32, .reduction = RESHARD_SUM,
                                             .count = 0, .counts = counts, .source = all,
                                             .target = sums),
                             NULL));
    TRY(check(sums[0] == PARTS * rank, "a sum is wrong"));
    /* From one rank to the others, and back. */
    int32_t given = -1;
    TRY(reshard_exchange_run(NULL, parts,
                             RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_BROADCAST,
                                             .dtype = RESHARD_I32, .root = 2, .count = 3,
                                             .source = sums, .target = all),
                             NULL));
    TRY(reshard_exchange_run(NULL, parts,
                             RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_SCATTER,
                                             .dtype = RESHARD_I32, .root = 1, .count = 1,
                                             .source = all, .target = &given),
                             NULL));
    TRY(reshard_exchange_run(NULL, parts,
                             RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_GATHER,
                                             .dtype = RESHARD_I32, .root = 0, .count = 1,
                                             .source = &given, .target = all),
                             NULL));
    TRY(reshard_exchange_run(NULL, parts,
                             RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_REDUCE,
                                             .dtype = RESHARD_I32, .reduction = RESHARD_MAX,
                                             .root = 2, .count = 1, .source = &given,
                                             .target = all),
                             NULL));
    TRY(check(given == PARTS * 2, "what was handed around has changed"));
out:
    return status;
}

/* Every rank sends r elements to rank r. */
static reshard_status exchange(reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    int32_t rank = reshard_group_rank(group), size = reshard_group_size(group);
    int64_t sent[REPLICAS * PARTS], received[REPLICAS * PARTS], total = 0;
    int16_t given[64], taken[64];
    for (int32_t r = 0; r < size; r++) {
        sent[r] = r;
        received[r] = rank;
        for (int32_t i = 0; i < r; i++)
            given[total++] = (int16_t)(10 * rank + r);
    }
    TRY(reshard_exchange_run(NULL, group,
                             RESHARD_OPTIONS(reshard_exchange, .kind = RESHARD_ALL_TO_ALL_SINGLE,
                                             .dtype = RESHARD_I16, .send_counts = sent,
                                             .receive_counts = received, .source = given,
                                             .target = taken),
                             NULL));
    for (int32_t i = 0; i < rank * size; i++)
        TRY(check(taken[i] == 10 * (i / rank) + rank, "an element came from somebody else"));
out:
    return status;
}

/* Passes a token around the even ranks, in reverse order, in a group of their own. */
static reshard_status pass_token(reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    static const int32_t even[] = {4, 2, 0};
    reshard_group *ring = NULL;
    TRY(reshard_group_subset(group, 3, even, &ring));
    if (ring == NULL)
        goto out; /* an odd rank */
    int32_t rank = reshard_group_rank(ring);
    int64_t token = 0;
    if (rank > 0)
        TRY(reshard_receive(NULL, ring, RESHARD_I64, rank - 1, 1, &token, NULL));
    token = 10 * token + reshard_group_parent_rank(ring, rank);
    TRY(rank < 2 ? reshard_send(NULL, ring, RESHARD_I64, rank + 1, 1, &token, NULL)
                 : check(token == 420, "the token went another way"));
out:
    reshard_group_release(ring);
    return status;
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    reshard_status status = RESHARD_OK;
    reshard_device_mesh *world = NULL;
    reshard_device_mesh_info info = {.size = sizeof info};
    reshard_group *replicas = NULL;
    TRY(reshard_device_mesh_create(NULL, group, user, &world));
    TRY(reshard_device_mesh_group_of(world, "replica", &replicas));
    TRY(reshard_device_mesh_get_info(world, &info));
    TRY(average(replicas, 1 + (float)info.coordinates[0]));
    TRY(gather_and_reduce(info.axis_groups[1]));
    TRY(exchange(info.group));
    TRY(pass_token(group));
out:
    reshard_device_mesh_release(world);
    return status;
}

int main(void)
{
    static const char *const names[] = {"replica", "part"};
    static const int32_t sizes[] = {REPLICAS, PARTS};
    reshard_mesh *mesh = NULL;
    reshard_status status = RESHARD_OK;
    TRY(reshard_mesh_create(NULL, 2, names, sizes, NULL, &mesh));
    TRY(reshard_group_run(NULL, REPLICAS * PARTS, run_rank, mesh));
    printf("%d ranks agree\n", REPLICAS * PARTS);
out:
    reshard_mesh_release(mesh);
    return finish(status);
}
