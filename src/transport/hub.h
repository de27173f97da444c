/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hub.h - ranks that are threads of one process: the basis of the transports `threads` and `sim`.
 *
 * Messages meet in the hub: of a send and a receive that match, the one that comes second copies,
 * so each message is copied once and needs no buffer. Waiting requests are linked into the hub's
 * lists, so nothing is allocated.
 *
 * Invariants:
 *  1. A request is in a list of the hub, or it is done, or the group is broken.
 *  2. While a rank touches a peer's request or buffer, its `touching` is not 0, and it has seen the
 *     group unbroken after setting that. So a rank that sees the group broken, and then sees that
 *     no other rank is touching, can free what it has shown to others.
 */
#ifndef RS_TRANSPORT_HUB_H
#define RS_TRANSPORT_HUB_H

#include <reshard/transport.h>

#include "system/thread.h"

#include <stdbool.h>

typedef struct rs_hub rs_hub;

/* What `sim` uses in place of real concurrency. All but wake are called by the rank's own
 * thread. */
typedef struct rs_hub_scheduler {
    void *user;
    /* A point at which another rank may run instead. Any status other than RESHARD_OK stops the
     * rank here. */
    reshard_status (*step)(void *user, int32_t rank);
    /* The rank has nothing to do until it is woken. */
    void (*idle)(void *user, int32_t rank);
    void (*wake)(void *user, int32_t rank);
    /* The rank's body has ended. */
    void (*leave)(void *user, int32_t rank);
} rs_hub_scheduler;

#define RS_HUB_SIZE_MAX 4096

/* mapped: ranks can map all of each other's memory. scheduler NULL: ranks run freely. */
reshard_status rs_hub_create(reshard_context *context, int32_t size, bool mapped, const char *name,
                             const rs_hub_scheduler *scheduler, rs_hub **out_hub);
void rs_hub_destroy(rs_hub *hub);

/* Fills in the endpoint of one rank. Closing it does nothing. */
void rs_hub_endpoint(rs_hub *hub, int32_t rank, reshard_endpoint *out_endpoint);

/* For ranks that are not mapped: every `size` consecutive ranks become a node, and can map each
 * other's shared memory. */
void rs_hub_make_nodes(rs_hub *hub, int32_t size);

/* Under a scheduler only. Messages are counted from 1; 0 means none. */
typedef struct rs_hub_faults {
    int64_t fail;           /* this message breaks the group when it is started */
    int64_t delay, reorder; /* this message is held back when both ends have started it */
} rs_hub_faults;

void rs_hub_set_faults(rs_hub *hub, const rs_hub_faults *faults);
/* Whether the message that was to fail or to be held back has occurred. */
bool rs_hub_reached_fault(const rs_hub *hub);
/* Whether messages are held back. *out_overtaken tells whether one of them was to be reordered, and
 * another message has overtaken it. */
bool rs_hub_holds(const rs_hub *hub, bool *out_overtaken);
/* Delivers the messages that are held back, if any, in order. Called by the rank whose turn it
 * is. */
void rs_hub_let_go(rs_hub *hub, int32_t rank);

/* Called when the rank's body has ended. A status other than RESHARD_OK breaks the group, with this
 * thread's error text. */
void rs_hub_leave(rs_hub *hub, int32_t rank, reshard_status status);
/* The status and text of the first rank that failed. */
reshard_status rs_hub_result(rs_hub *hub);

/* Runs the body on all ranks of the hub, and returns its result (threads.c). */
reshard_status rs_run_ranks(reshard_context *context, rs_hub *hub, int32_t size,
                            reshard_rank_fn body, void *user);

#endif
