/* SPDX-License-Identifier: Apache-2.0 */
/*
 * distributed.h - distributed tensors: tensors with a layout and a group, and the moves between
 * layouts as operations with gradients. What PyTorch calls ShardedTensor, _PartialTensor and
 * DTensor.
 *
 * A distributed tensor has one global value. redistribute changes how it lies, and never the value;
 * its gradient is a distributed tensor of the same global shape. Tensors are never changed in
 * place: redistribute gives another one.
 *
 * Ranks are ranks of the group. Layouts may name fewer ranks than the group has; the others take
 * part in all calls and hold nothing. Calls are Collective where it says so: they agree on success,
 * and errors name a rank. Operations return tensors of the innermost scope, as in ops.h; where a
 * rank's scope has failed, collective operations tell the other ranks, whose scopes fail too.
 *
 * A distributed tensor holds its group. Plans and execs of a group are kept for the next time while
 * a distributed tensor of it lives, up to 64 of them.
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

/* Collective. Zeros. Errors: MISMATCH where ranks ask for different things; those of layouts. */
RESHARD_API reshard_status reshard_tensor_create_distributed(
    reshard_context *context, reshard_group *group, reshard_spec *spec, reshard_dtype dtype,
    int32_t ndim, const int64_t *shape, reshard_tensor **out_tensor);
/* Random numbers by the element's global index and the seed: the same for any layout, any number of
 * ranks, and for a local tensor of that shape. Uniform in [0, 1), or normal with mean 0 and
 * deviation 1. Local. Errors: UNSUPPORTED for dtypes other than f16, bf16, f32, f64; INVALID for
 * partial tensors. reshard_tensor_fill takes distributed tensors too. */
RESHARD_API reshard_status reshard_tensor_fill_uniform(reshard_tensor *tensor, uint64_t seed);
RESHARD_API reshard_status reshard_tensor_fill_normal(reshard_tensor *tensor, uint64_t seed);

/* Collective. The tensor of one rank, cut and handed out without padding or detours; other ranks
 * may pass NULL, or a tensor of the same shape and dtype. A new leaf, which requires gradients if
 * the source's tensor does. Errors: MISMATCH where ranks name different sources, specs, shapes or
 * dtypes. */
RESHARD_API reshard_status reshard_tensor_shard(reshard_context *context, reshard_group *group,
                                                reshard_spec *spec, int32_t source_rank,
                                                reshard_tensor *tensor,
                                                reshard_tensor **out_tensor);

/* One of a rank's own shards, and where it lies in the whole. */
typedef struct reshard_local_shard {
    reshard_tensor *tensor;
    int64_t offset[RESHARD_NDIM_MAX];
} reshard_local_shard;

/* Collective. Out of what each rank has, which may be nothing. The spec is inferred exactly. The
 * tensors are shared where they are dense. Errors: MISMATCH (shape or dtype differ between ranks),
 * OVERLAP, GAP, RANGE, INVALID. */
RESHARD_API reshard_status reshard_tensor_from_shards(reshard_context *context,
                                                      reshard_group *group, int32_t ndim,
                                                      const int64_t *shape, int64_t count,
                                                      const reshard_local_shard *shards,
                                                      reshard_tensor **out_tensor);

/* Collective. A local tensor of zeros in memory of the group (reshard_group_alloc), which peers of
 * the same node see: as a shard (reshard_tensor_from_local, from_shards) it is read directly when
 * it is redistributed, and by collectives. dtype and shape may differ from rank to rank. Freeing it
 * is Local; it holds the group until then, as distributed tensors do. Errors, agreed by all ranks:
 * INVALID, RANGE, NO_MEMORY. */
RESHARD_API reshard_status reshard_tensor_create_shared(reshard_context *context,
                                                        reshard_group *group, reshard_dtype dtype,
                                                        int32_t ndim, const int64_t *shape,
                                                        reshard_tensor **out_tensor);

/* ---- between local and distributed ----------------------------------------------------------- */

/*
 * Collective. Each rank's tensor is its shard by this spec of cuts. The global shape is worked out
 * from all ranks' shapes; where a dim is cut by one axis the sizes may be any, and the layout then
 * has them (S(0=3,1,2)). Memory is shared where it is dense. Gradients flow back to the local
 * tensors: of a partial sum as they are, of an average divided, of a maximum or minimum to the
 * first rank that has it, of a product times the others. Ranks that the mesh leaves out pass any
 * tensor of the dtype. Errors: MISMATCH, INVALID where shapes do not fit; UNSUPPORTED for flat cuts
 * and specs that are not cuts.
 */
RESHARD_API reshard_tensor *reshard_tensor_from_local(reshard_tensor *local, reshard_group *group,
                                                      reshard_spec *spec);
/* Local. This rank's shard, sharing memory; empty where the rank has none. gradient_spec: how the
 * gradients of all ranks lie together; NULL: as the tensor does, with partial axes replicated.
 * Errors: UNSUPPORTED for several shards. */
RESHARD_API reshard_tensor *reshard_tensor_to_local(reshard_tensor *tensor,
                                                    reshard_spec *gradient_spec);
/* Collective. The whole tensor on every rank, as a local tensor. */
RESHARD_API reshard_tensor *reshard_tensor_full(reshard_tensor *tensor);
/* Collective. The whole tensor on one rank, bit for bit, as a local tensor that is the caller's;
 * *out_tensor is NULL on the others. No gradients. */
RESHARD_API reshard_status reshard_tensor_gather(reshard_tensor *tensor, int32_t root,
                                                 reshard_tensor **out_tensor);

/* ---- redistribute ---------------------------------------------------------------------------- */

typedef struct reshard_redistribute_options {
    size_t size; /* sizeof(reshard_redistribute_options) */
    /* how the gradient is to lie; NULL: as the tensor does, with partial axes replicated unless the
     * gradient that comes in is the same partial */
    reshard_spec *gradient_spec;
    reshard_dtype dtype;          /* of the result, f16 to f64; NONE: that of the tensor */
    reshard_dtype gradient_dtype; /* the gradient travels as this; NONE: as it comes */
} reshard_redistribute_options;

/* Collective. The same value in any other layout, on any ranks of the group, in one plan. Equal
 * layouts share memory and move nothing. The result is all the memory that it takes, but for
 * staging and the intermediate layout of sums that go to many. options NULL: all zero. */
RESHARD_API reshard_tensor *
reshard_tensor_redistribute(reshard_tensor *tensor, reshard_spec *spec,
                            const reshard_redistribute_options *options);

/* ---- asking ---------------------------------------------------------------------------------- */

/* NULL, and 0, for local tensors. Not retained. */
RESHARD_API reshard_layout *reshard_tensor_layout(const reshard_tensor *tensor);
RESHARD_API reshard_group *reshard_tensor_group(const reshard_tensor *tensor);
RESHARD_API int64_t reshard_tensor_local_shard_count(const reshard_tensor *tensor);
/* A dense local tensor; not retained. NULL when there is no such shard. */
RESHARD_API reshard_tensor *reshard_tensor_local_shard(const reshard_tensor *tensor, int64_t index);

/* How often moves between the layouts of a tensor's group found their plan ready. */
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
 * Collective operations on each rank's local tensor, with gradients: those of the sum of all ranks'
 * losses. Rows are entries of dim 0. Gradients of avg, prod, min and max are right too: min and max
 * give it to the first rank in order that has the value, prod handles zeros. Shapes may differ in
 * rows only where it says so. Errors: MISMATCH, INVALID, RANGE.
 */
RESHARD_API reshard_tensor *reshard_tensor_all_reduce(reshard_tensor *x, reshard_group *group,
                                                      reshard_reduction reduction);
/* On the root; others get an empty tensor. */
RESHARD_API reshard_tensor *reshard_tensor_reduce_to(reshard_tensor *x, reshard_group *group,
                                                     reshard_reduction reduction, int32_t root);
/* This rank's chunk of rows of the reduction: ceil(n/ranks) each, the last ones fewer or none. */
RESHARD_API reshard_tensor *reshard_tensor_reduce_scatter(reshard_tensor *x, reshard_group *group,
                                                          reshard_reduction reduction);
/* All ranks' rows, one below the other; ranks may have different numbers of them. */
RESHARD_API reshard_tensor *reshard_tensor_all_gather(reshard_tensor *x, reshard_group *group);
RESHARD_API reshard_tensor *reshard_tensor_gather_to(reshard_tensor *x, reshard_group *group,
                                                     int32_t root);
/* The root's tensor; the others' are not read, and their gradient is zero. */
RESHARD_API reshard_tensor *reshard_tensor_broadcast_from(reshard_tensor *x, reshard_group *group,
                                                          int32_t root);
/* This rank's chunk of the root's rows; the others' tensors may have any shape. */
RESHARD_API reshard_tensor *reshard_tensor_scatter_from(reshard_tensor *x, reshard_group *group,
                                                        int32_t root);
/* send_rows[r] rows go to rank r, receive_rows[r] come from it, both in the order of ranks. */
RESHARD_API reshard_tensor *reshard_tensor_all_to_all(reshard_tensor *x, reshard_group *group,
                                                      const int64_t *send_rows,
                                                      const int64_t *receive_rows);

#ifdef __cplusplus
}
#endif
#endif
