/* SPDX-License-Identifier: Apache-2.0 */
/*
 * nn_checkpoint.h - saves the state dict of a module or an optimizer to a checkpoint, and loads it
 * from one with any split.
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

/* ==== simple =====================================================================================
 * A state dict to disk and back, in any split.
 */

/* Loads into the tensors themselves: into the shards of distributed tensors, and into local ones,
 * each of which is whole on every rank. On failure, some tensors may be filled and others not. */
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
