/* SPDX-License-Identifier: Apache-2.0 */
/*
 * collective.h - one exchange from one layout to another, agreed on and started in one call.
 *
 * Before they make an exec, ranks compare what they ask for, in one agreement. So if a rank has
 * found something wrong, or asks for something else, all ranks know it before anybody waits for
 * data.
 */
#ifndef RS_COLLECTIVE_COLLECTIVE_H
#define RS_COLLECTIVE_COLLECTIVE_H

#include <reshard/collective.h>
#include <reshard/exec.h>

#include <stdbool.h>

/* What a rank asks for: a digest of all of it, and as much as fits into words. */
typedef struct rs_asked {
    uint64_t digest[2];
    char words[120];
} rs_asked;

/* What is done, and by whom. `name` begins error texts. */
typedef struct rs_collective {
    const char *name;
    reshard_context *context;
    reshard_group *group;
    reshard_dtype dtype; /* of the plan: u8 for dtypes of less than a byte */
    rs_asked asked;
    /* The source may lie exactly in place: this many elements after the beginning of the target. */
    bool may_be_in_place;
    int64_t in_place_elements;
    /* The target is a reduction: in place, it must not be written while its source is still to be
     * read. */
    bool reduces;
} rs_collective;

/* Replaces a group that is NULL by the current one. Every call begins with it. */
reshard_status rs_collective_choose(rs_collective *collective);

/* Describes the request in `asked`, with -1 for what the call does not have, and begins its digest.
 * The caller adds the rest and finishes the digest. */
struct rs_digest;
void rs_collective_ask(rs_collective *collective, int32_t dtype, int32_t root, int32_t reduction,
                       int64_t count, struct rs_digest *out_digest);

/* The count in bytes if the dtype has less than a byte, otherwise the count itself. Errors:
 * UNSUPPORTED if these are not whole bytes, RANGE. */
reshard_status rs_collective_whole_bytes(const rs_collective *collective, reshard_dtype dtype,
                                         int64_t count, int64_t *out_count);

/* Collective. `status` is the result of what this rank did before. If it is an error, layouts may
 * be NULL, and all ranks fail. sources and targets are this rank's buffers, by shard. */
reshard_status rs_collective_start(const rs_collective *collective, reshard_status status,
                                   reshard_layout *source_layout, reshard_layout *target_layout,
                                   const void *const *sources, void *const *targets,
                                   reshard_work **out_work);

/* Collective. Starts an all_to_all or all_to_all_single. */
reshard_status rs_all_to_all_start(const rs_collective *collective, const reshard_exchange *asked,
                                   reshard_work **out_work);

/* Collective. Returns RESHARD_OK if all ranks ask for the same and none has failed
 * (collective_agree.c). */
reshard_status rs_collective_agree(const rs_collective *collective, reshard_status status);

#endif
