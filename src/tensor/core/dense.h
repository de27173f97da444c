/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dense.h - conversions to and from the dense f32 and f64 tensors that kernels work on. Every
 * tensor made here is allocated in the innermost scope's context and belongs to the caller.
 */
#ifndef RS_TENSOR_CORE_DENSE_H
#define RS_TENSOR_CORE_DENSE_H

#include "tensor/core/tensor.h"

/* Makes a dense copy of a tensor in another dtype. Both dtypes are f16, bf16, f32 or f64. */
reshard_status rs_tensor_convert(reshard_tensor *tensor, reshard_dtype dtype,
                                 reshard_tensor **out_tensor);
/* Gives the values in dense memory, with f16 and bf16 widened to f32: the tensor itself, retained,
 * if it is like that already, otherwise a copy. */
reshard_status rs_real(reshard_tensor *tensor, reshard_tensor **out_real);
reshard_dtype rs_real_dtype(reshard_dtype dtype);
/* Takes over an f32 or f64 tensor and gives its values as `dtype`. */
reshard_status rs_unreal(reshard_tensor *real, reshard_dtype dtype, reshard_tensor **out_tensor);

/* Make a tensor with undefined contents, or one filled with zeros. */
reshard_status rs_result(reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                         reshard_tensor **out_tensor);
reshard_status rs_result_zeros(reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                               reshard_tensor **out_tensor);

/* The number of rows of a tensor (the product of all dims but the last), and the length of a row
 * (the last dim, or 1 without dims). */
int64_t rs_row_count(const reshard_tensor *tensor);
int64_t rs_row_size(const reshard_tensor *tensor);

#endif
