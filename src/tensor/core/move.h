/* SPDX-License-Identifier: Apache-2.0 */
/* move.h - moves between the layouts of distributed tensors, and the agreement before them. */
#ifndef RS_TENSOR_CORE_MOVE_H
#define RS_TENSOR_CORE_MOVE_H

#include "tensor/core/distribution.h"

/* Collective. The first step of every collective call: all ranks pass RESHARD_OK and the same
 * digest, or all fail, with the error of the lowest rank that failed or with MISMATCH naming two
 * ranks. digest NULL: this rank accepts any. `what` names the call in the error text. *out_all_true
 * tells whether `flag` was set on all ranks. */
reshard_status rs_agree(reshard_group *group, reshard_status status, const uint64_t digest[2],
                        const char *what, bool flag, bool *out_all_true);
/* Tells the other ranks, once, that this rank cannot start a computation because its scope has
 * failed. */
void rs_agree_on_failure(void);

/* Collective. Moves values to another layout and dtype. Equal layouts share the shards. Not
 * recorded. */
reshard_status rs_redistribute(reshard_context *context, const reshard_tensor *source,
                               reshard_layout *layout, reshard_dtype dtype,
                               reshard_tensor **out_tensor);
/* The same for any key. An adjoint key moves a tensor from the key's target layout to its source
 * layout. */
reshard_status rs_redistribute_keyed(reshard_context *context, const reshard_tensor *source,
                                     const rs_exec_key *key, reshard_tensor **out_tensor);
/* Collective. Writes the values into a tensor of the same group and shape. status: that of what
 * this rank checked before. Errors: also INVALID if the two share memory. Not recorded. */
reshard_status rs_redistribute_into(reshard_status status, const reshard_tensor *source,
                                    reshard_tensor *target);

#endif
