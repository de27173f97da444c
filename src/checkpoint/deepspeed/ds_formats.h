/* SPDX-License-Identifier: Apache-2.0 */
/* ds_formats.h - the formats of DeepSpeed. */
#ifndef RS_CHECKPOINT_DEEPSPEED_DS_FORMATS_H
#define RS_CHECKPOINT_DEEPSPEED_DS_FORMATS_H

#include "checkpoint/target/format.h"

extern const rs_format rs_format_deepspeed, rs_format_universal;

#endif
