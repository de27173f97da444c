/* SPDX-License-Identifier: Apache-2.0 */
/* rivals.c - copies, an all-reduce by hand, and the calls of mpi_rival.h. */
#include "bench/rivals.h"

#include "bench/common/stream_copy.h"
#include "bench/mpi_rival.h"
#include "cli/common/library.h"
#include "cli/common/memory.h"
#include "cli/common/ranks.h"

#include <stdlib.h>
#include <string.h>

struct bench_rivals {
    bench_rivals_shared *shared;
    reshard_group *group;
    const bench_buffers *from, *to;
    int have[BENCH_RIVAL_COUNT];
    char *copied; /* the source of copies, as large as the targets */
    const bench_mpi_calls *mpi_calls;
    bench_mpi_rival *mpi;
};

const char *bench_rival_name(bench_rival_kind kind)
{
    static const char *const names[BENCH_RIVAL_COUNT] = {
        [BENCH_RIVAL_MEMCPY] = "memcpy",       [BENCH_RIVAL_STREAMING] = "streaming",
        [BENCH_RIVAL_ALLTOALLW] = "alltoallw", [BENCH_RIVAL_ALLTOALLV] = "alltoallv",
        [BENCH_RIVAL_BY_HAND] = "by_hand",
    };
    return names[kind];
}

/* ---- copies ---------------------------------------------------------------------------------- */

int bench_rival_is_copy(bench_rival_kind kind)
{
    return kind == BENCH_RIVAL_MEMCPY || kind == BENCH_RIVAL_STREAMING;
}

static void run_copy(const bench_rivals *r, bench_rival_kind kind)
{
    const char *source = r->copied;
    for (int64_t i = 0; i < r->to->shards->count; i++) {
        size_t bytes = bench_buffers_bytes(r->to, i);
        if (bytes != 0 && kind == BENCH_RIVAL_STREAMING)
            bench_stream_copy(r->to->items[i], source, bytes);
        else if (bytes != 0)
            memcpy(r->to->items[i], source, bytes);
        source += bytes;
    }
}

/* ---- an all-reduce by hand ------------------------------------------------------------------- */

enum { BLOCK = 2048 }; /* floats; 8 KiB, so that sums stay in the L1 cache */

static void add_block(float *restrict sum, const float *restrict more, size_t count)
{
    for (size_t i = 0; i < count; i++)
        sum[i] += more[i];
}

/* Each rank reduces its share of all sources, then fetches the shares of the others. */
static reshard_status run_by_hand(const bench_rivals *r)
{
    size_t size = (size_t)reshard_group_size(r->group), rank = (size_t)reshard_group_rank(r->group);
    size_t count = r->to->bytes / sizeof(float), share = (count + size - 1) / size;
    float *target = r->shared->targets[rank];
    size_t first = rank * share < count ? rank * share : count;
    size_t last = first + share < count ? first + share : count;
    for (size_t at = first; at < last; at += BLOCK) {
        size_t n = last - at < BLOCK ? last - at : BLOCK;
        memcpy(target + at, r->shared->sources[0] + at, n * sizeof *target);
        for (size_t s = 1; s < size; s++)
            add_block(target + at, r->shared->sources[s] + at, n);
    }
    reshard_status status = reshard_group_barrier(r->group);
    for (size_t k = 1; k < size && status == RESHARD_OK; k++) {
        size_t peer = (rank + k) % size, from = peer * share;
        if (from < count)
            memcpy(target + from, r->shared->targets[peer] + from,
                   (from + share < count ? share : count - from) * sizeof *target);
    }
    return status;
}

static int is_all_reduce(const bench_rivals *r)
{
    const reshard_shards *from = r->from->shards, *to = r->to->shards;
    return from->count == 1 && to->count == 1 && r->from->dtype == RESHARD_F32 &&
           from->items[0].partial && from->items[0].reduction == RESHARD_SUM &&
           from->items[0].contributor_count == reshard_group_size(r->group) &&
           !to->items[0].partial && to->items[0].piece_count == 1 && r->from->bytes != 0 &&
           r->from->bytes == r->to->bytes;
}

/* ---- MPI ------------------------------------------------------------------------------------- */

/* Collective. Sets *out_all to whether `mine` is non-zero on every rank. */
static reshard_status agree(reshard_group *group, int mine, int *out_all)
{
    size_t size = (size_t)reshard_group_size(group);
    int32_t said = mine != 0;
    int32_t *all = cli_allocate(size, sizeof *all);
    reshard_status status = reshard_group_gather_bytes(group, &said, sizeof said, all);
    *out_all = status == RESHARD_OK;
    for (size_t i = 0; i < size; i++)
        *out_all &= all[i] != 0;
    free(all);
    return status;
}

/* If the library is missing or cannot run the plan, MPI's collectives are left out. */
static reshard_status create_mpi(bench_rivals *r, reshard_plan *plan)
{
    int found = 0;
    void *library = cli_ranks_are_threads() ? NULL : cli_library_open("reshard_mpi_bench");
    if (library != NULL)
        r->mpi_calls = cli_library_find(library, BENCH_MPI_CALLS);
    reshard_status status = agree(r->group, r->mpi_calls != NULL, &found);
    if (status != RESHARD_OK || !found)
        return status;
    status = r->mpi_calls->create(plan, (const void *const *)r->from->items, r->to->items, &r->mpi);
    return status == RESHARD_ERR_UNSUPPORTED ? RESHARD_OK : status;
}

/* ---- all of them ----------------------------------------------------------------------------- */

reshard_status bench_rivals_create(bench_rivals_shared *shared, reshard_plan *plan,
                                   reshard_group *group, const bench_buffers *from,
                                   const bench_buffers *to, bench_rivals **out_rivals)
{
    bench_rivals *r = cli_allocate(1, sizeof *r);
    *r = (bench_rivals){.shared = shared, .group = group, .from = from, .to = to};
    r->copied = cli_allocate(to->bytes + 1, 1);
    memset(r->copied, 1, to->bytes + 1);
    r->have[BENCH_RIVAL_MEMCPY] = 1;
    r->have[BENCH_RIVAL_STREAMING] = bench_stream_copy_is_there();
    /* The by-hand rival needs shared memory, and every rank must be able to run it. */
    reshard_status status =
        agree(group, cli_ranks_are_threads() && is_all_reduce(r), &r->have[BENCH_RIVAL_BY_HAND]);
    if (status == RESHARD_OK && r->have[BENCH_RIVAL_BY_HAND]) {
        int32_t rank = reshard_group_rank(group);
        shared->sources[rank] = from->items[0];
        shared->targets[rank] = to->items[0];
        status = reshard_group_barrier(group);
    }
    if (status == RESHARD_OK)
        status = create_mpi(r, plan);
    r->have[BENCH_RIVAL_ALLTOALLW] = r->have[BENCH_RIVAL_ALLTOALLV] = r->mpi != NULL;
    *out_rivals = r; /* the caller destroys it, even after a failure */
    return status;
}

void bench_rivals_destroy(bench_rivals *r)
{
    if (r == NULL)
        return;
    if (r->mpi != NULL)
        r->mpi_calls->destroy(r->mpi);
    free(r->copied);
    free(r);
}

int bench_rivals_have(const bench_rivals *r, bench_rival_kind kind)
{
    return r->have[kind];
}

reshard_status bench_rivals_run(bench_rivals *r, bench_rival_kind kind)
{
    switch (kind) {
    case BENCH_RIVAL_ALLTOALLW:
        return r->mpi_calls->run(r->mpi, BENCH_MPI_ALLTOALLW);
    case BENCH_RIVAL_ALLTOALLV:
        return r->mpi_calls->run(r->mpi, BENCH_MPI_ALLTOALLV);
    case BENCH_RIVAL_BY_HAND:
        return run_by_hand(r);
    default:
        run_copy(r, kind);
        return RESHARD_OK;
    }
}
