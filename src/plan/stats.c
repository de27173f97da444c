/* SPDX-License-Identifier: Apache-2.0 */
/* stats.c - the figures of a whole plan, added up rank by rank: bytes, moves and the matrix. Also
 * the text form of a part. */
#include "base/checked.h"
#include "base/context.h"
#include "base/dtype.h"
#include "base/error.h"
#include "base/options.h"
#include "base/shape.h"
#include "plan/effort.h"
#include "plan/part.h"
#include "plan/plan.h"
#include "text/text.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* ---- the whole ------------------------------------------------------------------------------- */

/* Adds the bytes of a record that arrives at this rank, from loop `level` on, with `peer` as its
 * source. Loops that stay with one peer are multiplied instead of run. */
static void add_to_matrix(uint64_t *matrix, int32_t rank_count, const reshard_move *record,
                          int32_t level, int32_t peer, uint64_t bytes)
{
    if (level == record->loop_count) {
        /* Nobody sends a fill, so it counts as kept. */
        int32_t source = peer < 0 ? record->target_rank : peer;
        assert(source >= 0 && source < rank_count && record->target_rank < rank_count);
        matrix[(int64_t)source * rank_count + record->target_rank] += bytes;
        return;
    }
    const reshard_move_loop *loop = &record->loops[level];
    if (loop->peer_step == 0) {
        add_to_matrix(matrix, rank_count, record, level + 1, peer, bytes * (uint64_t)loop->count);
        return;
    }
    for (int64_t i = 0; i < loop->count; i++)
        add_to_matrix(matrix, rank_count, record, level + 1, peer + (int32_t)i * loop->peer_step,
                      bytes);
}

static void add_list_to_matrix(uint64_t *matrix, int32_t rank_count, const reshard_moves *moves,
                               uint64_t element_bytes)
{
    for (int64_t i = 0; i < moves->count; i++) {
        const reshard_move *record = &moves->items[i];
        uint64_t bytes = element_bytes * (uint64_t)rs_volume(record->ndim, record->size);
        add_to_matrix(matrix, rank_count, record, 0, record->source_rank, bytes);
    }
}

static void fill_matrix(const reshard_part *part, uint64_t *matrix)
{
    const reshard_plan *forward = rs_plan_forward(part->plan);
    for (int32_t i = 0; i < forward->stage_count; i++) {
        const rs_stage *stage = &forward->stages[rs_plan_forward_stage(part->plan, i)];
        for (int32_t l = 0; l < stage->link_count; l++) {
            const reshard_part_moves *moves = &rs_part_moves(part, i, l)->shown;
            uint64_t bytes = (uint64_t)rs_stage_link_bytes(&stage->links[l]);
            add_list_to_matrix(matrix, forward->rank_count, &moves->receives, bytes);
            add_list_to_matrix(matrix, forward->rank_count, &moves->keeps, bytes);
        }
    }
}

/* UINT64_MAX if they do not fit. */
static uint64_t target_bytes(const reshard_plan *plan)
{
    uint64_t bytes = 0;
    bool adjoint = plan->transposed != NULL;
    const reshard_plan *forward = rs_plan_forward(plan);
    int32_t count = adjoint ? forward->source_count : forward->target_count;
    const reshard_plan_tensor *tensors = adjoint ? forward->sources : forward->targets;
    for (int32_t i = 0; i < count; i++) {
        const reshard_layout *layout = tensors[i].layout;
        int64_t volume = rs_layout_shard_volume_sum(layout);
        /* A sum that ended at INT64_MAX is not one. */
        if (volume == INT64_MAX && layout->volume != INT64_MAX)
            return UINT64_MAX;
        bytes = rs_add_product_up(bytes, (uint64_t)volume, rs_element_bytes(tensors[i].dtype));
    }
    return bytes;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

reshard_status reshard_plan_get_stats(reshard_plan *plan, reshard_plan_stats *out_stats,
                                      uint64_t *matrix)
{
    reshard_context *context = plan->context;
    int32_t ranks = rs_plan_forward(plan)->rank_count;
    reshard_status status = rs_effort_check_all(rs_plan_forward(plan), false);
    if (status != RESHARD_OK)
        return status;
    reshard_plan_stats stats = {.bytes_total = target_bytes(plan),
                                .stages = rs_plan_forward(plan)->stage_count};
    if (matrix != NULL)
        memset(matrix, 0, (size_t)ranks * (size_t)ranks * sizeof *matrix);
    for (int32_t rank = 0; rank < ranks; rank++) {
        if (rs_context_cancelled(context))
            return rs_fail(RESHARD_ERR_CANCELLED, "cancelled at rank %d of %d", rank, ranks);
        rs_context_progress(context, "planning", (uint64_t)rank, (uint64_t)ranks);
        reshard_part *part = NULL;
        status = reshard_part_create(context, plan, rank, &part);
        if (status != RESHARD_OK)
            return status;
        if (matrix != NULL)
            fill_matrix(part, matrix);
        reshard_part_stats one = rs_part_stats(part);
        status = rs_part_check_stats(part, &one);
        reshard_part_destroy(part);
        if (status != RESHARD_OK)
            return status;
        stats.bytes_moved = rs_add_product_up(stats.bytes_moved, one.bytes_in, 1);
        stats.bytes_kept = rs_add_product_up(stats.bytes_kept, one.bytes_kept, 1);
        stats.moves += one.moves - one.moves_out; /* each is counted once, where it arrives */
        stats.records += one.records;
        stats.bytes_in_max = most(stats.bytes_in_max, one.bytes_in);
        stats.bytes_out_max = most(stats.bytes_out_max, one.bytes_out);
        stats.staging_bytes_peak = most(stats.staging_bytes_peak, one.staging_bytes_peak);
    }
    rs_context_progress(context, "planning", (uint64_t)ranks, (uint64_t)ranks);
    if (stats.bytes_total == UINT64_MAX || stats.bytes_moved == UINT64_MAX ||
        stats.bytes_kept == UINT64_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "the plan has more bytes than 64 bits can count");
    return rs_report_write("plan stats", &stats, sizeof stats, out_stats);
}

/* ---- text ------------------------------------------------------------------------------------ */

static void add_loops(rs_text *text, const reshard_move *move)
{
    for (int32_t i = 0; i < move->loop_count; i++) {
        const reshard_move_loop *loop = &move->loops[i];
        rs_text_add(text, " x%" PRId64 "(peer %+d, start", loop->count, loop->peer_step);
        for (int32_t d = 0; d < move->ndim; d++)
            rs_text_add(text, "%s%+" PRId64, d == 0 ? " " : ",", loop->start_steps[d]);
        rs_text_add(text, ", memory %+" PRId64 " -> %+" PRId64 ")", loop->source_step,
                    loop->target_step);
    }
}

static void add_record(rs_text *text, int32_t stage, int32_t link, const char *what,
                       const reshard_move *move)
{
    rs_text_add(text, "stage %d link %d: %s ", stage, link, what);
    if (move->kind == RESHARD_MOVE_FILL)
        rs_text_add(text, "fill");
    else
        rs_text_add(text, "%d -> %d", move->source_rank, move->target_rank);
    rs_text_add(text, " ");
    rs_text_add_box(text, move->ndim, move->start, move->size);
    if (move->kind != RESHARD_MOVE_FILL)
        rs_text_add(text, " at %" PRId64 " ->", move->source_at);
    else
        rs_text_add(text, " at");
    rs_text_add(text, " %" PRId64, move->target_at);
    if (move->kind == RESHARD_MOVE_COMBINE)
        rs_text_add(text, " %s %d/%d", reshard_reduction_name(move->reduction), move->contributor,
                    move->contributor_count);
    if (move->kind == RESHARD_MOVE_ADD)
        rs_text_add(text, " add");
    add_loops(text, move);
    rs_text_add(text, "\n");
}

reshard_status reshard_part_text(const reshard_part *part, char *buffer, size_t capacity,
                                 size_t *out_length)
{
    rs_text text;
    rs_text_init(&text, buffer, capacity);
    for (int32_t i = 0; i < rs_plan_forward(part->plan)->stage_count; i++) {
        for (int32_t l = 0; l < reshard_plan_stage_link_count(part->plan, i); l++) {
            const reshard_part_moves *moves = reshard_part_link(part, i, l);
            const reshard_moves *lists[3] = {&moves->keeps, &moves->receives, &moves->sends};
            static const char *const names[3] = {"keep", "receive", "send"};
            for (int k = 0; k < 3; k++) {
                for (int64_t m = 0; m < lists[k]->count; m++)
                    add_record(&text, i, l, names[k], &lists[k]->items[m]);
            }
        }
    }
    *out_length = text.length;
    return RESHARD_OK;
}
