/* SPDX-License-Identifier: Apache-2.0 */
/*
 * thread.h - threads, locks and conditions. This is the only file that includes <pthread.h>.
 * Functions that cannot fail by the standard, such as locking an initialised mutex, return nothing
 * here.
 */
#ifndef RS_SYSTEM_THREAD_H
#define RS_SYSTEM_THREAD_H

#include <reshard/base.h>

#include <pthread.h>
#include <stdatomic.h>

typedef struct rs_thread {
    pthread_t handle;
    void (*body)(void *user);
    void *user;
} rs_thread;

/* The rs_thread must not move until it is joined. Errors: NO_MEMORY if the system cannot start a
 * thread. */
reshard_status rs_thread_start(rs_thread *thread, void (*body)(void *user), void *user);
void rs_thread_join(rs_thread *thread);
/* Gives up the processor to another thread. */
void rs_thread_yield(void);
/* For spin loops that wait for another thread to change something soon. */
static inline void rs_thread_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
}

typedef struct rs_mutex {
    pthread_mutex_t handle;
} rs_mutex;

reshard_status rs_mutex_init(rs_mutex *mutex);
void rs_mutex_release(rs_mutex *mutex);
void rs_mutex_lock(rs_mutex *mutex);
void rs_mutex_unlock(rs_mutex *mutex);

typedef struct rs_condition {
    pthread_cond_t handle;
} rs_condition;

reshard_status rs_condition_init(rs_condition *condition);
void rs_condition_release(rs_condition *condition);
/* May wake up spuriously: test the condition in a loop. */
void rs_condition_wait(rs_condition *condition, rs_mutex *mutex);
void rs_condition_wake_all(rs_condition *condition);

#endif
