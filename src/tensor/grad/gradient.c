/* SPDX-License-Identifier: Apache-2.0 */
/* gradient.c - see gradient.h. */
#include "tensor/grad/gradient.h"

#include "base/context.h"
#include "base/error.h"
#include "kernel/values/combine.h"
#include "layout/layout.h"
#include "tensor/core/dense.h"
#include "tensor/core/move.h"
#include "tensor/core/scope.h"

#include <assert.h>

reshard_status rs_gradient_layout(reshard_layout *layout, reshard_layout **out_layout)
{
    const reshard_placement replicate = {.kind = RESHARD_REPLICATE};
    return rs_layout_replace_partial(layout, &replicate, out_layout);
}

static reshard_status add_local(const reshard_tensor *a, const reshard_tensor *b,
                                reshard_tensor **out_sum)
{
    rs_combining adding;
    reshard_tensor *inputs[] = {(reshard_tensor *)a, (reshard_tensor *)b}, *sum = NULL;
    if (a->dtype != b->dtype || !rs_shape_equals(a, b))
        return rs_fail(RESHARD_ERR_INVALID, "gradients of one tensor, %s and %s",
                       rs_tensor_describe(a).text, rs_tensor_describe(b).text);
    reshard_status status = rs_result(a->dtype, a->ndim, a->shape, &sum);
    if (status != RESHARD_OK)
        return status;
    rs_tensor_copy(a, sum);
    rs_combine_prepare(&adding, RESHARD_SUM, a->dtype, a->ndim, a->shape, b->strides, sum->strides);
    rs_combine_run(&adding, b->data, sum->data);
    sum->sameness = rs_sameness_of(2, inputs);
    sum->kin = rs_kin_of(2, inputs);
    *out_sum = sum;
    return RESHARD_OK;
}

static reshard_status add_shards(const reshard_tensor *a, const reshard_tensor *b,
                                 reshard_tensor **out_sum)
{
    const rs_distribution *x = a->distribution, *y = b->distribution;
    reshard_context *context = rs_scope_context();
    reshard_tensor **sums = rs_allocate_array(context, (size_t)x->shard_count, sizeof *sums);
    reshard_status status = sums != NULL ? RESHARD_OK : rs_allocation_status();
    int64_t made = 0;
    while (made < x->shard_count && status == RESHARD_OK) {
        status = add_local(x->shards[made], y->shards[made], &sums[made]);
        made += status == RESHARD_OK;
    }
    if (status == RESHARD_OK)
        status = rs_distributed_wrap(context, x->cache, x->layout, a->dtype, sums, out_sum);
    while (made > 0)
        reshard_tensor_release(sums[--made]);
    rs_release(context, sums);
    return status;
}

reshard_tensor *rs_gradient_add(reshard_tensor *a, reshard_tensor *b)
{
    assert((a->distribution != NULL) == (b->distribution != NULL));
    reshard_tensor *moved = NULL, *sum = NULL;
    reshard_status status = RESHARD_OK;
    if (a->distribution == NULL) {
        status = add_local(a, b, &sum);
        return rs_scope_finish(status, sum);
    }
    status = rs_redistribute(rs_scope_context(), b, a->distribution->layout, b->dtype, &moved);
    if (status == RESHARD_OK)
        status = add_shards(a, moved, &sum);
    reshard_tensor_release(moved);
    return rs_scope_finish(status, sum);
}
