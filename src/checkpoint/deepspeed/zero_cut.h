/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_cut.h - how tensor parallel ranks cut a parameter, as universal_checkpoint_info says: lists
 * of patterns for parameters that are replicated, cut along dim 1, or made of several that are cut
 * one by one. Whatever no pattern names is cut along dim 0.
 */
#ifndef RS_CHECKPOINT_DEEPSPEED_ZERO_CUT_H
#define RS_CHECKPOINT_DEEPSPEED_ZERO_CUT_H

#include "checkpoint/deepspeed/zero.h"

/* Joins what the tensor parallel ranks hold of one tensor, one local for each rank. Errors:
 * UNSUPPORTED if nothing says how it is cut; GAP if a rank has no part of it; CORRUPT if the shapes
 * do not fit. */
reshard_status rs_zero_cut_join(rs_zero_reading *r, const rs_zero_local *locals, int64_t count,
                                rs_stored_tensor *tensor);

#endif
