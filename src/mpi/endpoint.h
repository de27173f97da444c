/* SPDX-License-Identifier: Apache-2.0 */
/*
 * endpoint.h - one rank's end of the transport over MPI.
 *
 * Messages are MPI messages, with the channel as their tag. Failures are announced by notices
 * (standing.h) on a communicator of their own: every rank keeps a receive open for them, and looks
 * at it whenever it has nothing better to do.
 *
 * Invariants:
 *  1. Every message under way is in its endpoint's list, so that it can be withdrawn when the group
 *     breaks: the caller will then free the buffer.
 *  2. A rank sends DRAINED once its group is broken and it has no receive open. When a rank has
 *     heard that from all others, it may forget the sends it still has: nobody will ever read them.
 *  3. A collective MPI call that may have to wait for other ranks is made in its non-blocking form,
 *     and abandoned when the group breaks. MPI then still uses part of the endpoint, so that part
 *     is never freed.
 */
#ifndef RS_MPI_ENDPOINT_H
#define RS_MPI_ENDPOINT_H

#include <reshard/mpi.h>
#include <reshard/transport.h>

#include "mpi/mapping.h"
#include "mpi/patience.h"
#include "mpi/standing.h"

/* Lies in the memory of a reshard_request. */
typedef struct rs_mpi_message {
    struct rs_mpi_message *next;
    struct rs_mpi_message **link; /* the pointer that points here */
    MPI_Request request;
    size_t count;
    int32_t peer;
    bool sending;
    enum { RS_UNDER_WAY, RS_DONE, RS_WITHDRAWN } progress;
} rs_mpi_message;

typedef struct rs_mpi_window {
    struct rs_mpi_window *next;
    MPI_Win handle;
    rs_mapping mappings[]; /* by rank in the node */
} rs_mpi_window;

typedef struct rs_mpi_comms {
    MPI_Comm data, control;
    MPI_Comm node; /* the ranks that can share memory with this one */
} rs_mpi_comms;

typedef struct rs_mpi {
    rs_standing standing;
    rs_patience patience;
    double timeout_seconds; /* 0 for none */
    double asked;           /* patience.waited when this rank last asked its peers */
    rs_mpi_comms comms;
    int tag_max;
    int node_size;
    int *node_ranks; /* rank in the node, by peer; MPI_UNDEFINED on another node */
    rs_mpi_message *first;
    int32_t test_count;
    rs_mpi_window *windows; /* youngest first */
    rs_notice in;
    MPI_Request in_request;
    rs_notice out[RS_NOTICE_KIND_COUNT];
    MPI_Request *out_requests; /* [kind * size + peer] */
    int vote, votes;           /* invariant 3 */
    MPI_Request voting;
    bool leaving; /* this rank has finished */
    bool left;    /* rs_mpi_leave is over, or there is no need for it */
    bool drained; /* invariant 2 */
} rs_mpi;

#define RS_MPI_MESSAGE_BYTES_MAX ((size_t)1 << 30) /* MPI counts bytes in an int */

/* In notices.c. Breaks the group on behalf of this rank. */
void rs_mpi_break(rs_mpi *e, reshard_status status, const char *why);
void rs_mpi_break_by(rs_mpi *e, const reshard_error *error);
/* Returns false if an MPI call failed. That breaks the group, with MPI's own error text. */
bool rs_mpi_succeeded(rs_mpi *e, int code, const char *call);
void rs_mpi_tell(rs_mpi *e, rs_notice_kind kind, int32_t peer);
void rs_mpi_tell_all(rs_mpi *e, rs_notice_kind kind);
/* Opens the receive for notices; takes all notices that have arrived. */
void rs_mpi_listen(rs_mpi *e);
void rs_mpi_hear(rs_mpi *e);
/* Collective. Returns true if all ranks pass true; false also if the group is or becomes broken. */
bool rs_mpi_vote(rs_mpi *e, bool agrees);
/* Collective. This rank has finished, with this status and this thread's error text. Returns when
 * all ranks have, with the status that the run ends with on all of them. */
reshard_status rs_mpi_leave(rs_mpi *e, reshard_status status);

/* In messages.c and windows.c: the calls of the endpoint, as reshard_endpoint describes them. */
reshard_status rs_mpi_send(void *state, int32_t peer, int32_t channel, const void *bytes,
                           size_t count, reshard_request *request);
reshard_status rs_mpi_receive(void *state, int32_t peer, int32_t channel, void *bytes, size_t count,
                              reshard_request *request);
reshard_status rs_mpi_test(void *state, reshard_request *request, int *out_done);
void rs_mpi_idle(void *state);
void rs_mpi_quiesce(void *state);
void *rs_mpi_map(void *state, int32_t peer, const void *address, size_t bytes);
reshard_status rs_mpi_touch(void *state, int begin);
void *rs_mpi_share(void *state, size_t bytes);
int rs_mpi_shares_with(void *state, int32_t peer);

/* In endpoint.c. Collective. Makes a group and its endpoint, which lives as long as the group. */
reshard_status rs_mpi_open(reshard_context *context, MPI_Comm comm,
                           const reshard_mpi_options *options, rs_mpi **out_endpoint,
                           reshard_group **out_group);

#endif
