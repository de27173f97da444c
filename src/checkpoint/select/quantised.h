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
#include "checkpoint/store/formula.h"
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

/* Do scales and the like belong to these codes? They are in the same module ("q_proj.weight_scale"
 * and "q_proj.weight"), in one called after the weight ("q_proj.weight.absmax"), or differ in their
 * last word ("down_proj_scales" and "down_proj_blocks"). */
bool rs_quantised_belongs_to(rs_slice companion, rs_slice codes);

/* The method by which the model is quantised, according to config.json; NULL if it does not say. */
const char *rs_quantised_method(rs_config *config);

/*
 * dequantise.c - the tensors of a checkpoint after its codes are multiplied by their scales: fp8
 * with scales for blocks, channels or tensors, and mxfp4 as in GPT-OSS.
 */

/* For each tensor of codes returns the tensor that is made from it, and NULL for others; in the
 * arena. dtype: f16, bf16 or f32. Errors: INVALID if nothing is quantised, or if scales do not fit,
 * with the numbers; UNSUPPORTED for other kinds of quantisation, naming tensor and method. */
reshard_status rs_dequantise(rs_arena *arena, const reshard_checkpoint *source, rs_config *config,
                             const rs_quantised_kind *kinds, reshard_dtype dtype,
                             const rs_stored_tensor ***out_made);

#endif
