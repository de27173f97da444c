/* SPDX-License-Identifier: Apache-2.0 */
/* collective.h - one exchange from one layout to another, made and carried out in one call. */
#ifndef RS_EXEC_COLLECTIVE_H
#define RS_EXEC_COLLECTIVE_H

#include <reshard/exec.h>

/* What is done, by whom. `name` begins error texts. */
typedef struct rs_collective {
    const char *name;
    reshard_context *context;
    reshard_group *group;
    reshard_dtype dtype;
} rs_collective;

/* counts[i] elements of one dimension on rank i; `count` on each where counts is NULL. Equal lists
 * give equal layouts, however they are told. Errors: RANGE. */
reshard_status rs_collective_split(const rs_collective *collective, int64_t count,
                                   const int64_t *counts, reshard_layout **out_layout);

/* Collective. `status` is that of what this rank did before: when it is not RESHARD_OK layouts may
 * be NULL, and all ranks fail. sources and targets: this rank's buffers by shard. */
reshard_status rs_collective_run(const rs_collective *collective, reshard_status status,
                                 reshard_layout *source_layout, reshard_layout *target_layout,
                                 const void *const *sources, void *const *targets);

#endif
