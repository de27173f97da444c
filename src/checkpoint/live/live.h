/* SPDX-License-Identifier: Apache-2.0 */
/* live.h - what loading and saving have in common. */
#ifndef RS_CHECKPOINT_LIVE_LIVE_H
#define RS_CHECKPOINT_LIVE_LIVE_H

#include <reshard/checkpoint_live.h>

/* Checks that files can hold a tensor of this dtype, layout and ranks. Errors, naming it: INVALID,
 * UNSUPPORTED, RANGE. */
reshard_status rs_live_check(const reshard_live_tensor *tensor, const reshard_group *group);

#endif
