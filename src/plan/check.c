/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.c - proves that a plan does what its layouts and links say, from the single moves of all
 * ranks and the shards that the layouts list. It uses nothing that finds moves: the mapping of a
 * link is written a second time, by strides (check_links.c).
 *
 * A move is a box of link space with two affine maps to memory. For each stage link:
 *  1. Both corners of each box lie in one piece of the source shard and in one of the target shard,
 *     the first element is where these pieces say, and the strides are those of the pieces. Then
 *     every element of the box is read from and written to the right place.
 *  2. For each target shard and contributor, the boxes are disjoint, and together they have the
 *     volume that the shard has in the link's part of the target. Then every element arrives
 *     exactly once.
 *  3. When sorted, the moves that all ranks send equal the moves that all ranks receive.
 * Also, the stage links of a target fill it: they are disjoint and together have its volume.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/shape.h"
#include "base/sort.h"
#include "layout/index.h"
#include "layout/layout.h"
#include "plan/check_links.h"
#include "plan/effort.h"
#include "plan/part.h"
#include "plan/plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- rule 1: places -------------------------------------------------------------------------- */

typedef struct checker {
    reshard_plan *plan;
    reshard_context *context;
    int32_t stage, link;
    rs_link_map map;
    reshard_shards **source_shards, **target_shards; /* by rank, for the current link */
    reshard_part **parts;
    reshard_move *sent, *received; /* of the current link */
    int64_t sent_count, sent_capacity, received_count, received_capacity;
    rs_arena arena; /* holds the arrays that `start` of these moves points to */
} checker;

static reshard_status fail(const checker *c, const reshard_move *move, const char *what)
{
    return rs_fail(RESHARD_ERR_CHECK, "stage %d, link %d, move from rank %d to rank %d: %s",
                   c->stage, c->link, move->source_rank, move->target_rank, what);
}

static void corner(const checker *c, const rs_side_map *map, const reshard_move *move, bool last,
                   int64_t *out)
{
    for (int32_t d = 0; d < map->ndim; d++)
        out[d] = map->origin[d];
    for (int32_t i = 0; i < c->map.ndim && map->ndim != 0; i++) {
        int64_t x = move->start[i] + (last ? move->size[i] - 1 : 0);
        out[map->dim[i]] += x * map->weight[i];
    }
}

static bool box_has(const reshard_box *box, const int64_t *point)
{
    for (int32_t d = 0; d < box->ndim; d++) {
        if (point[d] < box->offset[d] || point[d] >= box->offset[d] + box->size[d])
            return false;
    }
    return true;
}

static const reshard_piece *find_piece(const reshard_shard *shard, const int64_t *first,
                                       const int64_t *last)
{
    for (int64_t p = 0; p < shard->piece_count; p++) {
        if (box_has(&shard->pieces[p].box, first) && box_has(&shard->pieces[p].box, last))
            return &shard->pieces[p];
    }
    return NULL;
}

static reshard_status check_place(const checker *c, const reshard_move *move,
                                  const rs_side_map *map, const reshard_shards *shards,
                                  int32_t shard_index, int64_t at, const int64_t *strides,
                                  const reshard_shard **out_shard)
{
    if (shards == NULL || shard_index < 0 || shard_index >= shards->count)
        return fail(c, move, "the shard does not exist");
    const reshard_shard *shard = &shards->items[shard_index];
    int64_t first[RESHARD_NDIM_MAX], last[RESHARD_NDIM_MAX];
    corner(c, map, move, false, first);
    corner(c, map, move, true, last);
    const reshard_piece *piece = find_piece(shard, first, last);
    if (piece == NULL)
        return fail(c, move, "the shard does not have the box in one piece");
    int64_t expected = piece->at;
    for (int32_t d = 0; d < map->ndim; d++)
        expected += (first[d] - piece->box.offset[d]) * piece->strides[d];
    if (expected != at)
        return fail(c, move, "the box does not begin where the shard has it");
    for (int32_t i = 0; i < c->map.ndim; i++) {
        if (move->size[i] != 1 && strides[i] != piece->strides[map->dim[i]] * map->weight[i])
            return fail(c, move, "the steps through memory differ from the strides of the shard");
    }
    *out_shard = shard;
    return RESHARD_OK;
}

static reshard_status check_kind(const checker *c, const reshard_move *move,
                                 const reshard_shard *source, const reshard_shard *target)
{
    if (target->partial)
        return RESHARD_OK; /* where each contribution goes is free; rule 2 checks that it arrives */
    if (move->kind == RESHARD_MOVE_COPY)
        return source->contributor_count == 1 && source->divisor == 1
                   ? RESHARD_OK
                   : fail(c, move, "a contribution is copied instead of combined");
    if (move->contributor != source->contributor ||
        move->contributor_count != source->contributor_count || move->divisor != source->divisor ||
        move->reduction != source->reduction)
        return fail(c, move, "a contribution is combined as another one");
    return RESHARD_OK;
}

/* ---- collecting ------------------------------------------------------------------------------ */

static reshard_status keep_move(checker *c, const reshard_move *move, reshard_move **list,
                                int64_t *count, int64_t *capacity)
{
    reshard_status status = rs_grow(c->context, (void **)list, capacity, *count + 1, sizeof **list);
    if (status != RESHARD_OK)
        return status;
    reshard_move *kept = &(*list)[*count];
    *kept = *move;
    kept->start = rs_arena_copy(&c->arena, move->start, (size_t)move->ndim, sizeof *move->start);
    if (kept->start == NULL)
        return rs_allocation_status();
    ++*count;
    return RESHARD_OK;
}

static reshard_status see_sent(void *user, const reshard_move *move)
{
    checker *c = user;
    return keep_move(c, move, &c->sent, &c->sent_count, &c->sent_capacity);
}

static reshard_status see_received(void *user, const reshard_move *move)
{
    checker *c = user;
    const reshard_shard *source = NULL, *target = NULL;
    int32_t ranks = rs_plan_forward(c->plan)->rank_count;
    if (move->target_rank < 0 || move->target_rank >= ranks || move->source_rank >= ranks)
        return fail(c, move, "the rank does not exist");
    reshard_status status =
        check_place(c, move, &c->map.target, c->target_shards[move->target_rank],
                    move->target_shard, move->target_at, move->target_strides, &target);
    if (status == RESHARD_OK && move->kind != RESHARD_MOVE_FILL) {
        if (move->source_rank < 0)
            return fail(c, move, "the rank does not exist");
        status = check_place(c, move, &c->map.source, c->source_shards[move->source_rank],
                             move->source_shard, move->source_at, move->source_strides, &source);
        if (status == RESHARD_OK)
            status = check_kind(c, move, source, target);
    }
    if (status == RESHARD_OK)
        status = keep_move(c, move, &c->received, &c->received_count, &c->received_capacity);
    return status;
}

/* ---- rule 2: once ---------------------------------------------------------------------------- */

static int compare_places(const void *a, const void *b)
{
    const reshard_move *x = a, *y = b;
    const int64_t keys[8][2] = {
        {x->target_rank, y->target_rank}, {x->target_shard, y->target_shard},
        {x->contributor, y->contributor}, {x->target_at, y->target_at},
        {x->source_rank, y->source_rank}, {x->source_shard, y->source_shard},
        {x->source_at, y->source_at},     {x->kind, y->kind},
    };
    for (int i = 0; i < 8; i++) {
        if (keys[i][0] != keys[i][1])
            return keys[i][0] < keys[i][1] ? -1 : 1;
    }
    for (int32_t d = 0; d < x->ndim; d++) {
        if (x->start[d] != y->start[d] || x->size[d] != y->size[d])
            return x->start[d] != y->start[d] ? (x->start[d] < y->start[d] ? -1 : 1)
                                              : (x->size[d] < y->size[d] ? -1 : 1);
    }
    return 0;
}

typedef struct overlap {
    const checker *c;
    const reshard_move *moves;
    int64_t index;
} overlap;

static reshard_status see_overlap(void *user, int64_t box)
{
    const overlap *o = user;
    return box == o->index ? RESHARD_OK : fail(o->c, &o->moves[box], "an element arrives twice");
}

static reshard_status check_disjoint(checker *c, const reshard_move *moves, int64_t count)
{
    int32_t ndim = c->map.ndim;
    rs_arena arena;
    rs_arena_init(&arena, c->context);
    int64_t *boxes =
        rs_arena_allocate_array(&arena, (size_t)count, (size_t)(2 * ndim) * sizeof *boxes);
    reshard_status status = boxes == NULL ? rs_allocation_status() : RESHARD_OK;
    for (int64_t i = 0; i < count && status == RESHARD_OK; i++) {
        for (int32_t d = 0; d < ndim; d++) {
            boxes[i * 2 * ndim + d] = moves[i].start[d];
            boxes[i * 2 * ndim + ndim + d] = moves[i].start[d] + moves[i].size[d];
        }
    }
    rs_index index;
    if (status == RESHARD_OK)
        status = rs_index_build(&index, &arena, ndim, count, boxes);
    for (int64_t i = 0; i < count && status == RESHARD_OK; i++) {
        overlap o = {c, moves, i};
        const int64_t *box = boxes + i * 2 * ndim;
        status = rs_index_visit(&index, box, box + ndim, see_overlap, &o);
    }
    rs_arena_release(&arena);
    return status;
}

/* Number of elements that a shard has in the link's part of the target. */
static int64_t volume_in_link(const checker *c, const reshard_shard *shard)
{
    int64_t sum = 0;
    for (int64_t p = 0; p < shard->piece_count; p++)
        sum += rs_link_map_volume(&c->map, &shard->pieces[p].box);
    return sum;
}

static int64_t volume_of(const reshard_move *move)
{
    return rs_volume(move->ndim, move->size);
}

/* Checks the moves to one shard, which are sorted by contributor. Fills and copies count as
 * contributor 0. */
static reshard_status check_shard(checker *c, const reshard_shard *shard, const reshard_move *moves,
                                  int64_t count)
{
    int64_t arrived = 0; /* elements, counted at their first contributor */
    reshard_status status = RESHARD_OK;
    for (int64_t first = 0; first < count && status == RESHARD_OK;) {
        int64_t next = first;
        while (next < count && moves[next].contributor == moves[first].contributor)
            next++;
        status = check_disjoint(c, moves + first, next - first);
        for (int64_t i = first; i < next; i++) {
            int32_t of = moves[i].kind == RESHARD_MOVE_COMBINE ? moves[i].contributor_count : 1;
            if (moves[i].contributor >= of)
                return fail(c, &moves[i], "the contributor does not exist");
            if (moves[i].contributor == 0)
                arrived += volume_of(&moves[i]);
        }
        first = next;
    }
    if (status == RESHARD_OK && arrived != volume_in_link(c, shard))
        return rs_fail(RESHARD_ERR_CHECK,
                       "stage %d, link %d: %" PRId64 " of %" PRId64 " elements arrive at rank %d",
                       c->stage, c->link, arrived, volume_in_link(c, shard), shard->rank);
    return status;
}

/* All contributors of a combination must bring the same elements as the first. Comparing volumes is
 * enough, because the boxes of each are disjoint. */
static reshard_status check_contributions(checker *c, const reshard_move *moves, int64_t count)
{
    int64_t balance = 0; /* what contributor 0 promises for the others, minus what they bring */
    for (int64_t i = 0; i < count; i++) {
        if (moves[i].kind != RESHARD_MOVE_COMBINE)
            continue;
        int64_t others = moves[i].contributor_count - 1;
        balance +=
            moves[i].contributor == 0 ? volume_of(&moves[i]) * others : -volume_of(&moves[i]);
    }
    return balance == 0 ? RESHARD_OK : fail(c, &moves[0], "a contribution is missing");
}

static reshard_status check_arrivals(checker *c)
{
    rs_sort(c->received, (size_t)c->received_count, sizeof *c->received, compare_places);
    int64_t next = 0;
    reshard_status status = RESHARD_OK;
    for (int32_t rank = 0; rank < rs_plan_forward(c->plan)->rank_count; rank++) {
        const reshard_shards *shards = c->target_shards[rank];
        for (int64_t s = 0; shards != NULL && s < shards->count && status == RESHARD_OK; s++) {
            int64_t first = next;
            while (next < c->received_count && c->received[next].target_rank == rank &&
                   c->received[next].target_shard == s)
                next++;
            const reshard_move *moves = next > first ? c->received + first : NULL;
            status = check_shard(c, &shards->items[s], moves, next - first);
            if (status == RESHARD_OK && next > first)
                status = check_contributions(c, moves, next - first);
        }
    }
    return status;
}

/* ---- rule 3: both ends ----------------------------------------------------------------------- */

static reshard_status check_both_ends(checker *c)
{
    rs_sort(c->sent, (size_t)c->sent_count, sizeof *c->sent, compare_places);
    int64_t next = 0;
    for (int64_t i = 0; i < c->received_count; i++) {
        const reshard_move *move = &c->received[i];
        if (move->kind == RESHARD_MOVE_FILL || move->source_rank == move->target_rank)
            continue;
        if (next == c->sent_count || compare_places(move, &c->sent[next]) != 0)
            return fail(c, move, "nobody sends what is received");
        next++;
    }
    return next == c->sent_count ? RESHARD_OK
                                 : fail(c, &c->sent[next], "nobody receives what is sent");
}

/* ---- all of it ------------------------------------------------------------------------------- */

static reshard_status list_shards(checker *c, const reshard_layout *layout, reshard_shards **lists)
{
    reshard_status status = RESHARD_OK;
    int32_t ranks = rs_plan_forward(c->plan)->rank_count;
    for (int32_t i = 0; layout != NULL && i < layout->rank_count && status == RESHARD_OK; i++) {
        int32_t rank = reshard_layout_rank_at(layout, i);
        if (rank < ranks)
            status = reshard_layout_shards(layout, rank, &lists[rank]);
    }
    return status;
}

static void forget_shards(checker *c, reshard_shards **lists)
{
    for (int32_t i = 0; i < rs_plan_forward(c->plan)->rank_count; i++) {
        reshard_shards_destroy(lists[i]);
        lists[i] = NULL;
    }
}

static reshard_status collect_link(checker *c)
{
    reshard_status status = RESHARD_OK;
    for (int32_t rank = 0; rank < rs_plan_forward(c->plan)->rank_count && status == RESHARD_OK;
         rank++) {
        const reshard_part_moves *moves = reshard_part_link(c->parts[rank], c->stage, c->link);
        status = rs_moves_each(&moves->receives, rank, -1, see_received, c);
        if (status == RESHARD_OK)
            status = rs_moves_each(&moves->keeps, rank, -1, see_received, c);
        if (status == RESHARD_OK)
            status = rs_moves_each(&moves->sends, rank, -1, see_sent, c);
    }
    return status;
}

static reshard_status check_link(checker *c, const rs_stage_link *link)
{
    const reshard_layout *target = link->shown.target_layout;
    const reshard_layout *source = link->shown.link < 0 ? target : link->shown.source_layout;
    rs_link_map_make(&link->link, source, target, &c->map);
    c->sent_count = c->received_count = 0;
    reshard_status status = list_shards(c, source, c->source_shards);
    if (status == RESHARD_OK)
        status = list_shards(c, target, c->target_shards);
    if (status == RESHARD_OK)
        status = collect_link(c);
    if (status == RESHARD_OK)
        status = check_arrivals(c);
    if (status == RESHARD_OK)
        status = check_both_ends(c);
    forget_shards(c, c->source_shards);
    forget_shards(c, c->target_shards);
    rs_arena_release(&c->arena);
    return status;
}

/* Moves are compared with pieces one by one, so their numbers are limited. */
static reshard_status check_effort(const checker *c)
{
    int64_t moves = 0, steps = 0;
    for (int32_t rank = 0; rank < c->plan->rank_count; rank++) {
        reshard_part_stats stats = rs_part_stats(c->parts[rank]);
        int64_t mine = (int64_t)(stats.moves < INT64_MAX ? stats.moves : INT64_MAX), pieces = 0;
        for (int32_t i = 0; i < c->plan->source_count; i++)
            pieces = rs_max(pieces, rs_layout_piece_estimate(c->plan->sources[i].layout, rank));
        for (int32_t i = 0; i < c->plan->target_count; i++)
            pieces = rs_max(pieces, rs_layout_piece_estimate(c->plan->targets[i].layout, rank));
        moves = rs_add_up(moves, mine);
        steps = rs_add_up(steps, rs_multiply_up(mine, pieces));
    }
    if (moves <= RS_MOVES_LISTED_MAX && steps <= RS_CHECK_STEPS_MAX)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_RANGE,
                   "a check of %" PRId64 " single moves (at most %" PRId64 ") in %" PRId64
                   " steps (at most %" PRId64 ") is too long",
                   moves, RS_MOVES_LISTED_MAX, steps, RS_CHECK_STEPS_MAX);
}

static reshard_status check_stages(checker *c)
{
    reshard_status status = RESHARD_OK;
    for (c->stage = 0; c->stage < c->plan->stage_count && status == RESHARD_OK; c->stage++) {
        const rs_stage *stage = &c->plan->stages[c->stage];
        status = rs_check_stage_links(c->context, stage, c->stage);
        for (c->link = 0; c->link < stage->link_count && status == RESHARD_OK; c->link++) {
            if (rs_context_cancelled(c->context))
                return rs_fail(RESHARD_ERR_CANCELLED, "cancelled while checking");
            rs_context_progress(c->context, "checking", (uint64_t)c->link,
                                (uint64_t)stage->link_count);
            status = check_link(c, &stage->links[c->link]);
        }
    }
    return status;
}

reshard_status reshard_plan_check(reshard_plan *plan)
{
    if (plan->transposed != NULL)
        return reshard_plan_check(plan->transposed); /* the same records, ends exchanged */
    int32_t ranks = plan->rank_count;
    reshard_status status = rs_effort_check_all(plan, false);
    if (status != RESHARD_OK)
        return status;
    checker c = {.plan = plan, .context = plan->context};
    rs_arena_init(&c.arena, plan->context);
    size_t list_bytes = (size_t)ranks * sizeof(void *);
    c.parts = rs_allocate_zeroed(plan->context, list_bytes);
    c.source_shards = rs_allocate_zeroed(plan->context, list_bytes);
    c.target_shards = rs_allocate_zeroed(plan->context, list_bytes);
    if (c.parts == NULL || c.source_shards == NULL || c.target_shards == NULL)
        status = rs_allocation_status();
    for (int32_t rank = 0; rank < ranks && status == RESHARD_OK; rank++)
        status = reshard_part_create(plan->context, plan, rank, &c.parts[rank]);
    if (status == RESHARD_OK)
        status = check_effort(&c);
    if (status == RESHARD_OK)
        status = check_stages(&c);
    for (int32_t rank = 0; c.parts != NULL && rank < ranks; rank++)
        reshard_part_destroy(c.parts[rank]);
    rs_release(plan->context, c.sent);
    rs_release(plan->context, c.received);
    rs_release(plan->context, c.parts);
    rs_release(plan->context, c.source_shards);
    rs_release(plan->context, c.target_shards);
    return status;
}
