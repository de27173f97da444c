/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_config.h - the config.json of Hugging Face, as far as the key-values of a GGUF file say what
 * is in it. */
#ifndef RS_CHECKPOINT_GGUF_GGUF_CONFIG_H
#define RS_CHECKPOINT_GGUF_GGUF_CONFIG_H

#include "checkpoint/gguf/gguf.h"
#include "checkpoint/store/store.h"

/* Sets the checkpoint's made_config, unless the architecture is one whose names have no map. Call
 * it when tensors are joined. file, gguf: those of the first part. */
reshard_status rs_gguf_make_config(reshard_checkpoint *checkpoint, const rs_file *file,
                                   const rs_gguf *gguf);

#endif
