/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ways.h - every way of running the same body on ranks: threads, and simulations with and without
 * mapped memory.
 */
#ifndef TESTS_SUPPORT_WAYS_H
#define TESTS_SUPPORT_WAYS_H

#include <reshard/sim.h>

#include <stdbool.h>
#include <stdlib.h>

typedef struct way {
    const char *name;
    bool simulated;
    reshard_sim_options options;
} way;

static const way ways[] = {
    {.name = "threads"},
    {.name = "sim", .simulated = true, .options = {.size = sizeof(reshard_sim_options), .seed = 1}},
    {.name = "sim mapped",
     .simulated = true,
     .options = {.size = sizeof(reshard_sim_options), .seed = 2, .mapped = 1}},
};

enum { WAYS = (int)(sizeof ways / sizeof *ways) };

static inline reshard_status run_way(const way *w, int32_t size, reshard_rank_fn body, void *user)
{
    return w->simulated ? reshard_sim_run(NULL, size, &w->options, body, user)
                        : reshard_group_run(NULL, size, body, user);
}

/* Zeroed memory of exactly this size; NULL for none. */
static inline void *make(int64_t count, size_t item_bytes)
{
    if (count == 0)
        return NULL;
    void *memory = calloc((size_t)count, item_bytes);
    if (memory == NULL)
        abort();
    return memory;
}

#endif
