/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_nest.h - writes the pickle of a torch.save file: tensors and values go back into the nested
 * dicts and lists they came from, or into one dict by name if the source does not nest.
 *
 * A tensor with a new name goes where the part that both names share, at their beginning or end,
 * puts it; the rest of the name is one key. Keys are sorted, so that the same tensors give the same
 * bytes. Tuples become lists, and a list with missing items becomes a dict by number.
 */
#ifndef RS_CHECKPOINT_TORCH_TORCH_NEST_H
#define RS_CHECKPOINT_TORCH_TORCH_NEST_H

#include "checkpoint/archive/pickle.h"
#include "checkpoint/archive/pickle_write.h"
#include "checkpoint/target/target.h"

/* Writes the tensor of an entry. key: the key of its storage. */
typedef void rs_torch_entry_fn(rs_pickle_writer *writer, const rs_target *target,
                               const rs_target_entry *entry, rs_slice key);

/* Writes the pickle of one file of a target. The key of an entry's storage is its number in the
 * file. Errors: INVALID if one tensor or value would have to lie inside another. */
reshard_status rs_torch_nest_write(const rs_target *target, int32_t file, rs_torch_entry_fn *write,
                                   rs_pickle_writer *writer);

/* Writes a value for which rs_torch_nest_holds is true. */
void rs_torch_nest_write_value(rs_pickle_writer *writer, const rs_pickle_node *node);
/* For rs_format's holds_value: can a file for torch.load(weights_only=True) hold the value? */
bool rs_torch_nest_holds(const rs_stored_value *value);

#endif
