/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_local_shard.c - PyTorch's reshard_local_shard and reshuffle_local_shard against direct
 * chunking, for all orders of three ranks and shorter lists. Ranks run lists of jobs; the main
 * thread checks.
 */
#include "tests/support/check.h"
#include "tests/support/ways.h"

#include <reshard/reshard.h>

#include <string.h>

typedef struct local_job {
    int64_t shape[2];
    reshard_chunks from, to;
    int32_t *sources[3], *targets[3];
    int64_t volumes[2][3]; /* as the library says */
    reshard_status status[3];
} local_job;

typedef struct local_jobs {
    int64_t count;
    local_job *items;
} local_jobs;

/* The bounds of a rank's chunk; empty when it has none. */
static void find_chunk(const reshard_chunks *chunks, const int64_t *shape, int32_t rank,
                       int64_t start[2], int64_t end[2])
{
    int32_t dim = chunks->dim < 0 ? chunks->dim + 2 : chunks->dim;
    int64_t n = shape[dim], step = (n + chunks->count - 1) / chunks->count;
    start[0] = start[1] = 0;
    end[0] = shape[0];
    end[1] = shape[1];
    end[dim] = 0;
    for (int32_t i = 0; i < chunks->count; i++) {
        if ((chunks->ranks != NULL ? chunks->ranks[i] : i) != rank)
            continue;
        start[dim] = i * step < n ? i * step : n;
        end[dim] = (i + 1) * step < n ? (i + 1) * step : n;
    }
}

/* A rank's chunk of the tensor whose elements are their own row-major index. */
static int64_t chunk_values(const reshard_chunks *chunks, const int64_t *shape, int32_t rank,
                            int32_t *out)
{
    int64_t start[2], end[2], count = 0;
    find_chunk(chunks, shape, rank, start, end);
    for (int64_t y = start[0]; y < end[0]; y++) {
        for (int64_t x = start[1]; x < end[1]; x++) {
            if (out != NULL)
                out[count] = (int32_t)(y * shape[1] + x);
            count++;
        }
    }
    return count;
}

static reshard_status run_local(void *user, reshard_group *group)
{
    local_jobs *all = user;
    int32_t rank = reshard_group_rank(group);
    for (int64_t i = 0; i < all->count; i++) {
        local_job *j = &all->items[i];
        j->status[rank] =
            reshard_reshard_local_shard(NULL, group, 2, j->shape, RESHARD_I32, &j->from, &j->to,
                                        j->sources[rank], j->targets[rank]);
        if (j->status[rank] != RESHARD_OK)
            return j->status[rank];
    }
    return RESHARD_OK;
}

static void prepare_local(local_job *j)
{
    for (int32_t rank = 0; rank < 3; rank++) {
        assert_int_equal(
            reshard_local_shard_volume(NULL, 2, j->shape, &j->from, rank, &j->volumes[0][rank]),
            RESHARD_OK);
        assert_int_equal(
            reshard_local_shard_volume(NULL, 2, j->shape, &j->to, rank, &j->volumes[1][rank]),
            RESHARD_OK);
        assert_int_equal(j->volumes[0][rank], chunk_values(&j->from, j->shape, rank, NULL));
        assert_int_equal(j->volumes[1][rank], chunk_values(&j->to, j->shape, rank, NULL));
        j->sources[rank] = make(j->volumes[0][rank], sizeof(int32_t));
        j->targets[rank] = make(j->volumes[1][rank], sizeof(int32_t));
        (void)chunk_values(&j->from, j->shape, rank, j->sources[rank]);
    }
}

static void check_local(local_job *j)
{
    for (int32_t rank = 0; rank < 3; rank++) {
        int32_t *wanted = make(j->volumes[1][rank], sizeof *wanted);
        (void)chunk_values(&j->to, j->shape, rank, wanted);
        if (wanted != NULL)
            assert_memory_equal(j->targets[rank], wanted,
                                (size_t)j->volumes[1][rank] * sizeof *wanted);
        free(wanted);
        free(j->sources[rank]);
        free(j->targets[rank]);
    }
}

/* All orders of three ranks, and shorter lists. */
static const struct {
    int32_t count, ranks[3];
} lists[] = {{3, {0, 1, 2}}, {3, {0, 2, 1}}, {3, {1, 0, 2}}, {3, {1, 2, 0}},
             {3, {2, 0, 1}}, {3, {2, 1, 0}}, {2, {2, 0}},    {1, {1}}};

enum { LISTS = (int)(sizeof lists / sizeof *lists) };

static void run_local_shards(const way *w, const int64_t shape[2])
{
    static const int32_t dims[][2] = {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {1, -1}, {-2, -1}, {-2, 0}};
    enum { DIMS = (int)(sizeof dims / sizeof *dims) };
    local_jobs all = {0};
    all.items = make((int64_t)LISTS * LISTS * DIMS, sizeof *all.items);
    for (int i = 0; i < LISTS * LISTS * DIMS; i++) {
        if (w->simulated && i % 3 != (int)(shape[0] + w->options.mapped) % 3)
            continue;
        const int32_t *pair = dims[i % DIMS];
        int from = i / DIMS % LISTS, to = i / DIMS / LISTS;
        if ((pair[0] < 0 || pair[1] < 0) && (from + to) % 3 != 0)
            continue;
        local_job *j = &all.items[all.count++];
        memcpy(j->shape, shape, sizeof j->shape);
        j->from = (reshard_chunks){pair[0], lists[from].count, lists[from].ranks};
        j->to = (reshard_chunks){pair[1], lists[to].count, to == 0 ? NULL : lists[to].ranks};
        prepare_local(j);
    }
    assert_int_equal(run_way(w, 3, run_local, &all), RESHARD_OK);
    for (int64_t i = 0; i < all.count; i++)
        check_local(&all.items[i]);
    free(all.items);
}

static void test_local_shard__all_orders(void **state)
{
    (void)state;
    static const int64_t shapes[][2] = {{13, 5}, {5, 4}, {2, 3}, {0, 4}};
    for (int w = 0; w < WAYS; w++) {
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            run_local_shards(&ways[w], shapes[i]);
    }
}

static void test_local_shard__volume_errors(void **state)
{
    (void)state;
    const int64_t shape[] = {3, 2}, negative[] = {3, -2};
    int64_t volume = 77;
    reshard_chunks good = {1, 3, NULL}, high = {2, 3, NULL}, none = {0, 0, NULL};
    reshard_chunks flat = {RESHARD_DIM_FLAT, 3, NULL};
    assert_int_equal(reshard_local_shard_volume(NULL, 2, shape, &high, 0, &volume),
                     RESHARD_ERR_RANGE);
    assert_int_equal(reshard_local_shard_volume(NULL, 2, shape, &flat, 0, &volume),
                     RESHARD_ERR_RANGE);
    assert_int_equal(reshard_local_shard_volume(NULL, 0, shape, &good, 0, &volume),
                     RESHARD_ERR_RANGE);
    assert_int_equal(reshard_local_shard_volume(NULL, 2, shape, &none, 0, &volume),
                     RESHARD_ERR_RANGE);
    assert_int_equal(reshard_local_shard_volume(NULL, 2, negative, &good, 0, &volume),
                     RESHARD_ERR_RANGE);
    assert_int_equal(reshard_local_shard_volume(NULL, 2, shape, NULL, 0, &volume),
                     RESHARD_ERR_INVALID);
    assert_int_equal(volume, 77);
    assert_int_equal(reshard_local_shard_volume(NULL, 2, shape, &good, 9, &volume), RESHARD_OK);
    assert_int_equal(volume, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_local_shard__all_orders),
        cmocka_unit_test(test_local_shard__volume_errors),
    };
    return cmocka_run_group_tests_name("local shard", tests, NULL, NULL);
}
