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
/* A dense f32 or f64 tensor of the same values: itself, a copy, or f32 for f16 and bf16. */
reshard_status rs_real(reshard_tensor *tensor, reshard_tensor **out_real);
reshard_dtype rs_real_dtype(reshard_dtype dtype);
/* Takes over a tensor of real dtype and gives it back as `dtype`. */
reshard_status rs_unreal(reshard_tensor *real, reshard_dtype dtype, reshard_tensor **out_tensor);

/* A result of undefined contents, and one of zeros, in the innermost scope's context. */
reshard_status rs_result(reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                         reshard_tensor **out_tensor);
reshard_status rs_result_zeros(reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                               reshard_tensor **out_tensor);

/* The product of all dims but the last, and the last one (1 for no dims). */
int64_t rs_row_count(const reshard_tensor *tensor);
int64_t rs_row_size(const reshard_tensor *tensor);

#endif
