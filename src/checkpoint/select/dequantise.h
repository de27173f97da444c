/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequantise.h - the tensors that a checkpoint has once its codes are multiplied by their scales:
 * fp8 with scales of blocks, channels or tensors, and mxfp4 as GPT-OSS has it.
 */
#ifndef RS_CHECKPOINT_RULES_DEQUANTISE_H
#define RS_CHECKPOINT_RULES_DEQUANTISE_H

#include "checkpoint/select/quantised.h"
#include "checkpoint/store/formula.h"

/* For each tensor that is codes, the tensor that is made of it, else NULL; in the arena. dtype:
 * f16, bf16 or f32. Errors: INVALID when nothing is quantised, or when scales do not fit, with the
 * numbers; UNSUPPORTED, naming tensor and method, when it is quantised in another way. */
reshard_status rs_dequantise(rs_arena *arena, const reshard_checkpoint *source, rs_config *config,
                             const rs_quantised_kind *kinds, reshard_dtype dtype,
                             const rs_stored_tensor ***out_made);

#endif
