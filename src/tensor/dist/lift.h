/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lift.h - local tensors used together with distributed ones. In a module that is spread over
 * ranks, a local tensor (an input, or a weight that the sharding plan does not name) is the same on
 * all ranks, and counts as replicated over the mesh of the distributed ones. If it is known to
 * differ, each rank has its own rows of the whole (alike.h).
 */
#ifndef RS_TENSOR_DIST_LIFT_H
#define RS_TENSOR_DIST_LIFT_H

#include "tensor/dist/spread.h"

/* Makes the layout that puts all of `shape` on every rank of the mesh of `like`. If `like` has no
 * mesh, or one that names a rank twice, it is every rank of its group. */
reshard_status rs_layout_replicated(reshard_context *context, const reshard_tensor *like,
                                    int32_t ndim, const int64_t *shape,
                                    reshard_layout **out_layout);

/* If one of the tensors is distributed, replaces the local ones by replicated ones in the innermost
 * scope, or by the rows of all ranks. Gradients flow back. Entries may be NULL. `what` names the
 * operation in errors. row_slot: an input that is a single row if it has one dim, or -1. Collective
 * if ranks have to compare something (alike.h). Returns false on failure, with the error noted. */
bool rs_lift(const char *what, int32_t row_slot, int32_t count, reshard_tensor **tensors);

/* Gives the values of `source` in the layout of `target`, which has the same shape and dtype. A
 * local tensor must be whole on every rank, which is compared. Collective if either is distributed.
 * Not recorded for gradients. */
reshard_status rs_tensor_bring(reshard_context *context, reshard_tensor *source,
                               const reshard_tensor *target, reshard_tensor **out_tensor);

#endif
