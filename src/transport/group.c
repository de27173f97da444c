/* SPDX-License-Identifier: Apache-2.0 */
/*
 * group.c - groups over endpoints. Everything here is made of the endpoint's messages: the barrier
 * by dissemination (Hensgen, Finkel, Manber 1988), small gathers through rank 0 and from there
 * along a binomial tree. agree.c goes up and down the same tree.
 *
 * Ranks are converted here and nowhere else: callers use ranks of their group, endpoints use ranks
 * of the root.
 */
#include "transport/group.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/digest.h"
#include "base/error.h"
#include "base/options.h"
#include "base/sort.h"
#include "base/thread_state.h"
#include "transport/agree.h"
#include "transport/group_memory.h"

#include <assert.h>
#include <string.h>

/* ---- making ---------------------------------------------------------------------------------- */

static void release_root(rs_root *root)
{
    if (root == NULL || !rs_reference_drop(&root->references))
        return;
    if (root->endpoint.close != NULL)
        root->endpoint.close(root->endpoint.state);
    rs_shares_release(root);
    rs_release(root->context, root);
}

static reshard_status check_endpoint(const reshard_endpoint *endpoint, reshard_endpoint *out)
{
    reshard_status status = rs_options_read("endpoint", endpoint, out, sizeof *out);
    if (status != RESHARD_OK)
        return status;
    if (out->rank < 0 || out->rank >= out->rank_count)
        return rs_fail(RESHARD_ERR_RANGE, "endpoint: rank %d of %d", out->rank, out->rank_count);
    if (out->send == NULL || out->receive == NULL || out->test == NULL || out->idle == NULL ||
        out->fail == NULL || out->message_bytes_max == 0)
        return rs_fail(RESHARD_ERR_INVALID, "endpoint \"%.50s\" lacks a call",
                       out->name != NULL ? out->name : "");
    return RESHARD_OK;
}

reshard_status reshard_group_create(reshard_context *context, const reshard_endpoint *endpoint,
                                    reshard_group **out_group)
{
    reshard_endpoint given;
    reshard_status status = check_endpoint(endpoint, &given);
    if (status != RESHARD_OK)
        return status;
    rs_root *root = rs_allocate_zeroed(context, sizeof *root);
    reshard_group *group = rs_allocate_zeroed(context, sizeof *group);
    if (root == NULL || group == NULL) {
        rs_release(context, root);
        rs_release(context, group);
        return rs_allocation_status();
    }
    root->context = group->context = context;
    atomic_init(&root->references, 1);
    atomic_init(&group->references, 1);
    root->endpoint = given;
    group->root = root;
    group->rank = given.rank;
    group->size = given.rank_count;
    *out_group = group;
    return RESHARD_OK;
}

/* ---- the default group ----------------------------------------------------------------------- */

void reshard_group_set_default(reshard_group *group)
{
    rs_thread_state *state = rs_thread_state_get();
    reshard_group *before = state->fallback;
    state->fallback = reshard_group_retain(group);
    reshard_group_release(before);
}

reshard_group *reshard_group_default(void)
{
    return rs_thread_state_get()->fallback;
}

reshard_group *rs_group_current(void)
{
    const rs_thread_state *state = rs_thread_state_get();
    return state->group != NULL ? state->group : state->fallback;
}

reshard_status rs_group_choose(reshard_group **group)
{
    if (*group == NULL)
        *group = rs_group_current();
    return *group != NULL
               ? RESHARD_OK
               : rs_fail(RESHARD_ERR_INVALID, "no group is given, and this thread has no "
                                              "current one (reshard_group_set_default sets it)");
}

/* For queries, which have no status: NULL if there is no group, with words. */
static const reshard_group *choose(const reshard_group *given)
{
    reshard_group *group = (reshard_group *)given;
    return rs_group_choose(&group) == RESHARD_OK ? group : NULL;
}

/* ---- sharing --------------------------------------------------------------------------------- */

reshard_group *reshard_group_retain(reshard_group *group)
{
    if (group != NULL)
        rs_reference_add(&group->references);
    return group;
}

void reshard_group_release(reshard_group *group)
{
    if (group == NULL || !rs_reference_drop(&group->references))
        return;
    rs_release(group->context, group->parent_ranks);
    rs_release(group->context, group->root_ranks);
    release_root(group->root);
    rs_release(group->context, group);
}

/* ---- asking ---------------------------------------------------------------------------------- */

int32_t reshard_group_rank(const reshard_group *group)
{
    group = choose(group);
    return group != NULL ? group->rank : -1;
}

int32_t reshard_group_size(const reshard_group *group)
{
    group = choose(group);
    return group != NULL ? group->size : -1;
}

const char *reshard_group_transport_name(const reshard_group *group)
{
    group = choose(group);
    return group != NULL ? group->root->endpoint.name : "none";
}

int32_t reshard_group_parent_rank(const reshard_group *group, int32_t rank)
{
    group = choose(group);
    if (group == NULL || rank < 0 || rank >= group->size)
        return -1;
    return group->parent_ranks != NULL ? group->parent_ranks[rank] : rank;
}

/* ---- messages -------------------------------------------------------------------------------- */

static int32_t root_rank(const reshard_group *group, int32_t rank)
{
    assert(rank >= 0 && rank < group->size);
    return group->root_ranks != NULL ? group->root_ranks[rank] : rank;
}

reshard_status rs_group_send(reshard_group *group, int32_t rank, int32_t channel, const void *bytes,
                             size_t count, reshard_request *request)
{
    const reshard_endpoint *e = &group->root->endpoint;
    return e->send(e->state, root_rank(group, rank), group->channel + channel, bytes, count,
                   request);
}

reshard_status rs_group_receive(reshard_group *group, int32_t rank, int32_t channel, void *bytes,
                                size_t count, reshard_request *request)
{
    const reshard_endpoint *e = &group->root->endpoint;
    return e->receive(e->state, root_rank(group, rank), group->channel + channel, bytes, count,
                      request);
}

reshard_status rs_group_test(reshard_group *group, reshard_request *request, bool *out_done)
{
    const reshard_endpoint *e = &group->root->endpoint;
    int done = 0;
    reshard_status status = e->test(e->state, request, &done);
    *out_done = done != 0;
    return status;
}

void rs_group_add_task(reshard_group *group, rs_task *task)
{
    rs_root *root = group->root;
    assert(task->link == NULL && task->progress != NULL);
    task->next = root->tasks;
    task->link = &root->tasks;
    if (task->next != NULL)
        task->next->link = &task->next;
    root->tasks = task;
}

void rs_task_remove(rs_task *task)
{
    if (task->link == NULL)
        return;
    *task->link = task->next;
    if (task->next != NULL)
        task->next->link = task->link;
    task->link = NULL;
}

void rs_group_idle(reshard_group *group)
{
    for (rs_task *task = group->root->tasks, *next; task != NULL; task = next) {
        next = task->next; /* the task may remove itself */
        task->progress(task);
    }
    group->root->endpoint.idle(group->root->endpoint.state);
}

reshard_status rs_group_wait(reshard_group *group, reshard_request *request)
{
    for (;;) {
        bool done = false;
        reshard_status status = rs_group_test(group, request, &done);
        if (status != RESHARD_OK || done)
            return status;
        rs_group_idle(group);
    }
}

bool rs_group_is_near(const reshard_group *group, int32_t rank)
{
    const reshard_endpoint *e = &group->root->endpoint;
    if (e->map == NULL)
        return false;
    return e->maps_everything ||
           (e->shares_with != NULL && e->shares_with(e->state, root_rank(group, rank)));
}

bool rs_group_can_map(const reshard_group *group)
{
    return group->root->endpoint.map != NULL && group->root->endpoint.maps_everything;
}

void *rs_group_map(reshard_group *group, int32_t rank, const void *address, size_t bytes)
{
    const reshard_endpoint *e = &group->root->endpoint;
    return e->map != NULL ? e->map(e->state, root_rank(group, rank), address, bytes) : NULL;
}

reshard_status rs_group_touch(reshard_group *group, bool begin)
{
    const reshard_endpoint *e = &group->root->endpoint;
    return e->touch != NULL ? e->touch(e->state, begin) : RESHARD_OK;
}

void rs_group_quiesce(reshard_group *group)
{
    const reshard_endpoint *e = &group->root->endpoint;
    if (e->quiesce != NULL)
        e->quiesce(e->state);
}

size_t rs_group_message_bytes_max(const reshard_group *group)
{
    return group->root->endpoint.message_bytes_max;
}

void reshard_group_break(reshard_group *group, const char *why)
{
    if (rs_group_choose(&group) != RESHARD_OK)
        return;
    group->root->endpoint.fail(group->root->endpoint.state, why);
}

/* The requests of a failed call are on its stack, so nobody may use them after it returns. */
static reshard_status leave_call(reshard_group *group, reshard_status status)
{
    if (status != RESHARD_OK) {
        reshard_group_break(group, reshard_error_text());
        rs_group_quiesce(group);
    }
    return status;
}

reshard_status rs_group_send_small(reshard_group *group, int32_t rank, const void *bytes,
                                   size_t count)
{
    reshard_request request;
    reshard_status status = rs_group_send(group, rank, RS_CHANNEL_SMALL, bytes, count, &request);
    if (status == RESHARD_OK)
        status = rs_group_wait(group, &request);
    return leave_call(group, status);
}

reshard_status rs_group_receive_small(reshard_group *group, int32_t rank, void *bytes, size_t count)
{
    reshard_request request;
    reshard_status status = rs_group_receive(group, rank, RS_CHANNEL_SMALL, bytes, count, &request);
    if (status == RESHARD_OK)
        status = rs_group_wait(group, &request);
    return leave_call(group, status);
}

/* ---- together -------------------------------------------------------------------------------- */

reshard_status reshard_group_barrier(reshard_group *group)
{
    reshard_status chosen = rs_group_choose(&group);
    if (chosen != RESHARD_OK)
        return rs_fail_within(chosen, "barrier");
    for (int64_t step = 1; step < group->size; step *= 2) {
        char out = 0, in = 0;
        reshard_request sent, received;
        int32_t to = (int32_t)((group->rank + step) % group->size);
        int32_t from = (int32_t)((group->rank + group->size - step) % group->size);
        reshard_status status = rs_group_receive(group, from, RS_CHANNEL_SMALL, &in, 1, &received);
        if (status == RESHARD_OK)
            status = rs_group_send(group, to, RS_CHANNEL_SMALL, &out, 1, &sent);
        if (status == RESHARD_OK)
            status = rs_group_wait(group, &sent);
        if (status == RESHARD_OK)
            status = rs_group_wait(group, &received);
        if (status != RESHARD_OK)
            return leave_call(group, status);
    }
    return RESHARD_OK;
}

/* From rank 0 to all: in step k, each rank below 2^k sends to the rank 2^k above it. */
reshard_status rs_group_broadcast_small(reshard_group *group, void *bytes, size_t count)
{
    reshard_status status = RESHARD_OK;
    for (int64_t step = 1; step < group->size && status == RESHARD_OK; step *= 2) {
        if (group->rank < step && group->rank + step < group->size)
            status = rs_group_send_small(group, (int32_t)(group->rank + step), bytes, count);
        else if (group->rank >= step && group->rank < 2 * step)
            status = rs_group_receive_small(group, (int32_t)(group->rank - step), bytes, count);
    }
    return status;
}

reshard_status reshard_group_gather_bytes(reshard_group *group, const void *mine, size_t bytes,
                                          void *out_all)
{
    size_t total;
    reshard_status chosen = rs_group_choose(&group);
    if (chosen != RESHARD_OK)
        return rs_fail_within(chosen, "gather_bytes");
    if (!rs_multiply_size(bytes, (size_t)group->size, &total))
        return rs_fail(RESHARD_ERR_RANGE, "%zu bytes from each of %d ranks", bytes, group->size);
    memmove((char *)out_all + bytes * (size_t)group->rank, mine, bytes);
    reshard_status status = RESHARD_OK;
    if (group->rank != 0)
        status = rs_group_send_small(group, 0, mine, bytes);
    for (int32_t i = 1; i < group->size && group->rank == 0 && status == RESHARD_OK; i++)
        status = rs_group_receive_small(group, i, (char *)out_all + bytes * (size_t)i, bytes);
    return status == RESHARD_OK ? rs_group_broadcast_small(group, out_all, total) : status;
}

/* ---- sub-groups ------------------------------------------------------------------------------ */

static reshard_status find_repeat(int32_t count, int32_t *sorted)
{
    rs_sort(sorted, (size_t)count, sizeof *sorted, rs_compare_i32);
    for (int32_t i = 1; i < count; i++) {
        if (sorted[i] == sorted[i - 1])
            return rs_fail(RESHARD_ERR_INVALID, "subset: rank %d is named twice", sorted[i]);
    }
    return RESHARD_OK;
}

static reshard_status check_members(const reshard_group *group, int32_t count, const int32_t *ranks)
{
    if (count < 1 || count > group->size)
        return rs_fail(RESHARD_ERR_RANGE, "subset: %d ranks of a group of %d", count, group->size);
    for (int32_t i = 0; i < count; i++) {
        if (ranks[i] < 0 || ranks[i] >= group->size)
            return rs_fail(RESHARD_ERR_RANGE, "subset: rank %d is not in the group of %d", ranks[i],
                           group->size);
    }
    size_t bytes = (size_t)count * sizeof *ranks;
    int32_t *scratch = rs_allocate(group->context, bytes);
    if (scratch == NULL)
        return rs_allocation_status();
    memcpy(scratch, ranks, bytes);
    reshard_status status = find_repeat(count, scratch);
    rs_release(group->context, scratch);
    return status;
}

static reshard_status build_subset(reshard_group *parent, int32_t count, const int32_t *ranks,
                                   int32_t mine, int32_t channel, reshard_group **out_group)
{
    assert(mine >= 0 && mine < count && count <= parent->size && channel > parent->channel);
    reshard_group *group = rs_allocate_zeroed(parent->context, sizeof *group);
    if (group == NULL)
        return rs_allocation_status();
    group->context = parent->context;
    atomic_init(&group->references, 1);
    rs_reference_add(&parent->root->references);
    group->root = parent->root;
    group->rank = mine;
    group->size = count;
    group->channel = channel;
    group->parent_ranks =
        rs_allocate_array(parent->context, (size_t)count, sizeof *group->parent_ranks);
    group->root_ranks =
        rs_allocate_array(parent->context, (size_t)count, sizeof *group->root_ranks);
    if (group->parent_ranks == NULL || group->root_ranks == NULL) {
        reshard_status status = rs_allocation_status();
        reshard_group_release(group);
        return status;
    }
    for (int32_t i = 0; i < count; i++) {
        group->parent_ranks[i] = ranks[i];
        group->root_ranks[i] = root_rank(parent, ranks[i]);
    }
    *out_group = group;
    return RESHARD_OK;
}

reshard_status reshard_group_subset(reshard_group *group, int32_t count, const int32_t *ranks,
                                    reshard_group **out_group)
{
    reshard_status status = rs_group_choose(&group);
    if (status != RESHARD_OK)
        return rs_fail_within(status, "subset");
    status = check_members(group, count, ranks);
    rs_claim claim = {.what = "subset: the list of ranks"};
    rs_digest digest;
    rs_digest_init(&digest);
    if (status == RESHARD_OK)
        rs_digest_bytes(&digest, ranks, (size_t)count * sizeof *ranks);
    rs_digest_finish(&digest, claim.digest);
    /* New channels begin above the highest that any rank has used. */
    uint64_t numbers[RS_AGREE_NUMBERS] = {(uint64_t)group->root->last_channel};
    status = rs_group_agree_on(group, status, &claim, numbers);
    if (status != RESHARD_OK)
        return status;
    int32_t channel = (int32_t)numbers[0] + RS_CHANNEL_COUNT;
    group->root->last_channel = channel;
    reshard_group *made = NULL;
    for (int32_t i = 0; i < count && status == RESHARD_OK; i++) {
        if (ranks[i] == group->rank)
            status = build_subset(group, count, ranks, i, channel, &made);
    }
    status = reshard_group_agree(group, status);
    if (status != RESHARD_OK) {
        reshard_group_release(made);
        return status;
    }
    *out_group = made;
    return RESHARD_OK;
}
