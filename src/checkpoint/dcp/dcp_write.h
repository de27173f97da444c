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

#include "checkpoint/target/target.h"

/*
 * dcp_values.c - values in a distributed checkpoint that is written. Values of a distributed
 * checkpoint are copied as they are. Other values become entries as PyTorch makes them: dicts, and
 * lists that contain dicts, are taken apart, and each part is what torch.save makes of it.
 */

typedef struct rs_dcp_value {
    rs_slice name;
    const rs_value_step *step; /* the last key that leads to it; NULL: its name is the only key */
    const rs_stored_value *stored; /* its bytes are copied; NULL: they are made from the node */
    const struct rs_pickle_node *node;
    rs_slice pickle; /* bytes not NULL: this, and not the node, is what the entry holds */
    uint64_t bytes;
    uint64_t at; /* offset in its file, set by the caller */
} rs_dcp_value;

/* For rs_format's holds_value. */
bool rs_dcp_holds_value(const rs_stored_value *value);
/* Lists the values of the source (NULL: none) that the target carries, sorted by name, in the
 * arena. Errors: INVALID if two of them end up with the same name. */
reshard_status rs_dcp_values_list(const rs_target *target, const reshard_checkpoint *source,
                                  rs_arena *arena, int64_t *out_count, rs_dcp_value **out_values);
/* Finds out how large the entry of a value will be, and sets its bytes. */
reshard_status rs_dcp_value_measure(reshard_context *context, rs_dcp_value *value);
/* Errors: INVALID if one of them has the name of a tensor of the target. */
reshard_status rs_dcp_values_check(const rs_target *target, int64_t count,
                                   const rs_dcp_value *values);
/* Writes the entry of a value at value->at. */
reshard_status rs_dcp_value_write(const rs_target *target, const rs_dcp_value *value,
                                  rs_file *file);

/* dcp_write.c - the whole. */

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
