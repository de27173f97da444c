/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dcp_values.h - what is no tensor, in a distributed checkpoint that is written. Values of such
 * checkpoints are copied as they are. Others are made into entries as PyTorch does it: dicts, and
 * lists with dicts or lists in them, are taken apart, and the rest is what torch.save makes of it.
 */
#ifndef RS_CHECKPOINT_TORCH_DCP_VALUES_H
#define RS_CHECKPOINT_TORCH_DCP_VALUES_H

#include "checkpoint/body/target.h"

typedef struct rs_dcp_value {
    rs_slice name;
    const rs_value_step *step;     /* the last on the way to it; NULL: its name is the only key */
    const rs_stored_value *stored; /* its bytes are copied; NULL: they are made of the node */
    const struct rs_pickle_node *node;
    uint64_t bytes;
    uint64_t at; /* in its file, for the caller to decide */
} rs_dcp_value;

/* A format's holds_value. */
bool rs_dcp_holds_value(const rs_stored_value *value);
/* The values of the source (NULL: none) that the target carries, by name, in the arena. Errors:
 * INVALID when two of them end up with one name. */
reshard_status rs_dcp_values_list(const rs_target *target, const reshard_checkpoint *source,
                                  rs_arena *arena, int64_t *out_count, rs_dcp_value **out_values);
/* Errors: INVALID when one of them has the name of a tensor of the target. */
reshard_status rs_dcp_values_check(const rs_target *target, int64_t count,
                                   const rs_dcp_value *values);
/* Writes the entry of a value at its place. */
reshard_status rs_dcp_value_write(const rs_target *target, const rs_dcp_value *value,
                                  rs_file *file);

#endif
