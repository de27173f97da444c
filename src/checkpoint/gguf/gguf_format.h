/* SPDX-License-Identifier: Apache-2.0 */
/* gguf_format.h - the format of this folder: the files of llama.cpp. */
#ifndef RS_CHECKPOINT_GGUF_GGUF_FORMAT_H
#define RS_CHECKPOINT_GGUF_GGUF_FORMAT_H

#include "checkpoint/target/format.h"

extern const rs_format rs_format_gguf;

#endif
