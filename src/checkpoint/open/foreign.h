/* SPDX-License-Identifier: Apache-2.0 */
/* foreign.h - weights in formats that the library does not read. They are recognised by name, so
 * that an error can say what was found in place of a checkpoint. */
#ifndef RS_CHECKPOINT_OPEN_FOREIGN_H
#define RS_CHECKPOINT_OPEN_FOREIGN_H

#include "checkpoint/target/format.h"

/* Fails, and says what the path holds and what was looked for. */
reshard_status rs_foreign_fail(const reshard_checkpoint *checkpoint, const rs_opening *opening);

/* Does a file of that name hold weights, in whatever format, or describe those in other files? */
bool rs_name_holds_weights(const char *name);

#endif
