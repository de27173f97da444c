/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantised.h - which tensors of a checkpoint are quantised weights, and which are the scales, zero
 * points and tables that belong to some. Formats have little more in common than this: the two are
 * in one module ("..q_proj"), the weights have a dtype of codes, and names tell what the others
 * are.
 */
#ifndef RS_CHECKPOINT_RULES_QUANTISED_H
#define RS_CHECKPOINT_RULES_QUANTISED_H

#include "checkpoint/rules/config.h"
#include "checkpoint/store/store.h"

typedef enum rs_quantised_kind {
    RS_QUANTISED_NOT,
    RS_QUANTISED_CODES,
    RS_QUANTISED_COMPANION, /* belongs to codes */
} rs_quantised_kind;

/* What each tensor of the checkpoint is, in the arena. is_declared: config.json says that the model
 * is quantised, so that codes are codes even where no scale is beside them. */
reshard_status rs_quantised_find(rs_arena *arena, const reshard_checkpoint *checkpoint,
                                 bool is_declared, rs_quantised_kind **out_kinds);

/* By which method config.json says that the model is quantised; NULL when it does not. */
const char *rs_quantised_method(rs_config *config);

#endif
