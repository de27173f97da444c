/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards.c - reads the shards of one rank from files. Every piece of a shard is a route from the
 * files to memory, which the engine carries out.
 *
 * The engine starts its threads and allocates their buffers once for many tensors, and no thread
 * waits for another between two tensors. Routes are kept for one batch of tensors at a time, so
 * they take bounded memory, however many tensors there are and however finely they are cut.
 *
 * A layout may be larger than the tensor on disk, because of pad() in rules. Its pieces are then
 * cut to the tensor's shape, and the rest of the memory is zero.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/shape.h"
#include "checkpoint/engine/engine.h"
#include "checkpoint/live/live.h"
#include "layout/layout.h"

#include <string.h>

#define BUFFER_BYTES ((size_t)4 << 20)
/* A batch ends with the tensor that reaches one of these limits: enough bytes that the time to
 * start threads does not matter, or so many shards and pieces that their routes take a few MiB. */
#define BATCH_BYTES ((uint64_t)256 << 20)
#define BATCH_PIECES ((int64_t)1 << 16)

/* ---- pieces ---------------------------------------------------------------------------------- */

/* The size of the part of a piece that lies in the tensor, in the arena if it differs from the
 * piece's own size; a part that is empty has a 0 in it. NULL: no memory. */
static const int64_t *clip_size(const reshard_piece *piece, const rs_stored_tensor *stored,
                                rs_arena *arena)
{
    int64_t size[RESHARD_NDIM_MAX];
    bool differs = false;
    for (int32_t d = 0; d < piece->box.ndim; d++) {
        int64_t left = rs_max(0, stored->shape[d] - piece->box.offset[d]);
        size[d] = rs_min(piece->box.size[d], left);
        differs = differs || size[d] != piece->box.size[d];
    }
    return differs ? rs_arena_copy(arena, size, (size_t)piece->box.ndim, sizeof(int64_t))
                   : piece->box.size;
}

/* Describes the shards as a stored tensor, with their pieces in place of its own. `file` is the
 * index of the shard, counted from first_shard. */
static reshard_status describe_shards(const rs_live_item *item, const reshard_shards *shards,
                                      int64_t first_shard, rs_arena *arena,
                                      rs_stored_tensor *out_tensor)
{
    int64_t count = 0;
    *out_tensor = *item->stored;
    out_tensor->dtype = item->dtype;
    out_tensor->element_bytes = (int8_t)(reshard_dtype_bits(item->dtype) / 8);
    for (int64_t i = 0; i < shards->count; i++)
        count += shards->items[i].piece_count;
    out_tensor->pieces = rs_arena_allocate_array(arena, (size_t)count, sizeof(rs_stored_piece));
    if (out_tensor->pieces == NULL)
        return rs_allocation_status();
    out_tensor->piece_count = 0;
    for (int64_t i = 0; i < shards->count; i++) {
        for (int64_t k = 0; k < shards->items[i].piece_count; k++) {
            const reshard_piece *piece = &shards->items[i].pieces[k];
            const int64_t *size = clip_size(piece, item->stored, arena);
            if (size == NULL)
                return rs_allocation_status();
            if (rs_volume(piece->box.ndim, size) == 0)
                continue;
            out_tensor->pieces[out_tensor->piece_count++] =
                (rs_stored_piece){.file = (int32_t)(first_shard + i),
                                  .at = (uint64_t)(piece->at * out_tensor->element_bytes),
                                  .offset = piece->box.offset,
                                  .size = size,
                                  .strides = piece->strides};
        }
    }
    return RESHARD_OK;
}

/* Sets the memory to zero if the layout is larger than the tensor. */
static void clear_padded(const rs_live_item *item, const reshard_shards *shards)
{
    bool padded = false;
    for (int32_t d = 0; d < item->stored->ndim; d++)
        padded = padded || item->layout->shape[d] > item->stored->shape[d];
    size_t element_bytes = (size_t)reshard_dtype_bits(item->dtype) / 8;
    for (int64_t i = 0; padded && i < shards->count; i++) {
        size_t volume = (size_t)rs_volume(shards->items[i].ndim, shards->items[i].shape);
        if (volume != 0)
            memset(item->memory[i], 0, volume * element_bytes);
    }
}

/* ---- one batch ------------------------------------------------------------------------------- */

/* Some consecutive items, and what their pieces and routes point to. */
typedef struct live_batch {
    const rs_live_item *items;
    int64_t count;
    reshard_shards **shards; /* one list for each item */
    int64_t shard_count, piece_count;
    rs_arena arena;
    void **memory; /* one for each shard, item by item */
    rs_route *routes;
    int64_t route_count;
} live_batch;

static uint64_t count_bytes(const rs_live_item *item, int32_t rank)
{
    return (uint64_t)rs_layout_shard_volume(item->layout, rank) *
           (uint64_t)item->stored->element_bytes;
}

/* Takes items, at most `count`, until the batch is full. */
static reshard_status gather(live_batch *batch, int32_t rank, int64_t count)
{
    uint64_t bytes = 0;
    while (batch->count < count && bytes < BATCH_BYTES &&
           batch->piece_count + batch->shard_count < BATCH_PIECES) {
        const rs_live_item *item = &batch->items[batch->count];
        reshard_shards **shards = &batch->shards[batch->count];
        reshard_status status = reshard_layout_shards(item->layout, rank, shards);
        if (status != RESHARD_OK)
            return status;
        for (int64_t i = 0; i < (*shards)->count; i++)
            batch->piece_count += (*shards)->items[i].piece_count;
        batch->shard_count += (*shards)->count;
        bytes += count_bytes(item, rank);
        batch->count++;
    }
    return RESHARD_OK;
}

static reshard_status route_item(live_batch *batch, const rs_live_item *item,
                                 const reshard_shards *shards, int64_t first_shard)
{
    rs_stored_tensor *target = rs_arena_allocate(&batch->arena, sizeof *target);
    if (target == NULL)
        return rs_allocation_status();
    clear_padded(item, shards);
    reshard_status status = describe_shards(item, shards, first_shard, &batch->arena, target);
    for (int64_t i = 0; i < shards->count; i++)
        batch->memory[first_shard + i] = item->memory != NULL ? item->memory[i] : NULL;
    for (int64_t i = 0; status == RESHARD_OK && i < target->piece_count; i++)
        status = rs_route_piece(&batch->arena, item->stored, target, i,
                                &batch->routes[batch->route_count++]);
    return status;
}

static reshard_status route_batch(live_batch *batch)
{
    batch->memory =
        rs_arena_allocate_array(&batch->arena, (size_t)batch->shard_count, sizeof *batch->memory);
    batch->routes =
        rs_arena_allocate_array(&batch->arena, (size_t)batch->piece_count, sizeof *batch->routes);
    if (batch->memory == NULL || batch->routes == NULL)
        return rs_allocation_status();
    reshard_status status = RESHARD_OK;
    int64_t first_shard = 0;
    for (int64_t i = 0; status == RESHARD_OK && i < batch->count; i++) {
        status = route_item(batch, &batch->items[i], batch->shards[i], first_shard);
        first_shard += batch->shards[i]->count;
    }
    return status;
}

/* How much was read before this batch, and how much there is in all. */
typedef struct live_progress {
    reshard_context *context;
    uint64_t before, total;
} live_progress;

static reshard_status report(void *user, uint64_t bytes_done)
{
    const live_progress *progress = user;
    uint64_t done = progress->before + bytes_done;
    rs_context_progress(progress->context, "reading", done, progress->total);
    return RESHARD_OK;
}

static reshard_status carry(const rs_live_reading *r, live_batch *batch, live_progress *progress)
{
    rs_blocks blocks;
    reshard_status status =
        rs_blocks_cut(&blocks, &batch->arena, batch->route_count, batch->routes, BUFFER_BYTES,
                      /* with several threads, cut small blocks so that they can share the work */
                      r->threads <= 1);
    if (status != RESHARD_OK)
        return status;
    rs_engine engine = {.context = r->checkpoint->context,
                        .sink = &rs_sink_memory,
                        .blocks = &blocks,
                        .sources = r->files,
                        .memory = batch->memory,
                        .threads = (int32_t)rs_max(1, rs_min(r->threads, blocks.count)),
                        .pause = r->reports ? report : NULL,
                        .user = progress,
                        .trace = r->trace,
                        .trace_rank = r->trace_rank,
                        .block_end = blocks.count};
    status = rs_engine_run(&engine);
    if (r->overflowed != NULL)
        *r->overflowed += atomic_load(&engine.values_overflowed);
    return status;
}

/* Reads the first batch of the `count` items; *out_count is its length. `shards` has room for
 * all. */
static reshard_status read_batch(const rs_live_reading *r, int32_t rank, int64_t count,
                                 const rs_live_item *items, reshard_shards **shards,
                                 live_progress *progress, int64_t *out_count)
{
    live_batch batch = {.items = items, .shards = shards};
    rs_arena_init(&batch.arena, r->checkpoint->context);
    reshard_status status = gather(&batch, rank, count);
    if (status == RESHARD_OK)
        status = route_batch(&batch);
    if (status == RESHARD_OK && batch.route_count != 0)
        status = carry(r, &batch, progress);
    for (int64_t i = 0; i < batch.count; i++) {
        progress->before += count_bytes(&items[i], rank);
        reshard_shards_destroy(shards[i]);
    }
    rs_arena_release(&batch.arena);
    *out_count = batch.count;
    return status;
}

/* ---- all batches ----------------------------------------------------------------------------- */

reshard_status rs_live_read_shards(const rs_live_reading *reading, int32_t rank, int64_t count,
                                   const rs_live_item *items)
{
    reshard_context *context = reading->checkpoint->context;
    live_progress progress = {.context = context};
    for (int64_t i = 0; i < count; i++)
        progress.total += count_bytes(&items[i], rank);
    reshard_shards **shards = rs_allocate_array(context, (size_t)count, sizeof(reshard_shards *));
    if (shards == NULL)
        return rs_allocation_status();
    reshard_status status = RESHARD_OK;
    for (int64_t first = 0, taken; status == RESHARD_OK && first < count; first += taken)
        status = read_batch(reading, rank, count - first, items + first, shards, &progress, &taken);
    if (status == RESHARD_OK && reading->reports)
        status = report(&progress, 0); /* done */
    rs_release(context, shards);
    return status;
}
