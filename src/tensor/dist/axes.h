/* SPDX-License-Identifier: Apache-2.0 */
/*
 * axes.h - layouts by mesh axis, for rules that say what an operation makes of each axis. Regular
 * layouts of cuts along dims only: no boxes, no flat cuts, no A, no shared pieces, which would be
 * counted twice in sums.
 */
#ifndef RS_TENSOR_DIST_AXES_H
#define RS_TENSOR_DIST_AXES_H

#include "tensor/dist/spread.h"

/* The cuts of a layout in their order, dims counted from the front; replicated axes left out. */
typedef struct rs_axes {
    const reshard_mesh *mesh;
    int32_t count;
    reshard_cut cuts[RESHARD_AXES_MAX];
} rs_axes;

/* Errors: UNSUPPORTED naming the layout. */
reshard_status rs_axes_of(const reshard_tensor *tensor, rs_axes *out_axes);
/* Errors: INVALID naming both layouts. */
reshard_status rs_axes_check_mesh(const reshard_tensor *a, const reshard_tensor *b);

/* The placement of a mesh axis; replicated when it has no cut. */
reshard_placement rs_axes_at(const rs_axes *axes, int32_t axis);
bool rs_axes_is_cut(const reshard_placement *placement, int32_t dim);
/* The same cut, but for the dim. */
bool rs_axes_same_cut(const reshard_placement *a, const reshard_placement *b);

/* Replaces or adds the placement of an axis; replicated ones are left out. */
void rs_axes_set(rs_axes *axes, int32_t axis, reshard_placement placement);
reshard_placement rs_placement_partial(void);
reshard_status rs_axes_layout(const rs_axes *axes, int32_t ndim, const int64_t *shape,
                              reshard_layout **out_layout);

#endif
