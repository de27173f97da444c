/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_emit.c - rearranges a block from the order of the source into that of the target's files.
 * For each group of target pieces that share an entry, its moves are copied (or cast) into the
 * second part of the buffer, which then holds one range of the file. Ranges that are long already
 * are handed on from where they were read, without that copy.
 */
#include "base/checked.h"
#include "base/search.h"
#include "checkpoint/engine/sink.h"
#include "kernel/copy/copy.h"
#include "kernel/values/cast.h"

#include <assert.h>
#include <string.h>

/* Ranges at least this long are worth a write of their own. */
#define RUN_BYTES_MIN ((int64_t)256 << 10)

/* ---- moves ----------------------------------------------------------------------------------- */

static uint64_t byte_of(const rs_stored_tensor *tensor, const rs_stored_piece *piece,
                        const rs_route_move *move, int64_t at, const int64_t *strides,
                        const int64_t *place)
{
    for (int32_t d = 0; d < tensor->carried_ndim; d++)
        at += (place[d] - move->offset[d]) * strides[d];
    return piece->at + (uint64_t)(at * tensor->element_bytes);
}

uint64_t rs_move_source_byte(const rs_route *route, const rs_route_move *move, const int64_t *place)
{
    return byte_of(route->source, &route->source->pieces[move->source], move, move->source_at,
                   move->source_strides, place);
}

uint64_t rs_move_target_byte(const rs_route *route, const rs_route_move *move, const int64_t *place)
{
    return byte_of(route->target, &route->target->pieces[move->target], move, move->target_at,
                   move->target_strides, place);
}

bool rs_move_clip(const rs_route *route, const rs_route_move *move, const rs_block_box *box,
                  rs_block_box *out_inside)
{
    int32_t ndim = route->source->carried_ndim;
    *out_inside = *box;
    return rs_box_clip(ndim, out_inside->offset, out_inside->size, move->offset, move->size);
}

/* ---- a block's share of a move --------------------------------------------------------------- */

typedef struct move_view {
    rs_block_box box;
    int64_t bytes; /* in the target's dtype */
    const rs_block_part *part;
    const char *memory; /* where the box begins in the part */
} move_view;

static const rs_block_part *find_part(const rs_worker *worker, int64_t piece)
{
    int64_t at;
    RS_FIND_FIRST(at, worker->part_count, worker->parts[at].piece >= piece);
    assert(at < worker->part_count && worker->parts[at].piece == piece);
    return &worker->parts[at];
}

/* Returns false if the block has nothing of the move. */
static bool view_move(const rs_worker *worker, const rs_route *route, const rs_route_move *move,
                      const rs_block_box *box, move_view *view)
{
    int64_t at = 0;
    if (!rs_move_clip(route, move, box, &view->box))
        return false;
    view->part = find_part(worker, move->source);
    for (int32_t d = 0; d < route->source->carried_ndim; d++)
        at += (view->box.offset[d] - view->part->offset[d]) * view->part->strides[d];
    view->memory = view->part->memory + at * route->source->element_bytes;
    view->bytes =
        rs_volume(route->target->carried_ndim, view->box.size) * route->target->element_bytes;
    return true;
}

/* `overflows`: counter for casts that overflow, or NULL if another piece has counted the same
 * ones. */
static void copy_move(const rs_route *route, const move_view *view, char *target,
                      const int64_t *target_strides, int64_t *overflows)
{
    int32_t ndim = route->source->carried_ndim;
    if (route->casts) {
        rs_cast cast;
        rs_cast_prepare(&cast, route->source->dtype, route->target->dtype, ndim, view->box.size,
                        view->part->strides, target_strides);
        cast.overflows = overflows;
        rs_cast_run(&cast, view->memory, target);
        return;
    }
    /* The copy is written to a file next: keep it in the cache instead of streaming past it. */
    const rs_copy_tuning tuning = {.cpu = rs_cpu_detect(), .stream_bytes = SIZE_MAX};
    rs_copy copy;
    rs_copy_prepare_tuned(&copy, &tuning, route->source->element_bytes, ndim, view->box.size,
                          view->part->strides, target_strides);
    rs_copy_run(&copy, view->memory, target);
}

/* ---- a group of target pieces ---------------------------------------------------------------- */

/* The target pieces that share one entry, and their moves. */
typedef struct target_group {
    rs_worker *worker;
    const rs_route *route;
    const rs_block_box *box;
    rs_range_fn *take;
    int64_t first, count;             /* range of pieces */
    const rs_route_move *moves, *end; /* moves of all these pieces, in the order of the pieces */
    uint64_t file_begin, file_end;    /* the range of the file that the block's share spans */
} target_group;

/* How many moves, from `first` on, belong to the piece. */
static int64_t count_moves(const target_group *group, int64_t piece, const rs_route_move *first)
{
    const rs_route_move *next = first;
    while (next < group->end && next->target == piece)
        next++;
    return next - first;
}

/* Whether all moves of the group can be handed on from where they were read: each one is contiguous
 * in memory and in the file, and is long or the only move of its piece. */
static bool can_pass_on(const target_group *group)
{
    const rs_route *route = group->route;
    int32_t ndim = route->target->carried_ndim;
    if (route->casts)
        return false;
    const rs_route_move *moves = group->moves;
    for (int64_t i = group->first, count; i < group->first + group->count; i++, moves += count) {
        count = count_moves(group, i, moves);
        for (int64_t j = 0; j < count; j++) {
            move_view view;
            if (!view_move(group->worker, route, &moves[j], group->box, &view))
                continue;
            if (!rs_strides_are_dense(ndim, view.box.size, view.part->strides) ||
                !rs_strides_are_dense(ndim, view.box.size, moves[j].target_strides))
                return false;
            if (count > 1 && view.bytes < RUN_BYTES_MIN)
                return false;
        }
    }
    return true;
}

/* Hands one range to the sink. */
static reshard_status take_range(const target_group *group, int32_t file, const char *bytes,
                                 size_t count, uint64_t at)
{
    rs_trace_event event;
    rs_worker_begin(group->worker, group->worker->engine->sink->takes, &event);
    reshard_status status = group->take(group->worker, group->route, file, bytes, count, at);
    rs_worker_end(group->worker, &event, count);
    return status;
}

static reshard_status pass_on(const target_group *group)
{
    const rs_route *route = group->route;
    reshard_status status = RESHARD_OK;
    for (const rs_route_move *move = group->moves; status == RESHARD_OK && move < group->end;
         move++) {
        move_view view;
        if (!view_move(group->worker, route, move, group->box, &view))
            continue;
        rs_block_sums_write(&group->worker->sums, move->target, view.box.offset, view.box.size,
                            view.memory, view.part->strides);
        status = take_range(group, route->target->pieces[move->target].file, view.memory,
                            (size_t)view.bytes, rs_move_target_byte(route, move, view.box.offset));
    }
    return status;
}

/* The byte offset of an element, given by its place in the tensor, from the first byte of the
 * clip. */
static int64_t place_in(const rs_route *route, const rs_clip *clip, const int64_t *place)
{
    int64_t at = 0;
    for (int32_t d = 0; d < route->target->carried_ndim; d++)
        at += (place[d] - clip->offset[d]) * clip->strides[d];
    return at * route->target->element_bytes;
}

/* Copies the block's share of one piece to `memory`, with the strides of the clip, and sums it. */
static void arrange_piece(const target_group *group, int64_t piece, const rs_route_move *moves,
                          int64_t count, const rs_clip *clip, char *memory)
{
    const rs_route *route = group->route;
    bool is_again = route->again != NULL && route->again[piece];
    for (int64_t j = 0; j < count; j++) {
        move_view view;
        if (view_move(group->worker, route, &moves[j], group->box, &view))
            copy_move(route, &view, memory + place_in(route, clip, view.box.offset), clip->strides,
                      is_again ? NULL : &group->worker->overflows);
    }
    rs_block_sums_write(&group->worker->sums, piece, clip->offset, clip->size, memory,
                        clip->strides);
}

static void assemble_piece(const target_group *group, int64_t piece, const rs_route_move *moves,
                           int64_t count, const rs_clip *clip, char *memory)
{
    rs_trace_event event;
    rs_worker_begin(group->worker, RS_TRACE_ARRANGE, &event);
    arrange_piece(group, piece, moves, count, clip, memory);
    rs_worker_end(group->worker, &event, (uint64_t)clip->bytes);
}

/* Hands the sink, run by run, a box that is dense in memory but strided in the file. */
static reshard_status take_runs(const target_group *group, int32_t file, const rs_clip *clip)
{
    const rs_stored_tensor *target = group->route->target;
    int32_t outer = target->carried_ndim;
    int64_t run = 1, runs = 1, index[RESHARD_NDIM_MAX] = {0};
    while (outer > 0 && (clip->strides[outer - 1] == run || clip->size[outer - 1] == 1))
        run *= clip->size[--outer];
    for (int32_t d = 0; d < outer; d++)
        runs *= clip->size[d];
    size_t run_bytes = (size_t)(run * target->element_bytes);
    for (int64_t i = 0; i < runs; i++) {
        int64_t at = 0;
        for (int32_t d = 0; d < outer; d++)
            at += index[d] * clip->strides[d];
        reshard_status status = group->take(
            group->worker, group->route, file, group->worker->target + (size_t)i * run_bytes,
            run_bytes, clip->at + (uint64_t)(at * target->element_bytes));
        if (status != RESHARD_OK)
            return status;
        for (int32_t d = outer - 1; d >= 0 && ++index[d] == clip->size[d]; d--)
            index[d] = 0;
    }
    return RESHARD_OK;
}

/* Pieces that are contiguous in the file are assembled as one range. Others are assembled one by
 * one, dense in memory, and handed out run by run. */
static reshard_status assemble(const target_group *group, bool together)
{
    const rs_stored_tensor *target = group->route->target;
    rs_worker *worker = group->worker;
    reshard_status status = RESHARD_OK;
    const rs_route_move *moves = group->moves;
    int32_t file = target->pieces[group->first].file;
    for (int64_t i = group->first, count; status == RESHARD_OK && i < group->first + group->count;
         i++, moves += count) {
        rs_clip clip, dense;
        count = count_moves(group, i, moves);
        if (!rs_piece_clip(target, &target->pieces[i], group->box->offset, group->box->size, &clip))
            continue;
        if (together) {
            assemble_piece(group, i, moves, count, &clip,
                           worker->target + (clip.at - group->file_begin));
            continue;
        }
        dense = clip;
        rs_dense_strides(target->carried_ndim, clip.size, dense.strides);
        assemble_piece(group, i, moves, count, &dense, worker->target);
        rs_trace_event event;
        rs_worker_begin(worker, worker->engine->sink->takes, &event);
        status = take_runs(group, file, &clip);
        rs_worker_end(worker, &event, (uint64_t)clip.bytes);
    }
    if (!together)
        return status;
    return take_range(group, file, worker->target, (size_t)(group->file_end - group->file_begin),
                      group->file_begin);
}

static reshard_status emit_group(target_group *group)
{
    const rs_stored_tensor *target = group->route->target;
    uint64_t bytes = 0;
    group->file_begin = UINT64_MAX;
    group->file_end = 0;
    for (int64_t i = group->first; i < group->first + group->count; i++) {
        rs_clip clip;
        if (!rs_piece_clip(target, &target->pieces[i], group->box->offset, group->box->size, &clip))
            continue;
        group->file_begin = clip.at < group->file_begin ? clip.at : group->file_begin;
        group->file_end = clip.end > group->file_end ? clip.end : group->file_end;
        bytes += (uint64_t)clip.bytes;
    }
    if (bytes == 0)
        return RESHARD_OK;
    if (can_pass_on(group))
        return pass_on(group);
    return assemble(group, group->file_end - group->file_begin == bytes);
}

reshard_status rs_block_emit(rs_worker *worker, const rs_route *route, const rs_block_box *box,
                             rs_range_fn *take)
{
    const rs_stored_tensor *target = route->target;
    const rs_route_move *last = route->moves + route->move_count;
    target_group group = {.worker = worker, .route = route, .box = box, .take = take};
    reshard_status status = RESHARD_OK;
    group.end = route->moves;
    for (; status == RESHARD_OK && group.first < target->piece_count; group.first += group.count) {
        group.count = rs_piece_group(target->pieces, target->piece_count, group.first);
        group.moves = group.end;
        while (group.end < last && group.end->target < group.first + group.count)
            group.end++;
        status = emit_group(&group);
    }
    return status;
}
