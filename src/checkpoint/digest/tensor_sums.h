/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_sums.h - from sums of tensors to their digests and that of the checkpoint. */
#ifndef RS_CHECKPOINT_DIGEST_TENSOR_SUMS_H
#define RS_CHECKPOINT_DIGEST_TENSOR_SUMS_H

#include "checkpoint/fingerprint/fingerprint.h"
#include "checkpoint/store/store.h"

/* A tensor, the sum of what came by of it, and its digest once that is known. */
typedef struct rs_tensor_sum {
    const rs_stored_tensor *tensor;
    rs_fingerprint sum;
    char digest[RS_FINGERPRINT_TEXT]; /* "": not all of it came by */
} rs_tensor_sum;

/* Sorts the sums by name, and sets the digests of tensors that came by whole. *out_known counts
 * those. out_checkpoint is the digest of all, or "" when one is missing. Errors: CHECK when a sum
 * has a tensor's size and yet does not tile it. */
reshard_status rs_tensor_sums_finish(const rs_fingerprint_code *code, int64_t count,
                                     rs_tensor_sum *sums, int64_t *out_known,
                                     char out_checkpoint[RS_FINGERPRINT_TEXT]);

#endif
