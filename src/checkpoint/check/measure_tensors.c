/* SPDX-License-Identifier: Apache-2.0 */
/*
 * measure_tensors.c - measures how far apart tensors are that a comparison found to differ.
 *
 * The comparison stops at the first difference of a tensor, and most tensors have none; so what is
 * to be measured is known only afterwards, and is read once more. Each block is read from both
 * sides in row-major order, in tiles, so that the splits of A and B do not matter. Blocks are cut
 * and summed alike however many threads and ranks there are.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/dtype.h"
#include "base/shape.h"
#include "checkpoint/check/comparison.h"
#include "kernel/values/cast.h"
#include "system/thread.h"

#include <assert.h>

#define TILE_BYTES ((int64_t)1 << 20) /* of one side, at most */
#define GATHERED_MAX 4096             /* routes gathered at once */

typedef struct measuring {
    rs_engine engine; /* must be first, because the sink casts it to measuring */
    const reshard_comparison *comparison;
    rs_arena arena; /* of everything below */
    rs_blocks blocks;
    int64_t count;
    rs_compared **items; /* to be measured, by route */
    rs_route *routes;
    rs_measure *measures; /* by route, of this rank */
    rs_mutex mutex;       /* for `measures` */
} measuring;

/* ---- blocks ---------------------------------------------------------------------------------- */

/* The buffer of a thread has A's tile, the same after a cast, B's tile, and scratch. */
static reshard_status measure_tile(rs_worker *worker, const rs_compared *item,
                                   const int64_t *offset, const int64_t *size, rs_measure *measure)
{
    const reshard_comparison *comparison = ((const measuring *)worker->engine)->comparison;
    const rs_stored_tensor *a = &comparison->a->tensors[item->a];
    const rs_stored_tensor *b = &comparison->b->tensors[item->b];
    int64_t count = rs_volume(a->carried_ndim, size), stride = 1;
    char *read_a = worker->buffer, *cast_a = read_a + TILE_BYTES, *read_b = cast_a + TILE_BYTES;
    char *scratch = read_b + TILE_BYTES;
    size_t scratch_bytes = worker->buffer_bytes - 3 * (size_t)TILE_BYTES;
    reshard_status status =
        rs_store_read_box(comparison->a, a, offset, size, read_a, scratch, scratch_bytes);
    if (status == RESHARD_OK)
        status = rs_store_read_box(comparison->b, b, offset, size, read_b, scratch, scratch_bytes);
    if (status != RESHARD_OK)
        return status;
    if (item->dtype != a->dtype) {
        rs_cast cast;
        rs_cast_prepare(&cast, a->dtype, item->dtype, 1, &count, &stride, &stride);
        rs_cast_run(&cast, read_a, cast_a);
        read_a = cast_a;
    }
    rs_measure_add(measure, item->dtype, read_a, b->dtype, read_b, count);
    atomic_fetch_add(&worker->engine->bytes_done, (uint64_t)(count * a->element_bytes));
    return RESHARD_OK;
}

static reshard_status measure_block(rs_worker *worker, const rs_route *route,
                                    const rs_block_box *box)
{
    measuring *work = (measuring *)worker->engine;
    int64_t index = route - work->routes;
    const rs_compared *item = work->items[index];
    const rs_stored_tensor *target = &work->comparison->b->tensors[item->b];
    int32_t ndim = route->source->carried_ndim;
    rs_measure measure = {0};
    reshard_status status = RESHARD_OK;
    int64_t element_bytes = rs_max(route->source->element_bytes, target->element_bytes);
    element_bytes = rs_max(element_bytes, (int64_t)rs_element_bytes(item->dtype));
    rs_tiles tiles = rs_tiles_cut(ndim, box->size, TILE_BYTES / element_bytes);
    for (int64_t i = 0; status == RESHARD_OK && i < tiles.count; i++) {
        int64_t offset[RESHARD_NDIM_MAX] = {0}, size[RESHARD_NDIM_MAX];
        rs_tiles_at(&tiles, i, offset, size);
        for (int32_t d = 0; d < ndim; d++)
            offset[d] += box->offset[d];
        status = measure_tile(worker, item, offset, size, &measure);
    }
    rs_mutex_lock(&work->mutex);
    rs_measure_merge(&work->measures[index], &measure);
    rs_mutex_unlock(&work->mutex);
    return status;
}

static const rs_sink sink_measure = {.run = measure_block, .takes = RS_TRACE_COMPARE};

/* ---- all tensors ----------------------------------------------------------------------------- */

static bool can_be_measured(const reshard_comparison *comparison, const rs_compared *item)
{
    if (item->kind != RESHARD_DIFFERENCE_BYTES && item->kind != RESHARD_DIFFERENCE_DTYPE)
        return false;
    const rs_stored_tensor *a = &comparison->a->tensors[item->a];
    const rs_stored_tensor *b = &comparison->b->tensors[item->b];
    return !a->opaque && !b->opaque && rs_measure_supports(item->dtype) &&
           rs_measure_supports(b->dtype) &&
           rs_dtype_parts(item->dtype) == rs_dtype_parts(b->dtype) && rs_compared_same_shape(a, b);
}

/* Lists what is to be measured, with a result for each. */
static reshard_status prepare(measuring *work, reshard_comparison *comparison, size_t thread_bytes)
{
    size_t count = 0;
    for (int64_t i = 0; i < comparison->count; i++)
        count += can_be_measured(comparison, &comparison->items[i]);
    rs_measure *results = rs_arena_allocate_array(&comparison->arena, count, sizeof *results);
    work->items = rs_arena_allocate_array(&work->arena, count, sizeof *work->items);
    work->routes = rs_arena_allocate_array(&work->arena, count, sizeof *work->routes);
    work->measures = rs_arena_allocate_array(&work->arena, count, sizeof *work->measures);
    if (results == NULL || work->items == NULL || work->routes == NULL || work->measures == NULL)
        return rs_allocation_status();
    for (int64_t i = 0, measured = 0; i < comparison->count; i++) {
        rs_compared *item = &comparison->items[i];
        if (!can_be_measured(comparison, item))
            continue;
        item->measure = &results[measured++];
        *item->measure = (rs_measure){0};
        if (comparison->a->tensors[item->a].bytes == 0)
            continue;
        work->items[work->count] = item;
        work->measures[work->count] = (rs_measure){0};
        work->routes[work->count++] = rs_route_nowhere(&comparison->a->tensors[item->a]);
    }
    return rs_blocks_cut(&work->blocks, &work->arena, work->count, work->routes, thread_bytes,
                         false);
}

/* Merges what the ranks measured, in the order of the ranks. Collective. */
static reshard_status gather(const measuring *work, const rs_team *team)
{
    reshard_status status = RESHARD_OK;
    for (int64_t from = 0; status == RESHARD_OK && from < work->count; from += GATHERED_MAX) {
        int64_t rest = work->count - from;
        size_t count = (size_t)(rest < GATHERED_MAX ? rest : GATHERED_MAX);
        size_t bytes = count * sizeof(rs_measure), ranks = (size_t)team->rank_count;
        void *all = NULL;
        status = rs_team_gather(team, work->measures + from, bytes, &all);
        if (status != RESHARD_OK)
            return status;
        for (size_t i = 0; i < ranks * count; i++)
            rs_measure_merge(work->items[from + (int64_t)(i % count)]->measure,
                             (const rs_measure *)all + i);
        rs_release(team->context, all);
    }
    return status;
}

/* Without a tolerance, nothing passes. */
static bool is_within(const rs_measure *measure, const reshard_comparison_options *options)
{
    double l2 = rs_measure_relative_l2(measure);
    if (options->tolerance == 0 && options->tolerance_l2 == 0)
        return false;
    if (measure->unlike != 0 || (options->tolerance > 0 && measure->largest > options->tolerance))
        return false;
    /* Numbers that are equal are within every bound, even if their distance has no scale. */
    return options->tolerance_l2 == 0 || measure->largest == 0 || l2 <= options->tolerance_l2;
}

static reshard_status run(measuring *work, const rs_team *team)
{
    reshard_status status = rs_team_agree(team, rs_mutex_init(&work->mutex));
    if (status != RESHARD_OK)
        return status;
    status = rs_engine_run_shared(&work->engine, team);
    rs_mutex_release(&work->mutex);
    return status == RESHARD_OK ? gather(work, team) : status;
}

reshard_status rs_comparison_measure(reshard_comparison *comparison, const rs_team *team,
                                     const reshard_comparison_options *options, int32_t threads,
                                     size_t thread_bytes)
{
    measuring work = {.comparison = comparison};
    assert(thread_bytes > 3 * (size_t)TILE_BYTES);
    rs_arena_init(&work.arena, team->context);
    reshard_status status = rs_team_agree(team, prepare(&work, comparison, thread_bytes));
    work.engine = (rs_engine){.context = team->context,
                              .sink = &sink_measure,
                              .what = rs_team_leads(team) ? "measuring" : NULL,
                              .blocks = &work.blocks,
                              .threads = threads};
    if (status == RESHARD_OK && work.count != 0)
        status = run(&work, team);
    for (int64_t i = 0; status == RESHARD_OK && i < comparison->count; i++) {
        rs_compared *item = &comparison->items[i];
        item->is_within = item->measure != NULL && is_within(item->measure, options);
    }
    rs_arena_release(&work.arena);
    return status;
}
