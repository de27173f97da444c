/* SPDX-License-Identifier: Apache-2.0 */
/*
 * follow.h - lets ready-made layers work with a sharding plan that does not name all of their
 * tensors. Operations take few combinations of layouts and never move their inputs (ops.h), so the
 * functions here bring the tensors of a layer into such a combination first.
 *
 * Weights stay where the plan put them. A replicated tensor is used in slices, which moves nothing.
 * One that is cut differently, partial, or over another mesh is redistributed. Local tensors are
 * lifted. Gradients flow back into the layouts that the tensors had.
 *
 * Each function replaces tensors by others that the innermost scope owns. It does nothing if all
 * are local, and returns false on failure, with the error noted. Collective: only layouts decide
 * what moves, and they are the same on all ranks.
 */
#ifndef RS_NN_FOLLOW_H
#define RS_NN_FOLLOW_H

#include "tensor/core/tensor.h"

/* x, weight, bias; the bias may be NULL. */
bool rs_follow_linear(reshard_tensor **tensors);
/* weight, indices. */
bool rs_follow_embedding(reshard_tensor **tensors);
/* The tensors of rs_bag (tensor/bag/bag.h). */
bool rs_follow_bag(reshard_tensor **tensors);
/* x, weight, bias; the bias may be NULL. */
bool rs_follow_norm(reshard_tensor **tensors);
/* One tensor, for an elementwise operation that is not linear. */
bool rs_follow_activation(reshard_tensor **tensor);
/* Two tensors to be added. */
bool rs_follow_add(reshard_tensor **tensors);
/* q, k and v [batch, length, heads * head]. They get one layout, in which every shard has whole
 * heads at all positions. */
bool rs_follow_attention(reshard_tensor **tensors, int64_t head);

#endif
