/* SPDX-License-Identifier: Apache-2.0 */
/*
 * self.c - a single rank: the smallest complete transport, and the one to copy when writing
 * another.
 *
 * A rank may still send to itself. As in every transport, a send and a receive on the same channel
 * match in the order in which they were started, and the second of the two copies. Waiting messages
 * are linked through their requests.
 */
#include <reshard/transport.h>

#include "base/context.h"
#include "base/error.h"
#include "base/shorten.h"

#include <assert.h>
#include <string.h>

typedef struct message {
    struct message *next;
    char *bytes;
    size_t count;
    int32_t channel;
    int sending, done;
} message;

static_assert(sizeof(message) <= sizeof(reshard_request), "a message fits into a request");

typedef struct self {
    reshard_context *context;
    message *first; /* the waiting messages, oldest first */
    int broken;
    char why[256];
} self;

static reshard_status check(const self *s)
{
    return s->broken ? rs_fail(RESHARD_ERR_GROUP_BROKEN, "the group is broken: %s", s->why)
                     : RESHARD_OK;
}

static reshard_status start(self *s, int sending, int32_t channel, char *bytes, size_t count,
                            reshard_request *request)
{
    reshard_status status = check(s);
    if (status != RESHARD_OK)
        return status;
    message *mine = (message *)(void *)request;
    *mine = (message){.bytes = bytes, .count = count, .channel = channel, .sending = sending};
    message **at = &s->first;
    while (*at != NULL && ((*at)->channel != channel || (*at)->sending == sending))
        at = &(*at)->next;
    message *other = *at;
    if (other == NULL) {
        *at = mine;
        return RESHARD_OK;
    }
    if (other->count != count)
        return rs_fail(RESHARD_ERR_MISMATCH, "a message of %zu bytes meets one of %zu", count,
                       other->count);
    *at = other->next;
    const message *from = sending ? mine : other, *to = sending ? other : mine;
    if (count != 0)
        memcpy(to->bytes, from->bytes, count);
    mine->done = other->done = 1;
    return RESHARD_OK;
}

static reshard_status send(void *state, int32_t peer, int32_t channel, const void *bytes,
                           size_t count, reshard_request *request)
{
    (void)peer;
    return start(state, 1, channel, (char *)(uintptr_t)bytes, count, request);
}

static reshard_status receive(void *state, int32_t peer, int32_t channel, void *bytes, size_t count,
                              reshard_request *request)
{
    (void)peer;
    return start(state, 0, channel, bytes, count, request);
}

/* Nobody else can complete a message, so one that is not done has no counterpart yet. */
static reshard_status test(void *state, reshard_request *request, int *out_done)
{
    *out_done = ((const message *)(const void *)request)->done;
    return check(state);
}

/* Nothing can happen while the only rank waits, so waiting breaks the group. */
static void idle(void *state)
{
    self *s = state;
    if (!s->broken) {
        s->broken = 1;
        (void)strcpy(s->why, "the only rank waits for a message that it has not sent");
    }
}

static void *map(void *state, int32_t peer, const void *address, size_t bytes)
{
    (void)state;
    (void)peer;
    (void)bytes;
    return (void *)(uintptr_t)address;
}

static reshard_status touch(void *state, int begin)
{
    return begin ? check(state) : RESHARD_OK;
}

static void fail(void *state, const char *why)
{
    self *s = state;
    if (!s->broken)
        rs_shorten(why, s->why, sizeof s->why);
    s->broken = 1;
}

static void quiesce(void *state)
{
    (void)state;
}

static void close_endpoint(void *state)
{
    self *s = state;
    rs_release(s->context, s);
}

reshard_status reshard_group_self(reshard_context *context, reshard_group **out_group)
{
    self *s = rs_allocate_zeroed(context, sizeof *s);
    if (s == NULL)
        return rs_allocation_status();
    s->context = context;
    reshard_endpoint endpoint = {
        .size = sizeof endpoint,
        .name = "self",
        .rank = 0,
        .rank_count = 1,
        .message_bytes_max = SIZE_MAX,
        .state = s,
        .send = send,
        .receive = receive,
        .test = test,
        .idle = idle,
        .maps_everything = 1,
        .map = map,
        .touch = touch,
        .fail = fail,
        .quiesce = quiesce,
        .close = close_endpoint,
    };
    reshard_status status = reshard_group_create(context, &endpoint, out_group);
    if (status != RESHARD_OK)
        close_endpoint(s);
    return status;
}
