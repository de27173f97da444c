/* SPDX-License-Identifier: Apache-2.0 */
/*
 * megatron_write.h - writes Megatron-Core's torch_dist: a distributed checkpoint in a folder
 * `release` (or iter_N), a file beside it that names the folder, and what megatron.h lists.
 *
 * Chunks are those that Megatron's ranks would write: one layer, and one expert, at a time. The
 * common state is written in both of its homes, so that old and new releases find it. Each linear
 * layer and each norm gets an entry _extra_state that holds nothing, because loaders miss entries
 * that they expect; `extra_state` set to 0 leaves these out.
 */
#ifndef RS_CHECKPOINT_DCP_MEGATRON_WRITE_H
#define RS_CHECKPOINT_DCP_MEGATRON_WRITE_H

#include "checkpoint/target/target.h"

/* For the fields of rs_format. */
reshard_status rs_megatron_lay_out(rs_laying *laying);
void rs_megatron_name_file(const rs_target *target, int32_t file, int32_t rank,
                           char out_name[RS_FILE_NAME_BYTES]);
reshard_status rs_megatron_finish(const rs_target *target, const rs_finishing *finishing);

#endif
