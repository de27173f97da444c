/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spread.h - runs an operation on distributed tensors as a local operation on every shard, with
 * layouts for which that gives the right result.
 */
#ifndef RS_TENSOR_DIST_SPREAD_H
#define RS_TENSOR_DIST_SPREAD_H

#include "tensor/core/distribution.h"

bool rs_any_distributed(int32_t count, reshard_tensor *const *inputs);
/* Checks that all inputs that are not NULL are distributed over one group. Errors: INVALID. */
reshard_status rs_check_together(int32_t count, reshard_tensor *const *inputs);
/* The tensor's layout for error texts. */
rs_layout_words rs_tensor_describe_layout(const reshard_tensor *tensor);
/* Returns INVALID, with the text that this partial tensor has to be redistributed first. */
reshard_status rs_refuse_partial(const reshard_tensor *tensor);

/* Casts a distributed tensor between floating dtypes, shard by shard; the tensor itself, retained,
 * if it has the dtype. Not recorded for gradients. */
reshard_status rs_cast_shards(reshard_tensor *tensor, reshard_dtype dtype,
                              reshard_tensor **out_tensor);

/* A local operation on one shard of every input. Entries are NULL where inputs are. */
typedef reshard_tensor *(*rs_local_fn)(reshard_tensor *const *inputs, const void *user);

#define RS_SPREAD_MAX 16  /* inputs */
#define RS_SPREAD_USER 64 /* bytes of the local operation's own data */

/*
 * Describes a distributed operation. Layouts are taken over. The gradient of the output arrives in
 * the output's gradient layout. The local backward steps turn it into the gradient of input i, in
 * the layout gradient_layouts[i].
 */
typedef struct rs_spread {
    const char *name;
    int32_t input_count;
    reshard_tensor *const *inputs;
    reshard_layout *gradient_layouts[RS_SPREAD_MAX];
    reshard_layout *output_layout;
    rs_local_fn fn;
    const void *user; /* user_bytes long, at most RS_SPREAD_USER; copied */
    size_t user_bytes;
    reshard_shards *shards; /* taken over; user may point into it */
} rs_spread;

/* Runs the operation if `status`, the result of its preparation, is OK. Otherwise fails with it;
 * layouts may then be NULL. */
reshard_tensor *rs_spread_run(rs_spread *spread, reshard_status status);

typedef enum rs_spread_kind {
    RS_SPREAD_LINEAR, /* inputs may be partial sums or averages */
    RS_SPREAD_ANY,    /* inputs must not be partial */
    RS_SPREAD_ROWS    /* inputs must not be partial, nor cut along the last dim */
} rs_spread_kind;

/* Runs an operation whose inputs all have the same shape and layout, which its output has as
 * well. */
reshard_tensor *rs_spread_alike(const char *name, rs_spread_kind kind, int32_t count,
                                reshard_tensor *const *inputs, rs_local_fn fn, const void *user,
                                size_t user_bytes);

#endif
