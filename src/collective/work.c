/* SPDX-License-Identifier: Apache-2.0 */
/*
 * work.c - the life of a work. Everything it needs is made before its first run; running it, even
 * again, allocates nothing.
 */
#include "collective/work.h"

#include "base/context.h"
#include "base/error.h"
#include "base/shorten.h"
#include "transport/group.h"

#include <string.h>

reshard_status rs_work_create(reshard_context *context, reshard_group *group, int64_t source_count,
                              int64_t target_count, reshard_work **out_work)
{
    size_t buffers = (size_t)source_count + (size_t)target_count;
    reshard_work *work = rs_allocate_zeroed(context, sizeof *work);
    void **list = rs_allocate_array(context, buffers, sizeof *list);
    if (work == NULL || list == NULL) {
        reshard_status status = rs_allocation_status();
        rs_release(context, list);
        rs_release(context, work);
        return status;
    }
    work->context = context;
    work->group = reshard_group_retain(group);
    work->buffers = list;
    work->source_count = source_count;
    *out_work = work;
    return RESHARD_OK;
}

void reshard_work_destroy(reshard_work *work)
{
    if (work == NULL)
        return;
    if (work->under_way)
        (void)reshard_work_wait(work);
    reshard_exec_destroy(work->exec);
    rs_delivery_destroy(work->delivery);
    rs_release(work->context, work->aside);
    rs_release(work->context, work->buffers);
    reshard_group_release(work->group);
    rs_release(work->context, work);
}

/* Keeps the error text of a failure, and returns its status. */
static reshard_status note_failure(reshard_work *work, reshard_status status)
{
    work->failed = true;
    rs_shorten(reshard_error_text(), work->why, sizeof work->why);
    return status;
}

static reshard_status fail_again(const reshard_work *work)
{
    return rs_fail(RESHARD_ERR_GROUP_BROKEN, "%s", work->why);
}

reshard_status rs_work_begin(reshard_work *work)
{
    reshard_status status = work->delivery != NULL
                                ? rs_delivery_begin(work->delivery)
                                : reshard_exec_start(work->exec, (const void *const *)work->buffers,
                                                     work->buffers + work->source_count);
    work->under_way = status == RESHARD_OK;
    return status == RESHARD_OK ? status : note_failure(work, status);
}

reshard_status reshard_work_restart(reshard_work *work)
{
    if (work->failed)
        return fail_again(work);
    if (work->under_way)
        return rs_fail(RESHARD_ERR_INVALID, "the work is still under way");
    return rs_work_begin(work);
}

reshard_status reshard_work_test(reshard_work *work, int *out_done)
{
    if (work->failed)
        return fail_again(work);
    int done = 1;
    if (work->under_way) {
        reshard_status status = work->delivery != NULL ? rs_delivery_test(work->delivery, &done)
                                                       : reshard_exec_test(work->exec, &done);
        if (status != RESHARD_OK) {
            work->under_way = false;
            return note_failure(work, status);
        }
        if (done && work->aside != NULL)
            memcpy(work->place, work->aside, work->aside_bytes);
        work->under_way = !done;
    }
    *out_done = done;
    return RESHARD_OK;
}

reshard_status reshard_work_wait(reshard_work *work)
{
    for (;;) {
        int done = 0;
        reshard_status status = reshard_work_test(work, &done);
        if (status != RESHARD_OK || done)
            return status;
        rs_group_idle(work->group);
    }
}

reshard_status rs_work_complete(reshard_status status, reshard_work *work)
{
    if (status == RESHARD_OK)
        status = reshard_work_wait(work);
    reshard_work_destroy(work);
    return status;
}
