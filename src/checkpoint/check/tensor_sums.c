/* SPDX-License-Identifier: Apache-2.0 */
/* tensor_sums.c - digests of tensors and of the checkpoint, from sums. */
#include "checkpoint/check/tensor_sums.h"
#include "base/error.h"
#include "base/sort.h"

static int compare_names(const void *a, const void *b)
{
    const rs_tensor_sum *x = a, *y = b;
    return rs_slice_compare(x->tensor->name, y->tensor->name);
}

static void tell_entry(void *user, int64_t index, rs_fingerprint_entry *out_entry)
{
    const rs_tensor_sum *sum = (const rs_tensor_sum *)user + index;
    *out_entry =
        (rs_fingerprint_entry){sum->tensor->name.bytes, sum->tensor->name.count, sum->digest};
}

reshard_status rs_tensor_sums_finish(const rs_fingerprint_code *code, int64_t count,
                                     rs_tensor_sum *sums, int64_t *out_known,
                                     char out_checkpoint[RS_FINGERPRINT_TEXT])
{
    int64_t known = 0;
    for (int64_t i = 0; i < count; i++) {
        const rs_stored_tensor *tensor = sums[i].tensor;
        sums[i].digest[0] = '\0';
        if (sums[i].sum.bytes != tensor->bytes)
            continue;
        reshard_status status = rs_fingerprint_final(code, &sums[i].sum, tensor->dtype,
                                                     tensor->ndim, tensor->shape, sums[i].digest);
        if (status != RESHARD_OK)
            return rs_fail_within_tensor(status, tensor->name);
        known++;
    }
    rs_sort(sums, (size_t)count, sizeof *sums, compare_names);
    out_checkpoint[0] = '\0';
    *out_known = known;
    if (known < count)
        return RESHARD_OK;
    return rs_fingerprint_checkpoint(code, count, tell_entry, sums, out_checkpoint);
}

reshard_status rs_digest_compare_ranks(const reshard_checkpoint *checkpoint, const rs_team *team,
                                       bool check_copies, reshard_status status)
{
    uint64_t words[2];
    rs_digest digest;
    rs_digest_init(&digest);
    rs_digest_u64(&digest, check_copies);
    rs_store_digest(checkpoint, &digest);
    rs_digest_finish(&digest, words);
    return rs_team_compare(team, status, "digest: the checkpoint", words);
}
