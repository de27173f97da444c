/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_sums.h - turns the sums of tensors into their digests and that of the checkpoint; and what
 * both kinds of digests begin with. */
#ifndef RS_CHECKPOINT_CHECK_TENSOR_SUMS_H
#define RS_CHECKPOINT_CHECK_TENSOR_SUMS_H

#include "checkpoint/engine/fingerprint.h"
#include "checkpoint/engine/team.h"
#include "checkpoint/store/store.h"

/* A tensor, the sum of the bytes that were seen of it, and its digest if they were all of it. */
typedef struct rs_tensor_sum {
    const rs_stored_tensor *tensor;
    rs_fingerprint sum;
    char digest[RS_FINGERPRINT_TEXT]; /* "": not all of it was seen */
} rs_tensor_sum;

/* Sorts the sums by name, and sets the digests of tensors that were seen as a whole; *out_known is
 * how many. out_checkpoint is the digest of the checkpoint, or "" if any tensor's is missing.
 * Errors: CHECK if a sum has the size of its tensor but does not tile it. */
reshard_status rs_tensor_sums_finish(const rs_fingerprint_code *code, int64_t count,
                                     rs_tensor_sum *sums, int64_t *out_known,
                                     char out_checkpoint[RS_FINGERPRINT_TEXT]);

/* Collective. Checks that all ranks see the same tensors at the same places, and have the same
 * wish; `status` is that of this rank so far. */
reshard_status rs_digest_compare_ranks(const reshard_checkpoint *checkpoint, const rs_team *team,
                                       bool check_copies, reshard_status status);

#endif
