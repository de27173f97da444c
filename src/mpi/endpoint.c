/* SPDX-License-Identifier: Apache-2.0 */
/* endpoint.c - opens and closes endpoints; see endpoint.h. */
#include "mpi/endpoint.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void fail(void *state, const char *why)
{
    reshard_error error = {.size = sizeof error};
    (void)reshard_error_get(&error);
    /* Whoever breaks the group because of an error passes on its text. */
    if (error.text != why)
        error = (reshard_error){.size = sizeof error, .text = why};
    error.status = RESHARD_ERR_GROUP_BROKEN;
    rs_mpi_break_by(state, &error);
}

/* ---- closing --------------------------------------------------------------------------------- */

static void free_communicators(rs_mpi_comms *c)
{
    if (c->node != MPI_COMM_NULL)
        (void)MPI_Comm_free(&c->node);
    if (c->data != MPI_COMM_NULL)
        (void)MPI_Comm_free(&c->data);
    if (c->control != MPI_COMM_NULL)
        (void)MPI_Comm_free(&c->control);
}

/* Returns to MPI what the endpoint took from it. The result is false if MPI still uses some of the
 * endpoint's memory. */
static bool detach(rs_mpi *e)
{
    int over = 1;
    if (e->in_request != MPI_REQUEST_NULL) {
        (void)MPI_Cancel(&e->in_request);
        (void)MPI_Wait(&e->in_request, MPI_STATUS_IGNORE);
    }
    for (int i = 0; i < RS_NOTICE_KIND_COUNT * e->standing.size; i++) {
        int gone = 1;
        (void)MPI_Test(&e->out_requests[i], &gone, MPI_STATUS_IGNORE);
        over = over && gone;
    }
    if (e->standing.broken) /* the rest is Collective */
        return over && e->voting == MPI_REQUEST_NULL;
    for (rs_mpi_window *w = e->windows; w != NULL; w = w->next)
        (void)MPI_Win_free(&w->handle);
    free_communicators(&e->comms);
    return over;
}

static void destroy(rs_mpi *e)
{
    if (e == NULL)
        return;
    for (rs_mpi_window *w = e->windows, *next; w != NULL; w = next) {
        next = w->next;
        free(w);
    }
    free(e->node_ranks);
    free(e->standing.told);
    free(e->out_requests);
    free(e);
}

static void close_endpoint(void *state)
{
    rs_mpi *e = state;
    int finalized = 0;
    (void)MPI_Finalized(&finalized);
    if (!finalized && !e->left)
        (void)rs_mpi_leave(e, RESHARD_OK);
    if (finalized || detach(e))
        destroy(e);
}

/* ---- opening --------------------------------------------------------------------------------- */

static reshard_status check_mpi(MPI_Comm comm)
{
    int initialized = 0, finalized = 0, inter = 0;
    (void)MPI_Initialized(&initialized);
    (void)MPI_Finalized(&finalized);
    if (!initialized || finalized)
        return rs_mpi_fail(RESHARD_ERR_INVALID, "MPI is not initialised, or finalized already");
    if (comm == MPI_COMM_NULL)
        return rs_mpi_fail(RESHARD_ERR_INVALID, "the communicator is MPI_COMM_NULL");
    (void)MPI_Comm_test_inter(comm, &inter);
    return inter ? rs_mpi_fail(RESHARD_ERR_INVALID, "the communicator is an inter-communicator")
                 : RESHARD_OK;
}

/* No release has longer options, as in libreshard. */
#define OPTIONS_BYTES_MAX 4096

/* Like libreshard's rs_options_read, which is hidden from this library: fields beyond a shorter
 * struct are zero, and those of a longer one that this library does not know must be zero. */
static reshard_status read_options(const reshard_mpi_options *given, reshard_mpi_options *out)
{
    *out = (reshard_mpi_options){.size = sizeof *out};
    if (given == NULL)
        return RESHARD_OK;
    bool known = given->size >= sizeof given->size && given->size <= OPTIONS_BYTES_MAX;
    for (size_t i = sizeof *out; known && i < given->size; i++)
        known = ((const char *)given)[i] == 0;
    if (!known)
        return rs_mpi_fail(RESHARD_ERR_INVALID, "MPI options: their size is %zu, but %zu are known",
                           given->size, sizeof *out);
    memcpy(out, given, given->size < sizeof *out ? given->size : sizeof *out);
    if (!(out->timeout_seconds >= 0))
        return rs_mpi_fail(RESHARD_ERR_RANGE, "MPI options: a time-out of %g seconds",
                           out->timeout_seconds);
    return RESHARD_OK;
}

static reshard_status make_communicators(MPI_Comm comm, rs_mpi_comms *c)
{
    *c = (rs_mpi_comms){MPI_COMM_NULL, MPI_COMM_NULL, MPI_COMM_NULL};
    int code = MPI_Comm_dup(comm, &c->control);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(c->control, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_dup(c->control, &c->data);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_split_type(c->control, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &c->node);
    if (code == MPI_SUCCESS)
        code = MPI_Comm_set_errhandler(c->node, MPI_ERRORS_RETURN);
    if (code == MPI_SUCCESS)
        return RESHARD_OK;
    return rs_mpi_fail(RESHARD_ERR_GROUP_BROKEN, "MPI cannot duplicate or split the communicator");
}

static void find_node_ranks(rs_mpi *e)
{
    MPI_Group all = MPI_GROUP_NULL, node = MPI_GROUP_NULL;
    bool known = MPI_Comm_group(e->comms.data, &all) == MPI_SUCCESS &&
                 MPI_Comm_group(e->comms.node, &node) == MPI_SUCCESS;
    for (int i = 0; i < e->standing.size; i++) {
        e->node_ranks[i] = MPI_UNDEFINED;
        if (known)
            (void)MPI_Group_translate_ranks(all, 1, &i, node, &e->node_ranks[i]);
    }
    if (all != MPI_GROUP_NULL)
        (void)MPI_Group_free(&all);
    if (node != MPI_GROUP_NULL)
        (void)MPI_Group_free(&node);
}

static reshard_status create(const rs_mpi_comms *comms, const reshard_mpi_options *options,
                             rs_mpi **out_endpoint)
{
    reshard_mpi_options chosen;
    reshard_status status = read_options(options, &chosen);
    if (status != RESHARD_OK)
        return status;
    int rank = 0, size = 0, *tag_max = NULL, known = 0;
    (void)MPI_Comm_rank(comms->data, &rank);
    (void)MPI_Comm_size(comms->data, &size);
    size_t count = (size_t)size, requests = count * RS_NOTICE_KIND_COUNT;
    rs_mpi *e = calloc(1, sizeof *e);
    if (e != NULL) {
        e->node_ranks = calloc(count, sizeof *e->node_ranks);
        e->standing.told = calloc(count, sizeof *e->standing.told);
        e->out_requests = calloc(requests, sizeof *e->out_requests);
    }
    if (e == NULL || e->node_ranks == NULL || e->standing.told == NULL || e->out_requests == NULL) {
        destroy(e);
        return rs_mpi_fail(RESHARD_ERR_NO_MEMORY, "no memory for an endpoint of %d ranks", size);
    }
    e->comms = *comms;
    e->standing.rank = rank;
    e->standing.size = size;
    e->timeout_seconds = chosen.timeout_seconds;
    (void)MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &tag_max, &known);
    e->tag_max = known ? *tag_max : 32767; /* the least that MPI guarantees */
    (void)MPI_Comm_size(comms->node, &e->node_size);
    find_node_ranks(e);
    rs_patience_init(&e->patience, e->node_size);
    e->in_request = e->voting = MPI_REQUEST_NULL;
    for (size_t i = 0; i < requests; i++)
        e->out_requests[i] = MPI_REQUEST_NULL;
    for (int kind = 0; kind < RS_NOTICE_KIND_COUNT; kind++)
        e->out[kind].kind = kind;
    e->left = true; /* until all ranks have agreed to begin */
    *out_endpoint = e;
    return RESHARD_OK;
}

static reshard_status create_group(reshard_context *context, rs_mpi *e, reshard_group **out_group)
{
    reshard_endpoint endpoint = {
        .size = sizeof endpoint,
        .name = "mpi",
        .rank = e->standing.rank,
        .rank_count = e->standing.size,
        .message_bytes_max = RS_MPI_MESSAGE_BYTES_MAX,
        .state = e,
        .send = rs_mpi_send,
        .receive = rs_mpi_receive,
        .test = rs_mpi_test,
        .idle = rs_mpi_idle,
        .map = rs_mpi_map,
        .touch = rs_mpi_touch,
        .share = rs_mpi_share,
        .shares_with = rs_mpi_shares_with,
        .fail = fail,
        .quiesce = rs_mpi_quiesce,
        .close = close_endpoint,
    };
    return reshard_group_create(context, &endpoint, out_group);
}

/* Collective. Like reshard_group_agree, before there is a group. */
static reshard_status agree(MPI_Comm comm, reshard_status status)
{
    int rank = 0, mine = INT_MAX, lowest = INT_MAX;
    reshard_error error = {.size = sizeof error};
    (void)reshard_error_get(&error);
    error.status = status;
    (void)MPI_Comm_rank(comm, &rank);
    if (status != RESHARD_OK)
        mine = rank;
    rs_verdict verdict = rs_verdict_of(rank, &error);
    int code = MPI_Allreduce(&mine, &lowest, 1, MPI_INT, MPI_MIN, comm);
    if (code == MPI_SUCCESS && lowest != INT_MAX)
        code = MPI_Bcast(&verdict, (int)sizeof verdict, MPI_BYTE, lowest, comm);
    if (code != MPI_SUCCESS)
        return rs_mpi_fail(RESHARD_ERR_GROUP_BROKEN, "MPI cannot make the ranks agree");
    return lowest == INT_MAX ? RESHARD_OK : rs_verdict_fail(&verdict);
}

reshard_status rs_mpi_open(reshard_context *context, MPI_Comm comm,
                           const reshard_mpi_options *options, rs_mpi **out_endpoint,
                           reshard_group **out_group)
{
    rs_mpi_comms comms;
    rs_mpi *e = NULL;
    reshard_group *group = NULL;
    reshard_status status = check_mpi(comm);
    if (status == RESHARD_OK)
        status = make_communicators(comm, &comms);
    if (status != RESHARD_OK)
        return status;
    status = create(&comms, options, &e);
    if (status == RESHARD_OK)
        status = create_group(context, e, &group);
    status = agree(comms.control, status);
    if (status != RESHARD_OK) {
        /* Collective either way: the communicators are freed here, or together with the group. */
        if (group == NULL) {
            destroy(e);
            free_communicators(&comms);
        }
        reshard_group_release(group);
        return status;
    }
    e->left = false;
    rs_mpi_listen(e);
    *out_endpoint = e;
    *out_group = group;
    return RESHARD_OK;
}

reshard_status reshard_group_from_mpi(reshard_context *context, MPI_Comm comm,
                                      const reshard_mpi_options *options, reshard_group **out_group)
{
    rs_mpi *e = NULL;
    return rs_mpi_open(context, comm, options, &e, out_group);
}
