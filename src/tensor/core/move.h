/* SPDX-License-Identifier: Apache-2.0 */
/* move.h - moving distributed tensors between layouts. */
#ifndef RS_TENSOR_CORE_MOVE_H
#define RS_TENSOR_CORE_MOVE_H

#include "tensor/core/distribution.h"
#include "tensor/core/failure.h"

/* Collective. Gives the values in another layout and dtype. If the dtype stays and every rank has
 * the same shards in both layouts, the result shares them. Not recorded for gradients. */
reshard_status rs_redistribute(reshard_context *context, const reshard_tensor *source,
                               reshard_layout *layout, reshard_dtype dtype,
                               reshard_tensor **out_tensor);
/* The same for any key. With an adjoint key, the tensor goes from the key's target layout to its
 * source layout. */
reshard_status rs_redistribute_keyed(reshard_context *context, const reshard_tensor *source,
                                     const rs_exec_key *key, reshard_tensor **out_tensor);
/* The two steps of it. The first is Local: makes the target, which shares the shards of the source
 * if nothing has to move (*out_still). The second is Collective: agrees on `status`, and starts the
 * exec, which stays the cache's; *out_exec stays as it is if nothing has to move. */
reshard_status rs_move_target(reshard_context *context, const reshard_tensor *source,
                              const rs_exec_key *key, reshard_tensor **out_target, bool *out_still);
reshard_status rs_move_begin(reshard_context *context, reshard_status status,
                             const reshard_tensor *source, const rs_exec_key *key, bool still,
                             const reshard_tensor *target, reshard_exec **out_exec);
/* Collective. Writes the values into an existing tensor of the same group and shape. `status` is
 * the result of this rank's own checks, on which the ranks agree first. Errors: also INVALID if the
 * two tensors share memory. Not recorded for gradients. */
reshard_status rs_redistribute_into(reshard_status status, const reshard_tensor *source,
                                    reshard_tensor *target);

/* rs_redistribute as the last of several steps: `status` is the result of this rank's earlier ones.
 * If it is an error, source and layout may be NULL, and all ranks of the group fail; `what` names
 * the call. */
reshard_status rs_redistribute_after(reshard_status status, reshard_group *group, const char *what,
                                     reshard_context *context, const reshard_tensor *source,
                                     reshard_layout *layout, reshard_dtype dtype,
                                     reshard_tensor **out_tensor);
/* Collective. Gathers the whole tensor on every rank of its group, or on `root` alone if that is
 * not -1. *out_local is a reference, or NULL on a rank that gets nothing. */
reshard_status rs_gather_whole(reshard_context *context, reshard_status status, const char *what,
                               const reshard_tensor *source, int32_t root,
                               reshard_tensor **out_local);

#endif
