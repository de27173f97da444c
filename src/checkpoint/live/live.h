/* SPDX-License-Identifier: Apache-2.0 */
/* live.h - what loading and saving have in common. */
#ifndef RS_CHECKPOINT_LIVE_LIVE_H
#define RS_CHECKPOINT_LIVE_LIVE_H

#include <reshard/checkpoint_live.h>

/* Dtype, layout and ranks of a tensor are such that files can hold it. Errors, with its name:
 * INVALID, UNSUPPORTED, RANGE. */
reshard_status rs_live_check(const reshard_live_tensor *tensor, const reshard_group *group);

#endif
