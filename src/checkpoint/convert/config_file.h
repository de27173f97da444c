/* SPDX-License-Identifier: Apache-2.0 */
/* config_file.h - config.json as the output needs it. */
#ifndef RS_CHECKPOINT_CONVERT_CONFIG_FILE_H
#define RS_CHECKPOINT_CONVERT_CONFIG_FILE_H

#include "base/arena.h"
#include "base/slice.h"

/* The text with the dtype that weights were cast to (as PyTorch calls it) in torch_dtype or dtype,
 * of the model and of its parts (text_config). Everything else stays as it is, byte for byte.
 * *out_text is in the arena; without bytes when nothing changes. Errors: SYNTAX. */
reshard_status rs_config_file_rewrite(rs_arena *arena, rs_slice text, const char *dtype,
                                      rs_slice *out_text);

#endif
