/* SPDX-License-Identifier: Apache-2.0 */
/* Threads, mutexes, conditions and reference counts; meant to run under ThreadSanitizer too. */
#include "base/references.h"
#include "system/thread.h"
#include "tests/support/check.h"

enum { THREADS = 4, ROUNDS = 1000 };

typedef struct shared {
    rs_mutex mutex;
    rs_condition condition;
    int64_t count; /* guarded by mutex */
    int turn;      /* guarded by mutex: whose turn it is */
} shared;

typedef struct worker {
    rs_thread thread;
    shared *all;
    int index;
    int out_of_turn; /* how often it found a turn that was not its own; told to the main thread */
} worker;

static void start_all(shared *all, worker workers[THREADS], void (*body)(void *user))
{
    all->count = 0;
    all->turn = 0;
    assert_int_equal(rs_mutex_init(&all->mutex), RESHARD_OK);
    assert_int_equal(rs_condition_init(&all->condition), RESHARD_OK);
    for (int i = 0; i < THREADS; i++) {
        workers[i].all = all;
        workers[i].index = i;
        workers[i].out_of_turn = 0;
        assert_int_equal(rs_thread_start(&workers[i].thread, body, &workers[i]), RESHARD_OK);
    }
}

static void join_all(shared *all, worker workers[THREADS])
{
    for (int i = 0; i < THREADS; i++)
        rs_thread_join(&workers[i].thread);
    rs_condition_release(&all->condition);
    rs_mutex_release(&all->mutex);
}

static void count_up(void *user)
{
    shared *all = ((worker *)user)->all;
    for (int i = 0; i < ROUNDS; i++) {
        rs_mutex_lock(&all->mutex);
        all->count++;
        rs_mutex_unlock(&all->mutex);
    }
}

static void test_thread__mutex_excludes(void **state)
{
    (void)state;
    shared all;
    worker workers[THREADS];
    start_all(&all, workers, count_up);
    join_all(&all, workers);
    assert_int_equal(all.count, THREADS * ROUNDS);
}

static void take_turns(void *user)
{
    worker *me = user;
    shared *all = me->all;
    for (int i = 0; i < ROUNDS / 10; i++) {
        rs_mutex_lock(&all->mutex);
        while (all->turn != me->index)
            rs_condition_wait(&all->condition, &all->mutex);
        me->out_of_turn += all->count++ % THREADS != me->index;
        all->turn = (all->turn + 1) % THREADS;
        rs_condition_wake_all(&all->condition);
        rs_mutex_unlock(&all->mutex);
    }
}

static void test_thread__condition_wakes_in_turn(void **state)
{
    (void)state;
    shared all;
    worker workers[THREADS];
    start_all(&all, workers, take_turns);
    join_all(&all, workers);
    assert_int_equal(all.count, THREADS * ROUNDS / 10);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(workers[i].out_of_turn, 0);
}

typedef struct object {
    rs_references references;
    int64_t seen[THREADS]; /* written by each holder before it drops, read by the last one */
    int64_t sum;           /* written by the last one */
    int ends;              /* how many thought they were the last; only one may write it */
} object;

typedef struct holder {
    rs_thread thread;
    object *thing;
    int early; /* drops that claimed to be the last but were not */
    int index;
} holder;

static void hold_and_drop(void *user)
{
    holder *me = user;
    object *thing = me->thing;
    for (int i = 0; i < ROUNDS; i++) {
        rs_reference_add(&thing->references);
        me->early += rs_reference_drop(&thing->references);
    }
    thing->seen[me->index] = me->index + 1;
    if (rs_reference_drop(&thing->references)) {
        thing->ends++;
        for (int i = 0; i < THREADS; i++)
            thing->sum += thing->seen[i];
    }
}

static void test_thread__last_reference_sees_everything(void **state)
{
    (void)state;
    object thing = {.sum = 0};
    holder holders[THREADS];
    atomic_init(&thing.references, THREADS);
    for (int i = 0; i < THREADS; i++) {
        holders[i].thing = &thing;
        holders[i].index = i;
        holders[i].early = 0;
        assert_int_equal(rs_thread_start(&holders[i].thread, hold_and_drop, &holders[i]),
                         RESHARD_OK);
    }
    for (int i = 0; i < THREADS; i++)
        rs_thread_join(&holders[i].thread);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(holders[i].early, 0);
    assert_int_equal(thing.ends, 1);
    assert_int_equal(thing.sum, THREADS * (THREADS + 1) / 2);
}

static void test_thread__references_count(void **state)
{
    (void)state;
    rs_references references;
    atomic_init(&references, 1);
    rs_reference_add(&references);
    assert_false(rs_reference_drop(&references));
    assert_true(rs_reference_drop(&references));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_thread__mutex_excludes),
        cmocka_unit_test(test_thread__condition_wakes_in_turn),
        cmocka_unit_test(test_thread__last_reference_sees_everything),
        cmocka_unit_test(test_thread__references_count),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
