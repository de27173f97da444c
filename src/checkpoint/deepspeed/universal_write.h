/* SPDX-License-Identifier: Apache-2.0 */
/* universal_write.h - writes universal checkpoints of DeepSpeed: functions for the row of the
 * format. */
#ifndef RS_CHECKPOINT_DEEPSPEED_UNIVERSAL_WRITE_H
#define RS_CHECKPOINT_DEEPSPEED_UNIVERSAL_WRITE_H

#include "checkpoint/target/format.h"

reshard_status rs_universal_lay_out(rs_laying *laying);
bool rs_universal_holds(const rs_stored_value *value);
bool rs_universal_leaves_tied(rs_slice name);
void rs_universal_name_file(const rs_target *target, int32_t file, int32_t rank,
                            char out_name[RS_FILE_NAME_BYTES]);
reshard_status rs_universal_place(rs_target *target, int32_t file);
reshard_status rs_universal_finish(const rs_target *target, const rs_finishing *finishing);

#endif
