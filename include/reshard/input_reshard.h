/* SPDX-License-Identifier: Apache-2.0 */
/*
 * input_reshard.h - saving memory on activations that are the same on every rank. While a module's
 * forward runs, tensors that autograd saves and that are replicated over a mesh are kept as this
 * rank's chunk, and gathered again when backward reads them. PyTorch's input_reshard.
 *
 * A packed object records what was packed and how. So lengths that the ranks do not divide, tensors
 * smaller than the number of ranks, empty chunks, dims that a tensor does not have, and meshes with
 * several axes all work. Its mesh need not be that of the module's sharding; shard.h says in which
 * order the two are added.
 */
#ifndef RESHARD_INPUT_RESHARD_H
#define RESHARD_INPUT_RESHARD_H

#include <reshard/device_mesh.h>
#include <reshard/nn.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- a module -------------------------------------------------------------------------------- */

typedef struct reshard_input_reshard_options {
    size_t size; /* sizeof(reshard_input_reshard_options) */
    /* Ranks compare a digest of every tensor before packing it; a difference is an error (MISMATCH
     * naming a rank) instead of wrong gradients. Saving is then Collective. */
    int verify;
    /* Chooses among tensors that could be packed: non-zero says yes. It must give the same answers
     * on all ranks. NULL: all of them. */
    int (*select)(void *user, const reshard_tensor *tensor);
    void *user;
    /* Paths of local parameters of the module that differ between ranks: neither they nor what is
     * computed from them is replicated. */
    int32_t varying_count;
    const char *const *varying;
} reshard_input_reshard_options;

/*
 * Local. Cuts along `dim`, which may be negative; a tensor that does not have that dim is cut along
 * its row-major order. Over all ranks of the mesh: a mesh of two axes cuts into as many chunks as
 * it has ranks. On a rank that is not in the mesh nothing is done.
 *
 * Packed is what is known to be the same on all ranks of the mesh:
 *  - a distributed tensor by its layout;
 *  - a local tensor because the module says so: its inputs are the same, and so is what is computed
 *    from them, unless something that differs goes in: a shard of a distributed tensor, a parameter
 *    named by `varying`.
 * Never packed are parameters and buffers of the module, which stay in memory anyhow, and tensors
 * of fewer elements than there are ranks.
 *
 * A tensor that several operations save is packed once. Backward is Collective over the mesh. The
 * hook is active exactly while the module's forward runs, also when that fails or calls the module
 * again; of nested modules the innermost one's counts.
 *
 * Errors: INVALID when the module has an input_reshard already, NOT_FOUND for a path of `varying`.
 */
RESHARD_API reshard_status
reshard_module_input_reshard(reshard_module *module, reshard_device_mesh *mesh, int32_t dim,
                             const reshard_input_reshard_options *options, reshard_hook **out_hook);

/* What autograd saved while the module's forward ran. */
typedef struct reshard_saved_counts {
    size_t size;          /* sizeof(reshard_saved_counts), set by the caller */
    int64_t saved;        /* slots */
    int64_t packed;       /* tensors of which only a chunk was kept */
    int64_t shared;       /* slots that share an earlier chunk */
    uint64_t whole_bytes; /* of packed tensors, as they were */
    uint64_t chunk_bytes; /* of their chunks */
    uint64_t other_bytes; /* of tensors kept as they were */
    uint64_t held_bytes;  /* of chunks that are in memory now */
} reshard_saved_counts;

/* Since the hook was added, or since the last reset. Errors: INVALID for another kind of hook, or a
 * size that is not set. */
RESHARD_API reshard_status reshard_input_reshard_counts(const reshard_hook *hook,
                                                        reshard_saved_counts *out_counts);
RESHARD_API reshard_status reshard_input_reshard_reset(reshard_hook *hook);

/* ---- one tensor ------------------------------------------------------------------------------ */

typedef struct reshard_packed reshard_packed;

/* Keeps this rank's chunk of a tensor that is the same on all ranks of the mesh. A tensor with
 * fewer elements than ranks, and a distributed one that is not replicated over the mesh, is kept as
 * it is. Local; Collective over the mesh if verify is non-zero. */
RESHARD_API reshard_status reshard_pack_replicated(reshard_tensor *tensor,
                                                   reshard_device_mesh *mesh, int32_t dim,
                                                   int verify, reshard_packed **out_packed);
/* Gives the whole tensor again, any number of times; the caller releases it. Collective over the
 * mesh. Errors: INVALID if the tensor was kept as it is and has been written to since. */
RESHARD_API reshard_status reshard_unpack_replicated(reshard_packed *packed,
                                                     reshard_tensor **out_tensor);
/* The bytes it holds. */
RESHARD_API size_t reshard_packed_bytes(const reshard_packed *packed);
RESHARD_API void reshard_packed_destroy(reshard_packed *packed);

#ifdef __cplusplus
}
#endif
#endif
