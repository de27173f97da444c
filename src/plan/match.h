/* SPDX-License-Identifier: Apache-2.0 */
/*
 * match.h - which regions on one side of a link meet which on the other. Every plan is made from
 * these matches. A match does not depend on which end looks for it, so both ends find the same
 * boxes.
 */
#ifndef RS_PLAN_MATCH_H
#define RS_PLAN_MATCH_H

#include "plan/link.h"

typedef struct rs_match {
    const rs_link *link;
    const rs_region *source, *target;
    const rs_holder *mine; /* this rank's place on the side that was asked for */
    rs_link_box box;       /* the intersection of the two regions, in link space */
} rs_match;

typedef reshard_status (*rs_match_fn)(void *user, const rs_match *match);

/* Calls fn for every match of a region that the rank holds in the source, or in the target. */
reshard_status rs_match_source(const rs_link *link, int32_t rank, rs_match_fn fn, void *user);
reshard_status rs_match_target(const rs_link *link, int32_t rank, rs_match_fn fn, void *user);
/* The same for one of many ranks: *steps counts the boxes that all of them meet. Errors: also RANGE
 * beyond RS_WHOLE_STEPS_MAX. */
reshard_status rs_match_one_target(const rs_link *link, int32_t rank, int64_t *steps,
                                   rs_match_fn fn, void *user);

#endif
