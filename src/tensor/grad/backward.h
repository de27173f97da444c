/* SPDX-License-Identifier: Apache-2.0 */
/* backward.h - visiting the graph that computed a tensor, and running one backward pass inside
 * another. */
#ifndef RS_TENSOR_GRAD_BACKWARD_H
#define RS_TENSOR_GRAD_BACKWARD_H

#include "tensor/grad/node.h"

/* Does what reshard_backward does for local tensors, without agreement between ranks. */
reshard_status rs_backward_local(reshard_tensor *tensor, reshard_tensor *gradient, bool retain);

typedef reshard_status (*rs_node_fn)(void *user, rs_node *node);
/* Calls fn for this node and for every node that led to it, the latest first. */
reshard_status rs_graph_visit(reshard_context *context, rs_node *last, rs_node_fn fn, void *user);

#endif
