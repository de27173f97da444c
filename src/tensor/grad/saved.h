/* SPDX-License-Identifier: Apache-2.0 */
/* saved.h - one tensor that an operation saved for its backward step. */
#ifndef RS_TENSOR_GRAD_SAVED_H
#define RS_TENSOR_GRAD_SAVED_H

#include "tensor/core/scope.h"

typedef struct rs_saved {
    reshard_tensor *tensor; /* an alias, if there were no hooks */
    uint64_t version;
    bool packed;
    reshard_saved_tensor_hooks hooks;
    void *packed_object;
    reshard_tensor *bare; /* dtype, shape and layout of a packed tensor, without data */
} rs_saved;

reshard_status rs_saved_pack(reshard_context *context, reshard_tensor *tensor, rs_saved *out_saved);
reshard_status rs_saved_unpack(rs_saved *saved, const char *name, reshard_tensor **out_tensor);
void rs_saved_forget(rs_saved *saved);

#endif
