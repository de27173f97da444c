/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_write.h - tensors as torch.save pickles them, in the subset of opcodes and names that
 * torch.load(weights_only=True) takes.
 */
#ifndef RS_CHECKPOINT_FORMAT_TORCH_WRITE_H
#define RS_CHECKPOINT_FORMAT_TORCH_WRITE_H

#include "checkpoint/archive/pickle_write.h"

/* A dense tensor that fills the storage of that key. Its dtype is one that torch has:
 * rs_torch_dtype_name tells. */
void rs_torch_write_tensor(rs_pickle_writer *writer, rs_slice key, reshard_dtype dtype,
                           int32_t ndim, const int64_t *shape);
/* A plain tuple of numbers. */
void rs_torch_write_numbers(rs_pickle_writer *writer, int32_t count, const int64_t *numbers);
/* The strides of a dense tensor, as such a tuple. */
void rs_torch_write_strides(rs_pickle_writer *writer, int32_t ndim, const int64_t *shape);
/* Errors: UNSUPPORTED, naming tensor and dtype, when torch has none like it. */
reshard_status rs_torch_check_dtype(rs_slice tensor, reshard_dtype dtype);

#endif
