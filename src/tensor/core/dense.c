/* SPDX-License-Identifier: Apache-2.0 */
/* dense.c - see dense.h. */
#include "tensor/core/dense.h"

#include "kernel/values/cast.h"
#include "tensor/core/scope.h"

#include <assert.h>

reshard_dtype rs_real_dtype(reshard_dtype dtype)
{
    return dtype == RESHARD_F64 ? RESHARD_F64 : RESHARD_F32;
}

reshard_status rs_tensor_convert(reshard_tensor *tensor, reshard_dtype dtype,
                                 reshard_tensor **out_tensor)
{
    assert(rs_dtype_is_float(tensor->dtype) && rs_dtype_is_float(dtype));
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
        return rs_tensor_convert(tensor, RESHARD_F32, out_real);
    return rs_tensor_densify(rs_scope_context(), tensor, out_real);
}

reshard_status rs_unreal(reshard_tensor *real, reshard_dtype dtype, reshard_tensor **out_tensor)
{
    assert(real->dtype == RESHARD_F32 || real->dtype == RESHARD_F64);
    if (real->dtype == dtype) {
        *out_tensor = real;
        return RESHARD_OK;
    }
    reshard_status status = rs_tensor_convert(real, dtype, out_tensor);
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
