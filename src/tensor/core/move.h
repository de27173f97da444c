/* SPDX-License-Identifier: Apache-2.0 */
/* move.h - values of distributed tensors move between layouts; ranks agree before they do. */
#ifndef RS_TENSOR_CORE_MOVE_H
#define RS_TENSOR_CORE_MOVE_H

#include "tensor/core/distribution.h"

/* Collective. The first step of every collective call: all ranks pass RESHARD_OK and the same
 * digest, or all fail: with the error of the lowest rank that failed, or MISMATCH that names two
 * ranks. `what` says what is compared. *out_all_true: `flag` was set on all ranks. */
reshard_status rs_agree(reshard_group *group, reshard_status status, const uint64_t digest[2],
                        const char *what, bool flag, bool *out_all_true);
/* For a computation that a failed scope keeps from starting: tells the other ranks, once. */
void rs_agree_on_failure(void);

/* Collective. Moves values to another layout, and dtype. Equal layouts share the shards. Not
 * recorded. */
reshard_status rs_redistribute(reshard_context *context, const reshard_tensor *source,
                               reshard_layout *layout, reshard_dtype dtype,
                               reshard_tensor **out_tensor);
/* The same for any key: an adjoint one takes a tensor of the key's target layout to its source
 * layout. */
reshard_status rs_redistribute_keyed(reshard_context *context, const reshard_tensor *source,
                                     const rs_exec_key *key, reshard_tensor **out_tensor);

#endif
