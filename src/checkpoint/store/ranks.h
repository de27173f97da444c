/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ranks.h - what work that several ranks share over one set of files needs: all of them must be
 * about to do the same, and hear what the others have.
 */
#ifndef RS_CHECKPOINT_STORE_RANKS_H
#define RS_CHECKPOINT_STORE_RANKS_H

#include <reshard/group.h>

/* `bytes` of each rank, in rank order; to be released by the caller with group size * bytes.
 * Collective. */
reshard_status rs_ranks_gather(reshard_context *context, reshard_group *group, const void *mine,
                               size_t bytes, void **out_all);
/* Errors: MISMATCH when ranks have different digests of what they are about to do; `what` is what
 * the words call it. Collective. */
reshard_status rs_ranks_compare(reshard_context *context, reshard_group *group, const char *what,
                                const uint64_t digest[2]);

#endif
