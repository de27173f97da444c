/* SPDX-License-Identifier: Apache-2.0 */
/*
 * distribution.h - the distributed part of a tensor: a layout, a group (held through its cache of
 * execs) and this rank's shards, which are dense local tensors. A rank that is not in the layout
 * has no shards.
 */
#ifndef RS_TENSOR_CORE_DISTRIBUTION_H
#define RS_TENSOR_CORE_DISTRIBUTION_H

#include "base/references.h"
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
    struct reshard_redistribution *flight; /* fills the shards (flight.h); NULL: they are filled */
};

rs_distribution *rs_distribution_retain(rs_distribution *distribution);
void rs_distribution_release(rs_distribution *distribution);
/* Lands the flight first, if it is under way (flight.h). */
void rs_flight_destroy(struct reshard_redistribution *flight);
/* Makes a distribution that has a layout and a group, but no shards. */
reshard_status rs_distribution_bare(reshard_context *context, rs_exec_cache *cache,
                                    reshard_layout *layout, rs_distribution **out_distribution);

/* Makes a distributed tensor out of this rank's shards. Dense shards share their memory with it,
 * others are copied. Gradients do not flow back to the shards. Local. */
reshard_status rs_distributed_wrap(reshard_context *context, rs_exec_cache *cache,
                                   reshard_layout *layout, reshard_dtype dtype,
                                   reshard_tensor *const *shards, reshard_tensor **out_tensor);
/* Makes a distributed tensor with new shards, whose contents are undefined. Local. */
reshard_status rs_distributed_make(reshard_context *context, rs_exec_cache *cache,
                                   reshard_layout *layout, reshard_dtype dtype,
                                   reshard_tensor **out_tensor);

reshard_group *rs_distributed_group(const reshard_tensor *tensor);
/* YES if all ranks of the layout hold the same shard. While the thread has a group of replicas,
 * only the ranks of that group have to. Otherwise NO. */
rs_sameness rs_layout_sameness(const reshard_layout *layout, const reshard_group *group);
/* What this rank's shards have in common with those of others. */
rs_kin rs_layout_kin(const reshard_layout *layout, const reshard_group *group);
/* A number that all ranks have for this group, and that no other group of its transport has. */
int64_t rs_group_number(const reshard_group *group);
bool rs_distributed_same(const reshard_tensor *a, const reshard_tensor *b);

/* Values cannot be written to a partial tensor, because no rank has whole ones. Errors: INVALID. */
reshard_status rs_distribution_check_fill(const reshard_tensor *tensor);

#endif
