/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pool.h - runs numbered items of work on several threads, one of which is the calling thread. The
 * threads take the items in increasing order and share nothing else.
 */
#ifndef RS_SYSTEM_POOL_H
#define RS_SYSTEM_POOL_H

#include <reshard/base.h>

#define RS_POOL_THREADS_MAX 256

typedef struct rs_pool {
    reshard_context *context; /* for cancellation and progress; may be NULL */
    void *user;               /* passed to every function */
    int32_t thread_count;     /* 1 .. RS_POOL_THREADS_MAX, the calling thread included */
    int64_t first, end;       /* the items are first .. end-1 */

    /* Runs one item. `thread` is below thread_count and differs between threads that run at the
     * same time; it is 0 on the calling thread. */
    reshard_status (*run)(void *user, int32_t thread, int64_t item);
    /* Called on each thread before its first item and after its last, to set up per-thread state.
     * leave is called whenever enter was, even if enter failed. Both may be NULL. */
    reshard_status (*enter)(void *user, int32_t thread);
    void (*leave)(void *user, int32_t thread);

    /* Called on the calling thread after each of its items. May be NULL. */
    reshard_status (*pause)(void *user);

    /* The calling thread reports progress after each of its items, and once at the end. */
    const char *what; /* the kind of work, in words for the user, or NULL for no reports */
    uint64_t (*done)(void *user);
    uint64_t total;
} rs_pool;

/* Runs all items and returns when all threads are done. No item starts after an error. Of several
 * errors, that of the lowest item is returned with its text, so it does not depend on the threads.
 * Errors: CANCELLED if the context's user asks for it. If the system cannot start enough threads,
 * those that did start do all the work. */
reshard_status rs_pool_run(const rs_pool *pool);

/* The number of threads to use if the user asks for `asked`: that many, up to RS_POOL_THREADS_MAX;
 * for 0, one for each processor, up to 8. */
int32_t rs_pool_thread_count(int32_t asked);

#endif
