/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split_space.h - the coordinates in which the parts of a tensor that links fill are boxes.
 *
 * A strided link fills a strided part of its target. If every dim is split at the steps of all
 * links of that target (each step dividing the next larger one), these parts are boxes of the split
 * dims, and what is known about boxes (overlaps, gaps) holds for them. Digit k of a dim counts
 * steps of step[k]; the largest step comes first, the last one is 1. Where steps do not divide each
 * other, the dim is left as it is, and a strided part becomes a list of boxes.
 */
#ifndef RS_PLAN_SPLIT_SPACE_H
#define RS_PLAN_SPLIT_SPACE_H

#include "plan/link.h"

typedef struct rs_split_space {
    int32_t dim_count; /* of the tensor */
    int32_t ndim;      /* of the split space: the number of digits of all dims */
    int32_t first[RESHARD_NDIM_MAX + 1];
    int32_t dim[RESHARD_NDIM_MAX]; /* by digit */
    int64_t step[RESHARD_NDIM_MAX];
    int64_t radix[RESHARD_NDIM_MAX];
} rs_split_space;

/* The target part of one link along one dim, in as few axes as possible. */
typedef struct rs_strided_line {
    int64_t offset;
    int32_t count;
    int64_t step[RESHARD_NDIM_MAX], size[RESHARD_NDIM_MAX]; /* by falling step */
} rs_strided_line;

/* A space is begun for a tensor, sees all links, and is finished before it is asked. */
void rs_split_space_begin(rs_split_space *space, int32_t ndim);
void rs_split_space_see(rs_split_space *space, const rs_link *link, const rs_link_side *side);
void rs_split_space_finish(rs_split_space *space, const int64_t *shape);

/* Calls fn with the boxes, in split space, of what a link has on one side. They are disjoint. */
typedef reshard_status (*rs_split_box_fn)(void *user, const reshard_box *box);
reshard_status rs_split_space_boxes(const rs_split_space *space, const rs_link *link,
                                    const rs_link_side *side, rs_split_box_fn fn, void *user);
/* The same for the whole tensor. */
reshard_status rs_split_space_whole(const rs_split_space *space, const int64_t *shape,
                                    rs_split_box_fn fn, void *user);
/* The other direction: a box of split space as a link from the tensor to itself. */
void rs_split_space_link(const rs_split_space *space, const reshard_box *box,
                         reshard_strided_link *out_link);

#endif
