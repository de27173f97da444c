/* SPDX-License-Identifier: Apache-2.0 */
/* engine.c - runs blocks in a pool of threads. */
#include "checkpoint/engine/engine.h"

#include "base/checked.h"
#include "base/context.h"
#include "checkpoint/engine/sink.h"
#include "system/pool.h"

#include <assert.h>
#include <stdint.h>

/* A block is read, rearranged and written while it is in the caches. Larger blocks were measured to
 * take twice the time; smaller ones make many short writes if a tensor is cut into many columns. */
#define THREAD_BYTES_MAX ((size_t)4 << 20)
/* With less memory per thread than this, fewer threads beat smaller blocks. */
#define THREAD_BYTES_WANTED ((size_t)2 << 20)

void rs_engine_share_memory(size_t memory_bytes, bool adapts, int32_t *threads,
                            size_t *out_thread_bytes)
{
    assert(*threads >= 1);
    size_t least = adapts ? THREAD_BYTES_WANTED : RS_ENGINE_BYTES_MIN;
    int64_t fitting = (int64_t)(memory_bytes / least);
    *threads = (int32_t)rs_max(1, rs_min(*threads, fitting));
    size_t share = memory_bytes / (size_t)*threads;
    *out_thread_bytes = share < THREAD_BYTES_MAX ? share : THREAD_BYTES_MAX;
}

reshard_status rs_engine_list_files(rs_arena *arena, const reshard_checkpoint *checkpoint,
                                    rs_file ***out_files)
{
    size_t count = (size_t)checkpoint->file_count;
    rs_file **files = rs_arena_allocate_array(arena, count, sizeof *files);
    if (files == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < count; i++)
        files[i] = checkpoint->files[i].file;
    *out_files = files;
    return RESHARD_OK;
}

reshard_status rs_engine_begin_pass(const reshard_checkpoint *checkpoint)
{
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; status == RESHARD_OK && i < checkpoint->file_count; i++)
        status = rs_file_begin_pass(checkpoint->files[i].file);
    return status;
}

/* ---- one thread ------------------------------------------------------------------------------ */

typedef struct engine_run {
    rs_engine *engine;
    rs_worker *workers; /* one for each thread */
} engine_run;

static reshard_status enter(void *user, int32_t thread)
{
    engine_run *run = user;
    rs_engine *engine = run->engine;
    rs_worker *worker = &run->workers[thread];
    size_t bytes = engine->blocks->thread_bytes + engine->sink->extra_bytes;
    *worker = (rs_worker){.engine = engine,
                          .buffer_bytes = engine->blocks->thread_bytes,
                          .memory_bytes = bytes + RS_BLOCK_ALIGNMENT + RS_BLOCK_SHIFT_MAX};
    worker->memory = rs_allocate(engine->context, worker->memory_bytes);
    if (worker->memory == NULL)
        return rs_allocation_status();
    size_t beyond = (uintptr_t)worker->memory % RS_BLOCK_ALIGNMENT;
    worker->buffer = worker->memory + (RS_BLOCK_ALIGNMENT - beyond);
    return engine->trace == NULL
               ? RESHARD_OK
               : rs_trace_take(engine->trace, engine->trace_rank, thread, 0, &worker->track);
}

static void leave(void *user, int32_t thread)
{
    engine_run *run = user;
    rs_worker *worker = &run->workers[thread];
    reshard_context *context = run->engine->context;
    rs_trace_give_back(worker->track);
    rs_release(context, worker->memory);
    rs_release(context, worker->parts);
}

static reshard_status name_route(rs_worker *worker, const rs_route *route)
{
    if (worker->named == route)
        return RESHARD_OK;
    worker->named = route;
    return rs_trace_name(worker->engine->trace, route->source->name, &worker->tensor);
}

static reshard_status run_block(void *user, int32_t thread, int64_t block)
{
    engine_run *run = user;
    rs_engine *engine = run->engine;
    rs_worker *worker = &run->workers[thread];
    rs_block_box box;
    if (engine->ledger != NULL && rs_ledger_is_done(engine->ledger, block))
        return RESHARD_OK;
    int64_t index = rs_blocks_route(engine->blocks, block);
    const rs_route *route = &engine->blocks->routes[index];
    rs_blocks_box(engine->blocks, index, block, box.offset, box.size);
    rs_block_sums_begin(&worker->sums, engine->sums, route, block);
    reshard_status status = worker->track != NULL ? name_route(worker, route) : RESHARD_OK;
    if (status == RESHARD_OK)
        status = engine->sink->run(worker, route, &box);
    if (status == RESHARD_OK && worker->overflows != 0)
        atomic_fetch_add(&engine->values_overflowed, (uint64_t)worker->overflows);
    worker->overflows = 0;
    if (status == RESHARD_OK)
        status = rs_block_sums_end(&worker->sums, index);
    if (status == RESHARD_OK && engine->ledger != NULL)
        rs_ledger_mark_done(engine->ledger, block);
    return rs_fail_within_tensor(status, route->source->name);
}

/* ---- all threads ----------------------------------------------------------------------------- */

static uint64_t count_done(void *user)
{
    const rs_engine *engine = ((const engine_run *)user)->engine;
    uint64_t done = atomic_load(&engine->bytes_done);
    if (engine->shown_factor > 1)
        done += (done - engine->shown_from) * (engine->shown_factor - 1);
    return done;
}

static reshard_status ask_pause(void *user)
{
    rs_engine *engine = ((const engine_run *)user)->engine;
    return engine->pause(engine->user, atomic_load(&engine->bytes_done));
}

reshard_status rs_engine_run(rs_engine *engine)
{
    assert(engine->threads >= 1 && engine->block_end <= engine->blocks->count);
    engine_run run = {.engine = engine};
    size_t count = (size_t)engine->threads;
    run.workers = rs_allocate_array(engine->context, count, sizeof *run.workers);
    if (run.workers == NULL)
        return rs_allocation_status();
    const rs_pool pool = {.context = engine->context,
                          .user = &run,
                          .thread_count = engine->threads,
                          .first = engine->block_begin,
                          .end = engine->block_end,
                          .run = run_block,
                          .enter = enter,
                          .leave = leave,
                          .pause = engine->pause != NULL ? ask_pause : NULL,
                          .what = engine->what,
                          .done = count_done,
                          .total = engine->blocks->bytes};
    reshard_status status = rs_pool_run(&pool);
    rs_release(engine->context, run.workers);
    return status;
}

void rs_engine_show_together(rs_engine *engine, const rs_team *team)
{
    engine->shown_from = atomic_load(&engine->bytes_done);
    engine->shown_factor = (uint64_t)team->rank_count;
}

reshard_status rs_engine_run_shared(rs_engine *engine, const rs_team *team)
{
    rs_block_walk walk = {.blocks = engine->blocks, .ledger = engine->ledger};
    rs_block_walk_deal(&walk, team, UINT64_MAX, &engine->block_begin, &engine->block_end);
    rs_engine_show_together(engine, team);
    return rs_team_agree(team, rs_engine_run(engine));
}
