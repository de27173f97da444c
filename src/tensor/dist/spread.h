/* SPDX-License-Identifier: Apache-2.0 */
/*
 * spread.h - operations on distributed tensors: a local operation on every shard, and the layouts
 * that make the results right. Operations hand over to these when an input is distributed.
 */
#ifndef RS_TENSOR_DIST_SPREAD_H
#define RS_TENSOR_DIST_SPREAD_H

#include "tensor/core/distribution.h"

bool rs_any_distributed(int32_t count, reshard_tensor *const *inputs);
/* All inputs that are not NULL are distributed over one group. Errors: INVALID. */
reshard_status rs_check_together(int32_t count, reshard_tensor *const *inputs);
/* The tensor's layout in an error message. */
rs_layout_words rs_tensor_describe_layout(const reshard_tensor *tensor);

/* A local operation on the i-th shards of all inputs; entries may be NULL where inputs are. */
typedef reshard_tensor *(*rs_local_fn)(reshard_tensor *const *inputs, const void *user);

#define RS_SPREAD_MAX 16  /* inputs */
#define RS_SPREAD_USER 64 /* bytes of what the local operation needs to know */

/*
 * What a distributed operation is. Layouts are taken over. The gradient of the output comes in its
 * gradient layout; that of input i is what the local backward steps give, in gradient_layouts[i].
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
    reshard_shards *shards; /* taken over: what user may point to */
} rs_spread;

/* Runs it. `status` is that of what was done before, and the layouts may be NULL if it failed. */
reshard_tensor *rs_spread_run(rs_spread *spread, reshard_status status);

typedef enum rs_spread_kind {
    RS_SPREAD_LINEAR, /* sums and averages may be partial */
    RS_SPREAD_ANY,    /* not partial */
    RS_SPREAD_ROWS    /* not partial, the last dim not cut */
} rs_spread_kind;

/* Inputs of equal shapes and layouts give an output of the same. */
reshard_tensor *rs_spread_alike(const char *name, rs_spread_kind kind, int32_t count,
                                reshard_tensor *const *inputs, rs_local_fn fn, const void *user,
                                size_t user_bytes);

#endif
