/* SPDX-License-Identifier: Apache-2.0 */
/* target_make.h - lays out what a conversion or a save will write: format, files, places. */
#ifndef RS_CHECKPOINT_CONVERT_TARGET_MAKE_H
#define RS_CHECKPOINT_CONVERT_TARGET_MAKE_H

#include "checkpoint/target/target.h"

/* Release the target in any case. */
reshard_status rs_target_init(rs_target *target, const reshard_checkpoint *source,
                              const reshard_conversion_options *options);
/* Compares what the target will hold with a list of names, dtypes and shapes (like.c). Errors:
 * INVALID, with the first differences; SYNTAX; those of reading the file. */
reshard_status rs_target_check_like(rs_target *target, const char *path);
/* Like rs_target_init for tensors that ranks 0 .. file_count-1 hold in memory, in the default split
 * format: each rank has one file. */
reshard_status rs_target_init_live(rs_target *target, reshard_context *context, int32_t file_count,
                                   int64_t count, const reshard_live_tensor *tensors);

#endif
