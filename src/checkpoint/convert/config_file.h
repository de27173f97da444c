/* SPDX-License-Identifier: Apache-2.0 */
/* config_file.h - config.json as the output needs it. */
#ifndef RS_CHECKPOINT_CONVERT_CONFIG_FILE_H
#define RS_CHECKPOINT_CONVERT_CONFIG_FILE_H

#include "base/arena.h"
#include "base/slice.h"

#include <stdbool.h>

/* What changes: everything else stays as it is, byte for byte. */
typedef struct rs_config_change {
    /* What weights were cast to, as PyTorch calls it: the value of torch_dtype or dtype, of the
     * model and of its parts (text_config). */
    const char *dtype;
    /* quantization_config goes, and torch_dtype is added if nothing says it. */
    bool is_dequantised;
} rs_config_change;

/* *out_text is in the arena; without bytes when nothing changes. Errors: SYNTAX. */
reshard_status rs_config_file_rewrite(rs_arena *arena, rs_slice text,
                                      const rs_config_change *change, rs_slice *out_text);

#endif
