/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lift.h - local tensors beside distributed ones. In a module that has been spread over ranks, a
 * local tensor (an input, a weight that the plan leaves out) is the same on all ranks: it counts as
 * replicated over the mesh of the others.
 */
#ifndef RS_TENSOR_DIST_LIFT_H
#define RS_TENSOR_DIST_LIFT_H

#include "tensor/dist/spread.h"

/* The layout that has all of `shape` on every rank of the mesh that `like` lies on, or of its
 * group where it has no mesh. */
reshard_status rs_layout_replicated(reshard_context *context, const reshard_tensor *like,
                                    int32_t ndim, const int64_t *shape,
                                    reshard_layout **out_layout);

/* Where one of the tensors is distributed, local ones are replaced by replicated ones, in the
 * innermost scope; gradients flow back to them. Entries may be NULL. Local. False on failure. */
bool rs_lift(int32_t count, reshard_tensor **tensors);

/* The values of one tensor in the layout of another of the same shape and dtype; a local tensor is
 * whole on every rank. Collective where one is distributed. No gradients. */
reshard_status rs_tensor_bring(reshard_context *context, reshard_tensor *source,
                               const reshard_tensor *target, reshard_tensor **out_tensor);

#endif
