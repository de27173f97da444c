/* SPDX-License-Identifier: Apache-2.0 */
/*
 * axes.h - layouts by mesh axis, for rules that tell what an operation makes of each axis. It
 * covers regular layouts that are cut along dims: no boxes, no flat cuts, no A, no rank with
 * several chunks, and no pieces that several ranks hold, which sums would count twice.
 */
#ifndef RS_TENSOR_DIST_AXES_H
#define RS_TENSOR_DIST_AXES_H

#include "tensor/dist/spread.h"

/* The cuts of a layout in their order, with dims counted from the front and without replicated
 * axes. */
typedef struct rs_axes {
    const reshard_mesh *mesh;
    int32_t count;
    reshard_cut cuts[RESHARD_AXES_MAX];
} rs_axes;

/* Errors: UNSUPPORTED naming the layout. */
reshard_status rs_axes_of(const reshard_tensor *tensor, rs_axes *out_axes);
bool rs_mesh_same(const reshard_mesh *a, const reshard_mesh *b);
/* Errors: INVALID naming both layouts. */
reshard_status rs_axes_check_mesh(const reshard_tensor *a, const reshard_tensor *b);

/* The placement of a mesh axis: replicated when nothing cuts along it. */
reshard_placement rs_axes_at(const rs_axes *axes, int32_t axis);
bool rs_axes_is_cut(const reshard_placement *placement, int32_t dim);
/* Whether two cuts are the same except for the dim. */
bool rs_axes_same_cut(const reshard_placement *a, const reshard_placement *b);
/* Whether all cuts are the same, in the same order where that matters. */
bool rs_axes_equal(const rs_axes *first, const rs_axes *second);
/* Refuses partial placements other than sums and averages. */
reshard_status rs_check_linear(const reshard_tensor *tensor, const reshard_placement *placement);

/* Sets the placement of an axis. Replicated axes are left out of the list. */
void rs_axes_set(rs_axes *axes, int32_t axis, reshard_placement placement);
reshard_placement rs_placement_partial(void);
reshard_status rs_axes_layout(const rs_axes *axes, int32_t ndim, const int64_t *shape,
                              reshard_layout **out_layout);

#endif
