/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sender.h - turns matches into moves: which holder sends to which needer, what is kept, and what
 * is combined.
 *
 * The rule, for a match that s ranks hold (of one contribution) and t ranks need (docs/plan.md
 * proves its bounds):
 *  1. A needer that holds the contribution itself keeps it.
 *  2. If s <= t, needer j receives it from holder j mod s.
 *  3. If s > t, needer j has the holders j, j+t, j+2t, .. to itself. They divide the source's own
 *     line of one dim into equal parts, and each sends its part. If the source is flat or listed,
 *     or the link splits dims, they take turns by the needer's rank instead.
 */
#ifndef RS_PLAN_SENDER_H
#define RS_PLAN_SENDER_H

#include "plan/family.h"
#include "plan/link.h"
#include "plan/match.h"

typedef struct rs_rank_moves {
    rs_family receives, sends, keeps;
} rs_rank_moves;

/* A link, and how rule 3 divides its matches among holders. */
typedef struct rs_sender_rule {
    rs_link link;
    int32_t division_dim; /* the source dim that rule 3 divides; -1 if holders take turns */
} rs_sender_rule;

void rs_sender_rule_init(rs_sender_rule *rule, const rs_link *link);

/* Adds the moves of one rank, one at a time. */
reshard_status rs_sender_rank(const rs_sender_rule *rule, int32_t rank, rs_rank_moves *moves);

/* Fills in a move between two holders, except for its kind, its combination and which end is this
 * rank. Without a source (NULL), only the target's end. */
void rs_sender_fill_move(const rs_match *match, const rs_link_box *box, const rs_holder *source,
                         const rs_holder *target, rs_move *out_move);

/* The source contributions that make up the value of one target contributor: first .. first + count
 * - 1. If count is 0 there are none, and the target gets the identity of its reduction. */
typedef struct rs_combination {
    int32_t first, count;
} rs_combination;

rs_combination rs_sender_combination(const rs_match *match, int32_t target_contributor);
/* Sets kind, contributor_count, reduction and divisor. */
void rs_sender_set_combination(const reshard_layout *source, const reshard_layout *target,
                               const rs_combination *combination, rs_move *move);
/* Errors: UNSUPPORTED if the target mixes sums and averages, unless the source does so in the same
 * way. */
reshard_status rs_sender_check(const reshard_layout *source, const reshard_layout *target);

#endif
