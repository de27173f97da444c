/* SPDX-License-Identifier: Apache-2.0 */
/* backward.h - a backward pass inside another one. */
#ifndef RS_TENSOR_BACKWARD_H
#define RS_TENSOR_BACKWARD_H

#include "tensor/tensor.h"

/* As reshard_backward on local tensors, without agreement between ranks. */
reshard_status rs_backward_local(reshard_tensor *tensor, reshard_tensor *gradient, bool retain);

#endif
