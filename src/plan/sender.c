/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/sender.h"

#include "base/checked.h"
#include "base/error.h"

#include <assert.h>
#include <string.h>

/* ---- what is combined ------------------------------------------------------------------------ */

static bool combines_to_itself(reshard_reduction reduction)
{
    return reduction == RESHARD_AVG || reduction == RESHARD_MIN || reduction == RESHARD_MAX ||
           reduction == RESHARD_BAND || reduction == RESHARD_BOR;
}

/* The contributor to a sum or product that gets the whole value: one that already holds it if there
 * is one, so that nothing moves; otherwise the first. */
static int32_t placed_contributor(const rs_match *match)
{
    const rs_region *source = match->source;
    if (source->layout->partial)
        return 0;
    int32_t best = -1;
    int64_t copies = rs_region_copy_count(source);
    for (int64_t copy = 0; copy < copies; copy++) {
        rs_holder holder, needer;
        rs_region_holder(source, 0, copy, &holder);
        if (rs_region_find(match->target, holder.rank, &needer) &&
            (best < 0 || needer.contributor < best))
            best = needer.contributor;
    }
    return best < 0 ? 0 : best;
}

/* Whether source and target are partial by the same reduction, so that contributions are taken over
 * unchanged. If the target has fewer contributors, each of them combines several consecutive
 * contributions. Averages also need equal numbers of contributors and equal divisors. */
static bool carries_over(const reshard_layout *source, const reshard_layout *target)
{
    if (!source->partial || source->reduction != target->reduction)
        return false;
    return source->reduction != RESHARD_AVG ||
           (source->contributor_count == target->contributor_count &&
            source->divisor == target->divisor);
}

rs_combination rs_sender_combination(const rs_match *match, int32_t target_contributor)
{
    const reshard_layout *source = match->source->layout;
    const reshard_layout *target = match->target->layout;
    rs_combination all = {0, source->contributor_count};
    if (!target->partial)
        return all;
    if (carries_over(source, target)) {
        int64_t m = source->contributor_count, n = rs_min(m, target->contributor_count);
        if (target_contributor >= n)
            return (rs_combination){0, 0};
        int32_t first = (int32_t)rs_divide_up(target_contributor * m, n);
        return (rs_combination){first,
                                (int32_t)rs_divide_up((target_contributor + 1) * m, n) - first};
    }
    if (combines_to_itself(target->reduction))
        return all;
    return target_contributor == placed_contributor(match) ? all : (rs_combination){0, 0};
}

reshard_status rs_sender_check(const reshard_layout *source, const reshard_layout *target)
{
    bool mixed = target->partial && target->reduction == RESHARD_AVG &&
                 target->divisor != target->contributor_count;
    if (mixed && !carries_over(source, target))
        return rs_fail(
            RESHARD_ERR_UNSUPPORTED,
            "a target that mixes P(sum) and P(avg) can only come from one that does so too");
    return RESHARD_OK;
}

void rs_sender_set_combination(const reshard_layout *source, const reshard_layout *target,
                               const rs_combination *combination, rs_move *move)
{
    assert(combination->count >= 0 && combination->first >= 0);
    assert(combination->first + combination->count <= source->contributor_count);
    move->contributor_count = 1;
    move->reduction = RESHARD_SUM;
    move->divisor = 1;
    if (combination->count == 0) {
        move->kind = RESHARD_MOVE_FILL;
        move->reduction = target->reduction == RESHARD_AVG ? RESHARD_SUM : target->reduction;
        return;
    }
    bool as_it_is = target->partial && carries_over(source, target);
    if (combination->count == 1 && (!source->partial || as_it_is || source->divisor == 1)) {
        move->kind = RESHARD_MOVE_COPY;
        return;
    }
    move->kind = RESHARD_MOVE_COMBINE;
    move->contributor_count = combination->count;
    move->reduction = source->reduction;
    move->divisor = as_it_is ? 1 : source->divisor;
}

/* ---- who sends ------------------------------------------------------------------------------- */

/* The number of pieces into which the target cuts the dim that a source dim is linked to. Parts
 * along a dim that is cut often meet few needers. */
static int64_t target_cuts(const rs_link *link, int32_t source_dim)
{
    const reshard_layout *target = link->target.layout;
    if (target->listed)
        return 1;
    const rs_chain *chain = &target->dims[link->target.dim[link->source.members[source_dim]]];
    int64_t cuts = 1;
    for (int32_t i = 0; i < chain->count; i++)
        cuts *= chain->cuts[i].piece_count;
    return cuts;
}

/* Rule 3 divides the dim that gives the most parts; among equals, the one that the target cuts
 * most, so that parts follow the target's borders. */
static int32_t choose_division_dim(const rs_link *link)
{
    const reshard_layout *source = link->source.layout;
    if (source->listed || source->flat.count != 0 || link->split || source->ndim == 0)
        return -1;
    int64_t copies = 1;
    for (int32_t a = 0; a < source->axis_count; a++) {
        if (source->axes[a].role != RS_AXIS_PARTIAL)
            copies *= source->axes[a].size;
    }
    int32_t best = 0;
    int64_t best_parts = -1, best_cuts = -1;
    for (int32_t d = 0; d < source->ndim; d++) {
        int64_t parts = rs_min(copies, rs_chain_length_max(&source->dims[d], source->shape[d]));
        int64_t cuts = target_cuts(link, d);
        if (parts > best_parts || (parts == best_parts && cuts > best_cuts)) {
            best = d;
            best_parts = parts;
            best_cuts = cuts;
        }
    }
    return best;
}

void rs_sender_rule_init(rs_sender_rule *rule, const rs_link *link)
{
    rule->link = *link;
    rule->division_dim = choose_division_dim(link);
}

/* The length of the own line of the region's first holder along the division dim. out_low is set to
 * where the match's box begins in it. */
static int64_t division_line(const rs_sender_rule *rule, const rs_match *match, int64_t *out_low)
{
    const reshard_layout *source = match->source->layout;
    int32_t dim = rule->division_dim;
    const rs_chain *chain = &source->dims[dim];
    int32_t first[RESHARD_AXES_MAX];
    rs_chain_coordinates(chain, match->source->first, first);
    int32_t along = rule->link.source.members[dim];
    int64_t position = rule->link.source.offset[dim] + match->box.start[along];
    *out_low = rs_chain_local(chain, source->shape[dim], first, position);
    return rs_chain_length(chain, source->shape[dim], first);
}

/* Clips the box to part `part` of `parts`. Returns false if nothing is left. */
static bool clip_to_part(const rs_sender_rule *rule, const rs_match *match, int64_t part,
                         int64_t parts, rs_link_box *box)
{
    int64_t low;
    int64_t line = division_line(rule, match, &low);
    assert(part >= 0 && part < parts);
    int32_t along = rule->link.source.members[rule->division_dim];
    int64_t from = rs_max(low, rs_multiply_divide(line, part, parts));
    int64_t to = rs_min(low + match->box.size[along], rs_multiply_divide(line, part + 1, parts));
    box->start[along] = match->box.start[along] + (from - low);
    box->size[along] = to - from;
    assert(low + match->box.size[along] <= line); /* the box lies in the first holder's own line */
    return from < to;
}

void rs_sender_fill_move(const rs_match *match, const rs_link_box *box, const rs_holder *source,
                         const rs_holder *target, rs_move *out_move)
{
    const rs_link *link = match->link;
    int64_t point[RESHARD_NDIM_MAX];
    rs_place place;
    memset(out_move, 0, sizeof *out_move);
    out_move->ndim = link->ndim;
    size_t bytes = (size_t)link->ndim * sizeof(int64_t);
    memcpy(out_move->size, box->size, bytes);
    memcpy(out_move->first.start, box->start, bytes);
    if (source != NULL) {
        rs_link_point(link, &link->source, box->start, point);
        rs_region_place(match->source, source, point, &place);
        rs_link_strides(link, &link->source, place.strides, out_move->source_strides);
        out_move->first.source_at = place.at;
        out_move->source_shard = source->shard;
    }
    rs_link_point(link, &link->target, box->start, point);
    rs_region_place(match->target, target, point, &place);
    rs_link_strides(link, &link->target, place.strides, out_move->target_strides);
    out_move->first.target_at = place.at;
    out_move->target_shard = target->shard;
}

/* ---- moves of one rank ----------------------------------------------------------------------- */

typedef struct listing {
    const rs_sender_rule *rule;
    int32_t rank;
    rs_rank_moves *moves;
} listing;

static reshard_status add_move(listing *r, const rs_match *match, const rs_link_box *box,
                               const rs_combination *combination, const rs_holder *source,
                               const rs_holder *target)
{
    rs_move move;
    rs_sender_fill_move(match, box, source, target, &move);
    rs_sender_set_combination(match->source->layout, match->target->layout, combination, &move);
    move.mine = r->rank;
    move.sending = source != NULL && source->rank == r->rank;
    move.first.peer = source == NULL ? -1 : move.sending ? target->rank : source->rank;
    move.first.contributor = source == NULL ? 0 : source->contributor - combination->first;
    assert(move.first.contributor >= 0 && move.first.contributor < move.contributor_count);
    assert(target->rank == r->rank || move.sending);
    bool kept = source == NULL || source->rank == target->rank;
    rs_family *family = kept           ? &r->moves->keeps
                        : move.sending ? &r->moves->sends
                                       : &r->moves->receives;
    if (kept)
        move.sending = false; /* both ends are this rank; the peer is the source */
    return rs_family_add(family, &move);
}

/* Rules 2 and 3 for the needer: one or more senders of one contribution. */
static reshard_status receive_from(listing *r, const rs_match *match,
                                   const rs_combination *combination, int32_t contributor)
{
    int64_t s = rs_region_copy_count(match->source);
    int64_t t = rs_region_copy_count(match->target);
    int64_t j = match->mine->copy;
    int64_t parts = s <= t ? 1 : rs_divide_up(s - j, t);
    assert(s >= 1 && j >= 0 && j < t && parts >= 1);
    rs_holder sender;
    if (parts == 1 || r->rule->division_dim < 0) {
        int64_t copy = s <= t ? j % s : j + match->mine->rank % parts * t;
        rs_region_holder(match->source, contributor, copy, &sender);
        return add_move(r, match, &match->box, combination, &sender, match->mine);
    }
    reshard_status status = RESHARD_OK;
    for (int64_t part = 0; part < parts && status == RESHARD_OK; part++) {
        rs_link_box box = match->box;
        if (!clip_to_part(r->rule, match, part, parts, &box))
            continue;
        rs_region_holder(match->source, contributor, j + part * t, &sender);
        status = add_move(r, match, &box, combination, &sender, match->mine);
    }
    return status;
}

static reshard_status receive(void *user, const rs_match *match)
{
    listing *r = user;
    rs_combination combination = rs_sender_combination(match, match->mine->contributor);
    if (combination.count == 0)
        return add_move(r, match, &match->box, &combination, NULL, match->mine);
    rs_holder own;
    bool holds = rs_region_find(match->source, r->rank, &own);
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < combination.count && status == RESHARD_OK; i++) {
        int32_t contributor = combination.first + i;
        if (holds && own.contributor == contributor)
            status = add_move(r, match, &match->box, &combination, &own, match->mine);
        else
            status = receive_from(r, match, &combination, contributor);
    }
    return status;
}

/* The rules for a holder and one needer: adds a move if this holder sends to it. */
static reshard_status send_to(listing *r, const rs_match *match, const rs_combination *combination,
                              int32_t target_contributor, int64_t j)
{
    rs_holder needer, own;
    rs_region_holder(match->target, target_contributor, j, &needer);
    const rs_holder *mine = match->mine;
    if (needer.rank == r->rank ||
        (rs_region_find(match->source, needer.rank, &own) && own.contributor == mine->contributor))
        return RESHARD_OK;
    int64_t s = rs_region_copy_count(match->source);
    int64_t t = rs_region_copy_count(match->target);
    int64_t parts = s <= t ? 1 : rs_divide_up(s - j, t);
    rs_link_box box = match->box;
    if (parts > 1 && r->rule->division_dim < 0 && mine->copy != j + needer.rank % parts * t)
        return RESHARD_OK;
    if (parts > 1 && r->rule->division_dim >= 0 &&
        !clip_to_part(r->rule, match, (mine->copy - j) / t, parts, &box))
        return RESHARD_OK;
    return add_move(r, match, &box, combination, mine, &needer);
}

static reshard_status send(void *user, const rs_match *match)
{
    listing *r = user;
    const rs_holder *mine = match->mine;
    int64_t s = rs_region_copy_count(match->source);
    int64_t t = rs_region_copy_count(match->target);
    assert(mine->copy >= 0 && mine->copy < s && t >= 1);
    reshard_status status = RESHARD_OK;
    for (int32_t c = 0; c < match->target->layout->contributor_count && status == RESHARD_OK; c++) {
        rs_combination combination = rs_sender_combination(match, c);
        if (mine->contributor < combination.first ||
            mine->contributor >= combination.first + combination.count)
            continue;
        /* Holder u serves the needers j with j mod s = u or, if s > t, only needer u mod t. */
        int64_t step = s <= t ? s : t;
        for (int64_t j = mine->copy % step; j < t && status == RESHARD_OK; j += step)
            status = send_to(r, match, &combination, c, j);
    }
    return status;
}

reshard_status rs_sender_rank(const rs_sender_rule *rule, int32_t rank, rs_rank_moves *moves)
{
    listing r = {rule, rank, moves};
    reshard_status status = rs_match_target(&rule->link, rank, receive, &r);
    if (status == RESHARD_OK)
        status = rs_match_source(&rule->link, rank, send, &r);
    return status;
}
