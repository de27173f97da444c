/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sim.c - N ranks, of which one runs at a time. Whenever a rank calls the transport, the next one
 * to run is drawn from those that are not idle, by a generator that starts from the seed. So any
 * order of events can occur, and a run can be repeated by its seed. When all remaining ranks are
 * idle, messages that are held back on purpose (hub.h) are delivered. If there are none, nothing
 * can ever happen again, and the group breaks.
 */
#include <reshard/sim.h>

#include "base/context.h"
#include "base/error.h"
#include "base/options.h"
#include "transport/hub.h"

#include <assert.h>
#include <string.h>

typedef struct sim_rank {
    bool idle, gone;
    bool arrived; /* its body has begun, or never will */
    int64_t calls;
    rs_condition turn; /* one for each rank, so that passing the turn on wakes nobody else */
} sim_rank;

typedef struct simulation {
    int32_t size;
    reshard_sim_options options;
    rs_hub *hub;
    rs_mutex lock;
    uint64_t random;
    int32_t running;
    int32_t arrived; /* ranks that have arrived; none runs before all have */
    bool stuck;
    bool stopped_one;
    int64_t steps_held, steps_overtaken; /* since a message was held back, or overtaken */
    sim_rank *ranks;
    reshard_rank_fn body;
    void *user;
} simulation;

static uint64_t draw(simulation *s)
{
    uint64_t x = (s->random += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static int32_t count_ready(const simulation *s)
{
    int32_t ready = 0;
    for (int32_t i = 0; i < s->size; i++)
        ready += !s->ranks[i].idle && !s->ranks[i].gone;
    return ready;
}

/* Chooses who runs next. If nobody can, all idle ranks are woken and find the group broken. */
static void pass_on(simulation *s)
{
    int32_t ready = count_ready(s);
    if (ready == 0) {
        s->stuck = true;
        for (int32_t i = 0; i < s->size; i++) {
            s->ranks[i].idle = false;
            ready += !s->ranks[i].gone;
        }
    }
    int32_t chosen = ready != 0 ? (int32_t)(draw(s) % (uint64_t)ready) : -1;
    for (int32_t i = 0; i < s->size && ready != 0; i++) {
        if (s->ranks[i].idle || s->ranks[i].gone)
            continue;
        if (chosen-- == 0)
            s->running = i;
    }
    if (s->running >= 0)
        rs_condition_wake_all(&s->ranks[s->running].turn);
}

static void wait_for_turn(simulation *s, int32_t rank)
{
    while (s->running != rank)
        rs_condition_wait(&s->ranks[rank].turn, &s->lock);
}

/* A rank may test again and again without ever being idle, so there is a limit to holding messages
 * back. */
#define STEPS_HELD_MAX 1000
#define STEPS_OVERTAKEN 20 /* enough for a rank to take the other message first */

static void limit_holding(simulation *s, int32_t rank)
{
    bool overtaken = false;
    s->steps_held = rs_hub_holds(s->hub, &overtaken) ? s->steps_held + 1 : 0;
    s->steps_overtaken = overtaken ? s->steps_overtaken + 1 : 0;
    if (s->steps_held == STEPS_HELD_MAX || s->steps_overtaken == STEPS_OVERTAKEN)
        rs_hub_let_go(s->hub, rank);
}

static reshard_status step(void *user, int32_t rank)
{
    simulation *s = user;
    limit_holding(s, rank);
    rs_mutex_lock(&s->lock);
    sim_rank *a = &s->ranks[rank];
    a->calls++;
    pass_on(s);
    wait_for_turn(s, rank);
    bool stops = rank == s->options.stop_rank && a->calls == s->options.stop_after;
    bool stuck = s->stuck;
    s->stopped_one = s->stopped_one || stops;
    rs_mutex_unlock(&s->lock);
    if (stops)
        return rs_fail(RESHARD_ERR_GROUP_BROKEN, "stopped by the simulation");
    if (stuck)
        return rs_fail(RESHARD_ERR_GROUP_BROKEN,
                       "the group is broken: all ranks wait for each other");
    return RESHARD_OK;
}

static void idle(void *user, int32_t rank)
{
    simulation *s = user;
    rs_mutex_lock(&s->lock);
    s->ranks[rank].idle = true;
    if (count_ready(s) == 0) {
        rs_mutex_unlock(&s->lock); /* the hub will wake ranks; it is still this one's turn */
        rs_hub_let_go(s->hub, rank);
        rs_mutex_lock(&s->lock);
    }
    pass_on(s);
    wait_for_turn(s, rank);
    rs_mutex_unlock(&s->lock);
}

static void wake(void *user, int32_t rank)
{
    simulation *s = user;
    rs_mutex_lock(&s->lock);
    s->ranks[rank].idle = false;
    rs_mutex_unlock(&s->lock);
}

static void arrive(simulation *s, int32_t rank)
{
    assert(!s->ranks[rank].arrived && s->arrived < s->size);
    s->ranks[rank].arrived = true;
    if (++s->arrived == s->size)
        pass_on(s);
}

static reshard_status run_body(void *user, reshard_group *group)
{
    simulation *s = user;
    int32_t rank = reshard_group_rank(group);
    rs_mutex_lock(&s->lock);
    arrive(s, rank);
    wait_for_turn(s, rank);
    rs_mutex_unlock(&s->lock);
    return s->body(s->user, group);
}

/* The rank has left, and passes the turn on if it ever arrived. A rank whose group could not be
 * made never had the turn. */
static void leave(void *user, int32_t rank)
{
    simulation *s = user;
    rs_mutex_lock(&s->lock);
    s->ranks[rank].gone = true;
    if (!s->ranks[rank].arrived)
        arrive(s, rank);
    else
        pass_on(s);
    rs_mutex_unlock(&s->lock);
}

static reshard_status run_simulation(reshard_context *context, simulation *s)
{
    rs_hub_scheduler scheduler = {
        .user = s, .step = step, .idle = idle, .wake = wake, .leave = leave};
    reshard_status status =
        rs_hub_create(context, s->size, s->options.mapped != 0, "sim", &scheduler, &s->hub);
    if (status == RESHARD_OK) {
        rs_hub_make_nodes(s->hub, s->options.node_size);
        rs_hub_faults faults = {.fail = s->options.fail_message,
                                .delay = s->options.delay_message,
                                .reorder = s->options.reorder_message};
        rs_hub_set_faults(s->hub, &faults);
        status = rs_run_ranks(context, s->hub, s->size, run_body, s);
        if (s->options.out_reached != NULL)
            *s->options.out_reached = s->stopped_one || rs_hub_reached_fault(s->hub);
    }
    rs_hub_destroy(s->hub);
    return status;
}

reshard_status reshard_sim_run(reshard_context *context, int32_t size,
                               const reshard_sim_options *options, reshard_rank_fn body, void *user)
{
    if (size < 1 || size > RS_HUB_SIZE_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "%d ranks: from 1 to %d are possible", size,
                       RS_HUB_SIZE_MAX);
    simulation s = {.size = size, .running = -1, .body = body, .user = user};
    reshard_status status = rs_options_read("sim options", options, &s.options, sizeof s.options);
    if (status != RESHARD_OK)
        return status;
    s.random = s.options.seed;
    s.ranks = rs_allocate_zeroed(context, (size_t)size * sizeof *s.ranks);
    if (s.ranks == NULL)
        return rs_allocation_status();
    int32_t made = 0;
    status = rs_mutex_init(&s.lock);
    bool locks = status == RESHARD_OK;
    while (status == RESHARD_OK && made < size) {
        status = rs_condition_init(&s.ranks[made].turn);
        made += status == RESHARD_OK;
    }
    if (status == RESHARD_OK)
        status = run_simulation(context, &s);
    if (locks)
        rs_mutex_release(&s.lock);
    for (int32_t i = 0; i < made; i++)
        rs_condition_release(&s.ranks[i].turn);
    rs_release(context, s.ranks);
    return status;
}
