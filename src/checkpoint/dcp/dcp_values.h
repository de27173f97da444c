/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_values.h - values in a distributed checkpoint that is written. Values of a distributed
 * checkpoint are copied as they are. Other values become entries as PyTorch makes them: dicts, and
 * lists that contain dicts, are taken apart, and each part is what torch.save makes of it.
 */
#ifndef RS_CHECKPOINT_DCP_DCP_VALUES_H
#define RS_CHECKPOINT_DCP_DCP_VALUES_H

#include "checkpoint/target/target.h"

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

#endif
