/* SPDX-License-Identifier: Apache-2.0 */
/* Pools: every item runs once, errors and cancellation stop them; meant to run under
 * ThreadSanitizer too. */
#include "base/error.h"
#include "system/pool.h"
#include "tests/support/check.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

enum { ITEMS = 500, THREADS = 4 };

typedef struct job {
    atomic_int seen[ITEMS];
    atomic_int done, entered, left;
    atomic_int wrong_thread; /* how often two threads had one number, or one was too large */
    atomic_int busy[THREADS];
    int64_t fails_at;      /* item; -1: none */
    int enter_fails;       /* on this thread; -1: on none */
    int pauses;            /* counted on the calling thread */
    int pause_fails_after; /* 0: never */
    uint64_t reported, reports;
    int cancel_after; /* reports; 0: never */
} job;

static void rest(int milliseconds)
{
    nanosleep(&(struct timespec){.tv_nsec = milliseconds * 1000000L}, NULL);
}

static job new_job(void)
{
    job made;
    memset(&made, 0, sizeof made);
    made.fails_at = -1;
    made.enter_fails = -1;
    return made;
}

static reshard_status run(void *user, int32_t thread, int64_t item)
{
    job *j = user;
    if (thread < 0 || thread >= THREADS || atomic_fetch_add(&j->busy[thread], 1) != 0)
        atomic_fetch_add(&j->wrong_thread, 1);
    atomic_fetch_add(&j->seen[item], 1);
    atomic_fetch_add(&j->done, 1);
    atomic_fetch_sub(&j->busy[thread], 1);
    return item == j->fails_at ? rs_fail(RESHARD_ERR_CHECK, "item %d is bad", (int)item)
                               : RESHARD_OK;
}

static reshard_status enter(void *user, int32_t thread)
{
    job *j = user;
    atomic_fetch_add(&j->entered, 1);
    return thread == j->enter_fails ? rs_fail(RESHARD_ERR_NO_MEMORY, "no desk for %d", thread)
                                    : RESHARD_OK;
}

static void leave(void *user, int32_t thread)
{
    (void)thread;
    atomic_fetch_add(&((job *)user)->left, 1);
}

static reshard_status pause_between(void *user)
{
    job *j = user;
    return ++j->pauses == j->pause_fails_after ? rs_fail(RESHARD_ERR_IO, "the pause failed")
                                               : RESHARD_OK;
}

static uint64_t count_done(void *user)
{
    return (uint64_t)atomic_load(&((job *)user)->done) * 2;
}

static void see_progress(void *user, const char *what, uint64_t done, uint64_t total)
{
    job *j = user;
    j->reports++;
    if (strcmp(what, "counting") == 0 && total == ITEMS && done <= total && done >= j->reported)
        j->reported = done;
}

static int is_cancelled(void *user)
{
    const job *j = user;
    return j->cancel_after != 0 && j->reports >= (uint64_t)j->cancel_after;
}

static rs_pool pool_of(job *j, int32_t threads)
{
    return (rs_pool){.user = j,
                     .thread_count = threads,
                     .end = ITEMS,
                     .run = run,
                     .enter = enter,
                     .leave = leave,
                     .pause = pause_between};
}

static void test_pool__runs_each_item_once(void **state)
{
    (void)state;
    for (int32_t threads = 1; threads <= THREADS; threads++) {
        job j = new_job();
        rs_pool pool = pool_of(&j, threads);
        pool.first = 3;
        assert_int_equal(rs_pool_run(&pool), RESHARD_OK);
        for (int i = 0; i < ITEMS; i++)
            assert_int_equal(j.seen[i], i >= 3);
        assert_int_equal(j.wrong_thread, 0);
        assert_int_equal(j.entered, j.left);
        assert_true(j.entered >= 1 && j.entered <= threads);
        if (threads == 1)
            assert_int_equal(j.pauses, ITEMS - 3);
    }
}

static void test_pool__few_items(void **state)
{
    (void)state;
    job j = new_job();
    rs_pool pool = pool_of(&j, THREADS);
    pool.end = 0;
    assert_int_equal(rs_pool_run(&pool), RESHARD_OK);
    assert_int_equal(j.done, 0);
    pool.end = 2;
    assert_int_equal(rs_pool_run(&pool), RESHARD_OK);
    assert_int_equal(j.done, 2);
    assert_true(j.entered <= 3); /* no thread without an item but the calling one */
}

static void test_pool__first_error_with_its_words(void **state)
{
    (void)state;
    for (int32_t threads = 1; threads <= THREADS; threads++) {
        job j = new_job();
        rs_pool pool = pool_of(&j, threads);
        j.fails_at = 100;
        assert_int_equal(rs_pool_run(&pool), RESHARD_ERR_CHECK);
        assert_string_equal(reshard_error_text(), "item 100 is bad");
        assert_int_equal(j.entered, j.left);
        if (threads == 1)
            assert_int_equal(j.done, 101);
    }
}

/* Item 1 fails well after item 2 has failed. */
static reshard_status fail_late(void *user, int32_t thread, int64_t item)
{
    atomic_bool *failed = user;
    (void)thread;
    if (item == 2)
        atomic_store(failed, true);
    for (int i = 0; item == 1 && i < 5000 && !atomic_load(failed); i++)
        rest(1);
    if (item == 1)
        rest(20);
    return item == 0 ? RESHARD_OK : rs_fail(RESHARD_ERR_CHECK, "item %d is bad", (int)item);
}

/* Which thread is faster does not decide which error is told. */
static void test_pool__lowest_error(void **state)
{
    (void)state;
    atomic_bool failed = false;
    rs_pool pool = {.user = &failed, .thread_count = 3, .end = 50, .run = fail_late};
    assert_int_equal(rs_pool_run(&pool), RESHARD_ERR_CHECK);
    assert_string_equal(reshard_error_text(), "item 1 is bad");
    assert_true(failed);
}

static reshard_status fail_at_length(void *user, int32_t thread, int64_t item)
{
    (void)thread, (void)item;
    return rs_fail(RESHARD_ERR_IO, "%s: cannot be read", (const char *)user);
}

/* A path may be long, and what is wrong with it comes last. */
static void test_pool__long_words(void **state)
{
    (void)state;
    char path[3000];
    memset(path, 'p', sizeof path);
    path[sizeof path - 1] = '\0';
    rs_pool pool = {.user = path, .thread_count = 1, .end = 1, .run = fail_at_length};
    assert_int_equal(rs_pool_run(&pool), RESHARD_ERR_IO);
    assert_non_null(strstr(reshard_error_text(), "p: cannot be read"));
}

static reshard_status fail_with_hint(void *user, int32_t thread, int64_t item)
{
    (void)user, (void)thread, (void)item;
    return rs_fail_hint(RESHARD_ERR_IO, RESHARD_HINT_RESUME, "out", "no room");
}

/* The error of another thread arrives with all of its fields. */
static void test_pool__fields(void **state)
{
    (void)state;
    reshard_error error = {.size = sizeof error};
    rs_pool pool = {.thread_count = 4, .end = 8, .run = fail_with_hint};
    assert_int_equal(rs_pool_run(&pool), RESHARD_ERR_IO);
    assert_int_equal(reshard_error_get(&error), RESHARD_OK);
    assert_int_equal(error.status, RESHARD_ERR_IO);
    assert_int_equal(error.hint, RESHARD_HINT_RESUME);
    assert_string_equal(error.subject, "out");
    assert_string_equal(error.text, "no room");
}

static void test_pool__enter_fails(void **state)
{
    (void)state;
    job j = new_job();
    rs_pool pool = pool_of(&j, 1);
    j.enter_fails = 0;
    assert_int_equal(rs_pool_run(&pool), RESHARD_ERR_NO_MEMORY);
    assert_string_equal(reshard_error_text(), "no desk for 0");
    assert_int_equal(j.done, 0);
    assert_int_equal(j.left, 1);
}

static void test_pool__pause_fails(void **state)
{
    (void)state;
    job j = new_job();
    rs_pool pool = pool_of(&j, 1);
    j.pause_fails_after = 5;
    assert_int_equal(rs_pool_run(&pool), RESHARD_ERR_IO);
    assert_int_equal(j.done, 5);
}

static void test_pool__progress_and_cancel(void **state)
{
    (void)state;
    job j = new_job();
    reshard_context *context = NULL;
    const reshard_context_options options = {
        .size = sizeof options, .progress = see_progress, .cancelled = is_cancelled, .user = &j};
    assert_int_equal(reshard_context_create(&options, &context), RESHARD_OK);
    rs_pool pool = pool_of(&j, 1);
    pool.context = context;
    pool.what = "counting";
    pool.done = count_done; /* twice as much as there is: shown as all of it */
    pool.total = ITEMS;
    assert_int_equal(rs_pool_run(&pool), RESHARD_OK);
    assert_int_equal(j.reports, ITEMS + 1);
    assert_int_equal(j.reported, ITEMS);
    j = new_job();
    j.cancel_after = 10;
    assert_int_equal(rs_pool_run(&pool), RESHARD_ERR_CANCELLED);
    assert_int_equal(j.done, 10);
    reshard_context_destroy(context);
}

static void test_pool__thread_count(void **state)
{
    (void)state;
    assert_int_equal(rs_pool_thread_count(3), 3);
    assert_int_equal(rs_pool_thread_count(RS_POOL_THREADS_MAX + 1), RS_POOL_THREADS_MAX);
    int32_t chosen = rs_pool_thread_count(0);
    assert_true(chosen >= 1 && chosen <= 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_pool__runs_each_item_once),
        cmocka_unit_test(test_pool__few_items),
        cmocka_unit_test(test_pool__first_error_with_its_words),
        cmocka_unit_test(test_pool__lowest_error),
        cmocka_unit_test(test_pool__long_words),
        cmocka_unit_test(test_pool__fields),
        cmocka_unit_test(test_pool__enter_fails),
        cmocka_unit_test(test_pool__pause_fails),
        cmocka_unit_test(test_pool__progress_and_cancel),
        cmocka_unit_test(test_pool__thread_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
