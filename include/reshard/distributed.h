/* SPDX-License-Identifier: Apache-2.0 */
/*
 * distributed.h - distributed tensors: tensors with a layout and a group, and moves between layouts
 * as operations with gradients. They are what PyTorch calls ShardedTensor, _PartialTensor and
 * DTensor.
 *
 * A distributed tensor has one global value. redistribute makes a new tensor with another layout
 * and the same value; tensors are never changed in place. Its gradient is a distributed tensor of
 * the same global shape.
 *
 * Wherever a call takes a group, NULL means the current one (group.h). Ranks are
 * ranks of the group. A layout may name fewer ranks than the group has; the others take part in all
 * calls and hold nothing. Ranks agree on the success of Collective calls, and errors name a rank.
 * Operations return tensors of the innermost scope, as in ops.h. If the scope of one rank has
 * failed, collective operations tell the other ranks, whose scopes then fail too.
 *
 * A distributed tensor retains its group. While one exists, up to 64 plans and execs of the group
 * are kept for reuse.
 */
#ifndef RESHARD_DISTRIBUTED_H
#define RESHARD_DISTRIBUTED_H

#include <reshard/collective.h>
#include <reshard/group.h>
#include <reshard/layout.h>
#include <reshard/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== simple =====================================================================================
 * Cut a tensor, move it to another layout, get it back.
 */

/* ---- creating -------------------------------------------------------------------------------- */

/* Collective. Makes a tensor of zeros. Errors: MISMATCH if ranks ask for different things, and
 * those of layouts. */
RESHARD_API reshard_status reshard_tensor_create_distributed(
    reshard_context *context, reshard_group *group, reshard_spec *spec, reshard_dtype dtype,
    int32_t ndim, const int64_t *shape, reshard_tensor **out_tensor);
/* Fills a tensor with random numbers that depend only on the seed and on the element's global
 * index: they are the same for any layout and number of ranks, and for a local tensor of that
 * shape. Local. Errors: UNSUPPORTED for
 * dtypes other than f16, bf16, f32, f64; INVALID for partial tensors. reshard_tensor_fill takes
 * distributed tensors as well. */
typedef enum reshard_random {
    RESHARD_UNIFORM, /* in [0, 1) */
    RESHARD_NORMAL   /* mean 0, standard deviation 1 */
} reshard_random;
RESHARD_API reshard_status reshard_tensor_fill_random(reshard_tensor *tensor, reshard_random random,
                                                      uint64_t seed);

/* Local. Makes a new tensor of zeros, to be filled, with the shape, layout and group of `like`,
 * which may be local. dtype NONE: the dtype of `like`. The new tensor does not require gradients.
 * Errors: NO_MEMORY, MEMORY_LIMIT. */
RESHARD_API reshard_status reshard_tensor_zeros_like(const reshard_tensor *like,
                                                     reshard_dtype dtype,
                                                     reshard_tensor **out_tensor);

/* Collective. Cuts the tensor of source_rank and hands out the parts. Other ranks may pass NULL, or
 * a tensor of the same shape and dtype. The result is a new leaf, which requires gradients if the
 * source's tensor does. Errors: MISMATCH if ranks name different sources, specs, shapes or
 * dtypes. */
RESHARD_API reshard_status reshard_tensor_shard(reshard_context *context, reshard_group *group,
                                                reshard_spec *spec, int32_t source_rank,
                                                reshard_tensor *tensor,
                                                reshard_tensor **out_tensor);

/* ---- between local and distributed ----------------------------------------------------------- */

/*
 * Collective. Makes a distributed tensor in which each rank's local tensor is its shard, by a spec
 * made of cuts. The global shape is computed from the shapes of all ranks; a dim that a single axis
 * cuts may have any sizes, and the layout then lists them (S(0=3,1,2)). Dense memory is shared.
 * Gradients flow back to the local tensors: unchanged for a partial sum, divided for an average, to
 * the first rank that has the value for a maximum or minimum, multiplied by the other factors for a
 * product. Ranks outside of the mesh pass any tensor of the same dtype. Errors: MISMATCH and
 * INVALID if shapes do not fit; UNSUPPORTED for flat cuts and for specs other than cuts.
 */
RESHARD_API reshard_tensor *reshard_tensor_from_local(reshard_tensor *local, reshard_group *group,
                                                      reshard_spec *spec);
/* Local. This rank's shard, sharing its memory; an empty tensor if the rank has none.
 * gradient_spec: the layout in which the ranks' gradients together form the tensor's gradient;
 * NULL: the tensor's layout, with partial axes replicated. Errors: UNSUPPORTED if the rank has
 * several shards. */
RESHARD_API reshard_tensor *reshard_tensor_to_local(reshard_tensor *tensor,
                                                    reshard_spec *gradient_spec);
/* Collective. The whole tensor on every rank, as a local tensor. */
RESHARD_API reshard_tensor *reshard_tensor_full(reshard_tensor *tensor);
/* Collective. Gathers the whole tensor on the root, bit for bit, as a local tensor that the caller
 * releases; *out_tensor is NULL on other ranks. No gradients. */
RESHARD_API reshard_status reshard_tensor_gather(reshard_tensor *tensor, int32_t root,
                                                 reshard_tensor **out_tensor);

/* ---- redistribute ---------------------------------------------------------------------------- */

typedef struct reshard_redistribute_options {
    size_t size; /* sizeof(reshard_redistribute_options) */
    /* the layout of the gradient; NULL: the tensor's layout, with partial axes replicated unless
     * the incoming gradient is partial in the same way */
    reshard_spec *gradient_spec;
    reshard_dtype dtype;          /* of the result: f16, bf16, f32 or f64; NONE: the tensor's */
    reshard_dtype gradient_dtype; /* the dtype in which the gradient travels; NONE: its own */
} reshard_redistribute_options;

/* Collective. Returns the same value in any other layout, on any ranks of the group, by one plan.
 * If the layouts are equal, memory is shared and nothing moves. Otherwise this takes memory for the
 * result, for staging, and for the intermediate layout of sums that go to many ranks. options NULL:
 * all zero. */
RESHARD_API reshard_tensor *
reshard_tensor_redistribute(reshard_tensor *tensor, reshard_spec *spec,
                            const reshard_redistribute_options *options);

/* ---- queries --------------------------------------------------------------------------------- */

/* One of this rank's shards, as a dense local tensor that is not retained; NULL if there is no such
 * shard. */
RESHARD_API reshard_tensor *reshard_tensor_local_shard(const reshard_tensor *tensor, int64_t index);

/* ==== explicit ===================================================================================
 * Tensors from parts that exist already, moves under way, collectives on local tensors.
 */

/* ---- from what ranks already have ------------------------------------------------------------ */

/* One of this rank's shards, and where it lies in the whole tensor. */
typedef struct reshard_local_shard {
    reshard_tensor *tensor;
    int64_t offset[RESHARD_NDIM_MAX];
} reshard_local_shard;

/* Collective. Makes a tensor from the shards that the ranks have; a rank may have none. The spec is
 * inferred exactly (reshard_spec_infer). The memory of dense tensors is shared, not copied. Errors:
 * MISMATCH (shapes or dtypes differ between ranks), OVERLAP, GAP, RANGE, INVALID. */
RESHARD_API reshard_status reshard_tensor_from_shards(reshard_context *context,
                                                      reshard_group *group, int32_t ndim,
                                                      const int64_t *shape, int64_t count,
                                                      const reshard_local_shard *shards,
                                                      reshard_tensor **out_tensor);

/* Collective. Makes a local tensor of zeros in memory of the group (reshard_group_alloc) that peers
 * on the same node can see. If it is used as a shard (reshard_tensor_from_local, from_shards),
 * redistribute and collectives read it directly. dtype and shape may differ between ranks. Freeing
 * it is Local; until then it retains the group, as distributed tensors do. Errors, agreed by all
 * ranks: INVALID, RANGE, NO_MEMORY. */
RESHARD_API reshard_status reshard_tensor_create_shared(reshard_context *context,
                                                        reshard_group *group, reshard_dtype dtype,
                                                        int32_t ndim, const int64_t *shape,
                                                        reshard_tensor **out_tensor);

/* ---- redistribute in steps ------------------------------------------------------------------- */

/*
 * A redistribute that has been started. It belongs to the scope that was innermost then, and ends
 * with it at the latest: a scope that closes waits for what nobody has waited for. Any number may
 * be under way. The ranks must start them in the same order, and may wait in any order.
 */
typedef struct reshard_redistribution reshard_redistribution;

/* Collective. Starts what reshard_tensor_redistribute does, and returns when all ranks have started
 * it. Bytes move while a rank is inside calls on the group, and while it waits. The tensor must not
 * be written until the wait. Returns NULL on failure, with the error in the scope. */
RESHARD_API reshard_redistribution *
reshard_tensor_redistribute_start(reshard_tensor *tensor, reshard_spec *spec,
                                  const reshard_redistribute_options *options);
/*
 * Local: the other ranks must have started, but need not wait. Gives the result, once. Its gradient
 * is brought back in the same way: the backward pass starts that where the forward pass waited, and
 * waits for it where that started, so what was computed in between overlaps with it too. NULL
 * returns NULL. Errors: INVALID (a second wait; the tensor was written meanwhile), those of the
 * group.
 */
RESHARD_API reshard_tensor *reshard_tensor_redistribute_wait(reshard_redistribution *started);

/* ---- collectives on local tensors ------------------------------------------------------------ */

/*
 * Collectives on each rank's local tensor, with gradients of the sum of all ranks' losses. Kind,
 * reduction and root are those of reshard_exchange_run (collective.h), and what is sent are rows,
 * the entries of dim 0; other fields are ignored. For min and max, the gradient goes to the first
 * rank that has the value; for prod, zeros are handled. Shapes may differ between ranks only in the
 * number of rows, and only where stated below.
 *   ALL_REDUCE, REDUCE   on ranks other than the root, REDUCE gives an empty tensor
 *   REDUCE_SCATTER       this rank's chunk of rows: ceil(n/ranks) each, the last ones fewer or none
 *   ALL_GATHER, GATHER   the rows of all ranks, in rank order; ranks may have different numbers
 *   BROADCAST            the tensors of other ranks are not read, and their gradient is zero
 *   SCATTER              chunks of the root's rows; the tensors of other ranks may have any shape
 *   ALL_TO_ALL_SINGLE    send_counts[r] rows go to rank r and receive_counts[r] come from it, both
 *                        in rank order
 * Errors: MISMATCH, INVALID, RANGE.
 */
RESHARD_API reshard_tensor *reshard_tensor_exchange(reshard_tensor *x, reshard_group *group,
                                                    const reshard_exchange *exchange);

#ifdef __cplusplus
}
#endif
#endif
