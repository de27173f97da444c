/* SPDX-License-Identifier: Apache-2.0 */
/* threads.c - N ranks in this process, each of them a thread. The calling thread is rank 0, so N -
 * 1 threads are started. */
#include "base/context.h"
#include "base/error.h"
#include "transport/hub.h"

typedef struct runner {
    rs_hub *hub;
    reshard_context *context;
    int32_t rank;
    reshard_rank_fn body;
    void *user;
    rs_thread thread;
} runner;

static void run_rank(void *argument)
{
    runner *r = argument;
    reshard_endpoint endpoint;
    rs_hub_endpoint(r->hub, r->rank, &endpoint);
    reshard_group *group = NULL;
    reshard_status status = reshard_group_create(r->context, &endpoint, &group);
    reshard_group *before = reshard_group_retain(reshard_group_default());
    reshard_group_set_default(NULL);
    if (status == RESHARD_OK)
        status = r->body(r->user, group);
    reshard_group_set_default(before);
    reshard_group_release(before);
    /* Leave before releasing the group: until the others know that this rank has failed, they may
     * use what its body held. */
    rs_hub_leave(r->hub, r->rank, status);
    reshard_group_release(group);
}

reshard_status rs_run_ranks(reshard_context *context, rs_hub *hub, int32_t size,
                            reshard_rank_fn body, void *user)
{
    size_t bytes = (size_t)size * sizeof(runner);
    runner *runners = rs_allocate(context, bytes);
    if (runners == NULL)
        return rs_allocation_status();
    for (int32_t i = 0; i < size; i++)
        runners[i] =
            (runner){.hub = hub, .context = context, .rank = i, .body = body, .user = user};
    int32_t started = 1;
    while (started < size) {
        reshard_status status =
            rs_thread_start(&runners[started].thread, run_rank, &runners[started]);
        /* Ranks that could not start leave at once, so that the others do not wait for them. */
        if (status != RESHARD_OK) {
            for (int32_t i = started; i < size; i++)
                rs_hub_leave(hub, i, status);
            break;
        }
        started++;
    }
    run_rank(&runners[0]);
    for (int32_t i = 1; i < started; i++)
        rs_thread_join(&runners[i].thread);
    rs_release(context, runners);
    return rs_hub_result(hub);
}

reshard_status reshard_group_run(reshard_context *context, int32_t size, reshard_rank_fn body,
                                 void *user)
{
    if (size < 1 || size > RS_HUB_SIZE_MAX)
        return rs_fail(RESHARD_ERR_RANGE, "%d ranks: from 1 to %d are possible", size,
                       RS_HUB_SIZE_MAX);
    rs_hub *hub = NULL;
    reshard_status status = rs_hub_create(context, size, true, "threads", NULL, &hub);
    if (status == RESHARD_OK)
        status = rs_run_ranks(context, hub, size, body, user);
    rs_hub_destroy(hub);
    return status;
}
