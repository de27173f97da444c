/* SPDX-License-Identifier: Apache-2.0 */
/*
 * distributed.h - distributed tensors: tensors with a layout and a group, and moves between layouts
 * as operations with gradients. They are what PyTorch calls ShardedTensor, _PartialTensor and
 * DTensor.
 *
 * A distributed tensor has one global value. redistribute changes its layout and never the value;
 * its gradient is a distributed tensor of the same global shape. Tensors are never changed in
 * place: redistribute makes another one.
 *
 * Where a call takes a group, NULL is the current one (reshard_group_set_default). Ranks are ranks
 * of the group. A layout may name fewer ranks than the group has; the others take
 * part in all calls and hold nothing. Calls are Collective where it says so: they agree on success,
 * and errors name a rank. Operations return tensors of the innermost scope, as in ops.h. If the
 * scope of one rank has failed, collective operations tell the other ranks, whose scopes then fail
 * too.
 *
 * A distributed tensor holds its group. While one lives, up to 64 plans and execs of the group are
 * kept for reuse.
 */
#ifndef RESHARD_DISTRIBUTED_H
#define RESHARD_DISTRIBUTED_H

#include <reshard/group.h>
#include <reshard/layout.h>
#include <reshard/tensor.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- making ---------------------------------------------------------------------------------- */

/* Collective. Makes zeros. Errors: MISMATCH if ranks ask for different things, and those of
 * layouts. */
RESHARD_API reshard_status reshard_tensor_create_distributed(
    reshard_context *context, reshard_group *group, reshard_spec *spec, reshard_dtype dtype,
    int32_t ndim, const int64_t *shape, reshard_tensor **out_tensor);
/* Fills in random numbers that depend only on the seed and on the element's global index: they are
 * the same for any layout, any number of ranks, and a local tensor of that shape. Uniform in [0,
 * 1), or normal with mean 0 and deviation 1. Local. Errors: UNSUPPORTED for dtypes other than f16,
 * bf16, f32, f64; INVALID for partial tensors. reshard_tensor_fill takes distributed tensors as
 * well. */
RESHARD_API reshard_status reshard_tensor_fill_uniform(reshard_tensor *tensor, uint64_t seed);
RESHARD_API reshard_status reshard_tensor_fill_normal(reshard_tensor *tensor, uint64_t seed);

/* Local. New tensors with the shape, layout and group of another one, which may be local. dtype
 * NONE: its dtype too. They do not require gradients. Random numbers are those of fill_uniform and
 * fill_normal. Errors: NO_MEMORY, MEMORY_LIMIT, those of reshard_tensor_fill and of the others. */
RESHARD_API reshard_status reshard_tensor_zeros_like(const reshard_tensor *like,
                                                     reshard_dtype dtype,
                                                     reshard_tensor **out_tensor);
RESHARD_API reshard_status reshard_tensor_full_like(const reshard_tensor *like, reshard_dtype dtype,
                                                    double value, reshard_tensor **out_tensor);
RESHARD_API reshard_status reshard_tensor_uniform_like(const reshard_tensor *like,
                                                       reshard_dtype dtype, uint64_t seed,
                                                       reshard_tensor **out_tensor);
RESHARD_API reshard_status reshard_tensor_normal_like(const reshard_tensor *like,
                                                      reshard_dtype dtype, uint64_t seed,
                                                      reshard_tensor **out_tensor);

/* Collective. Cuts one rank's tensor and hands out the parts. Other ranks may pass NULL, or a
 * tensor of the same shape and dtype. Makes a new leaf, which requires gradients if the source's
 * tensor does. Errors: MISMATCH if ranks name different sources, specs, shapes or dtypes. */
RESHARD_API reshard_status reshard_tensor_shard(reshard_context *context, reshard_group *group,
                                                reshard_spec *spec, int32_t source_rank,
                                                reshard_tensor *tensor,
                                                reshard_tensor **out_tensor);

/* One of a rank's own shards, and its place in the whole. */
typedef struct reshard_local_shard {
    reshard_tensor *tensor;
    int64_t offset[RESHARD_NDIM_MAX];
} reshard_local_shard;

/* Collective. Makes a tensor out of what each rank has, which may be nothing. The spec is inferred
 * exactly. Tensors that are dense are shared, not copied. Errors: MISMATCH (shapes or dtypes differ
 * between ranks), OVERLAP, GAP, RANGE, INVALID. */
RESHARD_API reshard_status reshard_tensor_from_shards(reshard_context *context,
                                                      reshard_group *group, int32_t ndim,
                                                      const int64_t *shape, int64_t count,
                                                      const reshard_local_shard *shards,
                                                      reshard_tensor **out_tensor);

/* Collective. Makes a local tensor of zeros in memory of the group (reshard_group_alloc) that peers
 * on the same node can see. Used as a shard (reshard_tensor_from_local, from_shards), it is read
 * directly when it is redistributed, and by collectives. dtype and shape may differ between ranks.
 * Freeing it is Local; until then it holds the group, as distributed tensors do. Errors, agreed by
 * all ranks: INVALID, RANGE, NO_MEMORY. */
RESHARD_API reshard_status reshard_tensor_create_shared(reshard_context *context,
                                                        reshard_group *group, reshard_dtype dtype,
                                                        int32_t ndim, const int64_t *shape,
                                                        reshard_tensor **out_tensor);

/* ---- between local and distributed ----------------------------------------------------------- */

/*
 * Collective. Makes each rank's tensor its shard under this spec of cuts. The global shape is
 * worked out from the shapes of all ranks; a dim that one axis cuts may have any sizes, which the
 * layout then has (S(0=3,1,2)). Dense memory is shared. Gradients flow back to the local tensors:
 * those of a partial sum unchanged, of an average divided, of a maximum or minimum to the first
 * rank that has the value, of a product multiplied by the other factors. Ranks outside of the mesh
 * pass any tensor of the dtype. Errors: MISMATCH and INVALID if shapes do not fit; UNSUPPORTED for
 * flat cuts and specs other than cuts.
 */
RESHARD_API reshard_tensor *reshard_tensor_from_local(reshard_tensor *local, reshard_group *group,
                                                      reshard_spec *spec);
/* Local. This rank's shard, sharing memory; empty if the rank has none. gradient_spec: how the
 * gradients of all ranks make up a tensor; NULL: as the tensor does, with partial axes replicated.
 * Errors: UNSUPPORTED for several shards. */
RESHARD_API reshard_tensor *reshard_tensor_to_local(reshard_tensor *tensor,
                                                    reshard_spec *gradient_spec);
/* Collective. The whole tensor on every rank, as a local tensor. */
RESHARD_API reshard_tensor *reshard_tensor_full(reshard_tensor *tensor);
/* Collective. Gathers the whole tensor on one rank, bit for bit, as a local tensor that the caller
 * releases; *out_tensor is NULL on the others. No gradients. */
RESHARD_API reshard_status reshard_tensor_gather(reshard_tensor *tensor, int32_t root,
                                                 reshard_tensor **out_tensor);

/* ---- redistribute ---------------------------------------------------------------------------- */

typedef struct reshard_redistribute_options {
    size_t size; /* sizeof(reshard_redistribute_options) */
    /* the layout of the gradient; NULL: that of the tensor, with partial axes replicated unless the
     * incoming gradient is partial in the same way */
    reshard_spec *gradient_spec;
    reshard_dtype dtype;          /* of the result, f16 to f64; NONE: that of the tensor */
    reshard_dtype gradient_dtype; /* the gradient travels as this; NONE: as it comes */
} reshard_redistribute_options;

/* Collective. Gives the same value in any other layout, on any ranks of the group, by one plan.
 * Equal layouts share memory and move nothing. It takes memory for the result, for staging, and for
 * the intermediate layout of sums that go to many ranks. options NULL: all zero. */
RESHARD_API reshard_tensor *
reshard_tensor_redistribute(reshard_tensor *tensor, reshard_spec *spec,
                            const reshard_redistribute_options *options);

/* Collective. Writes the value into the memory of a tensor with another layout (or the same), over
 * the same group and of the same shape: nothing is allocated for the result. Casts if the dtypes
 * are other ones of f16 to f64. No gradients; what was saved of the target for a backward pass
 * counts as overwritten. Errors, agreed by all ranks: INVALID (shape, group, memory that both
 * share, a target that an operation computed), UNSUPPORTED (dtypes). */
RESHARD_API reshard_status reshard_tensor_redistribute_into(reshard_tensor *tensor,
                                                            reshard_tensor *target);

/* ---- asking ---------------------------------------------------------------------------------- */

/* NULL and 0 for local tensors. Not retained. */
RESHARD_API reshard_layout *reshard_tensor_layout(const reshard_tensor *tensor);
RESHARD_API reshard_group *reshard_tensor_group(const reshard_tensor *tensor);
RESHARD_API int64_t reshard_tensor_local_shard_count(const reshard_tensor *tensor);
/* A dense local tensor, not retained; NULL if there is no such shard. */
RESHARD_API reshard_tensor *reshard_tensor_local_shard(const reshard_tensor *tensor, int64_t index);

/* How often moves between layouts of a tensor's group found their plan ready. */
typedef struct reshard_plan_cache_counts {
    size_t size; /* sizeof(reshard_plan_cache_counts), set by the caller */
    int64_t hits, misses;
    int64_t held; /* plans that are kept now */
} reshard_plan_cache_counts;
/* All zero for a local tensor. Errors: INVALID for a size that is not set. */
RESHARD_API reshard_status reshard_tensor_plan_cache(const reshard_tensor *tensor,
                                                     reshard_plan_cache_counts *out_counts);

/* ---- collectives on local tensors ------------------------------------------------------------ */

/*
 * Collective operations on each rank's local tensor, with the gradients of the sum of all ranks'
 * losses. Rows are the entries of dim 0. For min and max the gradient goes to the first rank that
 * has the value; for prod, zeros are handled. Shapes may differ in rows only, and only where it
 * says so. Errors: MISMATCH, INVALID, RANGE.
 */
RESHARD_API reshard_tensor *reshard_tensor_all_reduce(reshard_tensor *x, reshard_group *group,
                                                      reshard_reduction reduction);
/* On the root; others get an empty tensor. */
RESHARD_API reshard_tensor *reshard_tensor_reduce_to(reshard_tensor *x, reshard_group *group,
                                                     reshard_reduction reduction, int32_t root);
/* This rank's chunk of rows of the reduction: ceil(n/ranks) each, the last ones fewer or none. */
RESHARD_API reshard_tensor *reshard_tensor_reduce_scatter(reshard_tensor *x, reshard_group *group,
                                                          reshard_reduction reduction);
/* The rows of all ranks, one below the other; ranks may have different numbers of them. */
RESHARD_API reshard_tensor *reshard_tensor_all_gather(reshard_tensor *x, reshard_group *group);
RESHARD_API reshard_tensor *reshard_tensor_gather_to(reshard_tensor *x, reshard_group *group,
                                                     int32_t root);
/* The root's tensor; the others' are not read, and their gradient is zero. */
RESHARD_API reshard_tensor *reshard_tensor_broadcast_from(reshard_tensor *x, reshard_group *group,
                                                          int32_t root);
/* This rank's chunk of the root's rows; the others' tensors may have any shape. */
RESHARD_API reshard_tensor *reshard_tensor_scatter_from(reshard_tensor *x, reshard_group *group,
                                                        int32_t root);
/* send_rows[r] rows go to rank r and receive_rows[r] come from it, both in the order of ranks. */
RESHARD_API reshard_tensor *reshard_tensor_all_to_all(reshard_tensor *x, reshard_group *group,
                                                      const int64_t *send_rows,
                                                      const int64_t *receive_rows);

#ifdef __cplusplus
}
#endif
#endif
