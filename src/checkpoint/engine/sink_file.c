/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sink_file.c - writes blocks to files. Ranges that are long on both sides are left to the file
 * system if it can share them between the two files, or have a server copy them. Otherwise they
 * pass through the buffer unchanged.
 */
#include "base/checked.h"
#include "checkpoint/engine/sink.h"

static reshard_status write_range(rs_worker *worker, const rs_route *route, int32_t file,
                                  const char *bytes, size_t count, uint64_t at)
{
    rs_engine *engine = worker->engine;
    (void)route;
    if (engine->entry_sums != NULL)
        rs_entry_sums_add(engine->entry_sums, file, bytes, count, at);
    atomic_fetch_add(&engine->bytes_done, count);
    atomic_fetch_add(&engine->bytes_written, count);
    return rs_file_write(engine->targets[file], bytes, count, at);
}

/* Copies through the buffer a box that is contiguous on both sides but that the kernel did not
 * take. */
static reshard_status copy_box(rs_worker *worker, const rs_route *route, const rs_route_move *move,
                               const rs_block_box *box)
{
    const rs_stored_tensor *source = route->source;
    int32_t from = source->pieces[move->source].file;
    int32_t to = route->target->pieces[move->target].file;
    rs_tiles tiles = rs_tiles_cut(source->carried_ndim, box->size,
                                  (int64_t)worker->buffer_bytes / source->element_bytes);
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < tiles.count; i++) {
        rs_block_box tile;
        rs_tiles_at(&tiles, i, tile.offset, tile.size);
        for (int32_t d = 0; d < source->carried_ndim; d++)
            tile.offset[d] += box->offset[d];
        size_t bytes = (size_t)(rs_volume(source->carried_ndim, tile.size) * source->element_bytes);
        uint64_t source_at = rs_move_source_byte(route, move, tile.offset);
        uint64_t target_at = rs_move_target_byte(route, move, tile.offset);
        char *memory = rs_blocks_place(worker->buffer, source_at, target_at);
        rs_trace_event event;
        rs_worker_begin(worker, RS_TRACE_READ, &event);
        status = rs_file_read(worker->engine->sources[from], memory, bytes, source_at);
        rs_worker_end(worker, &event, bytes);
        if (status != RESHARD_OK)
            return status;
        rs_crcs_add(worker->engine->crcs, route, from, memory, bytes, source_at);
        rs_block_sums_pass(&worker->sums, move->target, tile.offset, tile.size, memory);
        rs_worker_begin(worker, RS_TRACE_WRITE, &event);
        status = write_range(worker, route, to, memory, bytes, target_at);
        rs_worker_end(worker, &event, bytes);
    }
    return status;
}

static reshard_status copy_directly(rs_worker *worker, const rs_route *route,
                                    const rs_block_box *box)
{
    rs_engine *engine = worker->engine;
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; status == RESHARD_OK && i < route->move_count; i++) {
        const rs_route_move *move = &route->moves[i];
        rs_block_box inside;
        if (!rs_move_clip(route, move, box, &inside))
            continue;
        uint64_t count = (uint64_t)(rs_volume(route->source->carried_ndim, inside.size) *
                                    route->source->element_bytes);
        uint64_t done = 0;
        rs_trace_event event;
        rs_worker_begin(worker, RS_TRACE_SHARE, &event);
        status = rs_file_copy(engine->sources[route->source->pieces[move->source].file],
                              rs_move_source_byte(route, move, inside.offset),
                              engine->targets[route->target->pieces[move->target].file],
                              rs_move_target_byte(route, move, inside.offset), count, &done);
        rs_worker_end(worker, &event, done < count ? 0 : count);
        rs_worker_count_read(worker, count);
        if (status == RESHARD_OK && done < count) {
            status = copy_box(worker, route, move, &inside);
            continue;
        }
        atomic_fetch_add(&engine->bytes_shared, count);
        atomic_fetch_add(&engine->bytes_written, count);
        atomic_fetch_add(&engine->bytes_done, count);
    }
    return status;
}

static reshard_status run(rs_worker *worker, const rs_route *route, const rs_block_box *box)
{
    if (route->direct && worker->engine->blocks->are_direct)
        return copy_directly(worker, route, box);
    reshard_status status = rs_block_read(worker, route, box);
    return status == RESHARD_OK ? rs_block_emit(worker, route, box, write_range) : status;
}

const rs_sink rs_sink_file = {.run = run, .takes = RS_TRACE_WRITE};
