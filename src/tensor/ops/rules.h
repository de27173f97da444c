/* SPDX-License-Identifier: Apache-2.0 */
/*
 * rules.h - operations on distributed tensors whose output does not lie as their inputs do: which
 * layouts fit, and what comes out. The others are rs_spread_alike (dist/spread.h). Operations hand
 * over to these when an input is distributed.
 */
#ifndef RS_TENSOR_OPS_RULES_H
#define RS_TENSOR_OPS_RULES_H

#include <reshard/ops.h>

#include "tensor/dist/spread.h"

reshard_status rs_spread_transpose(reshard_tensor *tensor, int32_t a, int32_t b,
                                   reshard_tensor **out_tensor);
reshard_tensor *rs_spread_cat(int32_t count, reshard_tensor *const *tensors, int32_t dim);
reshard_tensor *rs_spread_sum(reshard_tensor *x);
/* Dims are counted from the front, and arguments checked against the global shape. */
reshard_tensor *rs_spread_sum_dim(reshard_tensor *x, int32_t dim);
reshard_tensor *rs_spread_narrow(reshard_tensor *x, int32_t dim, int64_t start, int64_t length);
reshard_tensor *rs_spread_index_select(reshard_tensor *x, int32_t dim, reshard_tensor *indices);
reshard_tensor *rs_spread_reshape(reshard_tensor *x, int32_t ndim, const int64_t *shape);
reshard_tensor *rs_spread_matmul(reshard_tensor *a, reshard_tensor *b);
reshard_tensor *rs_spread_linear(reshard_tensor *x, reshard_tensor *weight, reshard_tensor *bias);
reshard_tensor *rs_spread_embedding(reshard_tensor *weight, reshard_tensor *indices);
reshard_tensor *rs_spread_norm(const char *name, reshard_tensor *x, reshard_tensor *weight,
                               reshard_tensor *bias, rs_local_fn fn, const void *user,
                               size_t user_bytes);
reshard_tensor *rs_spread_cross_entropy(reshard_tensor *logits, reshard_tensor *labels);

/* The mean of cross_entropy over `count` rows, of which these are some. */
reshard_tensor *rs_cross_entropy_of(reshard_tensor *logits, reshard_tensor *labels, int64_t count);
/* embedding with rows that are not here: rows of places that are -1 are zero. */
reshard_tensor *rs_embedding_at(reshard_tensor *weight, reshard_tensor *places);
/* 1/(1-p) or 0 for each element, by global index, with the shape or layout of x. Local. */
reshard_tensor *rs_dropout_mask(reshard_tensor *x, double p, uint64_t seed);

#endif
