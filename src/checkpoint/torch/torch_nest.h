/* SPDX-License-Identifier: Apache-2.0 */
/*
 * torch_nest.h - the pickle of a torch.save file that is written: tensors and values back in the
 * nested dicts and lists they came from, or in one dict by name when the source does not nest.
 *
 * A tensor with a new name goes where the common beginning, or the common end, of both names puts
 * it; what is left of the name is one key. Keys are sorted, so that the same tensors are the same
 * bytes. Tuples become lists, and a list of which parts are missing a dict by number.
 */
#ifndef RS_CHECKPOINT_FORMAT_TORCH_NEST_H
#define RS_CHECKPOINT_FORMAT_TORCH_NEST_H

#include "checkpoint/archive/pickle.h"
#include "checkpoint/archive/pickle_write.h"
#include "checkpoint/body/target.h"

/* Writes the tensor of an entry. key: of its storage. */
typedef void rs_torch_entry_fn(rs_pickle_writer *writer, const rs_target *target,
                               const rs_target_entry *entry, rs_slice key);

/* Writes the pickle of one file of a target. Entries have their number in the file as the key of
 * their storage. Errors: INVALID when a name ends where another one goes on. */
reshard_status rs_torch_nest_write(const rs_target *target, int32_t file, rs_torch_entry_fn *write,
                                   rs_pickle_writer *writer);

/* Writes a value that rs_torch_nest_holds. */
void rs_torch_nest_write_value(rs_pickle_writer *writer, const rs_pickle_node *node);
/* A format's holds_value: can a file that torch.load(weights_only=True) loads hold it? */
bool rs_torch_nest_holds(const rs_stored_value *value);

#endif
