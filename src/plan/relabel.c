/* SPDX-License-Identifier: Apache-2.0 */
/*
 * relabel.c - chooses which rank plays which part of the target. With part i on rank j, the bytes
 * that rank j holds of what part i needs stay in place; the permutation that keeps the most bytes
 * moves the fewest. All targets are relabelled alike.
 */
#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/shape.h"
#include "base/sort.h"
#include "layout/layout.h"
#include "plan/assignment.h"
#include "plan/plan.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define RANKS_MAX 4096 /* the matrix takes 8 bytes for each pair of ranks */

/* Of one part on one rank; leaves room for the sums of assignment.c. */
#define KEPT_BYTES_MAX ((int64_t)1 << 60)

typedef struct kept_bytes {
    int32_t count;
    const int32_t *ranks; /* of all targets, increasing */
    int64_t *matrix;
    int32_t part; /* the row that is being filled */
    int64_t bytes;
    int64_t steps; /* boxes that were met and holders that were looked at, of one link so far */
} kept_bytes;

static int32_t index_of(const kept_bytes *k, int32_t rank)
{
    const int32_t *found = bsearch(&rank, k->ranks, (size_t)k->count, sizeof rank, rs_compare_i32);
    return found != NULL ? (int32_t)(found - k->ranks) : -1;
}

static reshard_status add_holders(void *user, const rs_match *match)
{
    kept_bytes *k = user;
    int64_t bytes = rs_multiply_up(rs_volume(match->link->ndim, match->box.size), k->bytes);
    rs_combination combination = rs_sender_combination(match, match->mine->contributor);
    int64_t copies = rs_region_copy_count(match->source);
    k->steps = rs_add_up(k->steps, rs_multiply_up(combination.count, copies));
    if (k->steps > RS_WHOLE_STEPS_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "relabel: the target ranks' parts have more than %" PRId64
                       " holders in the source; plan without relabelling",
                       RS_WHOLE_STEPS_MAX);
    for (int32_t c = 0; c < combination.count; c++) {
        for (int64_t copy = 0; copy < copies; copy++) {
            rs_holder holder;
            rs_region_holder(match->source, combination.first + c, copy, &holder);
            int32_t index = index_of(k, holder.rank);
            if (index < 0)
                continue;
            assert(k->part < k->count && bytes >= 0);
            int64_t *kept = &k->matrix[(int64_t)k->part * k->count + index];
            *kept = rs_add_up(*kept, bytes);
            if (*kept > KEPT_BYTES_MAX)
                return rs_fail(RESHARD_ERR_RANGE, "relabel: rank %d may keep more than 2^60 bytes",
                               holder.rank);
        }
    }
    return RESHARD_OK;
}

static reshard_status fill_matrix(reshard_plan *plan, kept_bytes *k)
{
    for (int32_t i = 0; i < plan->link_count; i++) {
        const reshard_plan_tensor *source = &plan->sources[plan->links[i].plain.source];
        const reshard_plan_tensor *target = &plan->targets[plan->links[i].plain.target];
        rs_link link;
        reshard_status status =
            rs_link_resolve(&plan->links[i], source->layout, target->layout, &link);
        k->steps = 0;
        k->bytes = rs_min(reshard_dtype_bits(source->dtype), reshard_dtype_bits(target->dtype)) / 8;
        for (k->part = 0; k->part < k->count && status == RESHARD_OK; k->part++) {
            if (rs_context_cancelled(plan->context))
                return rs_fail(RESHARD_ERR_CANCELLED, "cancelled while relabelling");
            status = rs_match_one_target(&link, k->ranks[k->part], &k->steps, add_holders, k);
            rs_context_progress(plan->context, "relabelling",
                                (uint64_t)i * (uint64_t)k->count + (uint64_t)k->part + 1,
                                (uint64_t)plan->link_count * (uint64_t)k->count);
        }
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

/* Ranks that the placement A leaves without a shard belong to the mesh all the same, and may change
 * places with others. */
static int32_t player_count(const reshard_layout *layout)
{
    return layout->spec->kind == RESHARD_SPEC_CUTS ? layout->spec->mesh->size : layout->rank_count;
}

/* Lists the ranks of all targets, each once, in the arena. */
static reshard_status list_ranks(reshard_plan *plan, int32_t **out_ranks, int32_t *out_count)
{
    int64_t room = 0;
    for (int32_t i = 0; i < plan->target_count; i++) {
        int32_t players = player_count(plan->targets[i].layout);
        if (players > RANKS_MAX)
            return rs_fail(RESHARD_ERR_UNSUPPORTED, "relabel: %d target ranks are more than %d",
                           players, RANKS_MAX);
        room += players;
    }
    int32_t *all = rs_allocate_array(plan->context, (size_t)room, sizeof *all);
    if (all == NULL)
        return rs_allocation_status();
    int64_t count = 0;
    for (int32_t i = 0; i < plan->target_count; i++) {
        const reshard_layout *layout = plan->targets[i].layout;
        for (int32_t r = 0; r < player_count(layout); r++)
            all[count++] = layout->spec->kind == RESHARD_SPEC_CUTS
                               ? reshard_mesh_rank_at(layout->spec->mesh, r)
                               : reshard_layout_rank_at(layout, r);
    }
    rs_sort(all, (size_t)count, sizeof *all, rs_compare_i32);
    int64_t distinct = 0;
    for (int64_t i = 0; i < count; i++) {
        if (distinct == 0 || all[i] != all[distinct - 1])
            all[distinct++] = all[i];
    }
    *out_ranks = rs_arena_copy(&plan->arena, all, (size_t)distinct, sizeof *all);
    *out_count = (int32_t)rs_min(distinct, INT32_MAX);
    rs_release(plan->context, all);
    return *out_ranks == NULL ? rs_allocation_status() : RESHARD_OK;
}

/* Replaces the ranks of every target by those that play their parts. */
static reshard_status apply(reshard_plan *plan, const kept_bytes *k, const int32_t *players)
{
    rs_rank_map map = {k->count, k->ranks, players};
    for (int32_t i = 0; i < plan->target_count; i++) {
        reshard_layout *layout = NULL;
        reshard_status status = rs_layout_map_ranks(plan->targets[i].layout, &map, &layout);
        if (status != RESHARD_OK)
            return status;
        reshard_layout_release(plan->targets[i].layout);
        plan->targets[i].layout = layout;
    }
    return RESHARD_OK;
}

reshard_status rs_plan_relabel(reshard_plan *plan)
{
    kept_bytes k = {0};
    int32_t *ranks = NULL;
    reshard_status status = list_ranks(plan, &ranks, &k.count);
    if (status != RESHARD_OK)
        return status;
    if (k.count > RANKS_MAX)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "relabel: %d target ranks are more than %d",
                       k.count, RANKS_MAX);
    k.ranks = ranks;
    size_t bytes = (size_t)k.count * (size_t)k.count * sizeof *k.matrix;
    k.matrix = rs_allocate_zeroed(plan->context, bytes);
    int32_t *players = rs_arena_allocate_array(&plan->arena, (size_t)k.count, sizeof *players);
    if (k.matrix == NULL || players == NULL)
        status = rs_allocation_status();
    if (status == RESHARD_OK)
        status = fill_matrix(plan, &k);
    if (status == RESHARD_OK)
        status = rs_assignment_solve(plan->context, k.count, k.matrix, players);
    for (int32_t i = 0; i < k.count && status == RESHARD_OK; i++) {
        assert(players[i] >= 0 && players[i] < k.count);
        players[i] = ranks[players[i]];
    }
    if (status == RESHARD_OK)
        status = apply(plan, &k, players);
    if (status == RESHARD_OK) {
        plan->relabelling = players;
        plan->relabelling_count = k.count;
    }
    rs_release(plan->context, k.matrix);
    return status;
}
