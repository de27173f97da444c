/* SPDX-License-Identifier: Apache-2.0 */
/* hub_parts.h - the structure of a hub, shared by hub.c and hub_messages.c. */
#ifndef RS_TRANSPORT_HUB_PARTS_H
#define RS_TRANSPORT_HUB_PARTS_H

#include "base/error.h"
#include "transport/hub.h"

#include <assert.h>

/* Lies in the memory of a reshard_request. */
typedef struct rs_hub_message {
    struct rs_hub_message *next;
    char *bytes;
    size_t count;
    int32_t channel;
    int32_t owner, peer;
    atomic_int done;
    struct rs_hub_message *other; /* its counterpart, while it is held back */
} rs_hub_message;

static_assert(sizeof(rs_hub_message) <= sizeof(reshard_request), "a message fits into a request");

typedef struct rs_hub_message_list {
    rs_hub_message *first, *last;
} rs_hub_message_list;

/* Messages from one rank to another that wait for their counterpart. */
typedef struct rs_pair {
    rs_mutex lock;
    rs_hub_message_list sends, receives;
} rs_pair;

/* Memory of one rank that the ranks of its node can map. */
typedef struct rs_hub_memory {
    struct rs_hub_memory *next;
    size_t bytes;
    char *memory;
} rs_hub_memory;

typedef struct rs_member {
    rs_hub *hub;
    int32_t rank;
    rs_hub_memory *shared; /* other ranks read it only under a scheduler */
    atomic_int touching;
    atomic_int left;
    /* To wake the rank, every event adds one here, and signals if the rank has said that it
     * sleeps. */
    atomic_uint events;
    atomic_int sleeping;
    atomic_int core; /* on which the rank was when it last had nothing to do, or -1 */
    unsigned seen;   /* the number of events that the rank itself has seen */
    rs_mutex lock;
    rs_condition wakes;
} rs_member;

struct rs_hub {
    reshard_context *context;
    const char *name;
    int32_t size;
    bool mapped;
    int32_t node_size; /* 0 if there are no nodes */
    bool has_scheduler;
    rs_hub_scheduler scheduler;
    bool has_cores; /* one for each rank, so a rank stays awake for a while when it is idle */
    rs_pair *pairs;
    rs_member *members;
    atomic_int broken;
    /* Used under a scheduler only, and so by one rank at a time. */
    rs_hub_faults faults;
    int64_t started_count, met_count;
    rs_hub_message_list held; /* sends that are held back */
    bool overtaken;           /* another message has overtaken the first of these */
    bool reached_fault;
    rs_mutex lock;  /* protects the fields below */
    rs_error error; /* why it is broken */
};

/* ---- waking, breaking and touching (hub.c) --------------------------------------------------- */

void rs_hub_wake(rs_member *m);
/* Breaks the group. The first reason is the one that is kept. */
void rs_hub_break(rs_hub *hub, reshard_status status, const char *why);
reshard_status rs_hub_fail_broken(rs_hub *hub);
/* Invariant 2 of hub.h: sets the flag first, then checks whether the group is broken. */
reshard_status rs_hub_begin_touch(rs_member *m);
void rs_hub_end_touch(rs_member *m);

/* ---- messages (hub_messages.c), as endpoints have them --------------------------------------- */

reshard_status rs_hub_send(void *state, int32_t peer, int32_t channel, const void *bytes,
                           size_t count, reshard_request *request);
reshard_status rs_hub_receive(void *state, int32_t peer, int32_t channel, void *bytes, size_t count,
                              reshard_request *request);
reshard_status rs_hub_test(void *state, reshard_request *request, int *out_done);

#endif
