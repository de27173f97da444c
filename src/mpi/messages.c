/* SPDX-License-Identifier: Apache-2.0 */
/* messages.c - messages from start to end, and what happens to them when the group breaks. */
#include "mpi/endpoint.h"

#include <assert.h>
#include <stdio.h>

#define TESTS_PER_LOOK 16   /* how often it looks at notices and the clock */
#define ASK_SECONDS 0.5     /* the wait before asking whether a peer has left */
#define QUIESCE_SECONDS 5.0 /* the longest wait for peers that do not yet know of the failure */

static_assert(sizeof(rs_mpi_message) <= sizeof(reshard_request), "a message fits into a request");

/* ---- messages -------------------------------------------------------------------------------- */

static void link_message(rs_mpi *e, rs_mpi_message *m)
{
    /* A rank that had nothing under way has not been waiting. */
    if (e->first == NULL)
        rs_patience_renew(&e->patience);
    else
        e->first->link = &m->next;
    m->next = e->first;
    m->link = &e->first;
    e->first = m;
}

static void unlink_message(rs_mpi_message *m)
{
    *m->link = m->next;
    if (m->next != NULL)
        m->next->link = m->link;
}

static reshard_status start(rs_mpi *e, bool sending, int32_t peer, int32_t channel, void *bytes,
                            size_t count, reshard_request *request)
{
    assert(peer >= 0 && peer < e->standing.size);
    rs_mpi_message *m = (rs_mpi_message *)(void *)request;
    *m = (rs_mpi_message){
        .count = count, .peer = peer, .sending = sending, .progress = RS_WITHDRAWN};
    /* The group may have broken in the meantime. Look before starting something new, but not every
     * time. */
    if (e->first == NULL)
        rs_mpi_hear(e);
    if (e->standing.broken)
        return rs_standing_fail(&e->standing);
    if (count > RS_MPI_MESSAGE_BYTES_MAX)
        return rs_mpi_fail(RESHARD_ERR_INVALID, "a message of %zu bytes, of %zu at most", count,
                           RS_MPI_MESSAGE_BYTES_MAX);
    /* Channels with the same tag are billions apart in Open MPI and hundreds of millions in MPICH,
     * so no two channels in use have the same one. */
    int tag = (int)(channel % ((int64_t)e->tag_max + 1));
    int code = sending
                   ? MPI_Isend(bytes, (int)count, MPI_BYTE, peer, tag, e->comms.data, &m->request)
                   : MPI_Irecv(bytes, (int)count, MPI_BYTE, peer, tag, e->comms.data, &m->request);
    if (!rs_mpi_succeeded(e, code, sending ? "MPI_Isend" : "MPI_Irecv"))
        return rs_standing_fail(&e->standing);
    m->progress = RS_UNDER_WAY;
    link_message(e, m);
    return RESHARD_OK;
}

reshard_status rs_mpi_send(void *state, int32_t peer, int32_t channel, const void *bytes,
                           size_t count, reshard_request *request)
{
    return start(state, true, peer, channel, (void *)(uintptr_t)bytes, count, request);
}

reshard_status rs_mpi_receive(void *state, int32_t peer, int32_t channel, void *bytes, size_t count,
                              reshard_request *request)
{
    return start(state, false, peer, channel, bytes, count, request);
}

/* Called when MPI is done with the message, successfully or not. */
static void end_message(rs_mpi *e, rs_mpi_message *m, int code, const MPI_Status *status)
{
    char why[160] = "";
    int class = MPI_SUCCESS, count = 0;
    unlink_message(m);
    rs_patience_renew(&e->patience);
    if (code != MPI_SUCCESS)
        (void)MPI_Error_class(code, &class);
    if (class == MPI_ERR_TRUNCATE) {
        (void)snprintf(why, sizeof why, "waits for %zu bytes from rank %d, which sends more",
                       m->count, m->peer);
    } else if (code == MPI_SUCCESS && !m->sending) {
        (void)MPI_Get_count(status, MPI_BYTE, &count);
        if ((size_t)count != m->count)
            (void)snprintf(why, sizeof why, "waits for %zu bytes from rank %d, which sends %d",
                           m->count, m->peer, count);
    }
    bool fine = why[0] == '\0';
    if (!fine)
        rs_mpi_break(e, RESHARD_ERR_MISMATCH, why);
    else
        fine = rs_mpi_succeeded(e, code, "MPI_Test");
    m->progress = fine ? RS_DONE : RS_WITHDRAWN;
}

/* A rank does not announce that it leaves, so a rank that waits asks its peers. What a peer sent
 * before it left arrives before its answer does, or soon after. */
static void ask_peers(rs_mpi *e)
{
    for (const rs_mpi_message *m = e->first; m != NULL && !e->standing.broken; m = m->next) {
        if (m->peer == e->standing.rank)
            continue;
        if (rs_standing_was_told(&e->standing, m->peer, RS_NOTICE_LEFT)) {
            char why[80];
            (void)snprintf(why, sizeof why, "waits for rank %d, which has left", m->peer);
            rs_mpi_break(e, RESHARD_ERR_GROUP_BROKEN, why);
            return;
        }
        rs_mpi_tell(e, RS_NOTICE_ASK, m->peer);
    }
}

/* Called when a message takes long, to find out whether something has gone wrong. */
static reshard_status look_around(rs_mpi *e, const rs_mpi_message *m)
{
    rs_mpi_hear(e);
    if (e->standing.broken)
        return rs_standing_fail(&e->standing);
    double waited = rs_patience_look(&e->patience);
    if (e->timeout_seconds > 0 && waited > e->timeout_seconds) {
        char why[120];
        (void)snprintf(why, sizeof why, "waited %.3g s for a message %s rank %d", waited,
                       m->sending ? "to" : "from", m->peer);
        rs_mpi_break(e, RESHARD_ERR_TIMEOUT, why);
        return rs_standing_result(&e->standing);
    }
    if (waited < e->asked)
        e->asked = 0;
    if (waited > e->asked + ASK_SECONDS) {
        e->asked = waited;
        ask_peers(e);
    }
    return e->standing.broken ? rs_standing_fail(&e->standing) : RESHARD_OK;
}

reshard_status rs_mpi_test(void *state, reshard_request *request, int *out_done)
{
    rs_mpi *e = state;
    rs_mpi_message *m = (rs_mpi_message *)(void *)request;
    if (m->progress == RS_UNDER_WAY) {
        int over = 0;
        MPI_Status status;
        int code = MPI_Test(&m->request, &over, &status);
        if (over || code != MPI_SUCCESS)
            end_message(e, m, code, &status);
    }
    *out_done = m->progress == RS_DONE;
    if (*out_done)
        return RESHARD_OK;
    if (e->standing.broken)
        return rs_standing_fail(&e->standing);
    return ++e->test_count % TESTS_PER_LOOK == 0 ? look_around(e, m) : RESHARD_OK;
}

void rs_mpi_idle(void *state)
{
    rs_mpi *e = state;
    rs_patience_pause(&e->patience);
    e->test_count = -1; /* the next test that finds nothing looks at the notices */
}

/* ---- after a failure ------------------------------------------------------------------------- */

/* Removes messages that are complete or cancelled. Returns whether a receive is still open. */
static bool settle_messages(rs_mpi *e)
{
    bool receiving = false;
    for (rs_mpi_message *m = e->first, *next; m != NULL; m = next) {
        int over = 0;
        next = m->next;
        if (MPI_Test(&m->request, &over, MPI_STATUS_IGNORE) != MPI_SUCCESS || over) {
            unlink_message(m);
            m->progress = RS_WITHDRAWN;
        } else {
            receiving = receiving || !m->sending;
        }
    }
    return receiving;
}

/* A receive can be cancelled until a message has matched it. Not every MPI can cancel a send, and
 * there is no need to (invariant 2). */
void rs_mpi_quiesce(void *state)
{
    rs_mpi *e = state;
    if (!e->standing.broken)
        return;
    for (rs_mpi_message *m = e->first; m != NULL; m = m->next) {
        if (!m->sending)
            (void)MPI_Cancel(&m->request);
    }
    rs_patience_renew(&e->patience);
    for (;;) {
        bool receiving = settle_messages(e);
        if (!receiving && !e->drained) {
            e->drained = true;
            rs_mpi_tell_all(e, RS_NOTICE_DRAINED);
        }
        rs_mpi_hear(e);
        bool heard_all = e->standing.drained_count == e->standing.size - 1;
        if (e->first == NULL || (!receiving && heard_all) ||
            rs_patience_look(&e->patience) > QUIESCE_SECONDS)
            break;
        rs_patience_pause(&e->patience);
    }
    while (e->first != NULL) {
        rs_mpi_message *m = e->first;
        unlink_message(m);
        m->progress = RS_WITHDRAWN;
        (void)MPI_Request_free(&m->request);
    }
}
