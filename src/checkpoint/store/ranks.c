/* SPDX-License-Identifier: Apache-2.0 */
/* ranks.c - gathering and comparing between the ranks that share work. */
#include "checkpoint/store/ranks.h"

#include "base/context.h"
#include "base/error.h"

#include <string.h>

reshard_status rs_ranks_gather(reshard_context *context, reshard_group *group, const void *mine,
                               size_t bytes, void **out_all)
{
    size_t count = (size_t)reshard_group_size(group);
    void *all = rs_allocate_array(context, count, bytes);
    reshard_status status =
        reshard_group_agree(group, all != NULL ? RESHARD_OK : rs_allocation_status());
    if (status == RESHARD_OK)
        status = reshard_group_gather_bytes(group, mine, bytes, all);
    if (status == RESHARD_OK) {
        *out_all = all;
        return RESHARD_OK;
    }
    if (all != NULL)
        rs_release(context, all, count * bytes);
    return status;
}

reshard_status rs_ranks_compare(reshard_context *context, reshard_group *group, const char *what,
                                const uint64_t digest[2])
{
    void *all = NULL;
    size_t bytes = 2 * sizeof(uint64_t), count = (size_t)reshard_group_size(group);
    reshard_status status = rs_ranks_gather(context, group, digest, bytes, &all);
    for (size_t i = 1; status == RESHARD_OK && i < count; i++) {
        if (memcmp((const char *)all + i * bytes, all, bytes) != 0)
            status =
                rs_fail(RESHARD_ERR_MISMATCH,
                        "%s: rank %zu has other options than rank 0, or sees other files", what, i);
    }
    if (all != NULL)
        rs_release(context, all, count * bytes);
    return status;
}
