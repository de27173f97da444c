/* SPDX-License-Identifier: Apache-2.0 */
/*
 * elements.c - reads and writes single elements, and copies whole tensors to and from dense memory
 * with the strided copies of kernel/.
 */
#include "base/error.h"
#include "base/shape.h"
#include "kernel/copy/copy.h"
#include "kernel/values/float.h"
#include "layout/layout.h"
#include "tensor/core/distribution.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* ---- one element ----------------------------------------------------------------------------- */

#define INTEGER_LIST(X) \
    X(BOOL, uint8_t)    \
    X(U8, uint8_t)      \
    X(I8, int8_t)       \
    X(I16, int16_t)     \
    X(U16, uint16_t)    \
    X(I32, int32_t)     \
    X(U32, uint32_t)    \
    X(I64, int64_t)     \
    X(U64, uint64_t)    \
    X(F32, float)       \
    X(F64, double)

static reshard_status load(reshard_dtype dtype, const unsigned char *at, double *out_value)
{
    uint16_t half;
    switch (dtype) {
#define CASE(name, type)                  \
    case RESHARD_##name: {                \
        type value;                       \
        memcpy(&value, at, sizeof value); \
        *out_value = (double)value;       \
        return RESHARD_OK;                \
    }
        INTEGER_LIST(CASE)
#undef CASE
    case RESHARD_F16:
    case RESHARD_BF16:
        memcpy(&half, at, sizeof half);
        *out_value = (double)(dtype == RESHARD_F16 ? rs_f16_to_f32(half) : rs_bf16_to_f32(half));
        return RESHARD_OK;
    default:
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "single elements of %s", reshard_dtype_name(dtype));
    }
}

/* Values that the type cannot hold are refused, because C leaves their conversion undefined. */
static bool fits(double value, double low, double high)
{
    return value >= low && value < high;
}

static bool fits_dtype(reshard_dtype dtype, double value)
{
    switch (dtype) {
    case RESHARD_BOOL:
        return value == 0 || value == 1;
    case RESHARD_U8:
        return fits(value, 0, 0x1p8);
    case RESHARD_I8:
        return fits(value, -0x1p7, 0x1p7);
    case RESHARD_I16:
        return fits(value, -0x1p15, 0x1p15);
    case RESHARD_U16:
        return fits(value, 0, 0x1p16);
    case RESHARD_I32:
        return fits(value, -0x1p31, 0x1p31);
    case RESHARD_U32:
        return fits(value, 0, 0x1p32);
    case RESHARD_I64:
        return fits(value, -0x1p63, 0x1p63);
    case RESHARD_U64:
        return fits(value, 0, 0x1p64);
    default:
        return true;
    }
}

static reshard_status store(reshard_dtype dtype, double value, unsigned char *at)
{
    uint16_t half;
    if (rs_dtype_is_complex(dtype)) {
        size_t part = rs_element_bytes(dtype) / 2;
        memset(at + part, 0, part);
        return store(rs_dtype_part(dtype), value, at);
    }
    if (!fits_dtype(dtype, value))
        return rs_fail(RESHARD_ERR_RANGE, "%g is not a value of %s", value,
                       reshard_dtype_name(dtype));
    switch (dtype) {
#define CASE(name, type)                          \
    case RESHARD_##name: {                        \
        type converted = (type)value;             \
        memcpy(at, &converted, sizeof converted); \
        return RESHARD_OK;                        \
    }
        INTEGER_LIST(CASE)
#undef CASE
    case RESHARD_F16:
    case RESHARD_BF16:
        half = dtype == RESHARD_F16 ? rs_f64_to_f16(value) : rs_f64_to_bf16(value);
        memcpy(at, &half, sizeof half);
        return RESHARD_OK;
    default:
        return rs_fail(RESHARD_ERR_UNSUPPORTED, "single elements of %s", reshard_dtype_name(dtype));
    }
}

static reshard_status check_local(const reshard_tensor *tensor)
{
    reshard_status status = rs_tensor_check_given(tensor, "elements");
    if (status != RESHARD_OK)
        return status;
    if (tensor->distribution != NULL)
        return rs_fail(RESHARD_ERR_UNSUPPORTED,
                       "elements of a distributed tensor: they are in its local shards");
    return RESHARD_OK;
}

static reshard_status find(const reshard_tensor *tensor, const int64_t *index,
                           unsigned char **out_at)
{
    reshard_status status = check_local(tensor);
    int64_t at = 0;
    for (int32_t d = 0; status == RESHARD_OK && d < tensor->ndim; d++) {
        if (index[d] < 0 || index[d] >= tensor->shape[d])
            status = rs_fail(RESHARD_ERR_RANGE,
                             "index %" PRId64 " of dimension %d, which has %" PRId64 " elements",
                             index[d], d, tensor->shape[d]);
        else
            at += index[d] * tensor->strides[d];
    }
    if (status == RESHARD_OK)
        *out_at = tensor->data + at * (int64_t)rs_element_bytes(tensor->dtype);
    return status;
}

reshard_status reshard_tensor_get(const reshard_tensor *tensor, const int64_t *index,
                                  double *out_value)
{
    unsigned char *at;
    reshard_status status = find(tensor, index, &at);
    return status == RESHARD_OK ? load(tensor->dtype, at, out_value) : status;
}

reshard_status reshard_tensor_set(reshard_tensor *tensor, const int64_t *index, double value)
{
    unsigned char *at;
    reshard_status status = find(tensor, index, &at);
    if (status == RESHARD_OK)
        status = store(tensor->dtype, value, at);
    if (status == RESHARD_OK)
        (void)reshard_tensor_write(tensor);
    return status;
}

reshard_status rs_tensor_item(const reshard_tensor *tensor, double *out_value)
{
    reshard_status status = check_local(tensor);
    if (status == RESHARD_OK && tensor->volume != 1)
        status = rs_fail(RESHARD_ERR_INVALID, "the item of a tensor of %" PRId64 " elements",
                         tensor->volume);
    return status == RESHARD_OK ? load(tensor->dtype, tensor->data, out_value) : status;
}

/* ---- whole tensors --------------------------------------------------------------------------- */

static void copy_strided(const reshard_tensor *tensor, const int64_t *source_strides,
                         const int64_t *target_strides, const void *source, void *target)
{
    rs_copy copy;
    if (tensor->volume == 0)
        return;
    rs_copy_prepare(&copy, (int32_t)rs_element_bytes(tensor->dtype), tensor->ndim, tensor->shape,
                    source_strides, target_strides);
    rs_copy_run(&copy, source, target);
    rs_copy_fence();
}

void rs_tensor_copy(const reshard_tensor *source, reshard_tensor *target)
{
    assert(source->dtype == target->dtype && rs_shape_equals(source, target));
    assert(source->distribution == NULL && target->distribution == NULL);
    copy_strided(source, source->strides, target->strides, source->data, target->data);
}

reshard_status rs_tensor_densify(reshard_context *context, reshard_tensor *tensor,
                                 reshard_tensor **out_tensor)
{
    assert(tensor->distribution == NULL);
    if (rs_tensor_is_contiguous(tensor)) {
        *out_tensor = reshard_tensor_retain(tensor);
        return RESHARD_OK;
    }
    reshard_tensor *dense = NULL;
    reshard_status status =
        rs_tensor_make(context, tensor->dtype, tensor->ndim, tensor->shape, &dense);
    if (status == RESHARD_OK) {
        rs_tensor_copy(tensor, dense);
        *out_tensor = dense;
    }
    return status;
}

static reshard_status check_bytes(const reshard_tensor *tensor, size_t bytes)
{
    reshard_status status = check_local(tensor);
    if (status != RESHARD_OK)
        return status;
    size_t wanted = (size_t)tensor->volume * rs_element_bytes(tensor->dtype);
    if (bytes != wanted)
        status = rs_fail(RESHARD_ERR_INVALID, "%zu bytes for a tensor of %zu", bytes, wanted);
    return status;
}

reshard_status reshard_tensor_copy_to(const reshard_tensor *tensor, void *memory, size_t bytes)
{
    int64_t dense[RESHARD_NDIM_MAX];
    reshard_status status = check_bytes(tensor, bytes);
    if (status == RESHARD_OK) {
        rs_dense_strides(tensor->ndim, tensor->shape, dense);
        copy_strided(tensor, tensor->strides, dense, tensor->data, memory);
    }
    return status;
}

reshard_status reshard_tensor_copy_from(reshard_tensor *tensor, const void *memory, size_t bytes)
{
    int64_t dense[RESHARD_NDIM_MAX];
    reshard_status status = check_bytes(tensor, bytes);
    if (status == RESHARD_OK) {
        rs_dense_strides(tensor->ndim, tensor->shape, dense);
        copy_strided(tensor, dense, tensor->strides, memory, reshard_tensor_write(tensor));
    }
    return status;
}

reshard_status rs_distribution_check_fill(const reshard_tensor *tensor)
{
    if (tensor->distribution != NULL && tensor->distribution->layout->partial)
        return rs_fail(RESHARD_ERR_INVALID, "filling a tensor with the partial layout \"%s\"",
                       rs_layout_describe(tensor->distribution->layout).text);
    return RESHARD_OK;
}

static reshard_status fill_shards(reshard_tensor *tensor, double value)
{
    reshard_status status = rs_distribution_check_fill(tensor);
    for (int64_t i = 0; status == RESHARD_OK && i < tensor->distribution->shard_count; i++)
        status = reshard_tensor_fill(tensor->distribution->shards[i], value);
    return status;
}

reshard_status reshard_tensor_fill(reshard_tensor *tensor, double value)
{
    static const int64_t still[RESHARD_NDIM_MAX] = {0};
    unsigned char element[16];
    reshard_status status = rs_tensor_check_given(tensor, "fill");
    if (status != RESHARD_OK)
        return status;
    if (tensor->distribution != NULL)
        return fill_shards(tensor, value);
    status = store(tensor->dtype, value, element);
    if (status == RESHARD_OK)
        copy_strided(tensor, still, tensor->strides, element, reshard_tensor_write(tensor));
    return status;
}
