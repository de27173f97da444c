/* SPDX-License-Identifier: Apache-2.0 */
/*
 * match.h - which regions of the one side of a link meet which of the other: what every plan is
 * made of. A match does not depend on which end looks for it, so that both find the same boxes.
 */
#ifndef RS_PLAN_MATCH_H
#define RS_PLAN_MATCH_H

#include "plan/link.h"

typedef struct rs_match {
    const rs_link *link;
    const rs_region *source, *target;
    const rs_holder *mine; /* on the side that was asked for */
    rs_link_box box;       /* what they have in common, in link space */
} rs_match;

typedef reshard_status (*rs_match_fn)(void *user, const rs_match *match);

/* All matches of what the rank holds of the source, or of the target. */
reshard_status rs_match_source(const rs_link *link, int32_t rank, rs_match_fn fn, void *user);
reshard_status rs_match_target(const rs_link *link, int32_t rank, rs_match_fn fn, void *user);

#endif
