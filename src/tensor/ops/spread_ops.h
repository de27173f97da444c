/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spread_ops.h - operations on distributed tensors whose output has another layout than their
 * inputs, and the rows that say which. An operation calls its half here if an input is distributed.
 */
#ifndef RS_TENSOR_OPS_SPREAD_OPS_H
#define RS_TENSOR_OPS_SPREAD_OPS_H

#include <reshard/ops.h>

#include "tensor/dist/layout_rules.h"

/* The tables of ops.h. */
extern const rs_layout_rules rs_linear_rules;    /* x, weight, bias */
extern const rs_layout_rules rs_embedding_rules; /* weight, indices */
extern const rs_layout_rules rs_norm_rules;      /* x, weight, bias */

/* ---- operations ------------------------------------------------------------------------------ */

/* A reduction along dims. */
typedef struct rs_reducing {
    const char *name;
    reshard_reduction reduction;
    bool keep;     /* reduced dims stay, with size 1 */
    uint64_t dims; /* a bit for each reduced one */
    int64_t count; /* of the elements that become one, on all ranks; for means */
} rs_reducing;

reshard_status rs_spread_transpose(reshard_tensor *tensor, int32_t a, int32_t b,
                                   reshard_tensor **out_tensor);
reshard_tensor *rs_spread_cat(int32_t count, reshard_tensor *const *tensors, int32_t dim);
reshard_tensor *rs_spread_sum(reshard_tensor *x);
reshard_tensor *rs_spread_mean(reshard_tensor *x);
/* For these, dims are counted from the front, and the caller has checked the arguments against the
 * global shape. */
reshard_tensor *rs_spread_reduce(reshard_tensor *x, const rs_reducing *reducing);
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
/* Collective if labels have to move. Brings them into the layout of logits without the
 * classes, unless that is partial, which the operation refuses. Returns false on failure, with the
 * error noted. */
bool rs_spread_labels(reshard_tensor **logits_and_labels);

/* The sum of a local tensor's elements, divided by `count`, the number of elements on all ranks. */
reshard_tensor *rs_mean_of(reshard_tensor *x, int64_t count);
/* Reduces a local tensor. */
reshard_tensor *rs_reduce_local(reshard_tensor *x, const rs_reducing *reducing);
/* The number that a row of the whole weight has in this rank's only shard of it; -1 if it is not
 * there. width: of the shard. */
int64_t rs_find_row(const reshard_shards *shards, int64_t row, int64_t width);
/* Embedding by row number in a local weight. A place of -1 gives a row of zeros. */
reshard_tensor *rs_embedding_at(reshard_tensor *weight, reshard_tensor *places);
/* Makes a mask with the shape or layout of x, in which each element is 0 or 1/(1-p), depending on
 * the seed and its global index. Local. */
reshard_tensor *rs_dropout_mask(reshard_tensor *x, double p, uint64_t seed);

#endif
