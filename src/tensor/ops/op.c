/* SPDX-License-Identifier: Apache-2.0 */
/* op.c - what operations share: checks, dense real inputs, results, casts. */
#include "tensor/ops/op.h"

#include "base/error.h"
#include "kernel/cast.h"

#include <inttypes.h>

/* ---- checks ---------------------------------------------------------------------------------- */

reshard_status rs_check_floats(int32_t count, reshard_tensor *const *inputs)
{
    for (int32_t i = 0; i < count; i++) {
        if (inputs[i] == NULL)
            continue;
        if (!rs_dtype_is_float(inputs[i]->dtype))
            return rs_fail(RESHARD_ERR_UNSUPPORTED, "input %d is %s, not f16, bf16, f32 or f64", i,
                           reshard_dtype_name(inputs[i]->dtype));
        if (inputs[i]->dtype != inputs[0]->dtype)
            return rs_fail(RESHARD_ERR_INVALID, "input 0 is %s and input %d is %s",
                           reshard_dtype_name(inputs[0]->dtype), i,
                           reshard_dtype_name(inputs[i]->dtype));
    }
    return RESHARD_OK;
}

reshard_status rs_check_indices(const reshard_tensor *indices)
{
    if (indices->dtype != RESHARD_I64)
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "indices are %s, not i64",
                       reshard_dtype_name(indices->dtype));
    return RESHARD_OK;
}

reshard_status rs_check_index_range(const reshard_tensor *indices, int64_t limit)
{
    const int64_t *values = (const void *)indices->data;
    for (int64_t i = 0; i < indices->volume; i++) {
        if (values[i] < 0 || values[i] >= limit)
            return rs_fail(RESHARD_ERR_RANGE,
                           "index %" PRId64 " is %" PRId64 "; it may be 0..%" PRId64, i, values[i],
                           limit - 1);
    }
    return RESHARD_OK;
}

reshard_status rs_scope_failed(void)
{
    return reshard_scope_status(rs_thread_state_get()->scope);
}

/* ---- inputs and results ---------------------------------------------------------------------- */

reshard_dtype rs_real_dtype(reshard_dtype dtype)
{
    return dtype == RESHARD_F64 ? RESHARD_F64 : RESHARD_F32;
}

static reshard_status cast_dense(reshard_tensor *tensor, reshard_dtype dtype,
                                 reshard_tensor **out_tensor)
{
    reshard_tensor *made = NULL;
    reshard_status status = rs_result(dtype, tensor->ndim, tensor->shape, &made);
    if (status != RESHARD_OK)
        return status;
    if (made->volume != 0) {
        rs_cast cast;
        rs_cast_prepare(&cast, tensor->dtype, dtype, tensor->ndim, tensor->shape, tensor->strides,
                        made->strides);
        rs_cast_run(&cast, tensor->data, made->data);
    }
    *out_tensor = made;
    return RESHARD_OK;
}

reshard_status rs_real(reshard_tensor *tensor, reshard_tensor **out_real)
{
    if (rs_dtype_is_half(tensor->dtype))
        return cast_dense(tensor, RESHARD_F32, out_real);
    return rs_tensor_densify(rs_scope_context(), tensor, out_real);
}

reshard_status rs_unreal(reshard_tensor *real, reshard_dtype dtype, reshard_tensor **out_tensor)
{
    if (real->dtype == dtype) {
        *out_tensor = real;
        return RESHARD_OK;
    }
    reshard_status status = cast_dense(real, dtype, out_tensor);
    reshard_tensor_release(real);
    return status;
}

reshard_status rs_result(reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                         reshard_tensor **out_tensor)
{
    return rs_tensor_make(rs_scope_context(), dtype, ndim, shape, out_tensor);
}

reshard_status rs_result_zeros(reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                               reshard_tensor **out_tensor)
{
    return reshard_tensor_create(rs_scope_context(), dtype, ndim, shape, out_tensor);
}

int64_t rs_row_size(const reshard_tensor *tensor)
{
    return tensor->ndim > 0 ? tensor->shape[tensor->ndim - 1] : 1;
}

int64_t rs_row_count(const reshard_tensor *tensor)
{
    int64_t count = 1;
    for (int32_t d = 0; d + 1 < tensor->ndim; d++)
        count *= tensor->shape[d];
    return count;
}

/* ---- casts ----------------------------------------------------------------------------------- */

static void backward_cast(rs_node *node, reshard_tensor *const *gradients,
                          reshard_tensor **out_gradients)
{
    out_gradients[0] = reshard_tensor_cast(gradients[0], (reshard_dtype)node->facts.i[0]);
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
        status = cast_dense(tensor, dtype, &made);
    rs_recipe recipe = {"cast", backward_cast, 1, &tensor,
                        .facts = {.i = {(int64_t)tensor->dtype}}};
    return rs_op_end(&recipe, status, made);
}
