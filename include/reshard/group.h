/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.h - ranks that can talk.
 *
 * A group is an ordered set of ranks, numbered from 0. A sub-group renumbers its members; every
 * call takes the rank numbers of the group that it is called on. A group object belongs to one rank
 * and must be used by one thread at a time.
 *
 * "Collective" calls must be made by all ranks of the group, in the same order. Set-up calls agree
 * on their status: if one rank fails, all ranks get an error that names it. A rank that fails
 * elsewhere, or leaves, breaks the group: all further calls on it return RESHARD_ERR_GROUP_BROKEN,
 * and nobody waits forever.
 *
 * Wherever a call takes a group, in any header, NULL means the thread's current one: the group of
 * reshard_load_with_group (shard.h), or the default one (reshard_group_set_default). If there is
 * none, the call fails with RESHARD_ERR_INVALID; reshard_trace_create and reshard_optimizer_clip
 * say what they do instead. A `group` among options is different: NULL, like any option left out,
 * means that this rank works alone.
 *
 * mpi.h has groups over MPI, sim.h simulated ones, and transport.h makes a group over a transport
 * of your own.
 */
#ifndef RESHARD_GROUP_H
#define RESHARD_GROUP_H

#include <reshard/base.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct reshard_group reshard_group;

/* ==== simple =====================================================================================
 * Run a function on several ranks, each of which knows its number.
 */

/* ---- running ranks --------------------------------------------------------------------------- */

/* The function that each rank runs. Its caller releases the group. */
typedef reshard_status (*reshard_rank_fn)(void *user, reshard_group *group);

/*
 * Runs `body` on `size` ranks, each a thread of this process that sees all memory, and returns when
 * all have finished. The status and error text are those of the first rank that failed. Local.
 *
 * If this thread may run on as many cores as there are ranks, a rank that waits stays awake for up
 * to a millisecond or so, and one that finds itself on the core of another one moves to a free core
 * (by sched_setaffinity; afterwards it may run where it might before).
 */
RESHARD_API reshard_status reshard_group_run(reshard_context *context, int32_t size,
                                             reshard_rank_fn body, void *user);

RESHARD_API reshard_group *reshard_group_retain(reshard_group *group);
/* The last release of a group over MPI is Collective. */
RESHARD_API void reshard_group_release(reshard_group *group);

/* ---- queries --------------------------------------------------------------------------------- */

/* -1 if there is no group. */
RESHARD_API int32_t reshard_group_rank(const reshard_group *group);
RESHARD_API int32_t reshard_group_size(const reshard_group *group);

/* Collective. Returns once all ranks have entered. */
RESHARD_API reshard_status reshard_group_barrier(reshard_group *group);

/* ==== explicit ===================================================================================
 * Groups of one rank and of some ranks, a group for the whole thread, agreement, memory that peers
 * can see.
 */

/* This process alone: one rank. Local. */
RESHARD_API reshard_status reshard_group_self(reshard_context *context, reshard_group **out_group);

/* "threads", "self", ..., or "none" if there is no group. Static. */
RESHARD_API const char *reshard_group_transport_name(const reshard_group *group);

/* ---- the default group ----------------------------------------------------------------------- */

/* Sets this thread's default group, as PyTorch's init_process_group does for a process. The group
 * is retained until it is replaced; NULL: no default. A rank of reshard_group_run begins
 * without a default group, and the one it sets ends with it. Local. */
RESHARD_API void reshard_group_set_default(reshard_group *group);
/* The default group, not retained; NULL if there is none. Local. */
RESHARD_API reshard_group *reshard_group_default(void);

/* ---- collective calls ------------------------------------------------------------------------ */

/* Collective over the parent. ranks: the members, all different, in the order of their new numbers.
 * Ranks that are not listed get NULL. Errors: INVALID, MISMATCH (ranks pass different lists). */
RESHARD_API reshard_status reshard_group_subset(reshard_group *group, int32_t count,
                                                const int32_t *ranks, reshard_group **out_group);

/* Collective. Every rank passes the status of the step to agree on. All get the status of the
 * lowest rank that did not pass RESHARD_OK, with that rank's error text after "rank r: ". If there
 * is no group, an error that is passed comes back as it is. */
RESHARD_API reshard_status reshard_group_agree(reshard_group *group, reshard_status status);
/* Collective. Gathers `bytes` bytes from each rank, in rank order, to all ranks. Meant for small
 * data, because all of it passes through rank 0. */
RESHARD_API reshard_status reshard_group_gather_bytes(reshard_group *group, const void *mine,
                                                      size_t bytes, void *out_all);

/* ---- memory ---------------------------------------------------------------------------------- */

/*
 * Allocates memory that other ranks of the group can see wherever sharing is possible: always
 * between threads, and over MPI between ranks of the same node. Resharding from and to such memory
 * copies each byte once. Where sharing is not possible, the result is plain memory, which works
 * too. (This includes a subset of an MPI group whose shared memory is used up, because getting more
 * takes all ranks.)
 *
 * The memory is aligned to 64 bytes, its contents are undefined, and it is valid until it is freed
 * or the group's transport is closed. `bytes` may differ from rank to rank. Collective. Errors,
 * agreed by all ranks: NO_MEMORY.
 */
RESHARD_API reshard_status reshard_group_alloc(reshard_group *group, size_t bytes,
                                               void **out_memory);
/* Local. Does nothing if `memory` is NULL, or if there is no group. `group` is the one the memory
 * came from, or one with the same transport. */
RESHARD_API void reshard_group_free(reshard_group *group, void *memory);

/* ==== advanced ===================================================================================
 * For transports, tests and code that works with groups of groups.
 */

/* The rank that member `rank` has in the group this one is a subset of; -1 if there is no such
 * member, or no group. */
RESHARD_API int32_t reshard_group_parent_rank(const reshard_group *group, int32_t rank);

/* Breaks the group on purpose: from now on, every call of every rank fails with this text.
 * Local. */
RESHARD_API void reshard_group_break(reshard_group *group, const char *why);

#ifdef __cplusplus
}
#endif
#endif
