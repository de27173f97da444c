/* SPDX-License-Identifier: Apache-2.0 */
/* outline.c - see outline.h. */
#include "tensor/dist/outline.h"

#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "tensor/core/move.h"
#include "tensor/core/scope.h"
#include "tensor/grad/node.h"

#include <reshard/group.h>

#include <assert.h>
#include <string.h>

rs_outline rs_outline_of(const reshard_tensor *tensor)
{
    rs_outline outline;
    memset(&outline, 0, sizeof outline);
    if (tensor != NULL) {
        outline.present = 1;
        outline.dtype = (int32_t)tensor->dtype;
        outline.ndim = tensor->ndim;
        outline.requires_grad = rs_tensor_requires_grad(tensor);
        memcpy(outline.shape, tensor->shape, sizeof outline.shape);
        for (int32_t d = tensor->ndim; d < RESHARD_NDIM_MAX; d++)
            outline.shape[d] = 0;
    }
    return outline;
}

bool rs_outline_same(const rs_outline *a, const rs_outline *b)
{
    return a->dtype == b->dtype && a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, sizeof a->shape) == 0;
}

reshard_status rs_outlines_gather(reshard_group *group, reshard_status status, const char *what,
                                  const rs_outline *mine, rs_outline **out_all)
{
    size_t size = (size_t)reshard_group_size(group);
    rs_outline *all = NULL;
    if (status == RESHARD_OK) {
        all = rs_allocate_array(NULL, size, sizeof *all);
        status = all != NULL ? RESHARD_OK : rs_allocation_status();
    }
    /* The name is a claim, so that a rank that is in another call is found out. */
    rs_digest name;
    uint64_t digest[2];
    rs_digest_init(&name);
    rs_digest_bytes(&name, what, strlen(what));
    rs_digest_finish(&name, digest);
    status = rs_agree_on(group, status, digest, what, 0, NULL);
    if (status == RESHARD_OK)
        status = reshard_group_gather_bytes(group, mine, sizeof *mine, all);
    if (status == RESHARD_OK)
        *out_all = all;
    else
        rs_release(NULL, all);
    return status;
}

reshard_status rs_make_empty(reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                             reshard_tensor **out_tensor)
{
    assert(ndim >= 0 && ndim <= RESHARD_NDIM_MAX);
    int64_t empty[RESHARD_NDIM_MAX] = {0};
    for (int32_t d = 1; d < ndim; d++)
        empty[d] = shape[d];
    return reshard_tensor_create(rs_scope_context(), dtype, ndim > 0 ? ndim : 1, empty, out_tensor);
}
