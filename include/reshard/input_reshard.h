/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input_reshard.h - saves memory on activations that are the same on every rank. While a module's
 * forward runs, each rank keeps only its chunk of tensors that autograd saves and that are
 * replicated over a mesh; backward gathers them again. This is PyTorch's input_reshard.
 *
 * A packed object records what was packed and how. Therefore uneven and empty chunks, tensors with
 * fewer elements than ranks, dims that a tensor does not have, and meshes with several axes all
 * work. The mesh need not be that of the module's sharding; shard.h says in which order the two are
 * added.
 */
#ifndef RESHARD_INPUT_RESHARD_H
#define RESHARD_INPUT_RESHARD_H

#include <reshard/device_mesh.h>
#include <reshard/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * One call beside a module.
 */

/* ---- a module -------------------------------------------------------------------------------- */

typedef struct reshard_input_reshard_options {
    size_t size; /* sizeof(reshard_input_reshard_options) */
    /* Non-zero: ranks compare a digest of every tensor before packing it, so that a difference is
     * an error (MISMATCH, naming a rank) instead of a wrong gradient. Saving is then Collective. */
    int verify;
    /* Returns non-zero for tensors that are to be packed, among those that can be. It must return
     * the same on all ranks. NULL: all of them. */
    int (*select)(void *user, const reshard_tensor *tensor);
    void *user;
    /* Paths of local parameters of the module that differ between ranks, so that neither they nor
     * tensors computed from them count as replicated. */
    int32_t varying_count;
    const char *const *varying;
} reshard_input_reshard_options;

/*
 * Local. Saved tensors are cut along `dim`, which may be negative; a tensor that does not have that
 * dim is cut along its row-major order. There are as many chunks as the mesh has ranks, also if it
 * has several axes. On a rank that is not in the mesh, nothing is done.
 *
 * A tensor is packed if it is known to be the same on all ranks of the mesh:
 *  - a distributed tensor, by its layout;
 *  - a local tensor, because the module's inputs count as the same on all ranks, and so does
 *    everything computed from them, unless something else enters that differs: a shard of a
 *    distributed tensor, or a parameter named in `varying`.
 * Parameters and buffers of the module, which stay in memory anyway, and tensors with fewer
 * elements than there are ranks are never packed.
 *
 * A tensor that several operations save is packed once. Backward is Collective over the mesh. The
 * hook is active exactly while the module's forward runs, even if that fails or calls the module
 * again. If modules with hooks are nested, the innermost hook counts.
 *
 * Errors: INVALID if the module already has an input_reshard, NOT_FOUND for a path in `varying`.
 */
RESHARD_API reshard_status
reshard_module_input_reshard(reshard_module *module, reshard_device_mesh *mesh, int32_t dim,
                             const reshard_input_reshard_options *options, reshard_hook **out_hook);

/* ==== explicit ===================================================================================
 * How much it saves.
 */

/* What autograd saved while the module's forward ran. */
typedef struct reshard_saved_counts {
    size_t size;          /* sizeof(reshard_saved_counts), set by the caller */
    int64_t saved;        /* tensors saved, counting repeats */
    int64_t packed;       /* tensors of which only a chunk was kept */
    int64_t shared;       /* tensors saved that share an earlier chunk */
    uint64_t whole_bytes; /* of packed tensors before packing */
    uint64_t chunk_bytes; /* of their chunks */
    uint64_t other_bytes; /* of tensors that were not packed */
    uint64_t held_bytes;  /* of chunks that are in memory now */
} reshard_saved_counts;

/* For programs that report what they save. Counts since the hook was added. Errors: INVALID for
 * another kind of hook, or if size was not set. */
RESHARD_API reshard_status reshard_input_reshard_counts(const reshard_hook *hook,
                                                        reshard_saved_counts *out_counts);

/* ==== advanced ===================================================================================
 * The two steps by hand, for hooks of your own (reshard_saved_tensor_hooks_push).
 */

/* ---- one tensor ------------------------------------------------------------------------------ */

typedef struct reshard_packed reshard_packed;

/* Keeps this rank's chunk of a tensor that is the same on all ranks of the mesh. A tensor with
 * fewer elements than ranks, or a distributed one that is not replicated over the mesh, is kept
 * whole. Local; Collective over the mesh if verify is non-zero. */
RESHARD_API reshard_status reshard_pack_replicated(reshard_tensor *tensor,
                                                   reshard_device_mesh *mesh, int32_t dim,
                                                   int verify, reshard_packed **out_packed);
/* Returns the whole tensor, which the caller releases; may be called any number of times.
 * Collective over the mesh. Errors: INVALID if the tensor was kept whole and has been written to
 * since. */
RESHARD_API reshard_status reshard_unpack_replicated(reshard_packed *packed,
                                                     reshard_tensor **out_tensor);
RESHARD_API void reshard_packed_destroy(reshard_packed *packed);

#ifdef __cplusplus
}
#endif
#endif
