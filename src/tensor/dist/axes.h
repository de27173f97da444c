/* SPDX-License-Identifier: Apache-2.0 */
/*
 * axes.h - layouts axis by axis, for the rules that say what an operation does to each mesh axis.
 * It covers layouts made of cuts along dims. Not covered are boxes, flat cuts, A(..), meshes that
 * name a rank twice, and pieces that several ranks hold, which sums would count twice.
 */
#ifndef RS_TENSOR_DIST_AXES_H
#define RS_TENSOR_DIST_AXES_H

#include "tensor/dist/spread.h"

/* The cuts of a layout in order, without replicated axes, and with dims counted from the front. */
typedef struct rs_axes {
    const reshard_mesh *mesh;
    int32_t count;
    reshard_cut cuts[RESHARD_AXES_MAX];
} rs_axes;

/* Errors: UNSUPPORTED, naming the layout. */
reshard_status rs_axes_of(const reshard_tensor *tensor, rs_axes *out_axes);
bool rs_mesh_same(const reshard_mesh *a, const reshard_mesh *b);
/* Checks that both tensors are over the same mesh. Errors: INVALID, naming both layouts. */
reshard_status rs_axes_check_mesh(const reshard_tensor *a, const reshard_tensor *b);

/* The placement of a mesh axis: replicated if nothing cuts along it. */
reshard_placement rs_axes_at(const rs_axes *axes, int32_t axis);
bool rs_axes_is_cut(const reshard_placement *placement, int32_t dim);
/* Whether two cuts are the same except for the dim. */
bool rs_axes_same_cut(const reshard_placement *a, const reshard_placement *b);
/* Whether all cuts are the same, and in the same order where that matters. */
bool rs_axes_equal(const rs_axes *first, const rs_axes *second);
/* Refuses partial placements other than sums and averages. */
reshard_status rs_check_linear(const reshard_tensor *tensor, const reshard_placement *placement);

/* Sets the placement of an axis. Replicated axes are left out of the list. */
void rs_axes_set(rs_axes *axes, int32_t axis, reshard_placement placement);
reshard_placement rs_placement_partial(void);
reshard_status rs_axes_layout(const rs_axes *axes, int32_t ndim, const int64_t *shape,
                              reshard_layout **out_layout);

#endif
