/* SPDX-License-Identifier: Apache-2.0 */
/* dcp_format.h - the formats of this folder: distributed checkpoints of PyTorch. */
#ifndef RS_CHECKPOINT_DCP_DCP_FORMAT_H
#define RS_CHECKPOINT_DCP_DCP_FORMAT_H

#include "checkpoint/target/format.h"

extern const rs_format rs_format_dcp;
/* The same files, as Megatron-Core writes them; see megatron.h. */
extern const rs_format rs_format_megatron;
/* What came before it: read only. */
extern const rs_format rs_format_megatron_legacy;

/* Reads a folder of either format. */
reshard_status rs_dcp_read(reshard_checkpoint *checkpoint, const rs_opening *opening,
                           bool is_megatron);

#endif
