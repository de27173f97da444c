/* SPDX-License-Identifier: Apache-2.0 */
/*
 * transport.h - the interface to implement when you write a transport of your own.
 * docs/transports.md walks through `self`, the smallest one there is.
 */
#ifndef RESHARD_TRANSPORT_H
#define RESHARD_TRANSPORT_H

#include <reshard/group.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ==== advanced ===================================================================================
 * For writing a transport of your own (docs/transports.md).
 */

/* Memory for one message in flight. It belongs to the transport from send or receive until test
 * reports the message done, and must not move in between. */
typedef struct reshard_request {
    uint64_t words[12]; /* the transport's own */
} reshard_request;

/*
 * What a transport provides for one rank: its limits as data, and a few calls. On one channel
 * between two ranks, the n-th send meets the n-th receive, and both must have the same size. Only
 * one thread at a time makes calls.
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
    /* Makes progress, and sets *out_done to whether the request is complete. */
    reshard_status (*test)(void *state, reshard_request *request, int *out_done);
    /* Called when there is nothing to do: waits a short time for something to happen. */
    void (*idle)(void *state);
    /* Non-zero: map works for every address of every peer, as between threads. */
    int maps_everything;
    /* Translates a peer's address to one that is valid here, or returns NULL if that memory is not
     * visible. The function pointer may be NULL. */
    void *(*map)(void *state, int32_t peer, const void *address, size_t bytes);
    /* Announces that this rank starts (1) or stops (0) touching mapped memory. Fails when the group
     * is broken. May be NULL if map is. */
    reshard_status (*touch)(void *state, int begin);
    /* Collective over all ranks of the endpoint. Returns `bytes` bytes (the same number on all
     * ranks) of page-aligned memory that peers may be able to map, valid until close; or NULL if
     * there is none. The function pointer may be NULL if plain memory will do. */
    void *(*share)(void *state, size_t bytes);
    /* Returns non-zero if this rank and that peer can each map what the other got from share. May
     * be NULL if share is. */
    int (*shares_with)(void *state, int32_t peer);
    /* Breaks the group: from now on, the calls of all ranks fail. */
    void (*fail)(void *state, const char *why);
    /* After a failure: returns once no peer touches this rank's memory any more. */
    void (*quiesce)(void *state);
    void (*close)(void *state);
} reshard_endpoint;

/* Makes a group over an endpoint. The last release of the group closes the endpoint. Local. */
RESHARD_API reshard_status reshard_group_create(reshard_context *context,
                                                const reshard_endpoint *endpoint,
                                                reshard_group **out_group);

#ifdef __cplusplus
}
#endif
#endif
