/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf_write.h - the parts of format_gguf.c that write. A GGUF file is written after the example of
 * another one, the donor: its key-values, and names, shapes and order of its tensors. Only the
 * numbers are those of the model.
 */
#ifndef RS_CHECKPOINT_GGUF_GGUF_WRITE_H
#define RS_CHECKPOINT_GGUF_GGUF_WRITE_H

#include "checkpoint/gguf/gguf.h"
#include "checkpoint/target/target.h"

/* How a tensor is written. */
typedef struct rs_gguf_info {
    int64_t order; /* among all tensors of the donor */
    uint32_t type; /* ggml's number */
    int32_t ndim;
    int64_t shape[RS_GGUF_NDIM_MAX]; /* slowest dim first */
} rs_gguf_info;

/* The target's notes. The key-values are its document. */
typedef struct rs_gguf_plan {
    uint64_t alignment, value_count;
    rs_gguf_info *infos; /* by tensor */
} rs_gguf_plan;

/* Takes the donor's key-values into the target's document, without those about parts; file_type:
 * the new value of general.file_type, if the donor has that; -1: as it is. Errors: RANGE,
 * UNSUPPORTED. */
reshard_status rs_gguf_take_values(rs_target *target, const reshard_checkpoint *donor,
                                   int32_t file_type, rs_gguf_plan *plan);

/* Members of the format's row. */
bool rs_gguf_leaves_tied(rs_slice name);
reshard_status rs_gguf_follow(rs_laying *laying);
reshard_status rs_gguf_lay_out(rs_laying *laying);
void rs_gguf_name_file(const rs_target *target, int32_t file, int32_t rank,
                       char out_name[RS_FILE_NAME_BYTES]);
reshard_status rs_gguf_place(rs_target *target, int32_t file);
reshard_status rs_gguf_write_head(const rs_target *target, int32_t file, rs_json_writer *writer);

#endif
