/* SPDX-License-Identifier: Apache-2.0 */
/*
 * link.h - a resolved link: the coordinates of link space, and how they map to both tensors.
 *
 * Link space has one dim per factor (in the target's order) or, without factors, one per dim of the
 * tensors, or one per axis of a strided link. A box of link space is a box on both sides unless
 * dims were split. Then it is a strided pattern on the side where a tensor dim is made of several
 * link dims, or of one whose step is not 1.
 *
 * The link dims along a tensor dim are nested like the digits of a number: each step is at least
 * size * step of the next. So their row-major order is the order along the tensor dim, and an
 * interval of the tensor dim is a range of that order, which is a handful of boxes (flat.h).
 */
#ifndef RS_PLAN_LINK_H
#define RS_PLAN_LINK_H

#include <reshard/plan.h>

#include "base/digest.h"
#include "layout/layout.h"

#include <stdbool.h>

/* A link as the caller gave it, in one of its two forms. */
typedef struct rs_given_link {
    reshard_link plain;
    /* If not NULL, says everything, and of `plain` only the indices of the tensors count. */
    const reshard_strided_link *strided;
} rs_given_link;

typedef struct rs_link_box {
    int64_t start[RESHARD_FACTORS_MAX];
    int64_t size[RESHARD_FACTORS_MAX];
} rs_link_box;

/* One side of a link: the smallest box of the tensor that holds it, and the link dims that make up
 * each of its dims. */
typedef struct rs_link_side {
    const reshard_layout *layout;
    int32_t ndim; /* of the tensor */
    int64_t offset[RESHARD_NDIM_MAX];
    int64_t size[RESHARD_NDIM_MAX];
    /* Dim d consists of the link dims members[first[d]] .. members[first[d + 1] - 1], slowest
     * first. */
    int32_t first[RESHARD_NDIM_MAX + 1];
    int32_t members[RESHARD_FACTORS_MAX];
    int32_t dim[RESHARD_FACTORS_MAX];    /* by link dim: the tensor dim it belongs to */
    int64_t weight[RESHARD_FACTORS_MAX]; /* by link dim: its step along that tensor dim */
} rs_link_side;

typedef struct rs_link {
    int32_t ndim; /* of link space */
    int64_t size[RESHARD_FACTORS_MAX];
    bool split; /* some tensor dim does not consist of exactly one link dim with step 1 */
    rs_link_side source, target;
} rs_link;

/* Errors: INVALID or RANGE, with words about what does not fit. */
reshard_status rs_link_resolve(const rs_given_link *given, const reshard_layout *source,
                               const reshard_layout *target, rs_link *out_link);

/* Adds the boxes and factors to a digest, but not which tensors are linked. */
void rs_link_digest(const rs_given_link *given, rs_digest *digest);

/* The number of elements of a tensor dim's link dims that lie before `place`, which is relative to
 * the link's box. */
int64_t rs_link_before(const rs_link *link, const rs_link_side *side, int32_t dim, int64_t place);

/* Takes a box of a tensor (start and size in the tensor's coordinates), clips it to the link's box,
 * and calls fn with the result as boxes of link space: one box unless dims are split. The boxes
 * depend on the given box alone, are disjoint, and come in a fixed order. */
typedef reshard_status (*rs_link_box_fn)(void *user, const rs_link_box *box);
reshard_status rs_link_boxes(const rs_link *link, const rs_link_side *side, const int64_t *start,
                             const int64_t *size, rs_link_box_fn fn, void *user);

/* The smallest box of the tensor that contains a box of link space. */
void rs_link_bound(const rs_link *link, const rs_link_side *side, const rs_link_box *box,
                   int64_t *out_start, int64_t *out_size);
/* The tensor coordinates of one point of link space. */
void rs_link_point(const rs_link *link, const rs_link_side *side, const int64_t *at,
                   int64_t *out_point);
/* Turns strides along the tensor's dims into strides along the link dims. */
void rs_link_strides(const rs_link *link, const rs_link_side *side, const int64_t *strides,
                     int64_t *out_strides);

#endif
