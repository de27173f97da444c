/* SPDX-License-Identifier: Apache-2.0 */
/* notices.c - how ranks learn that the group is broken, and how they leave it together. */
#include "mpi/endpoint.h"

#include <stdio.h>

#define LEAVE_SECONDS 5.0 /* the longest wait for ranks that do not yet know of the failure */

/* ---- notices and failure --------------------------------------------------------------------- */

void rs_mpi_tell(rs_mpi *e, rs_notice_kind kind, int32_t peer)
{
    MPI_Request *request = &e->out_requests[(size_t)kind * (size_t)e->standing.size + (size_t)peer];
    int over = 1;
    if (*request != MPI_REQUEST_NULL)
        (void)MPI_Test(request, &over, MPI_STATUS_IGNORE);
    if (over) /* otherwise the same notice is already on its way */
        (void)MPI_Isend(&e->out[kind], (int)sizeof e->out[kind], MPI_BYTE, peer, 0,
                        e->comms.control, request);
}

void rs_mpi_tell_all(rs_mpi *e, rs_notice_kind kind)
{
    for (int32_t i = 0; i < e->standing.size; i++) {
        if (i != e->standing.rank)
            rs_mpi_tell(e, kind, i);
    }
}

static void spread_verdict(rs_mpi *e)
{
    e->out[RS_NOTICE_BROKEN].verdict = e->standing.verdict;
    rs_mpi_tell_all(e, RS_NOTICE_BROKEN);
}

void rs_mpi_break_by(rs_mpi *e, const reshard_error *error)
{
    if (rs_standing_break(&e->standing, error))
        spread_verdict(e);
}

void rs_mpi_break(rs_mpi *e, reshard_status status, const char *why)
{
    const reshard_error error = {.size = sizeof error, .status = status, .text = why};
    rs_mpi_break_by(e, &error);
}

bool rs_mpi_succeeded(rs_mpi *e, int code, const char *call)
{
    if (code == MPI_SUCCESS)
        return true;
    char why[MPI_MAX_ERROR_STRING + 64], words[MPI_MAX_ERROR_STRING] = "";
    int length = 0;
    (void)MPI_Error_string(code, words, &length);
    (void)snprintf(why, sizeof why, "%s: %s", call, words);
    rs_mpi_break(e, RESHARD_ERR_GROUP_BROKEN, why);
    return false;
}

void rs_mpi_listen(rs_mpi *e)
{
    (void)rs_mpi_succeeded(e,
                           MPI_Irecv(&e->in, (int)sizeof e->in, MPI_BYTE, MPI_ANY_SOURCE, 0,
                                     e->comms.control, &e->in_request),
                           "MPI_Irecv");
}

void rs_mpi_hear(rs_mpi *e)
{
    for (;;) {
        int there = 0;
        MPI_Status from;
        if (e->in_request == MPI_REQUEST_NULL)
            return;
        if (!rs_mpi_succeeded(e, MPI_Test(&e->in_request, &there, &from), "MPI_Test") || !there)
            return;
        rs_notice notice = e->in;
        rs_mpi_listen(e);
        if (notice.kind == RS_NOTICE_ASK) {
            if (e->leaving)
                rs_mpi_tell(e, RS_NOTICE_LEFT, from.MPI_SOURCE);
        } else if (rs_standing_hear(&e->standing, from.MPI_SOURCE, &notice)) {
            spread_verdict(e);
        }
    }
}

/* ---- together -------------------------------------------------------------------------------- */

bool rs_mpi_vote(rs_mpi *e, bool agrees)
{
    if (e->standing.broken)
        return false;
    int over = 0;
    e->vote = agrees;
    int code =
        MPI_Iallreduce(&e->vote, &e->votes, 1, MPI_INT, MPI_MIN, e->comms.control, &e->voting);
    rs_patience_renew(&e->patience);
    if (!rs_mpi_succeeded(e, code, "MPI_Iallreduce"))
        return false;
    for (;;) {
        rs_mpi_hear(e);
        if (e->standing.broken ||
            !rs_mpi_succeeded(e, MPI_Test(&e->voting, &over, MPI_STATUS_IGNORE), "MPI_Test"))
            return false;
        if (over)
            return e->votes != 0;
        double waited = rs_patience_look(&e->patience);
        /* Ranks may leave at very different times, but they share memory at the same time, so only
         * sharing has a time-out. */
        if (!e->leaving && e->timeout_seconds > 0 && waited > e->timeout_seconds)
            rs_mpi_break(e, RESHARD_ERR_TIMEOUT, "waited too long for all ranks to share memory");
        rs_patience_pause(&e->patience);
    }
}

reshard_status rs_mpi_leave(rs_mpi *e, reshard_status status)
{
    reshard_error error = {.size = sizeof error};
    (void)reshard_error_get(&error);
    error.status = status;
    if (status != RESHARD_OK)
        rs_mpi_break_by(e, &error);
    else if (e->first != NULL)
        rs_mpi_break(e, RESHARD_ERR_GROUP_BROKEN, "leaves while messages are under way");
    e->leaving = true;
    (void)rs_mpi_vote(e, true);
    if (e->standing.broken) {
        rs_mpi_quiesce(e);
        /* Wait for the verdicts of all others, but not for a rank that goes on computing without
         * looking at the group. */
        while (e->standing.drained_count < e->standing.size - 1 &&
               rs_patience_look(&e->patience) < LEAVE_SECONDS) {
            rs_mpi_hear(e);
            rs_patience_pause(&e->patience);
        }
    }
    e->left = true;
    return rs_standing_result(&e->standing);
}
