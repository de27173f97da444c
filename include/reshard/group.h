/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.h - ranks that can talk: groups, and the transports under them.
 *
 * A group is an ordered set of ranks, numbered from 0. Sub-groups number their members anew; every
 * call takes ranks of the group it is called on. A group object belongs to one rank, and is used by
 * one thread at a time.
 *
 * "Collective" calls must be made by all ranks of the group, in the same order. Set-up calls agree
 * on their status: if one rank fails, all get an error that names it. A rank that fails or leaves
 * otherwise breaks the group: all calls on it then give RESHARD_ERR_GROUP_BROKEN, and nobody waits
 * for ever.
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

/* How a simulated run goes. */
typedef struct reshard_sim_options {
    size_t size; /* sizeof(reshard_sim_options) */
    uint64_t seed;
    int mapped;           /* non-zero: ranks see each other's memory, as threads do */
    int32_t node_size;    /* else ranks see shared memory of their node of so many; 0: none */
    int64_t fail_message; /* the n-th message breaks the group, from 1; 0: none */
    int32_t stop_rank;    /* this rank leaves ... */
    int64_t stop_after;   /* ... at its n-th call of the transport, from 1; 0: never */
    /* The n-th message that both ends have started, from 1, comes late, and with it all that follow
     * it between the same ranks on the same channel; 0: none. Delayed: after everything else that
     * can happen without it, or 1000 calls of the transport. Reordered: 20 calls after the next
     * message between other ranks or on another channel, if there is one before that. */
    int64_t delay_message, reorder_message;
    /* Unless NULL: set, when the run is over, to whether what was asked for above came to pass. */
    int *out_reached;
} reshard_sim_options;

/* The same with one rank running at a time, in an order drawn from the seed: equal seeds give equal
 * runs. Local. */
RESHARD_API reshard_status reshard_group_run_sim(reshard_context *context, int32_t size,
                                                 const reshard_sim_options *options,
                                                 reshard_rank_fn body, void *user);

RESHARD_API reshard_group *reshard_group_retain(reshard_group *group);
/* The last release of a group over MPI is Collective. */
RESHARD_API void reshard_group_release(reshard_group *group);

/* ---- asking ---------------------------------------------------------------------------------- */

RESHARD_API int32_t reshard_group_rank(const reshard_group *group);
RESHARD_API int32_t reshard_group_size(const reshard_group *group);
/* The rank of a member in the group this one is a subset of, and back; -1 when there is none. */
RESHARD_API int32_t reshard_group_parent_rank(const reshard_group *group, int32_t rank);
RESHARD_API int32_t reshard_group_rank_of_parent(const reshard_group *group, int32_t parent_rank);
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

/* ---- transports ------------------------------------------------------------------------------ */

/* Memory for one message under way; belongs to the transport from send or receive until test says
 * done, and must not move meanwhile. */
typedef struct reshard_request {
    uint64_t words[12]; /* the transport's own */
} reshard_request;

/*
 * What a transport gives for one rank: its limits as data, and a few calls. docs/transports.md
 * walks through `self`, the smallest one. Messages between two ranks on one channel match in the
 * order in which they were started on either side, and have equal sizes. All calls are made by one
 * thread at a time.
 */
typedef struct reshard_endpoint {
    size_t size; /* sizeof(reshard_endpoint) */
    const char *name;
    int32_t rank, rank_count;
    size_t message_bytes_max; /* of one message */
    void *state;
    /* Start a message. Errors break the group. */
    reshard_status (*send)(void *state, int32_t peer, int32_t channel, const void *bytes,
                           size_t count, reshard_request *request);
    reshard_status (*receive)(void *state, int32_t peer, int32_t channel, void *bytes, size_t count,
                              reshard_request *request);
    /* Makes progress; *out_done is set to whether the request is complete. */
    reshard_status (*test)(void *state, reshard_request *request, int *out_done);
    /* Nothing to do: wait a little for something to happen. */
    void (*idle)(void *state);
    /* Non-zero: map works for every address of every peer, as between threads. */
    int maps_everything;
    /* A peer's address as seen from here, or NULL when its memory cannot be seen. May be NULL. */
    void *(*map)(void *state, int32_t peer, const void *address, size_t bytes);
    /* Says that this rank begins (1) or ends (0) to touch mapped memory. Fails when the group is
     * broken. May be NULL with map. */
    reshard_status (*touch)(void *state, int begin);
    /* Collective over all ranks of the endpoint: `bytes` (the same on all) of memory that peers may
     * be able to map, page aligned, valid until close; NULL when there is none to be had. May be
     * NULL: plain memory will do. */
    void *(*share)(void *state, size_t bytes);
    /* Non-zero: this rank can map what that peer got from share, and it what this rank got. May be
     * NULL with share. */
    int (*shares_with)(void *state, int32_t peer);
    /* Breaks the group: this and all other ranks' calls fail from now on. */
    void (*fail)(void *state, const char *why);
    /* After a failure: returns when no peer touches this rank's memory any more. */
    void (*quiesce)(void *state);
    void (*close)(void *state);
} reshard_endpoint;

/* A group over an endpoint; closes it at the last release. Local. */
RESHARD_API reshard_status reshard_group_create(reshard_context *context,
                                                const reshard_endpoint *endpoint,
                                                reshard_group **out_group);

/* For transports and bodies: sets this thread's error text and returns `status`, so that there is
 * no error without words. Local. */
RESHARD_API reshard_status reshard_error_set(reshard_status status, const char *text);

#ifdef __cplusplus
}
#endif
#endif
