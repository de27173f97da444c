/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_run.c - the states of a run: starting again before it is over is refused and disturbs
 * nothing, waiting for nothing is fine, and after a failure nothing starts.
 */
#include "tests/support/check.h"
#include "tests/support/live.h"
#include "tests/support/ranks.h"
#include "tests/support/ways.h"

#include <stdio.h>
#include <string.h>

enum { RANKS = 3 };

/* Only some ranks start twice: the others must not come to know. */
static reshard_status start_twice(void *user, reshard_group *group)
{
    const live *l = user;
    int32_t rank = reshard_group_rank(group);
    void *sources[4], *targets[4];
    (void)live_list_buffers(l->from, rank, sources);
    (void)live_list_buffers(l->to, rank, targets);
    reshard_exec *exec = NULL;
    int done = 0;
    TRY(reshard_exec_create(NULL, l->plan, group, NULL, &exec));
    TRY(reshard_exec_test(exec, &done)); /* nothing was started: nothing to wait for */
    CHECK(done);
    TRY(reshard_exec_wait(exec));
    for (int i = 0; i < 3; i++) {
        TRY(reshard_exec_start(exec, (const void *const *)sources, targets));
        /* With peers that are not through, a rank cannot be. */
        CHECK(rank == 0 || reshard_exec_start(exec, (const void *const *)targets, sources) ==
                               RESHARD_ERR_INVALID);
        CHECK(rank == 0 || strstr(reshard_error_text(), "a run is under way") != NULL);
        TRY(reshard_exec_wait(exec));
        TRY(reshard_exec_wait(exec));
    }
    reshard_exec_destroy(exec);
    return RESHARD_OK;
}

static void test_run__started_twice(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        live_fixture f;
        live_fixture_init(&f, "3: S(0)", "3: S(1)", 0);
        if (run_way(&ways[w], RANKS, start_twice, &f.l) != RESHARD_OK)
            fail_msg("%s: %s", ways[w].name, reshard_error_text());
        assert_true(simulate_equal(f.to, f.wanted));
        live_fixture_release(&f);
    }
}

typedef struct broken {
    live *l;
    reshard_status started[RANKS], tested[RANKS], waited[RANKS], again[RANKS];
    int said_done[RANKS];
} broken;

static reshard_status break_it(void *user, reshard_group *group)
{
    broken *b = user;
    int32_t rank = reshard_group_rank(group);
    void *sources[4], *targets[4];
    (void)live_list_buffers(b->l->from, rank, sources);
    (void)live_list_buffers(b->l->to, rank, targets);
    reshard_exec *exec = NULL;
    TRY(reshard_exec_create(NULL, b->l->plan, group, NULL, &exec));
    (void)reshard_group_barrier(group); /* a slow rank hears of it here already */
    if (rank == 1)
        reshard_group_break(group, "on purpose");
    int done = 1;
    b->started[rank] = reshard_exec_start(exec, (const void *const *)sources, targets);
    b->waited[rank] = reshard_exec_wait(exec);
    b->tested[rank] = reshard_exec_test(exec, &done);
    b->said_done[rank] = done;
    b->again[rank] = reshard_exec_start(exec, (const void *const *)sources, targets);
    reshard_exec_destroy(exec);
    return RESHARD_OK;
}

static void test_run__of_a_broken_group(void **state)
{
    (void)state;
    for (int w = 0; w < WAYS; w++) {
        live_fixture f;
        live_fixture_init(&f, "3: S(0)", "3: S(1)", 0);
        broken b = {.l = &f.l};
        (void)run_way(&ways[w], RANKS, break_it, &b);
        for (int32_t r = 0; r < RANKS; r++) {
            /* Another rank may have begun before it heard of it. */
            assert_true(b.started[r] == RESHARD_ERR_GROUP_BROKEN ||
                        (r != 1 && b.started[r] == RESHARD_OK));
            assert_int_equal(b.waited[r], RESHARD_ERR_GROUP_BROKEN);
            assert_int_equal(b.tested[r], RESHARD_ERR_GROUP_BROKEN);
            assert_int_equal(b.again[r], RESHARD_ERR_GROUP_BROKEN);
            assert_int_equal(b.said_done[r], 0);
        }
        live_fixture_release(&f);
    }
}

/* One rank forgets a buffer: it is told which one, and the others do not wait for it. */
typedef struct forgotten {
    live *l;
    bool source;
    reshard_status started[RANKS], waited[RANKS];
    char text[256];
} forgotten;

static reshard_status forget_one(void *user, reshard_group *group)
{
    forgotten *f = user;
    int32_t rank = reshard_group_rank(group);
    void *sources[4], *targets[4];
    (void)live_list_buffers(f->l->from, rank, sources);
    (void)live_list_buffers(f->l->to, rank, targets);
    if (rank == 1)
        (f->source ? sources : targets)[0] = NULL;
    reshard_exec *exec = NULL;
    TRY(reshard_exec_create(NULL, f->l->plan, group, NULL, &exec));
    (void)reshard_group_barrier(group); /* a slow rank hears of it here already */
    f->started[rank] = reshard_exec_start(exec, (const void *const *)sources, targets);
    if (rank == 1)
        (void)snprintf(f->text, sizeof f->text, "%s", reshard_error_text());
    f->waited[rank] = reshard_exec_wait(exec);
    reshard_exec_destroy(exec);
    return RESHARD_OK;
}

static void test_run__without_a_buffer(void **state)
{
    (void)state;
    for (int w = 0; w < 2 * WAYS; w++) {
        live_fixture made;
        live_fixture_init(&made, "3: S(0)", "3: S(1)", 0);
        forgotten f = {.l = &made.l, .source = w % 2 == 0};
        (void)run_way(&ways[w / 2], RANKS, forget_one, &f);
        assert_int_equal(f.started[1], RESHARD_ERR_INVALID);
        assert_non_null(strstr(f.text, f.source ? "shard 0 of source 0" : "shard 0 of target 0"));
        for (int32_t r = 0; r < RANKS; r++)
            assert_int_equal(f.waited[r], RESHARD_ERR_GROUP_BROKEN);
        live_fixture_release(&made);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_run__started_twice),
        cmocka_unit_test(test_run__of_a_broken_group),
        cmocka_unit_test(test_run__without_a_buffer),
    };
    return cmocka_run_group_tests_name("run", tests, NULL, NULL);
}
