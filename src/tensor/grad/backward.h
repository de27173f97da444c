/* SPDX-License-Identifier: Apache-2.0 */
/* backward.h - running one backward pass inside another. */
#ifndef RS_TENSOR_GRAD_BACKWARD_H
#define RS_TENSOR_GRAD_BACKWARD_H

#include "tensor/grad/node.h"

/* Does what reshard_backward does for local tensors, without agreement between ranks. */
reshard_status rs_backward_local(reshard_tensor *tensor, reshard_tensor *gradient, bool retain);

#endif
