/* SPDX-License-Identifier: Apache-2.0 */
/*
 * overlap.c - ten exchanges between three ranks, all under way at once. Every rank starts them
 * in the same order and waits for them in the reverse order, which works because waiting for one
 * makes progress on all.
 */
#include <reshard/reshard.h>

#include "examples/example.h"

#include <stdio.h>

enum { RANKS = 3, WORKS = 10 };

/* The results, which must not be touched before the waits have returned. */
typedef struct results {
    int32_t gathered[RANKS], share, from_root, part, at_root[RANKS], sum;
    int32_t exchanged[RANKS], posted[RANKS], neighbour;
} results;

/* mine: 10 * rank, 10 * rank + 1, 10 * rank + 2. */
static reshard_status start_collectives(reshard_group *group, const int32_t mine[RANKS], results *r,
                                        reshard_work **works)
{
    reshard_status status = RESHARD_OK;
    static const int64_t ones[RANKS] = {1, 1, 1};
    const void *sources[RANKS] = {&mine[0], &mine[1], &mine[2]};
    void *targets[RANKS] = {&r->posted[0], &r->posted[1], &r->posted[2]};
    const struct {
        reshard_exchange_kind kind;
        int32_t root;
        void *target;
    } rows[] = {{RESHARD_ALL_GATHER, 0, r->gathered},
                {RESHARD_REDUCE_SCATTER, 0, &r->share},
                {RESHARD_BROADCAST, 2, &r->from_root},
                {RESHARD_SCATTER, 1, &r->part},
                {RESHARD_GATHER, 0, r->at_root},
                {RESHARD_REDUCE, 0, &r->sum},
                {RESHARD_ALL_TO_ALL_SINGLE, 0, r->exchanged},
                {RESHARD_ALL_TO_ALL, 0, NULL}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const reshard_exchange exchange = {.size = sizeof exchange,
                                           .kind = rows[i].kind,
                                           .dtype = RESHARD_I32,
                                           .reduction = RESHARD_SUM,
                                           .root = rows[i].root,
                                           .count = 1,
                                           .send_counts = ones,
                                           .receive_counts = ones,
                                           .source = mine,
                                           .target = rows[i].target,
                                           .sources = sources,
                                           .targets = targets};
        TRY(reshard_exchange_run(NULL, group, &exchange, &works[i]));
    }
out:
    return status;
}

/* Messages around a ring. All ranks send before any receives, which is allowed only with _start. */
static reshard_status start_messages(reshard_group *group, const int32_t *mine, results *r,
                                     reshard_work **works)
{
    reshard_status status = RESHARD_OK;
    int32_t rank = reshard_group_rank(group);
    TRY(reshard_send(NULL, group, RESHARD_I32, (rank + 1) % RANKS, 1, mine, &works[0]));
    TRY(reshard_receive(NULL, group, RESHARD_I32, (rank + RANKS - 1) % RANKS, 1, &r->neighbour,
                        &works[1]));
out:
    return status;
}

static reshard_status check_results(const results *r, int32_t rank)
{
    int right = r->share == 30 + 3 * rank && r->from_root == 20 && r->part == 10 + rank &&
                r->neighbour == 10 * ((rank + RANKS - 1) % RANKS);
    for (int32_t k = 0; k < RANKS; k++) {
        right = right && r->gathered[k] == 10 * k && r->exchanged[k] == 10 * k + rank &&
                r->posted[k] == 10 * k + rank;
        if (rank == 0) /* the root */
            right = right && r->at_root[k] == 10 * k && r->sum == 30;
    }
    return check(right, "works under way have mixed their data");
}

static reshard_status run_rank(void *user, reshard_group *group)
{
    int32_t rank = reshard_group_rank(group);
    int32_t mine[RANKS] = {10 * rank, 10 * rank + 1, 10 * rank + 2};
    results r = {0};
    reshard_work *works[WORKS] = {NULL};
    (void)user;
    reshard_status status = start_collectives(group, mine, &r, works);
    if (status == RESHARD_OK)
        status = start_messages(group, mine, &r, &works[WORKS - 2]);
    /* ... compute something else meanwhile ... */
    for (int i = WORKS; i-- > 0 && status == RESHARD_OK;)
        status = reshard_work_wait(works[i]);
    for (int i = 0; i < WORKS; i++)
        reshard_work_destroy(works[i]);
    return status == RESHARD_OK ? check_results(&r, rank) : status;
}

int main(void)
{
    reshard_status status = reshard_group_run(NULL, RANKS, run_rank, NULL);
    if (status == RESHARD_OK)
        printf("%d exchanges at once between %d ranks\n", WORKS, RANKS);
    return finish(status);
}
