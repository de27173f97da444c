/* SPDX-License-Identifier: Apache-2.0 */
/* op.c - checks that operations share. */
#include "tensor/ops/op.h"

#include "base/error.h"

#include <assert.h>
#include <inttypes.h>

static reshard_status check_dtypes(int32_t count, reshard_tensor *const *inputs, bool complex)
{
    for (int32_t i = 0; i < count; i++) {
        if (inputs[i] == NULL)
            continue;
        reshard_dtype dtype = inputs[i]->dtype;
        if (!rs_dtype_is_float(complex ? rs_dtype_part(dtype) : dtype))
            return rs_fail(RESHARD_ERR_UNSUPPORTED, "input %d is %s, not f16, bf16, f32%s f64%s", i,
                           reshard_dtype_name(dtype), complex ? "," : " or",
                           complex ? ", c64 or c128" : "");
        if (dtype != inputs[0]->dtype)
            return rs_fail(RESHARD_ERR_INVALID, "input 0 is %s and input %d is %s",
                           reshard_dtype_name(inputs[0]->dtype), i, reshard_dtype_name(dtype));
    }
    return RESHARD_OK;
}

reshard_status rs_check_floats(int32_t count, reshard_tensor *const *inputs)
{
    return check_dtypes(count, inputs, false);
}

reshard_status rs_check_numbers(int32_t count, reshard_tensor *const *inputs)
{
    return check_dtypes(count, inputs, true);
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
    assert(indices->dtype == RESHARD_I64 && rs_tensor_is_contiguous(indices));
    const int64_t *values = (const void *)indices->data;
    for (int64_t i = 0; i < indices->volume; i++) {
        if (values[i] < 0 || values[i] >= limit)
            return rs_fail(RESHARD_ERR_RANGE,
                           "index %" PRId64 " is %" PRId64 "; it may be 0..%" PRId64, i, values[i],
                           limit - 1);
    }
    return RESHARD_OK;
}
