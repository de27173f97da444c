/* SPDX-License-Identifier: Apache-2.0 */
/* config_file.h - rewrites config.json for the output. */
#ifndef RS_CHECKPOINT_CONVERT_CONFIG_FILE_H
#define RS_CHECKPOINT_CONVERT_CONFIG_FILE_H

#include "base/arena.h"
#include "base/slice.h"

#include <stdbool.h>

/* What changes. Everything else stays as it is, byte for byte. */
typedef struct rs_config_change {
    /* The dtype that weights were cast to, as PyTorch calls it: the new value of torch_dtype or
     * dtype, for the model and for its parts (text_config). */
    const char *dtype;
    /* Remove quantization_config, and add torch_dtype if there is no dtype. */
    bool is_dequantised;
    bool quantization_gone; /* out: there was one, and it was removed */
} rs_config_change;

/* *out_text is in the arena; its bytes are NULL if nothing changes. Errors: SYNTAX. */
reshard_status rs_config_file_rewrite(rs_arena *arena, rs_slice text, rs_config_change *change,
                                      rs_slice *out_text);

#endif
