/* SPDX-License-Identifier: Apache-2.0 */
#include "system/pool.h"

#include "base/checked.h"
#include "base/context.h"
#include "base/error.h"
#include "system/thread.h"

#include <assert.h>
#include <unistd.h>

enum { THREADS_DEFAULT_MAX = 8 };

typedef struct pool_run {
    const rs_pool *pool;
    atomic_int_fast64_t next;
    atomic_bool stopped;
    rs_mutex mutex;      /* guards the fields below, until all threads are joined */
    rs_error error;      /* that of failed_item */
    int64_t failed_item; /* the lowest item that failed; -1: a thread could not begin */
} pool_run;

typedef struct pool_thread {
    rs_thread thread;
    pool_run *run;
    int32_t index;
} pool_thread;

int32_t rs_pool_thread_count(int32_t asked)
{
    int64_t processors = sysconf(_SC_NPROCESSORS_ONLN);
    int64_t count = asked > 0 ? asked : rs_min(processors, THREADS_DEFAULT_MAX);
    return (int32_t)rs_max(1, rs_min(count, RS_POOL_THREADS_MAX));
}

/* Items are taken in order and all that were taken are finished, so the lowest item that fails is
 * the same in every run, however the threads race. */
static void stop(pool_run *run, int64_t item, reshard_status status)
{
    rs_mutex_lock(&run->mutex);
    if (run->error.status == RESHARD_OK || item < run->failed_item) {
        run->error = *rs_error_last();
        run->error.status = status;
        run->failed_item = item;
    }
    rs_mutex_unlock(&run->mutex);
    atomic_store(&run->stopped, true);
}

/* The next item, or -1 if none is left or a thread has failed. */
static int64_t take_item(pool_run *run)
{
    if (atomic_load(&run->stopped))
        return -1;
    int64_t item = (int64_t)atomic_fetch_add(&run->next, 1);
    return item < run->pool->end ? item : -1;
}

static void report(const rs_pool *pool)
{
    if (pool->what != NULL) {
        uint64_t done = pool->done(pool->user);
        rs_context_progress(pool->context, pool->what, done < pool->total ? done : pool->total,
                            pool->total);
    }
}

/* What the calling thread also does after each of its items: report progress, check for
 * cancellation, pause. */
static reshard_status look_around(const rs_pool *pool)
{
    report(pool);
    if (rs_context_cancelled(pool->context))
        return rs_fail(RESHARD_ERR_CANCELLED, "cancelled");
    return pool->pause != NULL ? pool->pause(pool->user) : RESHARD_OK;
}

static void work(pool_run *run, int32_t thread)
{
    const rs_pool *pool = run->pool;
    reshard_status status = RESHARD_OK;
    if (pool->enter != NULL)
        status = pool->enter(pool->user, thread);
    int64_t item = -1, next;
    while (status == RESHARD_OK && (next = take_item(run)) >= 0) {
        item = next;
        status = pool->run(pool->user, thread, item);
        if (status == RESHARD_OK && thread == 0)
            status = look_around(pool);
    }
    if (status != RESHARD_OK)
        stop(run, item, status);
    if (pool->leave != NULL)
        pool->leave(pool->user, thread);
}

static void work_thread(void *user)
{
    pool_thread *thread = user;
    work(thread->run, thread->index);
}

reshard_status rs_pool_run(const rs_pool *pool)
{
    assert(pool->thread_count >= 1 && pool->thread_count <= RS_POOL_THREADS_MAX);
    assert(pool->first >= 0 && pool->run != NULL && (pool->what == NULL || pool->done != NULL));
    pool_thread threads[RS_POOL_THREADS_MAX];
    pool_run run = {.pool = pool};
    reshard_status status = rs_mutex_init(&run.mutex);
    if (status != RESHARD_OK)
        return status;
    atomic_store(&run.next, pool->first);
    int64_t wanted = rs_min(pool->thread_count, pool->end - pool->first);
    int32_t count = 1;
    for (; count < wanted; count++) {
        threads[count].run = &run;
        threads[count].index = count;
        if (rs_thread_start(&threads[count].thread, work_thread, &threads[count]) != RESHARD_OK)
            break;
    }
    work(&run, 0);
    for (int32_t i = 1; i < count; i++)
        rs_thread_join(&threads[i].thread);
    rs_mutex_release(&run.mutex);
    report(pool);
    return run.error.status == RESHARD_OK ? RESHARD_OK : rs_fail_again(&run.error);
}
