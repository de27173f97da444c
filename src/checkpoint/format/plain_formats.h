/* SPDX-License-Identifier: Apache-2.0 */
/* plain_formats.h - the formats of this folder: safetensors in several arrangements, NumPy. */
#ifndef RS_CHECKPOINT_FORMAT_PLAIN_FORMATS_H
#define RS_CHECKPOINT_FORMAT_PLAIN_FORMATS_H

#include "checkpoint/target/format.h"

extern const rs_format rs_format_hf, rs_format_dcp_safetensors, rs_format_rank_files,
    rs_format_sharded_state, rs_format_safetensors, rs_format_npy;

#endif
