/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantised.h - which tensors of a checkpoint are quantised weights, and which are the scales, zero
 * points and tables that belong to some. Formats have little more in common than this: the two are
 * in one module ("..q_proj"), the weights have a dtype of codes, and names tell what the others
 * are.
 */
#ifndef RS_CHECKPOINT_RULES_QUANTISED_H
#define RS_CHECKPOINT_RULES_QUANTISED_H

#include "checkpoint/store/store.h"

/* One for each tensor of the checkpoint, in the arena. is_declared: config.json says that the model
 * is quantised, so that codes are codes even where no scale is beside them. */
reshard_status rs_quantised_find(rs_arena *arena, const reshard_checkpoint *checkpoint,
                                 bool is_declared, bool **out_quantised);

/* Whether config.json in the checkpoint's folder says so. One that is no JSON says nothing. */
reshard_status rs_quantised_declared(const reshard_checkpoint *checkpoint, bool *out_declared);

#endif
