/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nn_checkpoint.h - checkpoints of tensors: the state dict of a module or an optimizer is saved, or
 * filled from a checkpoint that is split in any other way.
 *
 *     reshard_module_state_dict(module, &list);
 *     reshard_checkpoint_save_tensors(NULL, group, "step-100", list->count, list->items, NULL);
 *
 * Both calls are Collective: all ranks pass the same names, dtypes and layouts in the same order.
 * They agree on their status before they return. Errors are those of reshard_checkpoint_load and
 * reshard_checkpoint_save (checkpoint_live.h), and INVALID for a tensor or a name that is NULL, or
 * for a tensor that is distributed over another group.
 */
#ifndef RESHARD_NN_CHECKPOINT_H
#define RESHARD_NN_CHECKPOINT_H

#include <reshard/checkpoint_live.h>
#include <reshard/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Writes what is loaded into the tensors themselves: into the shards of a distributed tensor, and
 * into all of a local one, which counts as whole on every rank. Some may be filled and others not
 * when it fails. */
RESHARD_API reshard_status reshard_checkpoint_load_tensors(
    const reshard_checkpoint *checkpoint, reshard_group *group, int64_t count,
    const reshard_named_tensor *tensors, const reshard_checkpoint_load_options *options);
/* Saves the shards of distributed tensors, and local ones once: they are the same on all ranks. */
RESHARD_API reshard_status reshard_checkpoint_save_tensors(
    reshard_context *context, reshard_group *group, const char *path, int64_t count,
    const reshard_named_tensor *tensors, const reshard_checkpoint_save_options *options);

#ifdef __cplusplus
}
#endif
#endif
