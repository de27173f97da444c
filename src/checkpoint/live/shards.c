/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shards.c - reads the shards of one rank from files: every piece of a shard is a route from the
 * files to memory, and the engine carries it there.
 *
 * A layout may be larger than the tensor on disk, as rules with pad() make it. Its pieces are cut
 * to the tensor's shape, and the rest of the memory is zero.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/shape.h"
#include "checkpoint/engine/engine.h"
#include "checkpoint/live/live.h"
#include "kernel/cast.h"
#include "layout/layout.h"
#include "system/pool.h"
#include "text/text.h"

#include <string.h>

#define BUFFER_BYTES ((size_t)4 << 20)

/* ---- pieces ---------------------------------------------------------------------------------- */

/* The size of a piece inside the tensor, in the arena where it differs from the piece's own; an
 * empty one has a 0. NULL: no memory. */
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

/* The stored tensor with the pieces of the shards in place of its own; `file` is the shard. */
static reshard_status describe_shards(const rs_live_reading *r, const reshard_shards *shards,
                                      rs_arena *arena, rs_stored_tensor *out_tensor)
{
    int64_t count = 0;
    *out_tensor = *r->stored;
    out_tensor->dtype = r->dtype;
    out_tensor->element_bytes = (int8_t)(reshard_dtype_bits(r->dtype) / 8);
    for (int64_t i = 0; i < shards->count; i++)
        count += shards->items[i].piece_count;
    out_tensor->pieces = rs_arena_allocate_array(arena, (size_t)count, sizeof(rs_stored_piece));
    if (out_tensor->pieces == NULL)
        return rs_allocation_status();
    out_tensor->piece_count = 0;
    for (int64_t i = 0; i < shards->count; i++) {
        for (int64_t k = 0; k < shards->items[i].piece_count; k++) {
            const reshard_piece *piece = &shards->items[i].pieces[k];
            const int64_t *size = clip_size(piece, r->stored, arena);
            if (size == NULL)
                return rs_allocation_status();
            if (rs_volume(piece->box.ndim, size) == 0)
                continue;
            out_tensor->pieces[out_tensor->piece_count++] =
                (rs_stored_piece){.file = (int32_t)i,
                                  .at = (uint64_t)(piece->at * out_tensor->element_bytes),
                                  .offset = piece->box.offset,
                                  .size = size,
                                  .strides = piece->strides};
        }
    }
    return RESHARD_OK;
}

/* Carries all pieces of the target from the files to memory. */
static reshard_status carry(const rs_live_reading *r, rs_arena *arena,
                            const rs_stored_tensor *target, void *const *memory)
{
    reshard_status status = RESHARD_OK;
    rs_blocks blocks;
    size_t count = (size_t)target->piece_count;
    rs_route *routes = rs_arena_allocate_array(arena, count, sizeof *routes);
    if (routes == NULL)
        return rs_allocation_status();
    for (int64_t i = 0; status == RESHARD_OK && i < target->piece_count; i++)
        status = rs_route_piece(arena, r->stored, target, i, &routes[i]);
    if (status == RESHARD_OK)
        status = rs_blocks_cut(&blocks, arena, target->piece_count, routes, BUFFER_BYTES,
                               r->threads <= 1); /* several threads need something to share */
    if (status != RESHARD_OK)
        return status;
    rs_engine engine = {.context = r->checkpoint->context,
                        .sink = &rs_sink_memory,
                        .blocks = &blocks,
                        .sources = r->files,
                        .memory = memory,
                        .threads = (int32_t)rs_max(1, rs_min(r->threads, blocks.count)),
                        .trace = r->trace,
                        .trace_rank = r->trace_rank,
                        .block_end = blocks.count};
    return rs_engine_run(&engine);
}

reshard_status rs_live_read_shards(const rs_live_reading *reading, const reshard_layout *layout,
                                   int32_t rank, void *const *memory)
{
    rs_arena arena;
    rs_stored_tensor target;
    reshard_shards *shards = NULL;
    rs_arena_init(&arena, reading->checkpoint->context);
    reshard_status status = reshard_layout_shards(layout, rank, &shards);
    if (status == RESHARD_OK)
        status = describe_shards(reading, shards, &arena, &target);
    if (status == RESHARD_OK && target.piece_count != 0)
        status = carry(reading, &arena, &target, memory);
    reshard_shards_destroy(shards);
    rs_arena_release(&arena);
    return status;
}

/* ---- one rank, without a group --------------------------------------------------------------- */

/* Whether the layout reaches beyond the tensor goes to *out_padded. */
static reshard_status check_fit(const rs_stored_tensor *stored, const reshard_layout *layout,
                                bool *out_padded)
{
    int32_t ndim = reshard_layout_ndim(layout);
    const int64_t *shape = reshard_layout_shape(layout);
    bool fits = ndim == stored->ndim, padded = false;
    for (int32_t d = 0; fits && d < ndim; d++) {
        fits = shape[d] >= stored->shape[d];
        padded = padded || shape[d] > stored->shape[d];
    }
    if (fits) {
        *out_padded = padded;
        return RESHARD_OK;
    }
    char words[256];
    rs_text text;
    rs_text_init(&text, words, sizeof words);
    rs_text_add_shape(&text, stored->ndim, stored->shape);
    rs_text_add(&text, ", the layout ");
    rs_text_add_shape(&text, ndim, shape);
    return rs_fail(RESHARD_ERR_MISMATCH, "tensor \"%.*s\" has the shape %s",
                   rs_slice_shown(stored->name), stored->name.bytes, words);
}

static reshard_status check_reading(const rs_stored_tensor *stored, const reshard_layout *layout,
                                    reshard_dtype dtype, bool *out_padded)
{
    const char *problem = NULL;
    if (stored->opaque)
        problem = "cannot be cut as it is stored";
    else if (layout->partial)
        problem = "has no partial sums on disk, as the layout wants";
    if (problem != NULL)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "tensor \"%.*s\" %s", rs_slice_shown(stored->name),
                       stored->name.bytes, problem);
    if (dtype != stored->dtype && !rs_cast_supports(stored->dtype, dtype))
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "tensor \"%.*s\": cannot be cast from %s, as it is stored, to %s",
                       rs_slice_shown(stored->name), stored->name.bytes,
                       reshard_dtype_name(stored->dtype), reshard_dtype_name(dtype));
    return check_fit(stored, layout, out_padded);
}

static void clear_shards(const reshard_layout *layout, int32_t rank, reshard_dtype dtype,
                         void *const *shards)
{
    size_t element_bytes = (size_t)reshard_dtype_bits(dtype) / 8;
    for (int32_t i = 0; i < rs_layout_shard_count(layout, rank); i++) {
        size_t volume = (size_t)rs_layout_one_shard_volume(layout, rank, i);
        if (volume != 0)
            memset(shards[i], 0, volume * element_bytes);
    }
}

reshard_status reshard_checkpoint_read_shards(const reshard_checkpoint *checkpoint, int64_t tensor,
                                              const reshard_layout *layout, int32_t rank,
                                              reshard_dtype dtype, void *const *shards)
{
    if (tensor < 0 || tensor >= checkpoint->tensor_count)
        return rs_fail(RESHARD_ERR_RANGE, "tensor %lld of %lld", (long long)tensor,
                       (long long)checkpoint->tensor_count);
    const rs_stored_tensor *stored = &checkpoint->tensors[tensor];
    rs_live_reading reading = {.checkpoint = checkpoint,
                               .stored = stored,
                               .dtype = dtype != RESHARD_DTYPE_NONE ? dtype : stored->dtype,
                               .threads = rs_pool_thread_count(0)};
    bool padded = false;
    reshard_status status = check_reading(stored, layout, reading.dtype, &padded);
    if (status != RESHARD_OK)
        return status;
    size_t file_count = (size_t)checkpoint->file_count;
    rs_file **files = rs_allocate_array(checkpoint->context, file_count, sizeof *files);
    if (files == NULL)
        return rs_allocation_status();
    for (size_t i = 0; i < file_count; i++)
        files[i] = checkpoint->files[i].file;
    reading.files = files;
    if (padded)
        clear_shards(layout, rank, reading.dtype, shards);
    status = rs_live_read_shards(&reading, layout, rank, shards);
    rs_release(checkpoint->context, files, file_count * sizeof *files);
    return status;
}
