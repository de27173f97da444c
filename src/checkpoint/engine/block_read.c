/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_read.c - reads a block's share of each source piece into the first part of the buffer, each
 * byte once. Pieces of one entry of a file that are contiguous there are read as one range.
 */
#include "base/checked.h"
#include "base/context.h"
#include "checkpoint/engine/sink.h"
#include "checkpoint/store/formula.h"

#include <assert.h>
#include <string.h>

static rs_block_part *add_part(rs_worker *worker, int64_t piece, const rs_clip *clip, char *memory,
                               const int64_t *strides)
{
    assert(worker->part_count < worker->part_capacity);
    rs_block_part *part = &worker->parts[worker->part_count++];
    part->piece = piece;
    part->memory = memory;
    memcpy(part->offset, clip->offset, sizeof part->offset);
    memcpy(part->size, clip->size, sizeof part->size);
    memcpy(part->strides, strides, sizeof part->strides);
    return part;
}

static void sum_part(rs_worker *worker, const rs_block_part *part)
{
    rs_block_sums_read(&worker->sums, part->offset, part->size, part->memory, part->strides);
}

/* Reads one piece by itself, so that it is dense in memory. */
static reshard_status read_piece(rs_worker *worker, const rs_route *route, int64_t piece,
                                 const rs_clip *clip, char *memory)
{
    const rs_stored_tensor *source = route->source;
    rs_file_region region = {.ndim = source->carried_ndim, .element_bytes = source->element_bytes};
    memcpy(region.size, clip->size, sizeof region.size);
    memcpy(region.file_strides, clip->strides, sizeof region.file_strides);
    rs_dense_strides(region.ndim, region.size, region.memory_strides);
    const rs_block_part *part = add_part(worker, piece, clip, memory, region.memory_strides);
    reshard_status status = rs_file_region_read(
        worker->engine->sources[source->pieces[piece].file], clip->at, &region, memory,
        worker->target, (size_t)(worker->buffer + worker->buffer_bytes - worker->target));
    if (status == RESHARD_OK)
        sum_part(worker, part);
    return status;
}

/* The block's share of the pieces of one entry. */
typedef struct group_span {
    uint64_t begin, end; /* byte offsets in the file */
    uint64_t bytes;      /* of the block's elements, which may have gaps between them */
    int64_t parts;
} group_span;

static group_span span_group(const rs_stored_tensor *source, int64_t first, int64_t count,
                             const rs_block_box *box)
{
    group_span span = {.begin = UINT64_MAX};
    for (int64_t i = first; i < first + count; i++) {
        rs_clip clip;
        if (!rs_piece_clip(source, &source->pieces[i], box->offset, box->size, &clip))
            continue;
        span.begin = clip.at < span.begin ? clip.at : span.begin;
        span.end = clip.end > span.end ? clip.end : span.end;
        span.bytes += (uint64_t)clip.bytes;
        span.parts++;
    }
    return span;
}

/* Reads the pieces of one entry to `memory`. */
static reshard_status read_group(rs_worker *worker, const rs_route *route, int64_t first,
                                 int64_t count, const rs_block_box *box, const group_span *span,
                                 char *memory)
{
    const rs_stored_tensor *source = route->source;
    bool together = span->end - span->begin == span->bytes;
    reshard_status status = RESHARD_OK;
    int64_t first_part = worker->part_count;
    for (int64_t i = first; status == RESHARD_OK && i < first + count; i++) {
        rs_clip clip;
        if (!rs_piece_clip(source, &source->pieces[i], box->offset, box->size, &clip))
            continue;
        if (together) {
            add_part(worker, i, &clip, memory + (clip.at - span->begin), clip.strides);
        } else {
            status = read_piece(worker, route, i, &clip, memory);
            memory += clip.bytes;
        }
    }
    if (status != RESHARD_OK || !together)
        return status;
    int32_t file = source->pieces[first].file;
    status = rs_file_read(worker->engine->sources[file], memory, (size_t)span->bytes, span->begin);
    if (status == RESHARD_OK)
        rs_crcs_add(worker->engine->crcs, route, file, memory, (size_t)span->bytes, span->begin);
    for (int64_t i = first_part; status == RESHARD_OK && i < worker->part_count; i++)
        sum_part(worker, &worker->parts[i]);
    return status;
}

/* Splits the buffer: source bytes first, target bytes after them. rs_blocks_cut made the block
 * small enough for both to fit. */
static void split_buffer(rs_worker *worker, const rs_route *route, const rs_block_box *box)
{
    size_t bytes =
        (size_t)(rs_volume(route->source->carried_ndim, box->size) * route->source->element_bytes);
    size_t gap = rs_blocks_gap(route, worker->buffer_bytes);
    worker->alignment = gap != 0 ? RS_BLOCK_ALIGNMENT : 1;
    bytes += gap * (size_t)route->source->piece_count + RS_BLOCK_ALIGNMENT;
    worker->target = worker->buffer + bytes / RS_BLOCK_ALIGNMENT * RS_BLOCK_ALIGNMENT;
}

/* Computes the whole block as one dense part. The target's half of the buffer is not in use yet,
 * and serves as scratch. */
static reshard_status make_block(rs_worker *worker, const rs_route *route, const rs_block_box *box)
{
    const rs_stored_tensor *source = route->source;
    rs_clip clip;
    rs_formula_tally tally = {0};
    int64_t strides[RESHARD_NDIM_MAX];
    size_t scratch_bytes = (size_t)(worker->buffer + worker->buffer_bytes - worker->target);
    reshard_status status = rs_grow(worker->engine->context, &worker->parts, &worker->part_capacity,
                                    1, sizeof *worker->parts);
    if (status != RESHARD_OK ||
        !rs_piece_clip(source, &source->pieces[0], box->offset, box->size, &clip))
        return status;
    rs_dense_strides(source->carried_ndim, box->size, strides);
    const rs_block_part *part = add_part(worker, 0, &clip, worker->buffer, strides);
    status = rs_formula_read(source, box->offset, box->size, worker->buffer, worker->target,
                             scratch_bytes, &tally);
    worker->overflows += tally.overflows;
    rs_worker_count_read(worker, tally.bytes_read);
    if (status == RESHARD_OK)
        sum_part(worker, part);
    return status;
}

static reshard_status read_block(rs_worker *worker, const rs_route *route, const rs_block_box *box)
{
    const rs_stored_tensor *source = route->source;
    reshard_status status = RESHARD_OK;
    size_t used = 0;
    split_buffer(worker, route, box);
    worker->part_count = 0;
    if (source->formula != NULL)
        return make_block(worker, route, box);
    for (int64_t i = 0, count; status == RESHARD_OK && i < source->piece_count; i += count) {
        count = rs_piece_group(source->pieces, source->piece_count, i);
        group_span span = span_group(source, i, count, box);
        if (span.bytes == 0)
            continue;
        status = rs_grow(worker->engine->context, &worker->parts, &worker->part_capacity,
                         worker->part_count + span.parts, sizeof *worker->parts);
        if (status == RESHARD_OK)
            status = read_group(worker, route, i, count, box, &span, worker->buffer + used);
        used += (size_t)span.bytes;
        used = (used + worker->alignment - 1) / worker->alignment * worker->alignment;
        rs_worker_count_read(worker, span.bytes);
    }
    assert(worker->buffer + used <= worker->target);
    return status;
}

reshard_status rs_block_read(rs_worker *worker, const rs_route *route, const rs_block_box *box)
{
    rs_trace_event event;
    uint64_t before = worker->bytes_read;
    rs_worker_begin(worker, RS_TRACE_READ, &event);
    reshard_status status = read_block(worker, route, box);
    rs_worker_end(worker, &event, worker->bytes_read - before);
    return status;
}
