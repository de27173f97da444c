/* SPDX-License-Identifier: Apache-2.0 */
/*
 * follow.h - ready layers follow a plan that does not name everything. Operations take few
 * combinations of layouts and never move what they are given (ops.h); here the tensors of a layer
 * are brought into such a combination first.
 *
 * Weights stay where the plan put them. What is replicated is used by its slices, which moves
 * nothing; what is cut otherwise, partial, or over another mesh is redistributed. Local tensors are
 * lifted. Gradients flow back into the layouts that the tensors had.
 *
 * All of them replace tensors by others of the innermost scope, do nothing if all are local, and
 * return false on failure, with the error noted. Collective: layouts alone decide what moves, and
 * they are the same on all ranks.
 */
#ifndef RS_NN_FOLLOW_H
#define RS_NN_FOLLOW_H

#include "tensor/core/tensor.h"

/* x, weight, bias; the bias may be NULL. */
bool rs_follow_linear(reshard_tensor **tensors);
/* weight, indices. */
bool rs_follow_embedding(reshard_tensor **tensors);
/* x, weight, bias; the bias may be NULL. */
bool rs_follow_norm(reshard_tensor **tensors);
/* One tensor, for an operation element by element that is not linear. */
bool rs_follow_activation(reshard_tensor **tensor);
/* Two tensors to be added. */
bool rs_follow_add(reshard_tensor **tensors);
/* q, k and v [batch, length, heads * head]: all positions of whole heads, all three alike. */
bool rs_follow_attention(reshard_tensor **tensors, int64_t head);

#endif
