/* SPDX-License-Identifier: Apache-2.0 */
/* partial.h - gradients of reductions between ranks. */
#ifndef RS_TENSOR_DIST_PARTIAL_H
#define RS_TENSOR_DIST_PARTIAL_H

#include "tensor/core/distribution.h"

/*
 * Collective for PROD, MIN and MAX. x: a partial tensor, the contributions. gradient: that of the
 * reduced tensor, once for each contribution on this rank, with the shards of x; for AVG, as if it
 * were SUM. Returns the gradient of the contributions, in the innermost scope.
 */
reshard_tensor *rs_partial_gradient(reshard_tensor *x, reshard_tensor *gradient);

#endif
