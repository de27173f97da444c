/* SPDX-License-Identifier: Apache-2.0 */
/*
 * part.c - one rank's part: the moves of each template, worked out once. The part of an adjoint
 * plan is that of the plan it transposes, with the ends of every record exchanged.
 */
#include "plan/part.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "base/search.h"
#include "base/shape.h"
#include "plan/effort.h"
#include "plan/grid.h"

#include <assert.h>
#include <string.h>

/* ---- templates ------------------------------------------------------------------------------- */

typedef struct fill_listing {
    int32_t rank;
    rs_rank_moves *moves;
} fill_listing;

static reshard_status add_fill(void *user, const rs_match *match)
{
    fill_listing *r = user;
    rs_move move;
    rs_sender_fill_move(match, &match->box, NULL, match->mine, &move);
    move.kind = RESHARD_MOVE_FILL;
    move.reduction = RESHARD_SUM; /* whose identity is zero */
    move.contributor_count = 1;
    move.divisor = 1;
    move.mine = r->rank;
    move.first.peer = -1;
    return rs_family_add(&r->moves->keeps, &move);
}

static reshard_status add_chosen(const rs_chosen *chosen, int32_t rank, rs_rank_moves *moves)
{
    rs_move move = chosen->move;
    move.mine = rank;
    move.sending = chosen->source_rank == rank && chosen->target_rank != rank;
    move.first.peer = move.sending ? chosen->target_rank : chosen->source_rank;
    rs_family *family = chosen->source_rank == chosen->target_rank || chosen->source_rank < 0
                            ? &moves->keeps
                        : move.sending ? &moves->sends
                                       : &moves->receives;
    return rs_family_add(family, &move);
}

/* The first entry of the sorted list with this rank as its target (or source). */
static int64_t search_chosen(const rs_template *template, int32_t rank, bool by_source)
{
    const rs_chosen *list = template->chosen_by_target;
    int64_t at;
    if (by_source)
        RS_FIND_FIRST(at, template->chosen_count,
                      list[template->chosen_by_source[at]].source_rank >= rank);
    else
        RS_FIND_FIRST(at, template->chosen_count, list[at].target_rank >= rank);
    return at;
}

static reshard_status list_chosen(const rs_template *template, int32_t rank, rs_rank_moves *moves)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = search_chosen(template, rank, false);
         i < template->chosen_count && status == RESHARD_OK; i++) {
        const rs_chosen *chosen = &template->chosen_by_target[i];
        if (chosen->target_rank != rank)
            break;
        status = add_chosen(chosen, rank, moves);
    }
    for (int64_t i = search_chosen(template, rank, true);
         i < template->chosen_count && status == RESHARD_OK; i++) {
        const rs_chosen *chosen = &template->chosen_by_target[template->chosen_by_source[i]];
        if (chosen->source_rank != rank)
            break;
        if (chosen->target_rank != rank)
            status = add_chosen(chosen, rank, moves);
    }
    return status;
}

static reshard_status list_template(const rs_template *template, int32_t rank, rs_rank_moves *moves)
{
    fill_listing fill = {rank, moves};
    switch (template->kind) {
    case RS_TEMPLATE_GRID:
        return rs_grid_rank(&template->rule.link, rank, moves);
    case RS_TEMPLATE_MATCHES:
        return rs_sender_rank(&template->rule, rank, moves);
    case RS_TEMPLATE_CHOSEN:
        return list_chosen(template, rank, moves);
    case RS_TEMPLATE_FILL:
        return rs_match_target(&template->rule.link, rank, add_fill, &fill);
    }
    return RESHARD_OK;
}

#ifndef NDEBUG
/* Does each record have this rank at the end where it should be? */
static bool ends_fit(const reshard_part_moves *moves, int32_t rank)
{
    bool fit = true;
    for (int64_t i = 0; i < moves->receives.count; i++)
        fit = fit && moves->receives.items[i].target_rank == rank;
    for (int64_t i = 0; i < moves->sends.count; i++)
        fit = fit && moves->sends.items[i].source_rank == rank;
    for (int64_t i = 0; i < moves->keeps.count; i++) {
        const reshard_move *keep = &moves->keeps.items[i];
        fit = fit && keep->target_rank == rank &&
              (keep->source_rank == rank || keep->kind == RESHARD_MOVE_FILL);
    }
    return fit;
}
#endif

static reshard_status work_out(reshard_context *context, rs_arena *arena,
                               const rs_template *template, int32_t rank,
                               rs_template_moves *out_moves)
{
    reshard_status status = rs_effort_check(template, rank);
    if (status != RESHARD_OK)
        return status;
    rs_rank_moves moves;
    rs_family_init(&moves.receives, context, arena);
    rs_family_init(&moves.sends, context, arena);
    rs_family_init(&moves.keeps, context, arena);
    status = list_template(template, rank, &moves);
    if (status == RESHARD_OK)
        status = rs_family_finish(&moves.receives, &out_moves->shown.receives);
    if (status == RESHARD_OK)
        status = rs_family_finish(&moves.sends, &out_moves->shown.sends);
    if (status == RESHARD_OK)
        status = rs_family_finish(&moves.keeps, &out_moves->shown.keeps);
    assert(status != RESHARD_OK || ends_fit(&out_moves->shown, rank));
    out_moves->singles_in = moves.receives.single_count;
    out_moves->singles_out = moves.sends.single_count;
    out_moves->singles_kept = moves.keeps.single_count;
    out_moves->elements_in = moves.receives.element_count;
    out_moves->elements_out = moves.sends.element_count;
    out_moves->elements_kept = moves.keeps.element_count;
    rs_family_release(&moves.receives);
    rs_family_release(&moves.sends);
    rs_family_release(&moves.keeps);
    return status;
}

/* ---- adjoint --------------------------------------------------------------------------------- */

static reshard_status transpose_record(rs_arena *arena, reshard_move *record)
{
    reshard_move old = *record;
    record->kind = RESHARD_MOVE_ADD;
    record->source_rank = old.target_rank;
    record->target_rank = old.source_rank;
    record->source_shard = old.target_shard;
    record->target_shard = old.source_shard;
    record->source_strides = old.target_strides;
    record->target_strides = old.source_strides;
    record->source_at = old.target_at;
    record->target_at = old.source_at;
    record->contributor = 0;
    record->contributor_count = 1;
    record->reduction = RESHARD_SUM;
    if (old.loop_count == 0)
        return RESHARD_OK;
    reshard_move_loop *loops =
        rs_arena_copy(arena, old.loops, (size_t)old.loop_count, sizeof *loops);
    if (loops == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < old.loop_count; i++) {
        loops[i].source_step = old.loops[i].target_step;
        loops[i].target_step = old.loops[i].source_step;
        loops[i].contributor_step = 0;
    }
    record->loops = loops;
    return RESHARD_OK;
}

/* Fills have no source, so nothing flows back through them. They are left out. */
static reshard_status transpose_list(rs_arena *arena, reshard_moves *moves, uint64_t *dropped,
                                     uint64_t *dropped_singles)
{
    reshard_move *items = rs_arena_allocate_array(arena, (size_t)moves->count, sizeof *items);
    if (items == NULL)
        return rs_allocation_status();
    int64_t kept = 0;
    for (int64_t i = 0; i < moves->count; i++) {
        if (moves->items[i].kind == RESHARD_MOVE_FILL) {
            const reshard_move *fill = &moves->items[i];
            uint64_t singles = (uint64_t)reshard_move_count(fill);
            *dropped =
                rs_add_product_up(*dropped, singles, (uint64_t)rs_volume(fill->ndim, fill->size));
            *dropped_singles += singles;
            continue;
        }
        items[kept] = moves->items[i];
        reshard_status status = transpose_record(arena, &items[kept++]);
        if (status != RESHARD_OK)
            return status;
    }
    moves->items = items;
    moves->count = kept;
    return RESHARD_OK;
}

static reshard_status transpose(rs_arena *arena, rs_template_moves *moves)
{
    uint64_t dropped = 0, singles = 0;
    reshard_status status = transpose_list(arena, &moves->shown.receives, &dropped, &singles);
    if (status == RESHARD_OK)
        status = transpose_list(arena, &moves->shown.sends, &dropped, &singles);
    if (status == RESHARD_OK)
        status = transpose_list(arena, &moves->shown.keeps, &dropped, &singles);
    assert(status != RESHARD_OK || singles <= moves->singles_kept); /* fills are kept */
    if (moves->elements_kept != UINT64_MAX)
        moves->elements_kept -= dropped;
    moves->singles_kept -= singles;
    reshard_moves receives = moves->shown.receives;
    moves->shown.receives = moves->shown.sends;
    moves->shown.sends = receives;
    uint64_t in = moves->elements_in;
    moves->elements_in = moves->elements_out;
    moves->elements_out = in;
    in = moves->singles_in;
    moves->singles_in = moves->singles_out;
    moves->singles_out = in;
    return status;
}

/* ---- parts ----------------------------------------------------------------------------------- */

reshard_status rs_part_work_out(reshard_context *context, rs_arena *arena, const reshard_plan *plan,
                                int32_t rank, int32_t stage, int32_t template,
                                rs_template_moves *out_moves)
{
    const rs_stage *s = &rs_plan_forward(plan)->stages[rs_plan_forward_stage(plan, stage)];
    assert(template >= 0 && template <s->template_count);
    memset(out_moves, 0, sizeof *out_moves);
    reshard_status status = work_out(context, arena, &s->templates[template], rank, out_moves);
    return status == RESHARD_OK && plan->transposed != NULL ? transpose(arena, out_moves) : status;
}

static reshard_status build(reshard_part *part)
{
    const reshard_plan *forward = rs_plan_forward(part->plan);
    for (int32_t i = 0; i < forward->stage_count; i++) {
        const rs_stage *stage = &forward->stages[rs_plan_forward_stage(part->plan, i)];
        part->stages[i] = rs_arena_allocate_array(&part->arena, (size_t)stage->template_count,
                                                  sizeof *part->stages[i]);
        if (part->stages[i] == NULL)
            return rs_allocation_status();
        for (int32_t t = 0; t < stage->template_count; t++) {
            reshard_status status = rs_part_work_out(part->context, &part->arena, part->plan,
                                                     part->rank, i, t, &part->stages[i][t]);
            if (status != RESHARD_OK)
                return status;
        }
    }
    return RESHARD_OK;
}

reshard_status reshard_part_create(reshard_context *context, reshard_plan *plan, int32_t rank,
                                   reshard_part **out_part)
{
    if (rank < 0)
        return rs_fail(RESHARD_ERR_RANGE, "rank %d is negative", rank);
    reshard_part *part = rs_allocate_zeroed(context, sizeof *part);
    if (part == NULL)
        return rs_allocation_status();
    part->context = context;
    part->rank = rank;
    part->plan = reshard_plan_retain(plan);
    rs_arena_init(&part->arena, context);
    reshard_status status = build(part);
    if (status != RESHARD_OK) {
        reshard_part_destroy(part);
        return status;
    }
    *out_part = part;
    return RESHARD_OK;
}

void reshard_part_destroy(reshard_part *part)
{
    if (part == NULL)
        return;
    reshard_plan_release(part->plan);
    rs_arena_release(&part->arena);
    rs_release(part->context, part);
}

const rs_template_moves *rs_part_moves(const reshard_part *part, int32_t stage, int32_t index)
{
    const reshard_plan *forward = rs_plan_forward(part->plan);
    assert(stage >= 0 && stage < forward->stage_count);
    const rs_stage *s = &forward->stages[rs_plan_forward_stage(part->plan, stage)];
    assert(index >= 0 && index < s->link_count);
    return &part->stages[stage][s->links[index].template_index];
}

const reshard_part_moves *reshard_part_link(const reshard_part *part, int32_t stage, int32_t index)
{
    return &rs_part_moves(part, stage, index)->shown;
}

reshard_part_stats rs_part_stats(const reshard_part *part)
{
    const reshard_plan *forward = rs_plan_forward(part->plan);
    reshard_part_stats stats = {0};
    for (int32_t i = 0; i < forward->stage_count; i++) {
        const rs_stage *stage = &forward->stages[rs_plan_forward_stage(part->plan, i)];
        uint64_t through = 0; /* bytes that pass through staging in this stage */
        for (int32_t l = 0; l < stage->link_count; l++) {
            const rs_template_moves *moves = rs_part_moves(part, i, l);
            uint64_t bytes = (uint64_t)rs_stage_link_bytes(&stage->links[l]);
            stats.bytes_in = rs_add_product_up(stats.bytes_in, moves->elements_in, bytes);
            stats.bytes_out = rs_add_product_up(stats.bytes_out, moves->elements_out, bytes);
            stats.bytes_kept = rs_add_product_up(stats.bytes_kept, moves->elements_kept, bytes);
            stats.moves += moves->singles_in + moves->singles_out + moves->singles_kept;
            stats.moves_out += moves->singles_out;
            through = rs_add_product_up(through, moves->elements_in, bytes);
            through = rs_add_product_up(through, moves->elements_out, bytes);
        }
        for (int32_t t = 0; t < stage->template_count; t++) {
            const reshard_part_moves *shown = &part->stages[i][t].shown;
            stats.records +=
                (uint64_t)(shown->receives.count + shown->sends.count + shown->keeps.count);
        }
        if (through > forward->options.staging_bytes_max)
            through = forward->options.staging_bytes_max;
        if (through > stats.staging_bytes_peak)
            stats.staging_bytes_peak = through;
    }
    return stats;
}

reshard_status rs_part_check_stats(const reshard_part *part, const reshard_part_stats *stats)
{
    if (stats->bytes_in != UINT64_MAX && stats->bytes_out != UINT64_MAX &&
        stats->bytes_kept != UINT64_MAX)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_RANGE, "rank %d moves or keeps more bytes than 64 bits can count",
                   part->rank);
}

reshard_status reshard_part_get_stats(const reshard_part *part, reshard_part_stats *out_stats)
{
    reshard_part_stats stats = rs_part_stats(part);
    reshard_status status = rs_part_check_stats(part, &stats);
    return status == RESHARD_OK ? rs_report_write("part stats", &stats, sizeof stats, out_stats)
                                : status;
}

/* ---- single moves ---------------------------------------------------------------------------- */

int64_t reshard_move_count(const reshard_move *move)
{
    int64_t count = 1;
    for (int32_t i = 0; i < move->loop_count; i++)
        count *= move->loops[i].count;
    return count;
}

/* Whether this rank is the source end. Ask this of the record, not of a member: on the way from one
 * member to the next, the peer may pass over this rank's number. */
static bool is_sent_by(const reshard_move *record, int32_t rank)
{
    return record->source_rank == rank;
}

static void take_step(reshard_move *move, int64_t *start, bool sending,
                      const reshard_move_loop *loop, int64_t times)
{
    int32_t *peer = sending ? &move->target_rank : &move->source_rank;
    *peer += (int32_t)(times * loop->peer_step);
    move->contributor += (int32_t)(times * loop->contributor_step);
    move->source_at += times * loop->source_step;
    move->target_at += times * loop->target_step;
    for (int32_t d = 0; d < move->ndim; d++)
        start[d] += times * loop->start_steps[d];
}

void reshard_move_single(const reshard_move *move, int32_t rank, int64_t index,
                         reshard_move *out_move, int64_t out_start[RESHARD_FACTORS_MAX])
{
    reshard_move single = *move;
    memcpy(out_start, move->start, (size_t)move->ndim * sizeof *out_start);
    single.start = out_start;
    single.loop_count = 0;
    single.loops = NULL;
    for (int32_t i = move->loop_count - 1; i >= 0; i--) {
        const reshard_move_loop *loop = &move->loops[i];
        take_step(&single, out_start, is_sent_by(move, rank), loop, index % loop->count);
        index /= loop->count;
    }
    *out_move = single;
}

typedef struct single_listing {
    const reshard_move *record;
    bool sending;
    int32_t peer;
    rs_single_fn fn;
    void *user;
    /* By loop: how far down and up the peer can still go through this loop and those inside it. */
    int64_t down[RS_LOOPS_MAX + 1], up[RS_LOOPS_MAX + 1];
} single_listing;

static reshard_status list_loops(const single_listing *w, int32_t level, reshard_move *move,
                                 int64_t *start)
{
    if (w->peer >= 0) {
        int32_t at = w->sending ? move->target_rank : move->source_rank;
        if (w->peer < at + w->down[level] || w->peer > at + w->up[level])
            return RESHARD_OK;
    }
    if (level == w->record->loop_count)
        return w->fn(w->user, move);
    const reshard_move_loop *loop = &w->record->loops[level];
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < loop->count && status == RESHARD_OK; i++) {
        status = list_loops(w, level + 1, move, start);
        take_step(move, start, w->sending, loop, 1);
    }
    take_step(move, start, w->sending, loop, -loop->count);
    return status;
}

reshard_status rs_moves_each(const reshard_moves *moves, int32_t rank, int32_t peer,
                             rs_single_fn fn, void *user)
{
    reshard_status status = RESHARD_OK;
    for (int64_t i = 0; i < moves->count && status == RESHARD_OK; i++) {
        const reshard_move *record = &moves->items[i];
        single_listing w = {.record = record, .peer = peer, .fn = fn, .user = user};
        w.sending = is_sent_by(record, rank);
        for (int32_t l = record->loop_count - 1; l >= 0; l--) {
            int64_t reach = (record->loops[l].count - 1) * record->loops[l].peer_step;
            w.down[l] = w.down[l + 1] + rs_min(0, reach);
            w.up[l] = w.up[l + 1] + rs_max(0, reach);
        }
        int64_t start[RESHARD_FACTORS_MAX];
        memcpy(start, record->start, (size_t)record->ndim * sizeof *start);
        reshard_move single = *record;
        single.start = start;
        single.loop_count = 0;
        single.loops = NULL;
        status = list_loops(&w, 0, &single, start);
    }
    return status;
}
