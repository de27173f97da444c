/* SPDX-License-Identifier: Apache-2.0 */
/* part.h - the structure of one rank's part of a plan. */
#ifndef RS_PLAN_PART_H
#define RS_PLAN_PART_H

#include "plan/plan.h"

/* The moves of one template, with the numbers of single moves and of elements. */
typedef struct rs_template_moves {
    reshard_part_moves shown;
    uint64_t singles_in, singles_out, singles_kept;
    uint64_t elements_in, elements_out, elements_kept;
} rs_template_moves;

struct reshard_part {
    reshard_context *context;
    rs_arena arena;
    reshard_plan *plan;
    int32_t rank;
    rs_template_moves *stages[RS_STAGES_MAX]; /* indexed by stage of this plan, then by template */
};

/* Works out the moves of one template for any rank, without a part, in the arena. */
reshard_status rs_part_work_out(reshard_context *context, rs_arena *arena, const reshard_plan *plan,
                                int32_t rank, int32_t stage, int32_t template,
                                rs_template_moves *out_moves);

/* Sums of bytes that do not fit are UINT64_MAX. rs_part_check_stats refuses those. Errors:
 * RANGE. */
reshard_part_stats rs_part_stats(const reshard_part *part);
reshard_status rs_part_check_stats(const reshard_part *part, const reshard_part_stats *stats);
/* The moves of a stage link. */
const rs_template_moves *rs_part_moves(const reshard_part *part, int32_t stage, int32_t index);

/* Calls fn for each single move of a list or, if peer >= 0, only for those with that peer; loops
 * that cannot reach the peer are skipped. Stops at the first status other than RESHARD_OK and
 * returns it. */
typedef reshard_status (*rs_single_fn)(void *user, const reshard_move *move);
reshard_status rs_moves_each(const reshard_moves *moves, int32_t rank, int32_t peer,
                             rs_single_fn fn, void *user);

#endif
