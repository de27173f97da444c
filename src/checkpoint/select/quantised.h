/* SPDX-License-Identifier: Apache-2.0 */
/*
 * quantised.h - which tensors of a checkpoint are quantised weights, and which are the scales, zero
 * points and tables that belong to them. Formats have little in common beyond this: both are in the
 * same module ("..q_proj"), the weights have a dtype of codes, and the others can be told by their
 * names.
 */
#ifndef RS_CHECKPOINT_SELECT_QUANTISED_H
#define RS_CHECKPOINT_SELECT_QUANTISED_H

#include "checkpoint/rules/config.h"
#include "checkpoint/store/store.h"

typedef enum rs_quantised_kind {
    RS_QUANTISED_NOT,
    RS_QUANTISED_CODES,
    RS_QUANTISED_COMPANION, /* scales and the like, which belong to codes */
} rs_quantised_kind;

/* Classifies each tensor of the checkpoint; the array is in the arena. is_declared: config.json
 * says that the model is quantised, so narrow floats are codes even without scales beside them. */
reshard_status rs_quantised_find(rs_arena *arena, const reshard_checkpoint *checkpoint,
                                 bool is_declared, rs_quantised_kind **out_kinds);

/* The method by which the model is quantised, according to config.json; NULL if it does not say. */
const char *rs_quantised_method(rs_config *config);

#endif
