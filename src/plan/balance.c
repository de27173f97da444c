/* SPDX-License-Identifier: Apache-2.0 */
/*
 * balance.c - chooses senders by looking at all ranks at once, so that in each stage the load of
 * the busiest sender is as low as possible.
 *
 * A demand is a match that its needer does not hold. Demands with the same holders form a group.
 * How much of a group each holder sends is a flow problem (flow.h) over all links of the stage.
 * Holders then serve the demands of their group in order; a demand that crosses the end of a share
 * is cut there. The result is a list of single moves, stored in the plan and used in place of the
 * rule (sender.h). Loads are counted in the largest unit that divides all element sizes, so that
 * with one dtype shares are whole elements; otherwise they are rounded to whole elements.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/shape.h"
#include "base/sort.h"
#include "layout/flat.h"
#include "plan/effort.h"
#include "plan/flow.h"
#include "plan/plan.h"

#include <inttypes.h>
#include <stdlib.h>

typedef struct demand {
    rs_region source, target;
    rs_holder needer;
    rs_link_box box;
    rs_combination combination;
    int32_t contributor; /* of the source */
    int32_t template_index;
} demand;

typedef struct balancer {
    reshard_plan *plan;
    rs_stage *stage;
    int64_t *weights; /* by template: load of one element, over all links that share it */
    demand *demands;
    int64_t count, capacity;
    /* At first the moves that leave no choice, in the end all of them, with their templates. */
    rs_chosen *chosen;
    int32_t *chosen_template;
    int64_t chosen_count, chosen_capacity, chosen_template_capacity;
    int32_t template_index; /* the template whose moves are being added */
} balancer;

/* ---- demands --------------------------------------------------------------------------------- */

static reshard_status check_room(const balancer *b)
{
    if (b->count + b->chosen_count < RS_BALANCED_MAX)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_RANGE,
                   "an exact balance of more than %" PRId64 " moves; leave it to the rule",
                   RS_BALANCED_MAX);
}

static reshard_status add_chosen(balancer *b, const rs_match *match, const rs_link_box *box,
                                 const rs_combination *combination, const rs_holder *source,
                                 const rs_holder *target)
{
    reshard_status status = check_room(b);
    if (status == RESHARD_OK)
        status = rs_grow(b->plan->context, &b->chosen, &b->chosen_capacity, b->chosen_count + 1,
                         sizeof *b->chosen);
    if (status == RESHARD_OK)
        status = rs_grow(b->plan->context, &b->chosen_template, &b->chosen_template_capacity,
                         b->chosen_count + 1, sizeof *b->chosen_template);
    if (status != RESHARD_OK)
        return status;
    rs_chosen *chosen = &b->chosen[b->chosen_count];
    rs_sender_fill_move(match, box, source, target, &chosen->move);
    rs_sender_set_combination(match->source->layout, match->target->layout, combination,
                              &chosen->move);
    chosen->move.first.contributor = source == NULL ? 0 : source->contributor - combination->first;
    chosen->source_rank = source == NULL ? -1 : source->rank;
    chosen->target_rank = target->rank;
    b->chosen_template[b->chosen_count++] = b->template_index;
    return RESHARD_OK;
}

static reshard_status add_demand(balancer *b, const rs_match *match,
                                 const rs_combination *combination, int32_t contributor)
{
    reshard_status status = check_room(b);
    if (status == RESHARD_OK)
        status =
            rs_grow(b->plan->context, &b->demands, &b->capacity, b->count + 1, sizeof *b->demands);
    if (status == RESHARD_OK)
        b->demands[b->count++] = (demand){.source = *match->source,
                                          .target = *match->target,
                                          .needer = *match->mine,
                                          .box = match->box,
                                          .combination = *combination,
                                          .contributor = contributor,
                                          .template_index = b->template_index};
    return status;
}

static reshard_status see_match(void *user, const rs_match *match)
{
    balancer *b = user;
    rs_combination combination = rs_sender_combination(match, match->mine->contributor);
    if (combination.count == 0)
        return add_chosen(b, match, &match->box, &combination, NULL, match->mine);
    rs_holder own;
    bool holds = rs_region_find(match->source, match->mine->rank, &own);
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < combination.count && status == RESHARD_OK; i++) {
        if (holds && own.contributor == combination.first + i)
            status = add_chosen(b, match, &match->box, &combination, &own, match->mine);
        else
            status = add_demand(b, match, &combination, combination.first + i);
    }
    return status;
}

/* ---- groups ---------------------------------------------------------------------------------- */

static int compare_numbers(int64_t a, int64_t b)
{
    return (a > b) - (a < b);
}

/* Orders demands by their holders. Those that compare equal form a group. */
static int compare_holders(const demand *x, const demand *y)
{
    int order = compare_numbers(x->template_index, y->template_index);
    if (order == 0)
        order = compare_numbers(x->contributor, y->contributor);
    if (order == 0)
        order = compare_numbers(x->source.cell, y->source.cell);
    const reshard_layout *layout = x->source.layout;
    for (int32_t a = 0; a < layout->axis_count && order == 0 && !layout->listed; a++) {
        order = compare_numbers(x->source.first[a], y->source.first[a]);
        if (order == 0)
            order = compare_numbers(x->source.count[a], y->source.count[a]);
    }
    return order;
}

/* Orders the demands of a group by needer and place, so that shares are contiguous. */
static int compare_demands(const void *a, const void *b)
{
    const demand *x = a, *y = b;
    int order = compare_holders(x, y);
    if (order == 0)
        order = compare_numbers(x->needer.rank, y->needer.rank);
    if (order == 0)
        order = compare_numbers(x->needer.shard, y->needer.shard);
    for (int i = 0; i < RESHARD_FACTORS_MAX && order == 0; i++)
        order = compare_numbers(x->box.start[i], y->box.start[i]);
    return order;
}

typedef struct groups {
    int32_t count;
    int64_t *demand_first; /* by group, and one more for the end */
    int64_t *amounts;
    int64_t *first;
    int32_t *list;
    int64_t *shares;
} groups;

static int64_t demand_volume(const balancer *b, const demand *d)
{
    int32_t ndim = b->stage->templates[d->template_index].rule.link.ndim;
    return rs_volume(ndim, d->box.size);
}

static reshard_status make_groups(balancer *b, rs_arena *arena, groups *g)
{
    int64_t places = 0;
    for (int64_t i = 0; i < b->count; i++) {
        if (i == 0 || compare_holders(&b->demands[i], &b->demands[i - 1]) != 0) {
            g->count++;
            places += rs_region_copy_count(&b->demands[i].source);
        }
    }
    if (places > RS_MOVES_LISTED_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "an exact balance between %" PRId64 " holders, more than %" PRId64
                       "; leave it to the rule",
                       places, RS_MOVES_LISTED_MAX);
    size_t count = (size_t)g->count;
    g->demand_first = rs_arena_allocate_array(arena, count + 1, sizeof *g->demand_first);
    g->amounts = rs_arena_allocate_array(arena, count, sizeof *g->amounts);
    g->first = rs_arena_allocate_array(arena, count + 1, sizeof *g->first);
    g->list = rs_arena_allocate_array(arena, (size_t)places, sizeof *g->list);
    g->shares = rs_arena_allocate_array(arena, (size_t)places, sizeof *g->shares);
    if (g->demand_first == NULL || g->amounts == NULL || g->first == NULL || g->list == NULL ||
        g->shares == NULL)
        return rs_allocation_status();
    int32_t group = -1;
    int64_t next = 0, total = 0;
    for (int64_t i = 0; i < b->count; i++) {
        const demand *d = &b->demands[i];
        int64_t load;
        if (!rs_multiply(demand_volume(b, d), b->weights[d->template_index], &load) ||
            !rs_add(total, load, &total))
            return rs_fail(RESHARD_ERR_RANGE,
                           "an exact balance of more than 2^63-1 elements; leave it to the rule");
        if (i == 0 || compare_holders(d, &b->demands[i - 1]) != 0) {
            g->demand_first[++group] = i;
            g->amounts[group] = 0;
            g->first[group] = next;
            int64_t copies = rs_region_copy_count(&d->source);
            for (int64_t copy = 0; copy < copies; copy++) {
                rs_holder holder;
                rs_region_holder(&d->source, d->contributor, copy, &holder);
                g->list[next++] = holder.rank;
            }
        }
        g->amounts[group] += load;
    }
    g->demand_first[g->count] = b->count;
    g->first[g->count] = next;
    return RESHARD_OK;
}

/* ---- serving --------------------------------------------------------------------------------- */

typedef struct serving {
    balancer *b;
    const demand *d;
    rs_match match;
} serving;

/* Lets one holder send elements from .. to - 1 of a demand's box, in row-major order. */
static reshard_status serve(serving *s, int64_t copy, int64_t from, int64_t to)
{
    rs_holder holder;
    rs_region_holder(&s->d->source, s->d->contributor, copy, &holder);
    const rs_link *link = s->match.link;
    if (from == 0 && to == rs_volume(link->ndim, s->d->box.size))
        return add_chosen(s->b, &s->match, &s->d->box, &s->d->combination, &holder, &s->d->needer);
    rs_flat_block block = {.ndim = 0};
    int32_t kept[RESHARD_NDIM_MAX];
    for (int32_t i = 0; i < link->ndim; i++) {
        if (s->d->box.size[i] != 1) {
            kept[block.ndim] = i;
            block.shape[block.ndim++] = s->d->box.size[i];
        }
    }
    rs_flat_boxes boxes;
    rs_flat_split(&block, from, to, &boxes);
    reshard_status status = RESHARD_OK;
    for (int32_t i = 0; i < boxes.count && status == RESHARD_OK; i++) {
        rs_link_box box = s->d->box;
        for (int32_t k = 0; k < block.ndim; k++) {
            box.start[kept[k]] += boxes.items[i].start[k];
            box.size[kept[k]] = boxes.items[i].size[k];
        }
        status = add_chosen(s->b, &s->match, &box, &s->d->combination, &holder, &s->d->needer);
    }
    return status;
}

static bool can_be_cut(const rs_link *link, const rs_link_box *box)
{
    int32_t real = 0;
    for (int32_t i = 0; i < link->ndim; i++)
        real += box->size[i] != 1;
    return real <= RESHARD_NDIM_MAX;
}

static reshard_status serve_group(balancer *b, const groups *g, int32_t group)
{
    int64_t place = g->first[group], end = g->first[group + 1];
    int64_t weight = b->weights[b->demands[g->demand_first[group]].template_index];
    int64_t left = g->shares[place]; /* what is left of the share of the holder at `place` */
    reshard_status status = RESHARD_OK;
    for (int64_t i = g->demand_first[group]; i < g->demand_first[group + 1]; i++) {
        const demand *d = &b->demands[i];
        const rs_template *template = &b->stage->templates[d->template_index];
        serving s = {b, d, {&template->rule.link, &d->source, &d->target, &d->needer, d->box}};
        b->template_index = d->template_index;
        int64_t volume = demand_volume(b, d);
        bool cut = can_be_cut(&template->rule.link, &d->box);
        for (int64_t from = 0; from < volume && status == RESHARD_OK;) {
            while (left < weight && place + 1 < end)
                /* less than one element is left, which passes to the next holder */
                left += g->shares[++place];
            bool last = place + 1 == end;
            int64_t to = last || !cut ? volume : rs_min(volume, from + left / weight);
            status = serve(&s, place - g->first[group], from, to);
            left -= (to - from) * weight;
            from = to;
        }
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

/* ---- templates ------------------------------------------------------------------------------- */

static int compare_by_target(const void *a, const void *b)
{
    const rs_chosen *x = a, *y = b;
    int order = compare_numbers(x->target_rank, y->target_rank);
    if (order == 0)
        order = compare_numbers(x->source_rank, y->source_rank);
    if (order == 0)
        order = compare_numbers(x->move.target_shard, y->move.target_shard);
    if (order == 0)
        order = compare_numbers(x->move.first.target_at, y->move.first.target_at);
    return order != 0 ? order
                      : compare_numbers(x->move.first.contributor, y->move.first.contributor);
}

typedef struct source_order {
    int32_t source_rank;
    int64_t index;
} source_order;

static int compare_by_source(const void *a, const void *b)
{
    const source_order *x = a, *y = b;
    int order = compare_numbers(x->source_rank, y->source_rank);
    return order != 0 ? order : compare_numbers(x->index, y->index);
}

static reshard_status store_template(balancer *b, int32_t index)
{
    rs_arena *arena = &b->plan->arena;
    rs_template *template = &b->stage->templates[index];
    int64_t count = 0;
    for (int64_t i = 0; i < b->chosen_count; i++)
        count += b->chosen_template[i] == index;
    rs_chosen *moves = rs_arena_allocate_array(arena, (size_t)count, sizeof *moves);
    int64_t *by_source = rs_arena_allocate_array(arena, (size_t)count, sizeof *by_source);
    source_order *order = rs_allocate_array(b->plan->context, (size_t)count, sizeof *order);
    if (moves == NULL || by_source == NULL || order == NULL) {
        rs_release(b->plan->context, order);
        return rs_allocation_status();
    }
    int64_t next = 0;
    for (int64_t i = 0; i < b->chosen_count; i++) {
        if (b->chosen_template[i] == index)
            moves[next++] = b->chosen[i];
    }
    rs_sort(moves, (size_t)count, sizeof *moves, compare_by_target);
    for (int64_t i = 0; i < count; i++)
        order[i] = (source_order){moves[i].source_rank, i};
    rs_sort(order, (size_t)count, sizeof *order, compare_by_source);
    for (int64_t i = 0; i < count; i++)
        by_source[i] = order[i].index;
    rs_release(b->plan->context, order);
    template->kind = RS_TEMPLATE_CHOSEN;
    template->chosen_count = count;
    template->chosen_by_target = moves;
    template->chosen_by_source = by_source;
    return RESHARD_OK;
}

/* Links that share a template share its moves, so one of its elements weighs as much as in all
 * these links together. */
static void weigh(balancer *b)
{
    int64_t unit = 0;
    for (int32_t i = 0; i < b->stage->template_count; i++)
        b->weights[i] = 0;
    for (int32_t i = 0; i < b->stage->link_count; i++)
        b->weights[b->stage->links[i].template_index] += rs_stage_link_bytes(&b->stage->links[i]);
    for (int32_t i = 0; i < b->stage->template_count; i++)
        unit = rs_greatest_common_divisor(unit, b->weights[i]);
    for (int32_t i = 0; i < b->stage->template_count && unit > 1; i++)
        b->weights[i] /= unit;
}

static reshard_status collect(balancer *b)
{
    reshard_status status = RESHARD_OK;
    for (int32_t t = 0; t < b->stage->template_count; t++) {
        const rs_template *template = &b->stage->templates[t];
        b->template_index = t;
        if (template->kind != RS_TEMPLATE_MATCHES && template->kind != RS_TEMPLATE_GRID)
            continue;
        for (int32_t rank = 0; rank < b->plan->rank_count && status == RESHARD_OK; rank++) {
            if (rs_context_cancelled(b->plan->context))
                return rs_fail(RESHARD_ERR_CANCELLED, "cancelled while balancing");
            status = rs_match_target(&template->rule.link, rank, see_match, b);
        }
        if (status != RESHARD_OK)
            return status;
        rs_context_progress(b->plan->context, "balancing", (uint64_t)t + 1,
                            (uint64_t)b->stage->template_count);
    }
    return RESHARD_OK;
}

static reshard_status share_out(balancer *b)
{
    rs_arena arena;
    rs_arena_init(&arena, b->plan->context);
    groups g = {0};
    rs_sort(b->demands, (size_t)b->count, sizeof *b->demands, compare_demands);
    reshard_status status = make_groups(b, &arena, &g);
    if (status == RESHARD_OK) {
        rs_flow_problem problem = {b->plan->rank_count, g.count, g.amounts, g.first, g.list};
        status = rs_flow_share(b->plan->context, &problem, g.shares);
    }
    for (int32_t i = 0; i < g.count && status == RESHARD_OK; i++)
        status = serve_group(b, &g, i);
    rs_arena_release(&arena);
    return status;
}

static reshard_status balance_stage(reshard_plan *plan, rs_stage *stage)
{
    balancer b = {.plan = plan, .stage = stage};
    size_t weight_bytes = (size_t)stage->template_count * sizeof *b.weights;
    b.weights = rs_allocate(plan->context, weight_bytes);
    reshard_status status = b.weights == NULL ? rs_allocation_status() : RESHARD_OK;
    if (status == RESHARD_OK) {
        weigh(&b);
        status = collect(&b);
    }
    if (status == RESHARD_OK)
        status = share_out(&b);
    for (int32_t t = 0; t < stage->template_count && status == RESHARD_OK; t++) {
        rs_template_kind kind = stage->templates[t].kind;
        if (kind == RS_TEMPLATE_MATCHES || kind == RS_TEMPLATE_GRID)
            status = store_template(&b, t);
    }
    rs_release(plan->context, b.chosen);
    rs_release(plan->context, b.chosen_template);
    rs_release(plan->context, b.demands);
    rs_release(plan->context, b.weights);
    return status;
}

reshard_status rs_plan_balance(reshard_plan *plan)
{
    reshard_status status = rs_effort_check_all(plan, true);
    for (int32_t i = 0; i < plan->stage_count && status == RESHARD_OK; i++)
        status = balance_stage(plan, &plan->stages[i]);
    return status;
}
