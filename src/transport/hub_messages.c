/* SPDX-License-Identifier: Apache-2.0 */
/* hub_messages.c - messages that meet in the hub, and those that a simulation holds back. */
#include "base/error.h"
#include "transport/hub_parts.h"

#include <stdio.h>
#include <string.h>

/* ---- messages -------------------------------------------------------------------------------- */

static void append(rs_hub_message_list *l, rs_hub_message *m)
{
    m->next = NULL;
    if (l->last != NULL)
        l->last->next = m;
    else
        l->first = m;
    l->last = m;
}

/* Removes and returns the first message on this channel; NULL if there is none. */
static rs_hub_message *take(rs_hub_message_list *l, int32_t channel)
{
    rs_hub_message *before = NULL;
    for (rs_hub_message *m = l->first; m != NULL; before = m, m = m->next) {
        if (m->channel != channel)
            continue;
        if (before != NULL)
            before->next = m->next;
        else
            l->first = m->next;
        if (l->last == m)
            l->last = before;
        return m;
    }
    return NULL;
}

static reshard_status step(rs_member *m)
{
    return m->hub->has_scheduler ? m->hub->scheduler.step(m->hub->scheduler.user, m->rank)
                                 : RESHARD_OK;
}

static reshard_status copy(rs_hub *hub, const rs_hub_message *sent, const rs_hub_message *received)
{
    if (sent->count != received->count) {
        char text[256];
        (void)snprintf(text, sizeof text, "rank %d sends %zu bytes to rank %d, which waits for %zu",
                       sent->owner, sent->count, received->owner, received->count);
        rs_hub_break(hub, RESHARD_ERR_MISMATCH, text);
        return rs_hub_fail_broken(hub);
    }
    if (sent->count != 0)
        memcpy(received->bytes, sent->bytes, sent->count);
    return RESHARD_OK;
}

static reshard_status deliver(rs_hub *hub, rs_hub_message *mine, rs_hub_message *other,
                              bool sending)
{
    reshard_status status = copy(hub, sending ? mine : other, sending ? other : mine);
    if (status != RESHARD_OK)
        return status;
    /* The second store hands the request back to its owner, who then sees the copied bytes. From
     * then on, `other` is not ours. */
    int32_t owner = other->owner;
    atomic_store_explicit(&mine->done, 1, memory_order_relaxed);
    atomic_store_explicit(&other->done, 1, memory_order_release);
    rs_hub_wake(&hub->members[owner]);
    return RESHARD_OK;
}

/* ---- messages that are held back ------------------------------------------------------------- */

/* The simulation chooses the first message to be held back. Later ones of the same pair and channel
 * must not overtake it. */
static bool follows_held(const rs_hub *hub, const rs_hub_message *sent)
{
    const rs_hub_message *first = hub->held.first;
    return first != NULL && sent->owner == first->owner && sent->peer == first->peer &&
           sent->channel == first->channel;
}

static bool hold_back(rs_hub *hub, rs_hub_message *sent, rs_hub_message *received)
{
    int64_t index = ++hub->met_count;
    bool chosen = index == hub->faults.delay || index == hub->faults.reorder;
    if (!chosen && !follows_held(hub, sent))
        return false;
    hub->reached_fault = hub->reached_fault || chosen;
    sent->other = received;
    append(&hub->held, sent);
    return true;
}

bool rs_hub_holds(const rs_hub *hub, bool *out_overtaken)
{
    *out_overtaken = hub->overtaken && hub->faults.reorder != 0;
    return hub->held.first != NULL;
}

void rs_hub_let_go(rs_hub *hub, int32_t rank)
{
    rs_member *m = &hub->members[rank];
    /* In a broken group, messages belong to their owners again. */
    if (hub->held.first == NULL || rs_hub_begin_touch(m) != RESHARD_OK)
        return;
    for (rs_hub_message *sent = hub->held.first, *next; sent != NULL; sent = next) {
        next = sent->next;
        int32_t owner = sent->owner;
        if (deliver(hub, sent, sent->other, true) != RESHARD_OK)
            break;
        rs_hub_wake(&hub->members[owner]);
    }
    hub->held = (rs_hub_message_list){NULL, NULL};
    hub->overtaken = false;
    rs_hub_end_touch(m);
}

static reshard_status meet(rs_member *m, rs_hub_message *mine, rs_hub_message *other, bool sending)
{
    rs_hub *hub = m->hub;
    if (!hub->has_scheduler)
        return deliver(hub, mine, other, sending);
    if (hold_back(hub, sending ? mine : other, sending ? other : mine))
        return RESHARD_OK;
    hub->overtaken = hub->overtaken || hub->held.first != NULL;
    return deliver(hub, mine, other, sending);
}

static reshard_status start(rs_member *m, bool sending, int32_t peer, int32_t channel, char *bytes,
                            size_t count, reshard_request *request)
{
    rs_hub *hub = m->hub;
    reshard_status status = step(m);
    if (hub->faults.fail != 0 && ++hub->started_count == hub->faults.fail) {
        hub->reached_fault = true;
        rs_hub_break(hub, RESHARD_ERR_GROUP_BROKEN, "a message failed by the simulation's wish");
    }
    if (status == RESHARD_OK)
        status = rs_hub_begin_touch(m);
    if (status != RESHARD_OK)
        return status;
    rs_hub_message *mine = (rs_hub_message *)(void *)request;
    *mine = (rs_hub_message){
        .bytes = bytes, .count = count, .channel = channel, .owner = m->rank, .peer = peer};
    atomic_init(&mine->done, 0);
    int64_t from = sending ? m->rank : peer, to = sending ? peer : m->rank;
    rs_pair *p = &hub->pairs[from * hub->size + to];
    rs_mutex_lock(&p->lock);
    rs_hub_message *other = take(sending ? &p->receives : &p->sends, channel);
    if (other == NULL)
        append(sending ? &p->sends : &p->receives, mine);
    rs_mutex_unlock(&p->lock);
    if (other != NULL)
        status = meet(m, mine, other, sending);
    rs_hub_end_touch(m);
    return status;
}

reshard_status rs_hub_send(void *state, int32_t peer, int32_t channel, const void *bytes,
                           size_t count, reshard_request *request)
{
    return start(state, true, peer, channel, (char *)(uintptr_t)bytes, count, request);
}

reshard_status rs_hub_receive(void *state, int32_t peer, int32_t channel, void *bytes, size_t count,
                              reshard_request *request)
{
    return start(state, false, peer, channel, bytes, count, request);
}

static bool is_done(const rs_hub_message *m)
{
    return atomic_load_explicit(&m->done, memory_order_acquire) != 0;
}

reshard_status rs_hub_test(void *state, reshard_request *request, int *out_done)
{
    rs_member *m = state;
    const rs_hub_message *mine = (const rs_hub_message *)(const void *)request;
    reshard_status status = step(m);
    if (status != RESHARD_OK)
        return status;
    *out_done = is_done(mine);
    if (*out_done)
        return RESHARD_OK;
    if (atomic_load(&m->hub->broken))
        return rs_hub_fail_broken(m->hub);
    if (atomic_load(&m->hub->members[mine->peer].left) && !is_done(mine)) {
        char text[128];
        (void)snprintf(text, sizeof text, "rank %d waits for rank %d, which has left", m->rank,
                       mine->peer);
        rs_hub_break(m->hub, RESHARD_ERR_GROUP_BROKEN, text);
        return rs_hub_fail_broken(m->hub);
    }
    return RESHARD_OK;
}
