/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.h - ranks that can talk.
 *
 * A group is an ordered set of ranks, numbered from 0. Sub-groups number their members anew; every
 * call takes ranks of the group it is called on. A group object belongs to one rank, and is used by
 * one thread at a time.
 *
 * "Collective" calls must be made by all ranks of the group, in the same order. Set-up calls agree
 * on their status: if one rank fails, all get an error that names it. A rank that fails or leaves
 * in any other way breaks the group: all calls on it then give RESHARD_ERR_GROUP_BROKEN, and nobody
 * waits for ever.
 *
 * Groups over MPI are made by mpi.h, simulated ones by sim.h, and those over a transport of your
 * own by transport.h.
 */
#ifndef RESHARD_GROUP_H
#define RESHARD_GROUP_H

#include <reshard/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct reshard_group reshard_group;

/* ---- making groups --------------------------------------------------------------------------- */

/* This process alone: one rank. Local. */
RESHARD_API reshard_status reshard_group_self(reshard_context *context, reshard_group **out_group);

/* What one rank does. The group is released by the caller of the body. */
typedef reshard_status (*reshard_rank_fn)(void *user, reshard_group *group);

/*
 * Runs `body` on `size` ranks, each a thread of this process that sees all memory, and returns when
 * all have ended. The status and error text are those of the rank that failed first. Local.
 */
RESHARD_API reshard_status reshard_group_run(reshard_context *context, int32_t size,
                                             reshard_rank_fn body, void *user);

RESHARD_API reshard_group *reshard_group_retain(reshard_group *group);
/* The last release of a group over MPI is Collective. */
RESHARD_API void reshard_group_release(reshard_group *group);

/* ---- asking ---------------------------------------------------------------------------------- */

RESHARD_API int32_t reshard_group_rank(const reshard_group *group);
RESHARD_API int32_t reshard_group_size(const reshard_group *group);
/* The rank that a member has in the group this one is a subset of; -1 when there is no such
 * member. */
RESHARD_API int32_t reshard_group_parent_rank(const reshard_group *group, int32_t rank);
/* "threads", "self", ... Static. */
RESHARD_API const char *reshard_group_transport_name(const reshard_group *group);

/* ---- together -------------------------------------------------------------------------------- */

/* Collective over the parent. ranks: members in the order they are to be numbered, all different.
 * Those who are not among them get NULL. Errors: INVALID, MISMATCH when ranks pass different
 * lists. */
RESHARD_API reshard_status reshard_group_subset(reshard_group *group, int32_t count,
                                                const int32_t *ranks, reshard_group **out_group);
/* Collective: returns when all have entered. */
RESHARD_API reshard_status reshard_group_barrier(reshard_group *group);
/* Collective. All get the status of the lowest rank that did not pass RESHARD_OK, with that rank's
 * error text behind "rank r: ". Pass the status of what went before. */
RESHARD_API reshard_status reshard_group_agree(reshard_group *group, reshard_status status);
/* Collective. `bytes` from each rank, in rank order, to all. For small things: all of it passes
 * through rank 0. */
RESHARD_API reshard_status reshard_group_gather_bytes(reshard_group *group, const void *mine,
                                                      size_t bytes, void *out_all);
/* Breaks the group on purpose: all calls of all ranks fail from now on with this text. Local. */
RESHARD_API void reshard_group_break(reshard_group *group, const char *why);

/* Local. For bodies and transports: sets this thread's error text and returns `status`, so that
 * there is no error without words. */
RESHARD_API reshard_status reshard_error_set(reshard_status status, const char *text);

/* ---- memory ---------------------------------------------------------------------------------- */

/*
 * Memory that ranks of the group can see wherever ranks can share memory at all: all of it between
 * threads, that of ranks on the same node over MPI. Resharding from and to such memory copies each
 * byte once. Where sharing is not possible (also for a subset of an MPI group whose arena has no
 * room left: it cannot grow without the others) this is plain memory, and works nevertheless.
 *
 * Aligned to 64 bytes, contents undefined. Lives until it is freed or the group's transport is
 * closed. `bytes` may differ from rank to rank. Collective. Errors, agreed by all: NO_MEMORY.
 */
RESHARD_API reshard_status reshard_group_alloc(reshard_group *group, size_t bytes,
                                               void **out_memory);
/* Local. NULL is fine. Of the group it came from, or one with the same transport. */
RESHARD_API void reshard_group_free(reshard_group *group, void *memory);

#ifdef __cplusplus
}
#endif
#endif
