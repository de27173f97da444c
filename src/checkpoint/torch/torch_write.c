/* SPDX-License-Identifier: Apache-2.0 */
/* torch_write.c - writes tensors, storages and strides in PyTorch's spelling. */
#include "checkpoint/torch/torch_save.h"

#include "base/error.h"
#include "base/shape.h"
#include "checkpoint/torch/torch_values.h"

#include <assert.h>

reshard_status rs_torch_check_dtype(rs_slice tensor, reshard_dtype dtype)
{
    if (rs_torch_dtype_name(dtype) != NULL && reshard_dtype_bits(dtype) % 8 == 0)
        return RESHARD_OK;
    return rs_fail(RESHARD_ERR_UNSUPPORTED,
                   "tensor \"%.*s\": PyTorch's files cannot hold elements of %s", RS_SHOWN(tensor),
                   reshard_dtype_name(dtype));
}

void rs_torch_write_numbers(rs_pickle_writer *writer, int32_t count, const int64_t *numbers)
{
    rs_pickle_write_tuple_begin(writer);
    for (int32_t i = 0; i < count; i++)
        rs_pickle_write_int(writer, numbers[i]);
    rs_pickle_write_tuple_end(writer);
}

/* Dtypes without a typed storage class use an untyped storage, counted in bytes. */
static void write_storage(rs_pickle_writer *writer, rs_slice key, reshard_dtype dtype,
                          int64_t elements)
{
    const char *class = rs_torch_storage_name(dtype);
    rs_pickle_write_tuple_begin(writer);
    rs_pickle_write_text(writer, rs_slice_of("storage"));
    rs_pickle_write_global(writer, class != NULL ? "torch" : "torch.storage",
                           class != NULL ? class : "UntypedStorage");
    rs_pickle_write_text(writer, key);
    rs_pickle_write_text(writer, rs_slice_of("cpu"));
    rs_pickle_write_int(writer,
                        class != NULL ? elements : elements * (reshard_dtype_bits(dtype) / 8));
    rs_pickle_write_tuple_end(writer);
    rs_pickle_write_persistent(writer);
}

/* As torch computes them: an extent of 0 counts as 1. */
void rs_torch_write_strides(rs_pickle_writer *writer, int32_t ndim, const int64_t *shape)
{
    rs_pickle_write_tuple_begin(writer);
    for (int32_t d = 0; d < ndim; d++) {
        int64_t stride = 1;
        for (int32_t e = d + 1; e < ndim; e++)
            stride *= shape[e] != 0 ? shape[e] : 1;
        rs_pickle_write_int(writer, stride);
    }
    rs_pickle_write_tuple_end(writer);
}

/* repeats: all elements are one, so all strides are 0. */
static void write_tensor(rs_pickle_writer *writer, rs_slice key, reshard_dtype dtype, int32_t ndim,
                         const int64_t *shape, bool repeats)
{
    static const int64_t zeros[RESHARD_NDIM_MAX] = {0};
    bool is_typed = rs_torch_storage_name(dtype) != NULL;
    int64_t elements = 1;
    assert(rs_torch_dtype_name(dtype) != NULL && (!repeats || ndim <= RESHARD_NDIM_MAX));
    for (int32_t d = 0; !repeats && d < ndim; d++)
        elements *= shape[d];
    rs_pickle_write_global(writer, "torch._utils",
                           is_typed ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
    rs_pickle_write_tuple_begin(writer);
    write_storage(writer, key, dtype, elements);
    rs_pickle_write_int(writer, 0);
    rs_torch_write_numbers(writer, ndim, shape);
    if (repeats)
        rs_torch_write_numbers(writer, ndim, zeros);
    else
        rs_torch_write_strides(writer, ndim, shape);
    rs_pickle_write_bool(writer, false);
    rs_pickle_write_global(writer, "collections", "OrderedDict");
    rs_pickle_write_tuple_begin(writer);
    rs_pickle_write_tuple_end(writer);
    rs_pickle_write_reduce(writer);
    if (!is_typed)
        rs_pickle_write_global(writer, "torch", rs_torch_dtype_name(dtype));
    rs_pickle_write_tuple_end(writer);
    rs_pickle_write_reduce(writer);
}

void rs_torch_write_tensor(rs_pickle_writer *writer, rs_slice key, reshard_dtype dtype,
                           int32_t ndim, const int64_t *shape)
{
    write_tensor(writer, key, dtype, ndim, shape, false);
}

void rs_torch_write_repeated(rs_pickle_writer *writer, rs_slice key, reshard_dtype dtype,
                             int32_t ndim, const int64_t *shape)
{
    write_tensor(writer, key, dtype, ndim, shape, true);
}
