/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink_memory.c - puts blocks in their places in memory: straight from the file, or through the
 * buffer if they are cast or computed. A target piece lies at byte `at` of memory[file].
 */
#include "base/checked.h"
#include "checkpoint/engine/sink.h"
#include "checkpoint/store/formula.h"
#include "kernel/copy/copy.h"
#include "kernel/values/cast.h"

#include <string.h>

/* Computes what a move has of a block, and puts it in its place. */
static reshard_status make(rs_worker *worker, const rs_route *route, const rs_route_move *move,
                           const rs_block_box *inside, char *memory)
{
    const rs_stored_tensor *source = route->source;
    int32_t ndim = source->carried_ndim;
    size_t bytes = (size_t)(rs_volume(ndim, inside->size) * source->element_bytes);
    size_t front = (bytes + RS_BLOCK_ALIGNMENT - 1) / RS_BLOCK_ALIGNMENT * RS_BLOCK_ALIGNMENT;
    size_t left = worker->buffer_bytes > front ? worker->buffer_bytes - front : 0;
    int64_t strides[RESHARD_NDIM_MAX];
    rs_formula_tally tally = {0};
    reshard_status status = rs_formula_read(source, inside->offset, inside->size, worker->buffer,
                                            worker->buffer + front, left, &tally);
    worker->overflows += tally.overflows;
    rs_worker_count_read(worker, tally.bytes_read);
    if (status != RESHARD_OK)
        return status;
    rs_dense_strides(ndim, inside->size, strides);
    if (route->casts) {
        rs_cast cast;
        rs_cast_prepare(&cast, source->dtype, route->target->dtype, ndim, inside->size, strides,
                        move->target_strides);
        cast.overflows = &worker->overflows;
        rs_cast_run(&cast, worker->buffer, memory);
    } else {
        rs_copy copy;
        rs_copy_prepare(&copy, source->element_bytes, ndim, inside->size, strides,
                        move->target_strides);
        rs_copy_run(&copy, worker->buffer, memory);
    }
    atomic_fetch_add(&worker->engine->bytes_done, (uint64_t)bytes);
    return RESHARD_OK;
}

static reshard_status run(rs_worker *worker, const rs_route *route, const rs_block_box *box)
{
    rs_engine *engine = worker->engine;
    const rs_stored_tensor *source = route->source, *target = route->target;
    int32_t ndim = source->carried_ndim;
    /* Elements to be cast are first read to the front of the buffer. */
    size_t front = route->casts ? (size_t)(rs_volume(ndim, box->size) * source->element_bytes) : 0;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < route->move_count; i++) {
        const rs_route_move *move = &route->moves[i];
        rs_file *file = engine->sources[source->pieces[move->source].file];
        char *memory = engine->memory[target->pieces[move->target].file];
        rs_file_region region = {.ndim = ndim, .element_bytes = source->element_bytes};
        rs_block_box inside;
        if (!rs_move_clip(route, move, box, &inside))
            continue;
        size_t numbers = (size_t)ndim * sizeof(int64_t);
        memcpy(region.size, inside.size, numbers);
        memcpy(region.file_strides, move->source_strides, numbers);
        memory += rs_move_target_byte(route, move, inside.offset);
        if (source->formula != NULL) {
            status = make(worker, route, move, &inside, memory);
            continue;
        }
        if (route->casts)
            rs_dense_strides(ndim, inside.size, region.memory_strides);
        else
            memcpy(region.memory_strides, move->target_strides, numbers);
        uint64_t bytes = (uint64_t)(rs_volume(ndim, inside.size) * source->element_bytes);
        rs_trace_event event;
        rs_worker_begin(worker, RS_TRACE_READ, &event);
        status = rs_file_region_read(file, rs_move_source_byte(route, move, inside.offset), &region,
                                     route->casts ? worker->buffer : memory, worker->buffer + front,
                                     worker->buffer_bytes - front);
        rs_worker_end(worker, &event, bytes);
        if (status == RESHARD_OK && route->casts) {
            rs_cast cast;
            rs_worker_begin(worker, RS_TRACE_ARRANGE, &event);
            rs_cast_prepare(&cast, source->dtype, target->dtype, ndim, inside.size,
                            region.memory_strides, move->target_strides);
            cast.overflows = &worker->overflows;
            rs_cast_run(&cast, worker->buffer, memory);
            rs_worker_end(worker, &event, bytes);
        }
        rs_worker_count_read(worker, bytes);
        atomic_fetch_add(&engine->bytes_done, bytes);
    }
    rs_copy_fence();
    return status;
}

const rs_sink rs_sink_memory = {.run = run};
