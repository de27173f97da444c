/* SPDX-License-Identifier: Apache-2.0 */
/*
 * checkpoint_live.h - loads tensors that are split over the ranks of a group from a checkpoint with
 * any split, and saves them to a new one.
 *
 *     reshard_live_tensor tensors[] = {{"lm_head.weight", RESHARD_BF16, layout, my_shards}, ..};
 *     reshard_checkpoint_load(checkpoint, group, count, tensors, NULL);
 *     reshard_checkpoint_save(NULL, group, "step-100", count, tensors, NULL);
 *
 * nn_checkpoint.h has the same two calls for the tensors of tensor.h.
 *
 * All calls are Collective: all ranks pass the same names, dtypes and layouts in the same order,
 * and each passes its own shards. They agree on the status before they return.
 */
#ifndef RESHARD_CHECKPOINT_LIVE_H
#define RESHARD_CHECKPOINT_LIVE_H

#include <reshard/checkpoint.h>
#include <reshard/group.h>
#include <reshard/trace.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== explicit ===================================================================================
 * Load and save what a group of ranks holds, by layouts and pointers. For tensors of libreshard_nn,
 * see nn_checkpoint.h.
 */

/* A tensor as the ranks of a group hold it. */
typedef struct reshard_live_tensor {
    const char *name;
    reshard_dtype dtype;
    reshard_layout *layout; /* its ranks are those of the group */
    void *const *shards;    /* this rank's, by index, dense; an empty shard may be NULL */
} reshard_live_tensor;

typedef struct reshard_checkpoint_load_options {
    size_t size; /* sizeof(reshard_checkpoint_load_options) */
    /* Non-zero: each rank reads an even share of each tensor, and the ranks then exchange what they
     * need, so each byte is read once, no matter how many ranks need it. This takes memory for one
     * tensor's share at a time. Zero: each rank reads what it needs itself. */
    int read_once;
    reshard_trace *trace; /* where this rank records what it does, and when; NULL: nowhere */
    /* On success, the number of values that this rank has read which are finite in the files and no
     * longer so after the cast. With read_once, one rank reads each value, which may be another
     * than the one that needs it: add up the numbers of all ranks. NULL: not wanted. */
    uint64_t *values_overflowed;
} reshard_checkpoint_load_options;

/*
 * Fills this rank's shards. Each rank has opened the checkpoint itself. Stored f16, bf16, f32 and
 * f64 are cast if the tensor has another of these dtypes. Only what this rank's shards need is
 * read, unless read_once is set. Errors, agreed by all ranks: NOT_FOUND (a name that the checkpoint
 * does not have), MISMATCH (a different shape), UNSUPPORTED (a cast that does not exist, a partial
 * layout, a stored tensor that cannot be cut), RANGE (a rank that the group lacks), INVALID (a
 * shard without memory), IO, CORRUPT, NO_MEMORY. On failure, shards may be partly filled.
 */
RESHARD_API reshard_status reshard_checkpoint_load(const reshard_checkpoint *checkpoint,
                                                   reshard_group *group, int64_t count,
                                                   const reshard_live_tensor *tensors,
                                                   const reshard_checkpoint_load_options *options);

typedef struct reshard_checkpoint_save_options {
    size_t size;          /* sizeof(reshard_checkpoint_save_options) */
    int no_sync;          /* non-zero: do not wait for the disk; for measurements */
    reshard_trace *trace; /* where this rank records what it does, and when; NULL: nowhere */
} reshard_checkpoint_save_options;

/*
 * Writes a new checkpoint into a folder that must not exist yet: PyTorch DCP in safetensors, with
 * one file for each rank that has something to store. A box that several ranks hold is stored once,
 * by whichever of them has the least in its file. All or nothing: the folder gets its name only
 * when all files are complete and on disk. Until then it is called path.partial, and a save that
 * fails removes it. All ranks must see the same file system. Errors, agreed by all ranks: INVALID
 * (the path already exists or is missing, two tensors have the same name, one has none, a shard has
 * no memory), MISMATCH (ranks pass different tensors, paths or options, or see different folders),
 * UNSUPPORTED (a partial layout: redistribute first), RANGE (a rank that the group lacks), GAP (a
 * layout that does not hold all of its tensor), IO, NO_MEMORY.
 */
RESHARD_API reshard_status reshard_checkpoint_save(reshard_context *context, reshard_group *group,
                                                   const char *path, int64_t count,
                                                   const reshard_live_tensor *tensors,
                                                   const reshard_checkpoint_save_options *options);

#ifdef __cplusplus
}
#endif
#endif
