/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - numbered items of work, done by several threads. The calling thread is one of them. The
 * threads take the items in increasing order and share nothing else.
 */
#ifndef RS_SYSTEM_POOL_H
#define RS_SYSTEM_POOL_H

#include <reshard/base.h>

#define RS_POOL_THREADS_MAX 256

typedef struct rs_pool {
    reshard_context *context; /* its user may cancel and sees the progress; may be NULL */
    void *user;               /* handed to every function */
    int32_t thread_count;     /* 1 .. RS_POOL_THREADS_MAX, the calling thread included */
    int64_t first, end;       /* the items are first .. end-1 */

    /* One item. `thread` is below thread_count and differs between threads that run at the same
     * time; the calling thread is 0. */
    reshard_status (*run)(void *user, int32_t thread, int64_t item);
    /* On each thread, before its first item and after its last: to set up what the thread has for
     * itself. leave is called whenever enter was, even if that failed. Both may be NULL. */
    reshard_status (*enter)(void *user, int32_t thread);
    void (*leave)(void *user, int32_t thread);

    /* On the calling thread alone, after each of its items. May be NULL. */
    reshard_status (*pause)(void *user);

    /* Progress is reported by the calling thread after each of its items, and once at the end. */
    const char *what; /* the kind of work, as the user reads it; NULL: no reports */
    uint64_t (*done)(void *user);
    uint64_t total;
} rs_pool;

/* Runs all items and returns when all threads are done. The first error on any thread is returned
 * with its words, and no item starts after it. Errors: CANCELLED when the context's user asks for
 * it. When the system has too few threads, the others do all the work. */
reshard_status rs_pool_run(const rs_pool *pool);

/* How many threads a user gets who asks for `asked`: that many, up to RS_POOL_THREADS_MAX; for 0,
 * one for each processor, up to 8. */
int32_t rs_pool_thread_count(int32_t asked);

#endif
