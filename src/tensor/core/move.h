/* SPDX-License-Identifier: Apache-2.0 */
/* move.h - moving distributed tensors between layouts, and the agreement that comes before. */
#ifndef RS_TENSOR_CORE_MOVE_H
#define RS_TENSOR_CORE_MOVE_H

#include "tensor/core/distribution.h"

/* Collective. The first step of every collective call. Succeeds if all ranks pass RESHARD_OK and
 * the same digest. Otherwise it fails on all of them, with the error of the lowest rank that
 * failed, or with MISMATCH naming two ranks. A rank that passes no digest (NULL) accepts any.
 * `what` names the call in the error text. *out_all_same tells whether all ranks passed the
 * same number, and not 0. */
reshard_status rs_agree(reshard_group *group, reshard_status status, const uint64_t digest[2],
                        const char *what, uint64_t number, bool *out_all_same);
/* Tells the other ranks that this rank cannot start a computation because its scope has failed.
 * Does nothing if they know already. */
void rs_agree_on_failure(void);

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

#endif
