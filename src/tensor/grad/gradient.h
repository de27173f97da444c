/* SPDX-License-Identifier: Apache-2.0 */
/* gradient.h - the layouts of gradients, and their sums. */
#ifndef RS_TENSOR_GRAD_GRADIENT_H
#define RS_TENSOR_GRAD_GRADIENT_H

#include "tensor/core/distribution.h"

/* The layout of a tensor's gradients: its own, with partial axes replicated. */
reshard_status rs_gradient_layout(reshard_layout *layout, reshard_layout **out_layout);
/* Adds two gradients of one tensor, in the innermost scope. Collective for distributed tensors. */
reshard_tensor *rs_gradient_add(reshard_tensor *a, reshard_tensor *b);

#endif
