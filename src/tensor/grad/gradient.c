/* SPDX-License-Identifier: Apache-2.0 */
/* gradient.c - see gradient.h. */
#include "tensor/grad/gradient.h"

#include "base/context.h"
#include "layout/layout.h"
#include "tensor/core/move.h"
#include "tensor/core/scope.h"

#include <reshard/ops.h>

#include <assert.h>

reshard_status rs_gradient_layout(reshard_layout *layout, reshard_layout **out_layout)
{
    const reshard_placement replicate = {.kind = RESHARD_REPLICATE};
    return rs_layout_replace_partial(layout, &replicate, out_layout);
}

static reshard_status add_shards(const reshard_tensor *a, const reshard_tensor *b,
                                 reshard_tensor **out_sum)
{
    const rs_distribution *x = a->distribution, *y = b->distribution;
    reshard_context *context = rs_scope_context();
    reshard_tensor **sums = rs_allocate_array(context, (size_t)x->shard_count, sizeof *sums);
    reshard_status status = sums != NULL ? RESHARD_OK : rs_allocation_status();
    for (int64_t i = 0; i < x->shard_count && status == RESHARD_OK; i++) {
        sums[i] = reshard_add(x->shards[i], y->shards[i]);
        if (sums[i] == NULL)
            status = rs_scope_failed();
    }
    if (status == RESHARD_OK)
        status = rs_distributed_wrap(context, x->cache, x->layout, a->dtype, sums, out_sum);
    rs_release(context, sums, (size_t)x->shard_count * sizeof *sums);
    return status;
}

reshard_tensor *rs_gradient_add(reshard_tensor *a, reshard_tensor *b)
{
    assert((a->distribution != NULL) == (b->distribution != NULL));
    if (a->distribution == NULL)
        return reshard_add(a, b);
    reshard_tensor *moved = NULL, *sum = NULL;
    reshard_status status =
        rs_redistribute(rs_scope_context(), b, a->distribution->layout, b->dtype, &moved);
    if (status == RESHARD_OK)
        status = add_shards(a, moved, &sum);
    reshard_tensor_release(moved);
    return rs_scope_finish(status, sum);
}
