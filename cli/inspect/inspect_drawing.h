/* SPDX-License-Identifier: Apache-2.0 */
/* inspect_drawing.h - draws one tensor of a checkpoint. */
#ifndef CLI_INSPECT_INSPECT_DRAWING_H
#define CLI_INSPECT_INSPECT_DRAWING_H

#include "cli/common/drawing.h"

#include <reshard/checkpoint.h>

/* Draws the tensor called `name`. Returns CLI_DONE, or another code after a message. */
int cli_inspect_draw(const reshard_checkpoint *checkpoint, const char *name,
                     const cli_drawing *drawing);

#endif
