/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dense.h - what kernels read and write: dense tensors of f32 or f64. All of them are made in the
 * innermost scope's context, and belong to the caller.
 */
#ifndef RS_TENSOR_CORE_DENSE_H
#define RS_TENSOR_CORE_DENSE_H

#include "tensor/core/tensor.h"

/* A dense copy of the same values as another dtype, f16 to f64. */
reshard_status rs_tensor_convert(reshard_tensor *tensor, reshard_dtype dtype,
                                 reshard_tensor **out_tensor);
/* Gives the values as a dense f32 or f64 tensor: the tensor itself, a copy, or f32 for f16 and
 * bf16. */
reshard_status rs_real(reshard_tensor *tensor, reshard_tensor **out_real);
reshard_dtype rs_real_dtype(reshard_dtype dtype);
/* Takes over a tensor of real dtype and gives its values as `dtype`. */
reshard_status rs_unreal(reshard_tensor *real, reshard_dtype dtype, reshard_tensor **out_tensor);

/* Makes a result of undefined contents, or one of zeros. */
reshard_status rs_result(reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                         reshard_tensor **out_tensor);
reshard_status rs_result_zeros(reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                               reshard_tensor **out_tensor);

/* How many rows a tensor has (the product of all dims but the last), and the size of one (the last
 * dim, or 1 without dims). */
int64_t rs_row_count(const reshard_tensor *tensor);
int64_t rs_row_size(const reshard_tensor *tensor);

#endif
