/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dequantise.h - the tensors of a checkpoint after its codes are multiplied by their scales: fp8
 * with scales for blocks, channels or tensors, and mxfp4 as in GPT-OSS.
 */
#ifndef RS_CHECKPOINT_SELECT_DEQUANTISE_H
#define RS_CHECKPOINT_SELECT_DEQUANTISE_H

#include "checkpoint/select/quantised.h"
#include "checkpoint/store/formula.h"

/* For each tensor of codes returns the tensor that is made from it, and NULL for others; in the
 * arena. dtype: f16, bf16 or f32. Errors: INVALID if nothing is quantised, or if scales do not fit,
 * with the numbers; UNSUPPORTED for other kinds of quantisation, naming tensor and method. */
reshard_status rs_dequantise(rs_arena *arena, const reshard_checkpoint *source, rs_config *config,
                             const rs_quantised_kind *kinds, reshard_dtype dtype,
                             const rs_stored_tensor ***out_made);

#endif
