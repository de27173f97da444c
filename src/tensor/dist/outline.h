/* SPDX-License-Identifier: Apache-2.0 */
/* outline.h - what ranks tell each other about their local tensors before they combine them. */
#ifndef RS_TENSOR_DIST_OUTLINE_H
#define RS_TENSOR_DIST_OUTLINE_H

#include "tensor/core/distribution.h"

typedef struct rs_outline {
    int32_t present; /* 0: this rank has none */
    int32_t dtype;
    int32_t ndim;
    int32_t requires_grad;
    int64_t shape[RESHARD_NDIM_MAX];
    int64_t number; /* anything else the caller wants to compare */
} rs_outline;

rs_outline rs_outline_of(const reshard_tensor *tensor);
/* Whether dtype and shape are the same. */
bool rs_outline_same(const rs_outline *a, const rs_outline *b);

/* Collective. Agrees on `status`, then gives every rank the outlines of all ranks, to be released
 * with rs_release(NULL, ..). Error texts begin with `what`. */
reshard_status rs_outlines_gather(reshard_group *group, reshard_status status, const char *what,
                                  const rs_outline *mine, rs_outline **out_all);

/* Makes an empty tensor for a rank without a shard: 0 rows, and the other sizes as given. */
reshard_status rs_make_empty(reshard_dtype dtype, int32_t ndim, const int64_t *shape,
                             reshard_tensor **out_tensor);

#endif
