/* SPDX-License-Identifier: Apache-2.0 */
/* hub.c - makes hubs and endpoints, wakes ranks, breaks the group, and guards peers' memory. */
#include "transport/hub_parts.h"

#include "base/context.h"
#include "base/error.h"
#include "system/clock.h"
#include "system/core.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#define PAGE_BYTES ((size_t)4096)

/* ---- making ---------------------------------------------------------------------------------- */

/* If every rank has a core, staying awake is cheaper than sleeping: first some time of spinning,
 * then about a millisecond of yielding the core to others. The clock says when to stop spinning,
 * because a pause takes 10 to 140 cycles. */
#define SPIN_NANOSECONDS 200000
#define SPINS 64 /* between two looks at the clock */
#define YIELDS 2000
/* After so long, whoever should have answered may be waiting for this rank's core. */
#define PROMPT_NANOSECONDS 5000

static reshard_status init_members(rs_hub *hub, int32_t *made)
{
    for (int32_t i = 0; i < hub->size; i++, ++*made) {
        rs_member *m = &hub->members[i];
        m->hub = hub;
        m->rank = i;
        atomic_init(&m->touching, 0);
        atomic_init(&m->left, 0);
        atomic_init(&m->events, 0);
        atomic_init(&m->sleeping, 0);
        atomic_init(&m->core, -1);
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

static void release_shared(rs_member *m)
{
    for (rs_hub_memory *s = m->shared, *next; s != NULL; s = next) {
        next = s->next;
        rs_release(m->hub->context, s);
    }
}

static void release_parts(rs_hub *hub, int32_t members, int64_t pairs)
{
    for (int32_t i = 0; i < members; i++) {
        release_shared(&hub->members[i]);
        rs_mutex_release(&hub->members[i].lock);
        rs_condition_release(&hub->members[i].wakes);
    }
    for (int64_t i = 0; i < pairs; i++)
        rs_mutex_release(&hub->pairs[i].lock);
    rs_release(hub->context, hub->members);
    rs_release(hub->context, hub->pairs);
    rs_release(hub->context, hub);
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
    hub->has_cores = rs_core_count() >= size;
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

void rs_hub_wake(rs_member *m)
{
    /* Pairs with idle(): either idle() sees the new count, or this sees that the rank sleeps. */
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
        rs_hub_wake(&hub->members[i]);
}

static void break_by(rs_hub *hub, const rs_error *error)
{
    assert(error->status != RESHARD_OK);
    rs_mutex_lock(&hub->lock);
    if (hub->error.status == RESHARD_OK)
        hub->error = *error;
    rs_mutex_unlock(&hub->lock);
    atomic_store(&hub->broken, 1);
    wake_everybody(hub);
}

void rs_hub_break(rs_hub *hub, reshard_status status, const char *why)
{
    rs_error error = {.status = status};
    (void)snprintf(error.text, sizeof error.text, "%s", why);
    break_by(hub, &error);
}

reshard_status rs_hub_fail_broken(rs_hub *hub)
{
    char text[RS_ERROR_TEXT_BYTES];
    rs_mutex_lock(&hub->lock);
    memcpy(text, hub->error.text, sizeof text);
    rs_mutex_unlock(&hub->lock);
    return rs_fail(RESHARD_ERR_GROUP_BROKEN, "the group is broken: %s", text);
}

void rs_hub_leave(rs_hub *hub, int32_t rank, reshard_status status)
{
    if (status != RESHARD_OK) {
        const rs_error *error = rs_error_last();
        /* An error on which ranks have agreed already names the rank. */
        if (!error->has_rank)
            (void)rs_fail_of_rank(rank, status, error->hint, error->subject, error->text);
        (void)rs_fail_as(status);
        break_by(hub, error);
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
    return hub->error.status == RESHARD_OK ? RESHARD_OK : rs_fail_again(&hub->error);
}

/* ---- touching -------------------------------------------------------------------------------- */

reshard_status rs_hub_begin_touch(rs_member *m)
{
    assert(!atomic_load(&m->touching)); /* ending this one would end the outer one too */
    atomic_store(&m->touching, 1);
    if (!atomic_load(&m->hub->broken))
        return RESHARD_OK;
    atomic_store(&m->touching, 0);
    return rs_hub_fail_broken(m->hub);
}

void rs_hub_end_touch(rs_member *m)
{
    assert(atomic_load(&m->touching));
    atomic_store(&m->touching, 0);
}

static reshard_status touch(void *state, int begin)
{
    rs_member *m = state;
    if (begin)
        return rs_hub_begin_touch(m);
    rs_hub_end_touch(m);
    return RESHARD_OK;
}

static void quiesce(void *state)
{
    rs_member *m = state;
    for (int32_t i = 0; i < m->hub->size; i++) {
        while (i != m->rank && atomic_load(&m->hub->members[i].touching)) {
            if (m->hub->has_scheduler)
                (void)m->hub->scheduler.step(m->hub->scheduler.user, m->rank);
            else
                rs_thread_yield();
        }
    }
}

/* ---- waiting and memory ---------------------------------------------------------------------- */

static bool has_events(const rs_member *m)
{
    return atomic_load(&m->events) != m->seen;
}

static void note_core(rs_member *m)
{
    int core = rs_core_now();
    if (core != atomic_load_explicit(&m->core, memory_order_relaxed))
        atomic_store_explicit(&m->core, core, memory_order_relaxed);
}

/* If another rank was last seen on this one's core, goes to one that no rank has. */
static void leave_core(rs_member *m)
{
    rs_cores taken = {{false}};
    bool is_shared = false;
    note_core(m);
    int own = atomic_load_explicit(&m->core, memory_order_relaxed);
    for (int32_t i = 0; i < m->hub->size; i++) {
        int core = atomic_load_explicit(&m->hub->members[i].core, memory_order_relaxed);
        if (core >= 0)
            taken.has[core] = true;
        is_shared = is_shared || (i != m->rank && core >= 0 && core == own);
    }
    if (is_shared && rs_core_leave(&taken))
        note_core(m);
}

/* Waits for an event without sleeping, but not for long. */
static void look(rs_member *m)
{
    const uint64_t began = rs_clock_now();
    uint64_t now = began;
    bool has_checked = false;
    note_core(m);
    while (!has_events(m) && now - began < SPIN_NANOSECONDS) {
        for (int i = 0; i < SPINS && !has_events(m); i++)
            rs_thread_pause();
        now = rs_clock_now();
        if (!has_checked && now - began > PROMPT_NANOSECONDS) {
            leave_core(m);
            has_checked = true;
        }
    }
    for (int i = 0; i < YIELDS && !has_events(m); i++)
        rs_thread_yield();
}

static void idle(void *state)
{
    rs_member *m = state;
    if (m->hub->has_scheduler) {
        if (!has_events(m))
            m->hub->scheduler.idle(m->hub->scheduler.user, m->rank);
        m->seen = atomic_load(&m->events);
        return;
    }
    if (m->hub->has_cores && !has_events(m))
        look(m);
    if (!has_events(m)) {
        rs_mutex_lock(&m->lock);
        atomic_store(&m->sleeping, 1);
        while (!has_events(m))
            rs_condition_wait(&m->wakes, &m->lock);
        atomic_store(&m->sleeping, 0);
        rs_mutex_unlock(&m->lock);
        note_core(m);
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
    rs_member *m = state;
    rs_hub_memory *s = rs_allocate(m->hub->context, sizeof *s + bytes + PAGE_BYTES);
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
    const rs_member *m = state;
    return peer / m->hub->node_size == m->rank / m->hub->node_size;
}

static void *map_shared(void *state, int32_t peer, const void *address, size_t bytes)
{
    const rs_member *m = state;
    const rs_hub_memory *s = shares_with(state, peer) ? m->hub->members[peer].shared : NULL;
    for (; s != NULL; s = s->next) {
        size_t offset = (size_t)((uintptr_t)address - (uintptr_t)s->memory);
        if (offset < s->bytes && bytes <= s->bytes - offset)
            return (void *)(uintptr_t)address;
    }
    return NULL;
}

static void fail(void *state, const char *why)
{
    rs_member *m = state;
    rs_error error = {.status = RESHARD_ERR_GROUP_BROKEN, .has_rank = true, .rank = m->rank};
    (void)snprintf(error.text, sizeof error.text, "rank %d: %s", m->rank, why);
    break_by(m->hub, &error);
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
        .send = rs_hub_send,
        .receive = rs_hub_receive,
        .test = rs_hub_test,
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
