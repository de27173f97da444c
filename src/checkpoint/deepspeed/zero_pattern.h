/* SPDX-License-Identifier: Apache-2.0 */
/*
 * zero_pattern.h - the patterns of universal_checkpoint_info, which are regular expressions of
 * Python, matched from the beginning of a name. Of these, characters, ".", "[..]", "\d", "\w",
 * escaped characters, each with "*", "+" or "?", and "^" and "$" are understood, which is what
 * DeepSpeed and Megatron-DeepSpeed write.
 */
#ifndef RS_CHECKPOINT_DEEPSPEED_ZERO_PATTERN_H
#define RS_CHECKPOINT_DEEPSPEED_ZERO_PATTERN_H

#include "base/error.h"

/* Errors: UNSUPPORTED, naming the pattern, for anything else; RANGE if it takes too long. */
reshard_status rs_zero_pattern_match(rs_slice pattern, rs_slice name, bool *out_matches);

#endif
