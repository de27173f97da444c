/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective.h - one exchange from one layout to another, agreed on and started in one call.
 *
 * Ranks compare what they ask for before they make an exec, in one agreement. So a rank that found
 * something wrong, or wants something else, is known to all before anybody waits for data.
 */
#ifndef RS_COLLECTIVE_COLLECTIVE_H
#define RS_COLLECTIVE_COLLECTIVE_H

#include <reshard/collective.h>
#include <reshard/exec.h>

#include <stdbool.h>

/* What is asked for: a digest of all of it, and as much as fits into words. */
typedef struct rs_asked {
    uint64_t digest[2];
    char words[120];
} rs_asked;

/* What is done, by whom. `name` begins error texts. */
typedef struct rs_collective {
    const char *name;
    reshard_context *context;
    reshard_group *group;
    reshard_dtype dtype; /* of the plan: u8 for dtypes of less than a byte */
    rs_asked asked;
    /* The source may lie exactly in place: this many elements after the target's start. */
    bool may_be_in_place;
    int64_t in_place_elements;
    /* Reduces: a target in place must not be written while its source is still to be read. */
    bool reduces;
} rs_collective;

/* Describes the request in `asked`, with -1 for what the call does not have, and begins its digest.
 * The caller adds the rest and finishes it. */
struct rs_digest;
void rs_collective_ask(rs_collective *collective, int32_t dtype, int32_t root, int32_t reduction,
                       int64_t count, struct rs_digest *out_digest);

/* A line with counts[i] elements on rank i, or `count` on each if counts is NULL. Equal counts give
 * equal layouts either way. Errors: RANGE. */
reshard_status rs_collective_split(const rs_collective *collective, int64_t count,
                                   const int64_t *counts, reshard_layout **out_layout);

/* The count in bytes if the dtype has less than a byte, unchanged otherwise. Errors: UNSUPPORTED
 * when these are not whole bytes, RANGE. */
reshard_status rs_collective_whole_bytes(const rs_collective *collective, reshard_dtype dtype,
                                         int64_t count, int64_t *out_count);

/* Collective. `status` is that of what this rank did before: when it is not RESHARD_OK layouts may
 * be NULL, and all ranks fail. sources and targets: this rank's buffers by shard. */
reshard_status rs_collective_start(const rs_collective *collective, reshard_status status,
                                   reshard_layout *source_layout, reshard_layout *target_layout,
                                   const void *const *sources, void *const *targets,
                                   reshard_work **out_work);

/* Collective. RESHARD_OK when all ranks ask for the same and none has failed
 * (collective_agree.c). */
reshard_status rs_collective_agree(const rs_collective *collective, reshard_status status);

#endif
