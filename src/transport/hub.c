/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/hub.h"

#include "base/context.h"
#include "base/error.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- structures ------------------------------------------------------------------------------ */

/* Lives in the memory of a reshard_request. */
typedef struct message {
    struct message *next;
    char *bytes;
    size_t count;
    int32_t channel;
    int32_t owner, peer;
    atomic_int done;
    struct message *other; /* while held back: its counterpart */
} message;

static_assert(sizeof(message) <= sizeof(reshard_request), "a message fits into a request");

typedef struct list {
    message *first, *last;
} list;

/* Messages from one rank to another that wait for their counterpart. */
typedef struct pair {
    rs_mutex lock;
    list sends, receives;
} pair;

/* Memory of one rank that the ranks of its node can see. */
typedef struct shared {
    struct shared *next;
    size_t bytes;
    char *memory;
} shared;

#define PAGE_BYTES ((size_t)4096)

typedef struct member {
    rs_hub *hub;
    int32_t rank;
    shared *shared; /* looked at by others under a scheduler only */
    atomic_int touching;
    atomic_int left;
    /* What wakes a rank that sleeps: every event adds one, and signals when the rank has said it
     * sleeps. */
    atomic_uint events;
    atomic_int sleeping;
    unsigned seen; /* of events, by the rank itself */
    rs_mutex lock;
    rs_condition wakes;
} member;

struct rs_hub {
    reshard_context *context;
    const char *name;
    int32_t size;
    bool mapped;
    int32_t node_size; /* 0: no nodes */
    bool has_scheduler;
    rs_hub_scheduler scheduler;
    int spins; /* before a rank sleeps */
    pair *pairs;
    member *members;
    atomic_int broken;
    /* Under a scheduler only, so one rank at a time counts and holds back. */
    rs_hub_faults faults;
    int64_t started_count, met_count;
    list held;      /* sends */
    bool overtaken; /* the first of them, by another message */
    bool reached_fault;
    rs_mutex lock; /* of what follows */
    reshard_status status;
    char text[512];
};

/* ---- making ---------------------------------------------------------------------------------- */

/* Where every rank has a core, waiting awake for some microseconds is cheaper than a sleep. */
#define SPINS 4000

static reshard_status init_members(rs_hub *hub, int32_t *made)
{
    for (int32_t i = 0; i < hub->size; i++, ++*made) {
        member *m = &hub->members[i];
        m->hub = hub;
        m->rank = i;
        atomic_init(&m->touching, 0);
        atomic_init(&m->left, 0);
        atomic_init(&m->events, 0);
        atomic_init(&m->sleeping, 0);
        reshard_status status = rs_mutex_init(&m->lock);
        if (status != RESHARD_OK)
            return status;
        status = rs_condition_init(&m->wakes);
        if (status != RESHARD_OK) {
            rs_mutex_release(&m->lock);
            return status;
        }
    }
    return RESHARD_OK;
}

static reshard_status init_pairs(rs_hub *hub, int64_t *made)
{
    for (int64_t count = (int64_t)hub->size * hub->size; *made < count; ++*made) {
        reshard_status status = rs_mutex_init(&hub->pairs[*made].lock);
        if (status != RESHARD_OK)
            return status;
    }
    return RESHARD_OK;
}

static void release_shared(member *m)
{
    for (shared *s = m->shared, *next; s != NULL; s = next) {
        next = s->next;
        rs_release(m->hub->context, s, sizeof *s + s->bytes + PAGE_BYTES);
    }
}

static void release_parts(rs_hub *hub, int32_t members, int64_t pairs)
{
    size_t size = (size_t)hub->size;
    for (int32_t i = 0; i < members; i++) {
        release_shared(&hub->members[i]);
        rs_mutex_release(&hub->members[i].lock);
        rs_condition_release(&hub->members[i].wakes);
    }
    for (int64_t i = 0; i < pairs; i++)
        rs_mutex_release(&hub->pairs[i].lock);
    rs_release(hub->context, hub->members, size * sizeof *hub->members);
    rs_release(hub->context, hub->pairs, size * size * sizeof *hub->pairs);
    rs_release(hub->context, hub, sizeof *hub);
}

reshard_status rs_hub_create(reshard_context *context, int32_t size, bool mapped, const char *name,
                             const rs_hub_scheduler *scheduler, rs_hub **out_hub)
{
    rs_hub *hub = rs_allocate_zeroed(context, sizeof *hub);
    if (hub == NULL)
        return rs_allocation_status();
    hub->context = context;
    hub->name = name;
    hub->size = size;
    hub->mapped = mapped;
    hub->has_scheduler = scheduler != NULL;
    if (scheduler != NULL)
        hub->scheduler = *scheduler;
    hub->spins = sysconf(_SC_NPROCESSORS_ONLN) >= size ? SPINS : 0;
    atomic_init(&hub->broken, 0);
    size_t count = (size_t)size;
    hub->members = rs_allocate_zeroed(context, count * sizeof *hub->members);
    hub->pairs = rs_allocate_zeroed(context, count * count * sizeof *hub->pairs);
    int32_t members = 0;
    int64_t pairs = 0;
    reshard_status status = RESHARD_OK;
    if (hub->members == NULL || hub->pairs == NULL)
        status = rs_allocation_status();
    if (status == RESHARD_OK)
        status = init_members(hub, &members);
    if (status == RESHARD_OK)
        status = init_pairs(hub, &pairs);
    if (status == RESHARD_OK)
        status = rs_mutex_init(&hub->lock);
    if (status != RESHARD_OK) {
        release_parts(hub, members, pairs);
        return status;
    }
    *out_hub = hub;
    return RESHARD_OK;
}

void rs_hub_destroy(rs_hub *hub)
{
    if (hub == NULL)
        return;
    rs_mutex_release(&hub->lock);
    release_parts(hub, hub->size, (int64_t)hub->size * hub->size);
}

/* ---- waking and breaking --------------------------------------------------------------------- */

static void wake(member *m)
{
    /* Pairs with idle(): either it sees the new count, or we see that it sleeps. */
    (void)atomic_fetch_add(&m->events, 1);
    if (m->hub->has_scheduler) {
        m->hub->scheduler.wake(m->hub->scheduler.user, m->rank);
        return;
    }
    if (atomic_load(&m->sleeping)) {
        rs_mutex_lock(&m->lock);
        rs_condition_wake_all(&m->wakes);
        rs_mutex_unlock(&m->lock);
    }
}

static void wake_everybody(rs_hub *hub)
{
    for (int32_t i = 0; i < hub->size; i++)
        wake(&hub->members[i]);
}

/* The first to break the group gives the reason. */
static void break_hub(rs_hub *hub, reshard_status status, const char *why)
{
    rs_mutex_lock(&hub->lock);
    if (hub->status == RESHARD_OK) {
        hub->status = status;
        (void)snprintf(hub->text, sizeof hub->text, "%s", why);
    }
    rs_mutex_unlock(&hub->lock);
    atomic_store(&hub->broken, 1);
    wake_everybody(hub);
}

static reshard_status fail_broken(rs_hub *hub)
{
    char text[512];
    rs_mutex_lock(&hub->lock);
    memcpy(text, hub->text, sizeof text);
    rs_mutex_unlock(&hub->lock);
    return rs_fail(RESHARD_ERR_GROUP_BROKEN, "the group is broken: %s", text);
}

void rs_hub_leave(rs_hub *hub, int32_t rank, reshard_status status)
{
    if (status != RESHARD_OK) {
        char text[512];
        int32_t named;
        /* What ranks have agreed on names the rank already. */
        if (sscanf(reshard_error_text(), "rank %d:", &named) == 1)
            (void)snprintf(text, sizeof text, "%s", reshard_error_text());
        else
            (void)snprintf(text, sizeof text, "rank %d: %s", rank, reshard_error_text());
        break_hub(hub, status, text);
    }
    atomic_store(&hub->members[rank].left, 1);
    wake_everybody(hub);
    if (hub->has_scheduler)
        hub->scheduler.leave(hub->scheduler.user, rank);
}

void rs_hub_make_nodes(rs_hub *hub, int32_t size)
{
    hub->node_size = size;
}

void rs_hub_set_faults(rs_hub *hub, const rs_hub_faults *faults)
{
    hub->faults = *faults;
}

bool rs_hub_reached_fault(const rs_hub *hub)
{
    return hub->reached_fault;
}

reshard_status rs_hub_result(rs_hub *hub)
{
    return hub->status == RESHARD_OK ? RESHARD_OK : rs_fail(hub->status, "%s", hub->text);
}

/* ---- touching -------------------------------------------------------------------------------- */

/* Invariant 2: the flag first, then the look. */
static reshard_status begin_touch(member *m)
{
    atomic_store(&m->touching, 1);
    if (!atomic_load(&m->hub->broken))
        return RESHARD_OK;
    atomic_store(&m->touching, 0);
    return fail_broken(m->hub);
}

static void end_touch(member *m)
{
    atomic_store(&m->touching, 0);
}

static reshard_status touch(void *state, int begin)
{
    member *m = state;
    if (begin)
        return begin_touch(m);
    end_touch(m);
    return RESHARD_OK;
}

static void quiesce(void *state)
{
    member *m = state;
    for (int32_t i = 0; i < m->hub->size; i++) {
        while (i != m->rank && atomic_load(&m->hub->members[i].touching)) {
            if (m->hub->has_scheduler)
                (void)m->hub->scheduler.step(m->hub->scheduler.user, m->rank);
            else
                rs_thread_yield();
        }
    }
}

/* ---- messages -------------------------------------------------------------------------------- */

static void append(list *l, message *m)
{
    m->next = NULL;
    if (l->last != NULL)
        l->last->next = m;
    else
        l->first = m;
    l->last = m;
}

/* Takes out the first message on that channel. */
static message *take(list *l, int32_t channel)
{
    message *before = NULL;
    for (message *m = l->first; m != NULL; before = m, m = m->next) {
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

static reshard_status step(member *m)
{
    return m->hub->has_scheduler ? m->hub->scheduler.step(m->hub->scheduler.user, m->rank)
                                 : RESHARD_OK;
}

static reshard_status copy(rs_hub *hub, const message *sent, const message *received)
{
    if (sent->count != received->count) {
        char text[256];
        (void)snprintf(text, sizeof text, "rank %d sends %zu bytes to rank %d, which waits for %zu",
                       sent->owner, sent->count, received->owner, received->count);
        break_hub(hub, RESHARD_ERR_MISMATCH, text);
        return fail_broken(hub);
    }
    if (sent->count != 0)
        memcpy(received->bytes, sent->bytes, sent->count);
    return RESHARD_OK;
}

static reshard_status deliver(rs_hub *hub, message *mine, message *other, bool sending)
{
    reshard_status status = copy(hub, sending ? mine : other, sending ? other : mine);
    if (status != RESHARD_OK)
        return status;
    /* After this store the request is its owner's again: it sees the bytes that were copied. */
    int32_t owner = other->owner;
    atomic_store_explicit(&mine->done, 1, memory_order_relaxed);
    atomic_store_explicit(&other->done, 1, memory_order_release);
    wake(&hub->members[owner]);
    return RESHARD_OK;
}

/* ---- messages that are held back ------------------------------------------------------------- */

/* The first is the one that the simulation chose, and those behind it must not overtake it. */
static bool follows_held(const rs_hub *hub, const message *sent)
{
    const message *first = hub->held.first;
    return first != NULL && sent->owner == first->owner && sent->peer == first->peer &&
           sent->channel == first->channel;
}

static bool hold_back(rs_hub *hub, message *sent, message *received)
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
    member *m = &hub->members[rank];
    /* A broken group's messages are their owners' again. */
    if (hub->held.first == NULL || begin_touch(m) != RESHARD_OK)
        return;
    for (message *sent = hub->held.first, *next; sent != NULL; sent = next) {
        next = sent->next;
        int32_t owner = sent->owner;
        if (deliver(hub, sent, sent->other, true) != RESHARD_OK)
            break;
        wake(&hub->members[owner]);
    }
    hub->held = (list){NULL, NULL};
    hub->overtaken = false;
    end_touch(m);
}

static reshard_status meet(member *m, message *mine, message *other, bool sending)
{
    rs_hub *hub = m->hub;
    if (!hub->has_scheduler)
        return deliver(hub, mine, other, sending);
    if (hold_back(hub, sending ? mine : other, sending ? other : mine))
        return RESHARD_OK;
    hub->overtaken = hub->overtaken || hub->held.first != NULL;
    return deliver(hub, mine, other, sending);
}

static reshard_status start(member *m, bool sending, int32_t peer, int32_t channel, char *bytes,
                            size_t count, reshard_request *request)
{
    rs_hub *hub = m->hub;
    reshard_status status = step(m);
    if (hub->faults.fail != 0 && ++hub->started_count == hub->faults.fail) {
        hub->reached_fault = true;
        break_hub(hub, RESHARD_ERR_GROUP_BROKEN, "a message failed by the simulation's wish");
    }
    if (status == RESHARD_OK)
        status = begin_touch(m);
    if (status != RESHARD_OK)
        return status;
    message *mine = (message *)(void *)request;
    *mine = (message){
        .bytes = bytes, .count = count, .channel = channel, .owner = m->rank, .peer = peer};
    atomic_init(&mine->done, 0);
    int64_t from = sending ? m->rank : peer, to = sending ? peer : m->rank;
    pair *p = &hub->pairs[from * hub->size + to];
    rs_mutex_lock(&p->lock);
    message *other = take(sending ? &p->receives : &p->sends, channel);
    if (other == NULL)
        append(sending ? &p->sends : &p->receives, mine);
    rs_mutex_unlock(&p->lock);
    if (other != NULL)
        status = meet(m, mine, other, sending);
    end_touch(m);
    return status;
}

static reshard_status send(void *state, int32_t peer, int32_t channel, const void *bytes,
                           size_t count, reshard_request *request)
{
    return start(state, true, peer, channel, (char *)(uintptr_t)bytes, count, request);
}

static reshard_status receive(void *state, int32_t peer, int32_t channel, void *bytes, size_t count,
                              reshard_request *request)
{
    return start(state, false, peer, channel, bytes, count, request);
}

static bool is_done(const message *m)
{
    return atomic_load_explicit(&m->done, memory_order_acquire) != 0;
}

static reshard_status test(void *state, reshard_request *request, int *out_done)
{
    member *m = state;
    const message *mine = (const message *)(const void *)request;
    reshard_status status = step(m);
    if (status != RESHARD_OK)
        return status;
    *out_done = is_done(mine);
    if (*out_done)
        return RESHARD_OK;
    if (atomic_load(&m->hub->broken))
        return fail_broken(m->hub);
    if (atomic_load(&m->hub->members[mine->peer].left) && !is_done(mine)) {
        char text[128];
        (void)snprintf(text, sizeof text, "rank %d waits for rank %d, which has left", m->rank,
                       mine->peer);
        break_hub(m->hub, RESHARD_ERR_GROUP_BROKEN, text);
        return fail_broken(m->hub);
    }
    return RESHARD_OK;
}

static void idle(void *state)
{
    member *m = state;
    if (m->hub->has_scheduler) {
        if (atomic_load(&m->events) == m->seen)
            m->hub->scheduler.idle(m->hub->scheduler.user, m->rank);
        m->seen = atomic_load(&m->events);
        return;
    }
    for (int i = 0; i < m->hub->spins; i++) {
        if (atomic_load(&m->events) != m->seen)
            break;
        rs_thread_pause();
    }
    if (atomic_load(&m->events) == m->seen) {
        rs_mutex_lock(&m->lock);
        atomic_store(&m->sleeping, 1);
        while (atomic_load(&m->events) == m->seen)
            rs_condition_wait(&m->wakes, &m->lock);
        atomic_store(&m->sleeping, 0);
        rs_mutex_unlock(&m->lock);
    }
    m->seen = atomic_load(&m->events);
}

static void *map(void *state, int32_t peer, const void *address, size_t bytes)
{
    (void)state;
    (void)peer;
    (void)bytes;
    return (void *)(uintptr_t)address;
}

static void *share(void *state, size_t bytes)
{
    member *m = state;
    shared *s = rs_allocate(m->hub->context, sizeof *s + bytes + PAGE_BYTES);
    if (s == NULL)
        return NULL;
    s->bytes = bytes;
    s->memory = (char *)(s + 1);
    s->memory += PAGE_BYTES - (uintptr_t)s->memory % PAGE_BYTES;
    s->next = m->shared;
    m->shared = s;
    return s->memory;
}

static int shares_with(void *state, int32_t peer)
{
    const member *m = state;
    return peer / m->hub->node_size == m->rank / m->hub->node_size;
}

static void *map_shared(void *state, int32_t peer, const void *address, size_t bytes)
{
    const member *m = state;
    const shared *s = shares_with(state, peer) ? m->hub->members[peer].shared : NULL;
    for (; s != NULL; s = s->next) {
        size_t offset = (size_t)((uintptr_t)address - (uintptr_t)s->memory);
        if (offset < s->bytes && bytes <= s->bytes - offset)
            return (void *)(uintptr_t)address;
    }
    return NULL;
}

static void fail(void *state, const char *why)
{
    member *m = state;
    char text[512];
    (void)snprintf(text, sizeof text, "rank %d: %s", m->rank, why);
    break_hub(m->hub, RESHARD_ERR_GROUP_BROKEN, text);
}

static void close_endpoint(void *state)
{
    (void)state;
}

void rs_hub_endpoint(rs_hub *hub, int32_t rank, reshard_endpoint *out_endpoint)
{
    bool nodes = !hub->mapped && hub->node_size > 0;
    *out_endpoint = (reshard_endpoint){
        .size = sizeof *out_endpoint,
        .name = hub->name,
        .rank = rank,
        .rank_count = hub->size,
        .message_bytes_max = SIZE_MAX,
        .state = &hub->members[rank],
        .send = send,
        .receive = receive,
        .test = test,
        .idle = idle,
        .maps_everything = hub->mapped,
        .map = hub->mapped ? map
               : nodes     ? map_shared
                           : NULL,
        .touch = hub->mapped || nodes ? touch : NULL,
        .share = nodes ? share : NULL,
        .shares_with = nodes ? shares_with : NULL,
        .fail = fail,
        .quiesce = quiesce,
        .close = close_endpoint,
    };
}
