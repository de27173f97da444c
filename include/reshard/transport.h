/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport.h - what a transport has to give, for those who write one. docs/transports.md walks
 * through `self`, the smallest one there is.
 */
#ifndef RESHARD_TRANSPORT_H
#define RESHARD_TRANSPORT_H

#include <reshard/group.h>

#ifdef __cplusplus
extern "C" {
#endif

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

#ifdef __cplusplus
}
#endif
#endif
