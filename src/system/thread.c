/* SPDX-License-Identifier: Apache-2.0 */
#include "system/thread.h"

#include "base/error.h"

#include <assert.h>
#include <sched.h>
#include <string.h>

static void *run(void *argument)
{
    rs_thread *thread = argument;
    thread->body(thread->user);
    return NULL;
}

reshard_status rs_thread_start(rs_thread *thread, void (*body)(void *user), void *user)
{
    assert(body != NULL);
    thread->body = body;
    thread->user = user;
    int error = pthread_create(&thread->handle, NULL, run, thread);
    if (error != 0)
        return rs_fail(RESHARD_ERR_NO_MEMORY, "cannot start a thread: %s", strerror(error));
    return RESHARD_OK;
}

static void must_be_zero(int error)
{
    assert(error == 0);
    (void)error;
}

void rs_thread_join(rs_thread *thread)
{
    must_be_zero(pthread_join(thread->handle, NULL));
}

void rs_thread_yield(void)
{
    (void)sched_yield();
}

reshard_status rs_mutex_init(rs_mutex *mutex)
{
    int error = pthread_mutex_init(&mutex->handle, NULL);
    return error == 0 ? RESHARD_OK
                      : rs_fail(RESHARD_ERR_NO_MEMORY, "cannot make a mutex: %s", strerror(error));
}

void rs_mutex_release(rs_mutex *mutex)
{
    must_be_zero(pthread_mutex_destroy(&mutex->handle));
}

void rs_mutex_lock(rs_mutex *mutex)
{
    must_be_zero(pthread_mutex_lock(&mutex->handle));
}

void rs_mutex_unlock(rs_mutex *mutex)
{
    must_be_zero(pthread_mutex_unlock(&mutex->handle));
}

reshard_status rs_condition_init(rs_condition *condition)
{
    int error = pthread_cond_init(&condition->handle, NULL);
    return error == 0
               ? RESHARD_OK
               : rs_fail(RESHARD_ERR_NO_MEMORY, "cannot make a condition: %s", strerror(error));
}

void rs_condition_release(rs_condition *condition)
{
    must_be_zero(pthread_cond_destroy(&condition->handle));
}

void rs_condition_wait(rs_condition *condition, rs_mutex *mutex)
{
    must_be_zero(pthread_cond_wait(&condition->handle, &mutex->handle));
}

void rs_condition_wake_all(rs_condition *condition)
{
    must_be_zero(pthread_cond_broadcast(&condition->handle));
}
