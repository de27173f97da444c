/* SPDX-License-Identifier: Apache-2.0 */
/*
 * grid.h - the fast way from a link to records. It applies if the dims are independent: both
 * layouts only cut dims, each contribution to a source element has one owner, and the ranks of both
 * meshes are evenly spaced.
 *
 * In each dim by itself, the spans of this rank's line meet the spans of the other side in a list
 * of entries, which is quickly made and consists mostly of regular runs (family.h). The records are
 * the products of the dims' entries; copies and contributors become loops. So a rank that exchanges
 * data with a million others has a handful of records.
 */
#ifndef RS_PLAN_GRID_H
#define RS_PLAN_GRID_H

#include "plan/sender.h"

bool rs_grid_applies(const rs_link *link);
/* Adds the same moves as rs_sender_rank. */
reshard_status rs_grid_rank(const rs_link *link, int32_t rank, rs_rank_moves *moves);

#endif
