/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route.h - from matches to moves: which holder sends to which needer, what is kept, what is
 * combined.
 *
 * The rule, for a match that s holders have (of one contribution) and t ranks need (docs/plan.md
 * has the proof of its bounds):
 *  1. A needer that holds the contribution itself keeps it.
 *  2. s <= t: needer j takes it from holder j mod s.
 *  3. s > t: needer j has the holders j, j+t, j+2t, .. to itself. They divide the source's own line
 *     of one dim in equal parts, and each sends its part. Where the source is flat or listed, or
 *     the link splits dims, they take turns by the needer's rank instead.
 */
#ifndef RS_PLAN_ROUTE_H
#define RS_PLAN_ROUTE_H

#include "plan/family.h"
#include "plan/link.h"
#include "plan/match.h"

typedef struct rs_rank_moves {
    rs_family receives, sends, keeps;
} rs_rank_moves;

/* One link between a source and a target with what is to be combined on the way. */
typedef struct rs_routing {
    rs_link link;
    int32_t division_dim; /* of the source, see rule 3; -1: take turns */
} rs_routing;

void rs_routing_init(rs_routing *routing, const rs_link *link);

/* Adds the moves of one rank, one by one. */
reshard_status rs_route_rank(const rs_routing *routing, int32_t rank, rs_rank_moves *moves);

/* A move between two holders, complete but for kind, combination and which end is mine. */
void rs_route_fill_move(const rs_match *match, const rs_link_box *box, const rs_holder *source,
                        const rs_holder *target, rs_move *out_move);

/*
 * Which contributions make up the value at the target's contributor: first .. first+count-1 of the
 * source's. A count of 0: none does, and the target gets the identity of its reduction.
 */
typedef struct rs_combination {
    int32_t first, count;
} rs_combination;

rs_combination rs_route_combination(const rs_match *match, int32_t target_contributor);
/* Sets kind, contributor_count, reduction and divisor. */
void rs_route_set_combination(const reshard_layout *source, const reshard_layout *target,
                              const rs_combination *combination, rs_move *move);
/* Errors: UNSUPPORTED when the target mixes sums and averages and the source does not already do so
 * in the same way. */
reshard_status rs_route_check(const reshard_layout *source, const reshard_layout *target);

#endif
