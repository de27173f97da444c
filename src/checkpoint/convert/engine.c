/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine.c - threads that take blocks in turn. The calling thread is one of them, and also the one
 * that reports progress and lets the caller do its own work between two blocks.
 */
#include "checkpoint/convert/engine.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/thread.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { THREADS_MAX = 64, THREADS_DEFAULT_MAX = 8 };

/* A block is read, brought into order and written while it is in the caches: more takes twice the
 * time, less makes many short writes where a tensor is cut into many columns. */
#define THREAD_BYTES_MAX ((size_t)4 << 20)
/* Below this, fewer threads are better than smaller blocks. */
#define THREAD_BYTES_WANTED ((size_t)2 << 20)

static int32_t count_threads(const rs_engine *engine)
{
    long processors = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t threads = engine->threads;
    if (threads <= 0)
        threads = rs_min(rs_max(processors, 1), THREADS_DEFAULT_MAX);
    int64_t fitting = (int64_t)(engine->memory_bytes / THREAD_BYTES_WANTED);
    if (engine->threads <= 0)
        threads = rs_min(threads, rs_max(fitting, 1));
    fitting = (int64_t)(engine->memory_bytes / RS_ENGINE_BYTES_MIN);
    return (int32_t)rs_max(1, rs_min(rs_min(threads, fitting), THREADS_MAX));
}

static uint64_t target_bytes(const rs_transfer *transfer)
{
    uint64_t bytes = 0;
    for (int64_t i = 0; i < transfer->move_count; i++) {
        int64_t volume = transfer->target->element_bytes;
        for (int32_t d = 0; d < transfer->target->carried_ndim; d++)
            volume *= transfer->moves[i].size[d];
        bytes += (uint64_t)volume;
    }
    return bytes;
}

reshard_status rs_engine_prepare(rs_engine *engine)
{
    engine->threads = count_threads(engine);
    size_t share = engine->memory_bytes / (size_t)engine->threads;
    if (engine->thread_bytes == 0)
        engine->thread_bytes = share < THREAD_BYTES_MAX ? share : THREAD_BYTES_MAX;
    if (engine->thread_bytes > engine->memory_bytes)
        return rs_fail(RESHARD_ERR_MEMORY_LIMIT,
                       "blocks of an earlier run need %zu bytes of memory, %zu are allowed",
                       engine->thread_bytes, engine->memory_bytes);
    int64_t fitting = (int64_t)(engine->memory_bytes / engine->thread_bytes);
    engine->threads = (int32_t)rs_min(engine->threads, fitting);
    engine->block_count = 0;
    engine->bytes_total = 0;
    for (int64_t i = 0; i < engine->transfer_count; i++) {
        rs_transfer *transfer = &engine->transfers[i];
        size_t slack = RS_ENGINE_ALIGNMENT * (size_t)(transfer->source->piece_count + 2);
        if (slack > engine->thread_bytes / 2)
            return rs_fail(RESHARD_ERR_MEMORY_LIMIT,
                           "tensor \"%.*s\": %lld pieces are too many for %zu bytes of memory",
                           rs_slice_shown(transfer->source->name), transfer->source->name.bytes,
                           (long long)transfer->source->piece_count, engine->memory_bytes);
        if (engine->mode == RS_ENGINE_COMPARE)
            transfer->direct = false;
        rs_transfer_tile(transfer, engine->thread_bytes - slack);
        transfer->block_first = engine->block_count;
        engine->block_count += transfer->block_count;
        engine->bytes_total += target_bytes(transfer);
    }
    engine->block_begin = 0;
    engine->block_end = engine->block_count;
    return RESHARD_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct rs_run {
    rs_engine *engine;
    atomic_int_fast64_t next;
    atomic_int stopped;
    rs_mutex mutex; /* guards what follows */
    reshard_status status;
    char words[1024];
} rs_run;

static void stop(rs_run *run, reshard_status status)
{
    rs_mutex_lock(&run->mutex);
    if (run->status == RESHARD_OK) {
        run->status = status;
        (void)snprintf(run->words, sizeof run->words, "%s", reshard_error_text());
    }
    rs_mutex_unlock(&run->mutex);
    atomic_store(&run->stopped, 1);
}

static const rs_transfer *find_transfer(const rs_engine *engine, int64_t block)
{
    int64_t low = 0, high = engine->transfer_count - 1;
    while (low < high) {
        int64_t middle = low + (high - low + 1) / 2;
        if (engine->transfers[middle].block_first <= block)
            low = middle;
        else
            high = middle - 1;
    }
    return &engine->transfers[low];
}

/* One block, if there is one left; false when there is not, or it failed. */
static bool run_next(rs_run *run, rs_worker *worker)
{
    rs_engine *engine = run->engine;
    if (atomic_load(&run->stopped))
        return false;
    int64_t block = (int64_t)atomic_fetch_add(&run->next, 1);
    if (block >= engine->block_end)
        return false;
    if (engine->done != NULL && atomic_load(&engine->done[block]) != 0)
        return true;
    const rs_transfer *transfer = find_transfer(engine, block);
    reshard_status status = rs_worker_run_block(worker, transfer, block - transfer->block_first);
    if (status != RESHARD_OK) {
        stop(run, status);
        return false;
    }
    if (engine->done != NULL)
        atomic_store(&engine->done[block], 1);
    return true;
}

static void run_thread(void *user)
{
    rs_run *run = user;
    rs_worker worker;
    reshard_status status = rs_worker_init(&worker, run->engine);
    if (status != RESHARD_OK)
        stop(run, status);
    while (status == RESHARD_OK && run_next(run, &worker))
        continue;
    rs_worker_release(&worker);
}

static void show(const rs_engine *engine, uint64_t done)
{
    if (engine->shown_factor > 1)
        done += (done - engine->shown_from) * (engine->shown_factor - 1);
    if (engine->what != NULL)
        rs_context_progress(engine->context, engine->what,
                            done < engine->bytes_total ? done : engine->bytes_total,
                            engine->bytes_total);
}

/* The calling thread's share: the same, and a look around between blocks. */
static void run_main(rs_run *run)
{
    rs_engine *engine = run->engine;
    rs_worker worker;
    reshard_status status = rs_worker_init(&worker, engine);
    if (status != RESHARD_OK)
        stop(run, status);
    while (status == RESHARD_OK && run_next(run, &worker)) {
        uint64_t done = atomic_load(&engine->bytes_done);
        show(engine, done);
        if (rs_context_cancelled(engine->context))
            status = rs_fail(RESHARD_ERR_CANCELLED, "cancelled");
        else if (engine->pause != NULL)
            status = engine->pause(engine->user, done);
        if (status != RESHARD_OK)
            stop(run, status);
    }
    rs_worker_release(&worker);
}

reshard_status rs_engine_run(rs_engine *engine)
{
    rs_thread threads[THREADS_MAX];
    int32_t started = 0;
    rs_run run = {.engine = engine};
    reshard_status status = rs_mutex_init(&run.mutex);
    if (status != RESHARD_OK)
        return status;
    int64_t wanted = rs_min(engine->threads, engine->block_end - engine->block_begin);
    atomic_store(&run.next, engine->block_begin);
    /* With fewer threads than wanted the work is done all the same. */
    while (started + 1 < wanted &&
           rs_thread_start(&threads[started], run_thread, &run) == RESHARD_OK)
        started++;
    run_main(&run);
    for (int32_t i = 0; i < started; i++)
        rs_thread_join(&threads[i]);
    rs_mutex_release(&run.mutex);
    show(engine, atomic_load(&engine->bytes_done));
    return run.status == RESHARD_OK ? RESHARD_OK : rs_fail(run.status, "%s", run.words);
}
