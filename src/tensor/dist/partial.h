/* SPDX-License-Identifier: Apache-2.0 */
/* partial.h - gradients of reductions between ranks. */
#ifndef RS_TENSOR_DIST_PARTIAL_H
#define RS_TENSOR_DIST_PARTIAL_H

#include "tensor/core/distribution.h"

/*
 * Gives the gradient of the contributions to a reduction, in the innermost scope. Collective for
 * PROD, MIN and MAX. `x` is the partial tensor of the contributions. `gradient` has the same shards
 * as x, each of them filled from the gradient of the reduced tensor; the division for AVG happens
 * here.
 */
reshard_tensor *rs_partial_gradient(reshard_tensor *x, reshard_tensor *gradient);

#endif
