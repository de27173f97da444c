/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/effort.h"

#include "base/checked.h"
#include "base/error.h"
#include "base/limits.h"
#include "plan/entries.h"

#include <assert.h>
#include <inttypes.h>

/* The steps along one link dim: this rank's spans, cut at the borders of the other side's. */
static int64_t dim_steps(const rs_link *link, const rs_link_side *mine, const rs_link_side *theirs,
                         const int32_t *coordinates, int32_t along, bool grid)
{
    int32_t my_dim = mine->dim[along], their_dim = theirs->dim[along];
    const rs_chain *chain = &mine->layout->dims[my_dim];
    const rs_chain *their_chain = &theirs->layout->dims[their_dim];
    int64_t n = mine->layout->shape[my_dim];
    int32_t by_level[RESHARD_AXES_MAX];
    rs_chain_coordinates(chain, coordinates, by_level);
    int64_t length = rs_min(link->size[along], rs_chain_length(chain, n, by_level));
    int64_t runs = rs_min(length, rs_chain_held_estimate(chain, n, by_level));
    assert(length >= 0 && runs >= 0);
    int64_t steps =
        rs_chain_met_estimate(their_chain, theirs->layout->shape[their_dim], length, runs);
    if (!grid)
        return steps;
    if (rs_grid_chain_is_chunks(their_chain)) /* consecutive whole chunks take one step together */
        steps = rs_min(steps, rs_multiply_up(runs, 4));
    return rs_multiply_up(steps, rs_max(1, rs_grid_chain_turns(their_chain)));
}

static int64_t side_steps(const rs_link *link, const rs_link_side *mine, const rs_link_side *theirs,
                          int32_t rank, bool grid)
{
    int32_t coordinates[RESHARD_AXES_MAX];
    int64_t steps = rs_layout_piece_estimate(mine->layout, rank);
    if (mine->layout->listed || !rs_layout_coordinates(mine->layout, rank, coordinates))
        return steps;
    if (!theirs->layout->listed && !link->split) {
        int64_t sum = 0, product = 1;
        for (int32_t i = 0; i < link->ndim; i++) {
            int64_t along = dim_steps(link, mine, theirs, coordinates, i, grid);
            sum = rs_add_up(sum, along);
            product = rs_multiply_up(product, along);
        }
        /* A grid goes through its dims one after the other, so steps add up instead of
         * multiplying. */
        steps = grid ? sum : mine->layout->flat.count == 0 ? product : steps;
    }
    if (theirs->layout->flat.count != 0)
        steps =
            rs_max(steps, rs_chain_met_estimate(&theirs->layout->flat, theirs->layout->volume,
                                                rs_layout_shard_volume(mine->layout, rank), steps));
    return steps;
}

static int64_t part_steps(const rs_template *template, int32_t rank, bool by_match)
{
    const rs_link *link = &template->rule.link;
    bool grid = template->kind == RS_TEMPLATE_GRID && !by_match;
    return rs_max(side_steps(link, &link->target, &link->source, rank, grid),
                  side_steps(link, &link->source, &link->target, rank, grid));
}

reshard_status rs_effort_check(const rs_template *template, int32_t rank)
{
    int64_t steps = template->kind == RS_TEMPLATE_CHOSEN ? 0 : part_steps(template, rank, false);
    if (steps > RS_PART_STEPS_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "the part of rank %d takes about %" PRId64 " steps; at most %" PRId64
                       " are taken: are the blocks of a cut too small?",
                       rank, steps, RS_PART_STEPS_MAX);
    return RESHARD_OK;
}

#define RANKS_ASKED 64

reshard_status rs_effort_check_all(const reshard_plan *plan, bool by_match)
{
    if (plan->rank_count > RS_WHOLE_RANKS_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "a plan over %d ranks; at most %d are gone through",
                       plan->rank_count, RS_WHOLE_RANKS_MAX);
    int64_t steps = 0, each = rs_divide_up(plan->rank_count, RANKS_ASKED);
    for (int32_t i = 0; i < plan->stage_count; i++) {
        for (int32_t t = 0; t < plan->stages[i].template_count; t++) {
            for (int64_t rank = 0; rank < plan->rank_count; rank += each)
                steps =
                    rs_add_up(steps, rs_multiply_up(each, part_steps(&plan->stages[i].templates[t],
                                                                     (int32_t)rank, by_match)));
        }
    }
    if (steps > RS_WHOLE_STEPS_MAX)
        return rs_fail(RESHARD_ERR_RANGE,
                       "the parts of all %d ranks take about %" PRId64 " steps; at most %" PRId64
                       " are taken",
                       plan->rank_count, steps, RS_WHOLE_STEPS_MAX);
    return RESHARD_OK;
}
