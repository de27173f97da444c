/* SPDX-License-Identifier: Apache-2.0 */
/* torch_formats.h - the formats of this folder: what torch.save and its kin write. */
#ifndef RS_CHECKPOINT_TORCH_TORCH_FORMATS_H
#define RS_CHECKPOINT_TORCH_TORCH_FORMATS_H

#include "checkpoint/target/format.h"

extern const rs_format rs_format_torch, rs_format_torch_bin, rs_format_torch_ranks,
    rs_format_torch_checkpointing, rs_format_consolidated;
/* Not in the list of formats: reached through `placed` of rs_format_torch_ranks. */
extern const rs_format rs_format_torch_dtensors;

#endif
