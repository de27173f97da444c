/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check_links.h - what links say, written a second time for the checker (check.c): by steps, and
 * without anything that finds moves.
 */
#ifndef RS_PLAN_CHECK_LINKS_H
#define RS_PLAN_CHECK_LINKS_H

#include "plan/plan.h"

/* The tensor coordinate of dim d is origin[d] + the sum of x[i] * weight[i] over all link dims i
 * with dim[i] == d. */
typedef struct rs_side_map {
    int32_t ndim; /* of the tensor */
    int64_t origin[RESHARD_NDIM_MAX];
    int32_t dim[RESHARD_FACTORS_MAX];
    int64_t weight[RESHARD_FACTORS_MAX];
} rs_side_map;

typedef struct rs_link_map {
    int32_t ndim; /* of link space */
    int64_t size[RESHARD_FACTORS_MAX];
    rs_side_map source, target;
} rs_link_map;

void rs_link_map_make(const rs_given_link *link, const reshard_layout *source,
                      const reshard_layout *target, rs_link_map *out_map);

/* The number of elements that a link fills in a box of its target. */
int64_t rs_link_map_volume(const rs_link_map *map, const reshard_box *box);

/* Checks that the links of each target of a stage are disjoint and together have its volume.
 * Errors: CHECK; RANGE if strided links would have to be compared run by run too often. */
reshard_status rs_check_stage_links(reshard_context *context, const rs_stage *stage,
                                    int32_t stage_index);

#endif
