/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limited.c - see limited.h.
 */
#include "tests/support/limited.h"

#include "transport/group.h"

static reshard_status check_limit(const limited *l, size_t count)
{
    return count <= l->message_bytes_max
               ? RESHARD_OK
               : reshard_error_set(RESHARD_ERR_CHECK, "a message is longer than it may be");
}

static reshard_status send(void *state, int32_t peer, int32_t channel, const void *bytes,
                           size_t count, reshard_request *request)
{
    limited *l = state;
    reshard_status status = check_limit(l, count);
    if (l->sent != NULL)
        l->sent[l->under.rank]++;
    return status == RESHARD_OK
               ? l->under.send(l->under.state, peer, channel, bytes, count, request)
               : status;
}

static reshard_status receive(void *state, int32_t peer, int32_t channel, void *bytes, size_t count,
                              reshard_request *request)
{
    limited *l = state;
    reshard_status status = check_limit(l, count);
    return status == RESHARD_OK
               ? l->under.receive(l->under.state, peer, channel, bytes, count, request)
               : status;
}

static reshard_status test(void *state, reshard_request *request, int *out_done)
{
    limited *l = state;
    return l->under.test(l->under.state, request, out_done);
}

static void idle(void *state)
{
    limited *l = state;
    l->under.idle(l->under.state);
}

static void fail(void *state, const char *why)
{
    limited *l = state;
    l->under.fail(l->under.state, why);
}

static void quiesce(void *state)
{
    limited *l = state;
    l->under.quiesce(l->under.state);
}

reshard_status limited_run_rank(void *user, reshard_group *group)
{
    limited l = *(const limited *)user;
    l.under = group->root->endpoint;
    reshard_endpoint endpoint = {
        .size = sizeof endpoint,
        .name = "limited",
        .rank = l.under.rank,
        .rank_count = l.under.rank_count,
        .message_bytes_max = l.message_bytes_max,
        .state = &l,
        .send = send,
        .receive = receive,
        .test = test,
        .idle = idle,
        .fail = fail,
        .quiesce = quiesce,
    };
    reshard_group *over = NULL;
    reshard_status status = reshard_group_create(NULL, &endpoint, &over);
    if (status == RESHARD_OK)
        status = l.body(l.user, over);
    reshard_group_release(over);
    return status;
}
