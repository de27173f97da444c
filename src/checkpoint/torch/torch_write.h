/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_write.h - pickles tensors as torch.save does, with only those opcodes and names that
 * torch.load(weights_only=True) accepts.
 */
#ifndef RS_CHECKPOINT_TORCH_TORCH_WRITE_H
#define RS_CHECKPOINT_TORCH_TORCH_WRITE_H

#include "checkpoint/archive/pickle_write.h"

/* Writes a dense tensor that fills the storage of that key. torch must have the dtype
 * (rs_torch_dtype_name). */
void rs_torch_write_tensor(rs_pickle_writer *writer, rs_slice key, reshard_dtype dtype,
                           int32_t ndim, const int64_t *shape);
/* Writes a tensor that repeats the one element in the storage of that key; at most RESHARD_NDIM_MAX
 * dims. */
void rs_torch_write_repeated(rs_pickle_writer *writer, rs_slice key, reshard_dtype dtype,
                             int32_t ndim, const int64_t *shape);
/* Writes a plain tuple of numbers. */
void rs_torch_write_numbers(rs_pickle_writer *writer, int32_t count, const int64_t *numbers);
/* Writes the strides of a dense tensor as such a tuple. */
void rs_torch_write_strides(rs_pickle_writer *writer, int32_t ndim, const int64_t *shape);
/* Errors: UNSUPPORTED, naming tensor and dtype, if PyTorch's files cannot hold it. */
reshard_status rs_torch_check_dtype(rs_slice tensor, reshard_dtype dtype);

#endif
