/* SPDX-License-Identifier: Apache-2.0 */
/* gradient.c - see gradient.h. */
#include "tensor/grad/gradient.h"

#include "base/context.h"
#include "layout/layout.h"
#include "tensor/core/move.h"
#include "tensor/core/scope.h"

#include <reshard/ops.h>

reshard_status rs_gradient_layout(reshard_layout *layout, reshard_layout **out_layout)
{
    const reshard_spec *spec = reshard_layout_spec(layout);
    reshard_cut cuts[RESHARD_AXES_MAX];
    int32_t count = reshard_spec_cut_count(spec);
    bool partial = false;
    for (int32_t i = 0; i < count; i++) {
        cuts[i] = *reshard_spec_cut(spec, i);
        if (cuts[i].placement.kind == RESHARD_PARTIAL) {
            cuts[i].placement = (reshard_placement){.kind = RESHARD_REPLICATE};
            partial = true;
        }
    }
    if (!partial) {
        *out_layout = reshard_layout_retain(layout);
        return RESHARD_OK;
    }
    reshard_spec *replicated = NULL;
    reshard_status status = reshard_spec_create(
        layout->context, (reshard_mesh *)reshard_spec_mesh(spec), count, cuts, &replicated);
    if (status == RESHARD_OK)
        status = reshard_layout_create(layout->context, replicated, layout->ndim, layout->shape,
                                       out_layout);
    reshard_spec_release(replicated);
    return status;
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
    if (a->distribution == NULL)
        return reshard_add(a, b);
    reshard_tensor *moved = NULL, *sum = NULL;
    reshard_status status =
        rs_redistribute(rs_scope_context(), b, a->distribution->layout, b->dtype, &moved);
    if (status == RESHARD_OK)
        status = add_shards(a, moved, &sum);
    reshard_tensor_release(moved);
    return status == RESHARD_OK ? rs_scope_own(sum) : rs_scope_fail(status);
}
