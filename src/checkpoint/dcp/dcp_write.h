/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_write.h - lays out and writes PyTorch's distributed checkpoints. Each box is an entry of its
 * own, as torch.save writes one tensor, and `.metadata` says where the entries are. Entries begin
 * at multiples of 64 bytes, so that data does too. Values of the source are entries in front of the
 * tensors of the first file.
 *
 * Classes are named so that PyTorch 2.0 and all later versions can read them.
 */
#ifndef RS_CHECKPOINT_DCP_DCP_WRITE_H
#define RS_CHECKPOINT_DCP_DCP_WRITE_H

#include "checkpoint/dcp/dcp_values.h"

/* What lay_out leaves in the target's notes for the others. */
typedef struct rs_dcp_notes {
    const reshard_checkpoint *source;
    int64_t value_count;
    rs_dcp_value *values;
    int32_t value_file; /* index of the file that holds them; -1: not known yet */
    const char *folder; /* in front of all names of files: "", or a folder's name and a slash */
    bool has_no_paths;  /* the keys that lead to tensors are not written */
    const void *more;   /* what another format keeps */
} rs_dcp_notes;

/* For the fields of rs_format. */
reshard_status rs_dcp_lay_out(rs_laying *laying);
void rs_dcp_name_file(const rs_target *target, int32_t file, int32_t rank,
                      char out_name[RS_FILE_NAME_BYTES]);
reshard_status rs_dcp_place(rs_target *target, int32_t file);
reshard_status rs_dcp_write_head(const rs_target *target, int32_t file, rs_json_writer *writer);
reshard_status rs_dcp_finish(const rs_target *target, const rs_finishing *finishing);

#endif
