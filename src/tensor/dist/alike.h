/* SPDX-License-Identifier: Apache-2.0 */
/*
 * alike.h - whether the ranks' local tensors are the same, where that decides what they mean beside
 * distributed ones. Such a tensor counts as replicated. If that were taken for granted, ranks that
 * pass different ones would get a wrong result, and no error.
 *
 *  - Layouts tell that a tensor differs (kin in core/tensor.h): it came from to_local or a
 *    collective, or was computed from such tensors. Then each rank has its own rows, as in
 *    PyTorch's sharded operations.
 *  - Nothing is known: ranks compare digests. A parameter is compared once; anything else once for
 *    each operation, dtype and shape, so that a training loop compares its first step alone.
 */
#ifndef RS_TENSOR_DIST_ALIKE_H
#define RS_TENSOR_DIST_ALIKE_H

#include "tensor/core/distribution.h"

/* Collective if anything has to be compared. Finds what the local tensor is over the mesh of a
 * distributed one: *out_rows is NULL if it is the same on all ranks of the mesh; otherwise a spec
 * that cuts dim 0 over the axes along which it differs, to be released. `what` names the operation,
 * `slot` its input. Errors: MISMATCH, naming two ranks whose tensors differ though nothing says so;
 * INVALID for a parameter that was declared to differ. */
reshard_status rs_find_rows(const char *what, int32_t slot, reshard_tensor *tensor,
                            const reshard_tensor *like, reshard_spec **out_rows);

/* Collective. Compares a tensor that must be whole on all ranks of the group, every time. */
reshard_status rs_compare_whole(const char *what, reshard_tensor *tensor, reshard_group *group);

#endif
