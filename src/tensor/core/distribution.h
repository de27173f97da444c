/* SPDX-License-Identifier: Apache-2.0 */
/*
 * distribution.h - what makes a tensor distributed: a layout, a group (held by its cache of execs)
 * and this rank's shards, which are dense local tensors. A rank that the layout leaves out has no
 * shards.
 */
#ifndef RS_TENSOR_CORE_DISTRIBUTION_H
#define RS_TENSOR_CORE_DISTRIBUTION_H

#include "exec/cache.h"
#include "layout/derive.h"
#include "tensor/core/tensor.h"

struct rs_distribution {
    rs_references references;
    reshard_context *context;
    rs_exec_cache *cache;
    reshard_layout *layout;
    int64_t shard_count;
    reshard_tensor **shards;
};

rs_distribution *rs_distribution_retain(rs_distribution *distribution);
void rs_distribution_release(rs_distribution *distribution);
/* Makes a distribution without shards: layout and group alone. */
reshard_status rs_distribution_outline(reshard_context *context, rs_exec_cache *cache,
                                       reshard_layout *layout, rs_distribution **out_distribution);

/* Makes a tensor over the memory of these shards, or over copies of those that are not dense.
 * Gradients do not flow back to the shards. Local. */
reshard_status rs_distributed_wrap(reshard_context *context, rs_exec_cache *cache,
                                   reshard_layout *layout, reshard_dtype dtype,
                                   reshard_tensor *const *shards, reshard_tensor **out_tensor);
/* Makes a tensor with new shards of undefined contents. Local. */
reshard_status rs_distributed_make(reshard_context *context, rs_exec_cache *cache,
                                   reshard_layout *layout, reshard_dtype dtype,
                                   reshard_tensor **out_tensor);

reshard_group *rs_distributed_group(const reshard_tensor *tensor);
/* YES when all ranks of the layout hold the same shard, or, while the thread has a group of
 * replicas, all ranks of that group do; else NO. */
rs_sameness rs_layout_sameness(const reshard_layout *layout, const reshard_group *group);
bool rs_distributed_same(const reshard_tensor *a, const reshard_tensor *b);

/* Fills all shards; the tensor must not be partial. Local. */
reshard_status rs_distributed_fill(reshard_tensor *tensor, double value);

#endif
