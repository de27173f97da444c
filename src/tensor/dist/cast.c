/* SPDX-License-Identifier: Apache-2.0 */
/* cast.c - the same values in another dtype. */
#include "base/error.h"
#include "tensor/core/dense.h"
#include "tensor/core/scope.h"
#include "tensor/dist/spread.h"
#include "tensor/grad/node.h"

reshard_status rs_cast_shards(reshard_tensor *tensor, reshard_dtype dtype,
                              reshard_tensor **out_tensor)
{
    if (tensor->dtype == dtype) {
        *out_tensor = reshard_tensor_retain(tensor);
        return RESHARD_OK;
    }
    const rs_distribution *d = tensor->distribution;
    reshard_tensor *made = NULL;
    reshard_status status =
        rs_distributed_make(rs_scope_context(), d->cache, d->layout, dtype, &made);
    for (int64_t i = 0; i < d->shard_count && status == RESHARD_OK; i++) {
        reshard_tensor **shard = &made->distribution->shards[i];
        reshard_tensor_release(*shard);
        *shard = NULL;
        status = rs_tensor_convert(d->shards[i], dtype, shard);
    }
    return rs_tensor_hand_out(status, made, out_tensor);
}

static void backward_cast(rs_node *node, reshard_tensor *const *gradients,
                          reshard_tensor **out_gradients)
{
    const reshard_dtype *before = rs_node_facts(node);
    out_gradients[0] = reshard_tensor_cast(gradients[0], *before);
}

reshard_tensor *reshard_tensor_cast(reshard_tensor *tensor, reshard_dtype dtype)
{
    if (!rs_op_begin("cast", 1, &tensor))
        return NULL;
    reshard_tensor *made = NULL;
    reshard_status status = RESHARD_OK;
    if (tensor->distribution != NULL)
        status =
            rs_fail(RESHARD_ERR_UNSUPPORTED, "a distributed tensor: redistribute casts on the way");
    else if (!rs_dtype_is_float(tensor->dtype) || !rs_dtype_is_float(dtype))
        status = rs_fail(RESHARD_ERR_UNSUPPORTED, "from %s to %s",
                         reshard_dtype_name(tensor->dtype), reshard_dtype_name(dtype));
    else if (tensor->dtype == dtype)
        status = rs_tensor_alias(rs_scope_context(), tensor, &made);
    else
        status = rs_tensor_convert(tensor, dtype, &made);
    rs_recipe recipe = {"cast",  backward_cast,           1,
                        &tensor, .facts = &tensor->dtype, .facts_bytes = sizeof tensor->dtype};
    return rs_op_end(&recipe, status, made);
}
