/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grid.h - the fast way from a link to records, where dims do not know of each other: both layouts
 * are cuts of dims, nobody but the owner holds a source element, and the ranks of both meshes are
 * evenly spaced.
 *
 * On each dim alone, the spans of my line meet the spans of the other side in a list of entries
 * that is quickly made and full of regular runs (family.h). The records are the products of the
 * dims' entries; copies and contributions are loops. So a rank that exchanges with a million others
 * has a handful of records.
 */
#ifndef RS_PLAN_GRID_H
#define RS_PLAN_GRID_H

#include "plan/route.h"

bool rs_grid_applies(const rs_link *link);
/* The same moves as rs_route_rank. */
reshard_status rs_grid_rank(const rs_link *link, int32_t rank, rs_rank_moves *moves);

#endif
