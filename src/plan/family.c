/* SPDX-License-Identifier: Apache-2.0 */
/* family.c - folds moves into records, on the levels of ladder.h. */
#include "plan/family.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/shape.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

void rs_family_init(rs_family *family, reshard_context *context, rs_arena *arena)
{
    memset(family, 0, sizeof *family);
    family->context = context;
    family->arena = arena;
}

void rs_family_release(rs_family *family)
{
    rs_release(family->context, family->items);
    family->items = NULL;
    family->count = family->capacity = 0;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static bool same_numbers(int32_t count, const int64_t *a, const int64_t *b)
{
    return memcmp(a, b, (size_t)count * sizeof *a) == 0;
}

static bool same_place(const rs_move *form, const rs_steps *a, const rs_steps *b)
{
    return a->peer == b->peer && a->contributor == b->contributor && a->source_at == b->source_at &&
           a->target_at == b->target_at && same_numbers(form->ndim, a->start, b->start);
}

static bool same_form(const rs_move *a, const rs_move *b)
{
    if (a->kind != b->kind || a->source_shard != b->source_shard ||
        a->target_shard != b->target_shard || a->contributor_count != b->contributor_count ||
        a->reduction != b->reduction || a->divisor != b->divisor ||
        a->loop_count != b->loop_count || !same_numbers(a->ndim, a->size, b->size) ||
        !same_numbers(a->ndim, a->source_strides, b->source_strides) ||
        !same_numbers(a->ndim, a->target_strides, b->target_strides))
        return false;
    for (int32_t i = 0; i < a->loop_count; i++) {
        if (a->loops[i].count != b->loops[i].count ||
            !same_place(a, &a->loops[i].step, &b->loops[i].step))
            return false;
    }
    return true;
}

static rs_steps advance(const rs_move *form, const rs_steps *first, const rs_steps *step,
                        int64_t index)
{
    rs_steps moved;
    moved.peer = first->peer + (int32_t)(index * step->peer);
    moved.contributor = first->contributor + (int32_t)(index * step->contributor);
    moved.source_at = first->source_at + index * step->source_at;
    moved.target_at = first->target_at + index * step->target_at;
    for (int32_t i = 0; i < form->ndim; i++)
        moved.start[i] = first->start[i] + index * step->start[i];
    return moved;
}

/* ---- records --------------------------------------------------------------------------------- */

static reshard_status copy_loops(rs_family *family, const rs_move *move, reshard_move *record)
{
    if (move->loop_count == 0)
        return RESHARD_OK;
    reshard_move_loop *loops =
        rs_arena_allocate_array(family->arena, (size_t)move->loop_count, sizeof *loops);
    if (loops == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < move->loop_count; i++) {
        const rs_steps *steps = &move->loops[i].step;
        loops[i] = (reshard_move_loop){
            .count = move->loops[i].count,
            .peer_step = steps->peer,
            .contributor_step = steps->contributor,
            .source_step = steps->source_at,
            .target_step = steps->target_at,
            .start_steps =
                rs_arena_copy(family->arena, steps->start, (size_t)move->ndim, sizeof(int64_t)),
        };
        if (loops[i].start_steps == NULL)
            return rs_allocation_status();
    }
    record->loops = loops;
    return RESHARD_OK;
}

static reshard_status write_item(rs_family *family, const rs_move *move)
{
    assert(move->loop_count <= RS_LOOPS_MAX && move->contributor_count >= 1);
    /* Nobody sends to itself. What it receives from itself is a keep. */
    assert(!move->sending || move->first.peer != move->mine);
    if (family->count == RS_RECORDS_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "the part of rank %d has more than the %" PRId64 " records that can be kept",
                       move->mine, RS_RECORDS_MAX);
    reshard_status status = rs_grow(family->context, &family->items, &family->capacity,
                                    family->count + 1, sizeof *family->items);
    if (status != RESHARD_OK)
        return status;
    size_t ndim = (size_t)move->ndim;
    int64_t *numbers = rs_arena_allocate_array(family->arena, 4 * ndim, sizeof *numbers);
    if (numbers == NULL)
        return rs_allocation_status();
    memcpy(numbers, move->first.start, ndim * sizeof *numbers);
    memcpy(numbers + ndim, move->size, ndim * sizeof *numbers);
    memcpy(numbers + 2 * ndim, move->source_strides, ndim * sizeof *numbers);
    memcpy(numbers + 3 * ndim, move->target_strides, ndim * sizeof *numbers);
    reshard_move *record = &family->items[family->count];
    *record = (reshard_move){
        .kind = move->kind,
        .source_rank = move->sending ? move->mine : move->first.peer,
        .target_rank = move->sending ? move->first.peer : move->mine,
        .source_shard = move->source_shard,
        .target_shard = move->target_shard,
        .contributor = move->first.contributor,
        .contributor_count = move->contributor_count,
        .reduction = move->reduction,
        .divisor = move->divisor,
        .ndim = move->ndim,
        .loop_count = move->loop_count,
        .start = numbers,
        .size = numbers + ndim,
        .source_strides = numbers + 2 * ndim,
        .target_strides = numbers + 3 * ndim,
        .source_at = move->first.source_at,
        .target_at = move->first.target_at,
    };
    status = copy_loops(family, move, record);
    if (status == RESHARD_OK)
        family->count++;
    return status;
}

/* ---- moves ----------------------------------------------------------------------------------- */

#define LADDER rs_family
#define LADDER_ITEM rs_move
#define LADDER_PLACE rs_steps
#include "plan/ladder.h"

reshard_status rs_family_add(rs_family *family, const rs_move *move)
{
    assert(move->ndim >= 0 && move->ndim <= RESHARD_FACTORS_MAX);
    assert(move->loop_count >= 0 && move->loop_count <= RS_LOOPS_MAX);
    assert(rs_volume(move->ndim, move->size) > 0 || move->ndim == 0);
    uint64_t singles = 1;
    for (int32_t i = 0; i < move->loop_count; i++)
        singles *= (uint64_t)move->loops[i].count;
    assert(singles >= 1);
    family->single_count += singles;
    family->element_count = rs_add_product_up(family->element_count, singles,
                                              (uint64_t)rs_volume(move->ndim, move->size));
    return ladder_add(family, 0, move);
}

#ifndef NDEBUG
/* The records stand for the moves that were added, no more and no fewer. */
static bool is_complete(const rs_family *family)
{
    uint64_t singles = 0, elements = 0;
    for (int64_t i = 0; i < family->count; i++) {
        const reshard_move *record = &family->items[i];
        uint64_t count = (uint64_t)reshard_move_count(record);
        singles += count;
        elements =
            rs_add_product_up(elements, count, (uint64_t)rs_volume(record->ndim, record->size));
    }
    return singles == family->single_count && elements == family->element_count;
}
#endif

reshard_status rs_family_finish(rs_family *family, reshard_moves *out_moves)
{
    reshard_status status = ladder_finish(family);
    if (status != RESHARD_OK)
        return status;
    assert(is_complete(family));
    out_moves->count = family->count;
    out_moves->items =
        rs_arena_copy(family->arena, family->items, (size_t)family->count, sizeof *family->items);
    return out_moves->items == NULL ? rs_allocation_status() : RESHARD_OK;
}
