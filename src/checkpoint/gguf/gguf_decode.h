/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf_decode.h - the quantised tensors of a GGUF file as a file of f32 values
 * (rs_file_create_made): one tensor after the other, each row-major. Blocks are decoded while they
 * are read, so that nothing else needs to know that tensors are quantised.
 */
#ifndef RS_CHECKPOINT_GGUF_GGUF_DECODE_H
#define RS_CHECKPOINT_GGUF_GGUF_DECODE_H

#include "checkpoint/gguf/gguf.h"

/* Makes the file, and sets places[i] to the byte in it where tensor i begins; for tensors that are
 * not quantised, or whose type cannot be decoded, to UINT64_MAX. `file` and `gguf` must outlive it.
 * *out_file is NULL if there is no such tensor. */
reshard_status rs_gguf_decode(reshard_context *context, const rs_file *file, const rs_gguf *gguf,
                              uint64_t *places, rs_file **out_file);

#endif
