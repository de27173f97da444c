/* SPDX-License-Identifier: Apache-2.0 */
/* dropout.c - dropout is a product with a mask that depends only on the seed and on global
 * indices. */
#include "base/error.h"
#include "tensor/core/dense.h"
#include "tensor/core/random.h"
#include "tensor/grad/node.h"
#include "tensor/ops/spread_ops.h"

reshard_tensor *rs_dropout_mask(reshard_tensor *x, double p, uint64_t seed)
{
    reshard_tensor *mask = NULL;
    rs_random fill = {RS_RANDOM_KEEP, seed, p};
    reshard_status status = x->distribution != NULL
                                ? rs_distributed_make(rs_scope_context(), x->distribution->cache,
                                                      x->distribution->layout, x->dtype, &mask)
                                : rs_result(x->dtype, x->ndim, x->shape, &mask);
    if (status == RESHARD_OK)
        status = rs_fill_random(mask, &fill);
    if (status == RESHARD_OK)
        return rs_scope_own(mask);
    reshard_tensor_release(mask);
    return rs_scope_fail(rs_fail_within(status, "dropout"));
}

reshard_tensor *reshard_dropout(reshard_tensor *x, double p, uint64_t seed)
{
    if (!rs_op_begin("dropout", 1, &x))
        return NULL;
    if (!(p >= 0 && p < 1))
        return rs_scope_fail(
            rs_fail(RESHARD_ERR_RANGE, "dropout: a probability of %g, not 0 <= p < 1", p));
    return reshard_mul(x, rs_dropout_mask(x, p, seed));
}
