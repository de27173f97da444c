/* SPDX-License-Identifier: Apache-2.0 */
/*
 * latest.h - folders of training runs: each checkpoint is a sub-folder, and a small file names the
 * newest. DeepSpeed's `latest` holds the name itself ("global_step1000"), Megatron's
 * `latest_checkpointed_iteration.txt` a number ("1000" is iter_0001000) or "release".
 */
#ifndef RS_CHECKPOINT_OPEN_LATEST_H
#define RS_CHECKPOINT_OPEN_LATEST_H

#include "checkpoint/target/format.h"

/* Does the folder that is being opened have such a file? */
bool rs_latest_is_named(const reshard_checkpoint *checkpoint, const rs_opening *opening);

/* Makes the sub-folder that the file names the checkpoint's path and folder, with a note. Names
 * with slashes and links that leave the folder are refused. Errors: INVALID, NOT_FOUND, RANGE, IO;
 * the checkpoint is then as it was. */
reshard_status rs_latest_follow(reshard_checkpoint *checkpoint, const rs_opening *opening);
/* Is this the name of such a file? It means nothing in another folder. */
bool rs_latest_is_pointer(const char *name);

#endif
