/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tensor.c - makes tensors and answers questions about them. Storage counts its references, and how
 * often it was opened for writing, so that a backward pass can tell whether a saved tensor has been
 * overwritten.
 */
#include "tensor/core/tensor.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/shape.h"
#include "tensor/core/distribution.h"
#include "text/text.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

/* ---- shapes ---------------------------------------------------------------------------------- */

reshard_status rs_extents_check(int32_t ndim, const int64_t *shape, int64_t *out_volume)
{
    reshard_status status = rs_shape_check(ndim, shape);
    if (status == RESHARD_OK)
        *out_volume = rs_volume(ndim, shape);
    return status;
}

rs_extents rs_extents_of(const reshard_tensor *tensor)
{
    rs_extents extents = {.ndim = tensor->ndim};
    memcpy(extents.shape, tensor->shape, sizeof extents.shape);
    return extents;
}

bool rs_shape_equals(const reshard_tensor *a, const reshard_tensor *b)
{
    return a->ndim == b->ndim &&
           memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof *a->shape) == 0;
}

reshard_status rs_dim_normalize(int32_t ndim, int32_t dim, int32_t *out_dim)
{
    if (dim < -ndim || dim >= ndim)
        return rs_fail(RESHARD_ERR_RANGE,
                       "dimension %d does not exist in a tensor of %d dimensions", dim, ndim);
    *out_dim = dim < 0 ? dim + ndim : dim;
    return RESHARD_OK;
}

bool rs_dtype_is_half(reshard_dtype dtype)
{
    return dtype == RESHARD_F16 || dtype == RESHARD_BF16;
}

rs_tensor_words rs_tensor_describe(const reshard_tensor *tensor)
{
    rs_tensor_words words;
    rs_text text;
    rs_text_init(&text, words.text, sizeof words.text);
    rs_text_add(&text, "%s ", reshard_dtype_name(tensor->dtype));
    rs_text_add_shape(&text, tensor->ndim, tensor->shape);
    return words;
}

/* ---- storage --------------------------------------------------------------------------------- */

static void release_storage(rs_storage *storage)
{
    if (storage == NULL || !rs_reference_drop(&storage->references))
        return;
    if (storage->own)
        rs_block_release(storage->context, storage->bytes, storage->byte_count);
    else if (storage->release != NULL)
        storage->release(storage->user);
    if (storage->forget_attachment != NULL)
        storage->forget_attachment(storage->attachment);
    rs_release(storage->context, storage);
}

reshard_status rs_count_bytes(reshard_dtype dtype, int64_t volume, size_t *out_bytes)
{
    assert(volume >= 0);
    int32_t bits = reshard_dtype_bits(dtype);
    if (bits == 0 || bits % 8 != 0)
        return rs_fail(RESHARD_ERR_INVALID, "dtype %s: elements of tensors are whole bytes",
                       reshard_dtype_name(dtype));
    if (!rs_multiply_size((size_t)volume, (size_t)bits / 8, out_bytes))
        return rs_fail(RESHARD_ERR_RANGE, "%" PRId64 " elements of %s are too many bytes", volume,
                       reshard_dtype_name(dtype));
    return RESHARD_OK;
}

/* ---- creating and releasing ------------------------------------------------------------------ */

reshard_tensor *rs_tensor_header(reshard_context *context, reshard_dtype dtype, int32_t ndim,
                                 const int64_t *shape, int64_t volume)
{
    reshard_tensor *tensor = rs_allocate_zeroed(context, sizeof *tensor);
    if (tensor == NULL)
        return NULL;
    atomic_init(&tensor->references, 1);
    tensor->context = context;
    tensor->dtype = dtype;
    tensor->ndim = ndim;
    tensor->volume = volume;
    if (ndim > 0)
        memcpy(tensor->shape, shape, (size_t)ndim * sizeof *shape);
    rs_dense_strides(ndim, tensor->shape, tensor->strides);
    return tensor;
}

reshard_status rs_tensor_hand_out(reshard_status status, reshard_tensor *made,
                                  reshard_tensor **out_tensor)
{
    if (status == RESHARD_OK)
        *out_tensor = made;
    else
        reshard_tensor_release(made);
    return status;
}

/* Counts the bytes of a tensor, and makes its header and a storage without memory. */
static reshard_status make_empty(reshard_context *context, reshard_dtype dtype, int32_t ndim,
                                 const int64_t *shape, size_t *out_bytes,
                                 reshard_tensor **out_tensor)
{
    int64_t volume = 0;
    reshard_status status = rs_extents_check(ndim, shape, &volume);
    if (status == RESHARD_OK)
        status = rs_count_bytes(dtype, volume, out_bytes);
    if (status != RESHARD_OK)
        return status;
    reshard_tensor *tensor = rs_tensor_header(context, dtype, ndim, shape, volume);
    rs_storage *storage = tensor != NULL ? rs_allocate_zeroed(context, sizeof *storage) : NULL;
    if (storage == NULL)
        return rs_tensor_hand_out(rs_allocation_status(), tensor, out_tensor);
    storage->context = context;
    atomic_init(&storage->references, 1);
    atomic_init(&storage->version, 0);
    tensor->storage = storage;
    *out_tensor = tensor;
    return RESHARD_OK;
}

reshard_status rs_tensor_make(reshard_context *context, reshard_dtype dtype, int32_t ndim,
                              const int64_t *shape, reshard_tensor **out_tensor)
{
    reshard_tensor *tensor = NULL;
    size_t bytes = 0;
    reshard_status status = make_empty(context, dtype, ndim, shape, &bytes, &tensor);
    if (status != RESHARD_OK)
        return status;
    tensor->data = tensor->storage->bytes = rs_block_allocate(context, bytes);
    if (tensor->data == NULL)
        return rs_tensor_hand_out(rs_allocation_status(), tensor, out_tensor);
    tensor->storage->byte_count = bytes;
    tensor->storage->own = true;
    *out_tensor = tensor;
    return RESHARD_OK;
}

reshard_status reshard_tensor_create(reshard_context *context, reshard_dtype dtype, int32_t ndim,
                                     const int64_t *shape, reshard_tensor **out_tensor)
{
    reshard_status status = rs_tensor_make(context, dtype, ndim, shape, out_tensor);
    if (status == RESHARD_OK && (*out_tensor)->storage->byte_count != 0)
        memset((*out_tensor)->data, 0, (*out_tensor)->storage->byte_count);
    return status;
}

reshard_status reshard_tensor_from_data(reshard_context *context, reshard_dtype dtype, int32_t ndim,
                                        const int64_t *shape, const void *data,
                                        reshard_tensor **out_tensor)
{
    reshard_tensor *tensor = NULL;
    reshard_status status = rs_tensor_make(context, dtype, ndim, shape, &tensor);
    if (status != RESHARD_OK)
        return status;
    if (tensor->volume != 0 && data == NULL) {
        reshard_tensor_release(tensor);
        return rs_fail(RESHARD_ERR_INVALID, "the data of a tensor are NULL");
    }
    if (tensor->volume != 0)
        memcpy(tensor->data, data, tensor->storage->byte_count);
    *out_tensor = tensor;
    return RESHARD_OK;
}

/* Checks that offsets computed with the caller's strides cannot overflow. */
static reshard_status check_strides(int32_t ndim, const int64_t *shape, const int64_t *strides,
                                    size_t element_bytes)
{
    int64_t reach = 0;
    for (int32_t d = 0; d < ndim; d++) {
        int64_t step, size = strides[d] == INT64_MIN ? INT64_MAX : strides[d];
        if (!rs_multiply(size < 0 ? -size : size, rs_max(shape[d] - 1, 0), &step) ||
            !rs_add(reach, step, &reach))
            return rs_fail(RESHARD_ERR_RANGE, "the stride %" PRId64 " of dimension %d is too large",
                           strides[d], d);
    }
    int64_t bytes;
    if (!rs_multiply(reach, (int64_t)element_bytes, &bytes))
        return rs_fail(RESHARD_ERR_RANGE, "strides that lead further than memory does");
    return RESHARD_OK;
}

reshard_status reshard_tensor_borrow(reshard_context *context, reshard_dtype dtype, int32_t ndim,
                                     const int64_t *shape, const int64_t *strides, void *memory,
                                     void (*release)(void *user), void *user,
                                     reshard_tensor **out_tensor)
{
    reshard_tensor *tensor = NULL;
    size_t bytes = 0;
    reshard_status status = make_empty(context, dtype, ndim, shape, &bytes, &tensor);
    if (status == RESHARD_OK && strides != NULL)
        status = check_strides(ndim, shape, strides, rs_element_bytes(dtype));
    if (status == RESHARD_OK && tensor->volume != 0 && memory == NULL)
        status = rs_fail(RESHARD_ERR_INVALID, "the memory of a tensor is NULL");
    if (status != RESHARD_OK)
        return rs_tensor_hand_out(status, tensor, out_tensor);
    tensor->data = tensor->storage->bytes = memory;
    tensor->storage->release = release;
    tensor->storage->user = user;
    if (strides != NULL && ndim > 0)
        memcpy(tensor->strides, strides, (size_t)ndim * sizeof *strides);
    *out_tensor = tensor;
    return RESHARD_OK;
}

reshard_status rs_tensor_view(reshard_context *context, const reshard_tensor *tensor, int32_t ndim,
                              const int64_t *shape, const int64_t *strides, int64_t at,
                              reshard_tensor **out_tensor)
{
    assert((tensor->storage != NULL) != (tensor->distribution != NULL));
    int64_t volume = 0;
    reshard_status status = rs_extents_check(ndim, shape, &volume);
    if (status != RESHARD_OK)
        return status;
    reshard_tensor *view = rs_tensor_header(context, tensor->dtype, ndim, shape, volume);
    if (view == NULL)
        return rs_allocation_status();
    if (ndim > 0)
        memcpy(view->strides, strides, (size_t)ndim * sizeof *strides);
    if (tensor->distribution != NULL) {
        view->distribution = rs_distribution_retain(tensor->distribution);
    } else {
        rs_reference_add(&tensor->storage->references);
        view->storage = tensor->storage;
        view->sameness = tensor->sameness;
        view->kin = tensor->kin;
        view->data = tensor->data;
        if (at != 0 && volume != 0)
            view->data += at * (int64_t)rs_element_bytes(tensor->dtype);
    }
    *out_tensor = view;
    return RESHARD_OK;
}

reshard_status rs_tensor_alias(reshard_context *context, const reshard_tensor *tensor,
                               reshard_tensor **out_tensor)
{
    return rs_tensor_view(context, tensor, tensor->ndim, tensor->shape, tensor->strides, 0,
                          out_tensor);
}

void rs_tensor_drop_data(reshard_tensor *tensor)
{
    assert(tensor->distribution == NULL);
    release_storage(tensor->storage);
    tensor->storage = NULL;
    tensor->data = NULL;
}

rs_sameness rs_sameness_of(int32_t count, reshard_tensor *const *inputs)
{
    rs_sameness sameness = count > 0 ? RS_SAME_YES : RS_SAME_UNKNOWN;
    for (int32_t i = 0; i < count; i++) {
        if (inputs[i] == NULL || inputs[i]->distribution != NULL)
            continue;
        if (inputs[i]->sameness == RS_SAME_NO)
            return RS_SAME_NO;
        if (inputs[i]->sameness == RS_SAME_UNKNOWN)
            sameness = RS_SAME_UNKNOWN;
    }
    return sameness;
}

rs_kin rs_kin_of(int32_t count, reshard_tensor *const *inputs)
{
    rs_kin kin = {0, 0};
    for (int32_t i = 0; i < count; i++) {
        if (inputs[i] == NULL || inputs[i]->distribution != NULL || inputs[i]->kin.number == 0 ||
            inputs[i]->kin.number == kin.number)
            continue;
        bool first = kin.number == 0;
        kin.number = first ? inputs[i]->kin.number : rs_mix(kin.number + inputs[i]->kin.number);
        kin.group = first || kin.group == inputs[i]->kin.group ? inputs[i]->kin.group : 0;
    }
    return kin;
}

reshard_tensor *reshard_tensor_retain(reshard_tensor *tensor)
{
    if (tensor != NULL)
        rs_reference_add(&tensor->references);
    return tensor;
}

void reshard_tensor_release(reshard_tensor *tensor)
{
    if (tensor == NULL || !rs_reference_drop(&tensor->references))
        return;
    reshard_tensor_release(tensor->gradient); /* recurses once: a gradient has none itself */
    if (tensor->node != NULL)
        ((const rs_node_head *)(const void *)tensor->node)->release(tensor->node);
    rs_distribution_release(tensor->distribution);
    release_storage(tensor->storage);
    rs_release(tensor->context, tensor);
}

/* ---- queries --------------------------------------------------------------------------------- */

bool rs_tensor_is_contiguous(const reshard_tensor *tensor)
{
    return tensor->volume == 0 ||
           rs_strides_are_dense(tensor->ndim, tensor->shape, tensor->strides);
}

reshard_status rs_tensor_check_given(const reshard_tensor *tensor, const char *what)
{
    return tensor != NULL ? RESHARD_OK
                          : rs_fail(RESHARD_ERR_INVALID, "%s: the tensor is NULL", what);
}

const void *reshard_tensor_data(const reshard_tensor *tensor)
{
    return tensor != NULL ? tensor->data : NULL;
}

void *reshard_tensor_write(reshard_tensor *tensor)
{
    if (tensor == NULL)
        return NULL;
    if (tensor->storage != NULL)
        (void)atomic_fetch_add_explicit(&tensor->storage->version, 1, memory_order_relaxed);
    return tensor->data;
}

size_t rs_tensor_bytes(const reshard_tensor *tensor)
{
    size_t bytes = 0;
    if (tensor->distribution == NULL)
        return (size_t)tensor->volume * rs_element_bytes(tensor->dtype);
    for (int64_t i = 0; i < tensor->distribution->shard_count; i++)
        bytes += rs_tensor_bytes(tensor->distribution->shards[i]);
    return bytes;
}

uint64_t rs_tensor_version(const reshard_tensor *tensor)
{
    uint64_t version = 0;
    if (tensor->storage != NULL)
        version = atomic_load_explicit(&tensor->storage->version, memory_order_relaxed);
    for (int64_t i = 0; tensor->distribution != NULL && i < tensor->distribution->shard_count; i++)
        version += rs_tensor_version(tensor->distribution->shards[i]);
    return version;
}
