/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_direct.c - operations over mapped memory: all bytes that pass between peers are copied
 * directly where memory is seen and none where it is not; and a transport that cannot map what it
 * said it could is an error on all ranks, never a crash.
 */
#include "tests/support/check.h"
#include "tests/support/live.h"
#include "transport/group.h"

#include <reshard/sim.h>

#include <string.h>

enum { RANKS = 4 };

/* Copies, a reduction of as many contributions as there are ranks, and two stages. */
static const char *const pairs[][2] = {
    {"4: S(0)", "4: S(1)"},
    {"4: P(sum)", "4: S(0)"},
    {"4: P(max)", "4: R"},
    {"2,2: S(1), S(0)", "4: S(0~)"},
};

enum { PAIRS = (int)(sizeof pairs / sizeof *pairs) };

/* A run in which one rank's map fails from its n-th call on. */
typedef struct blinding {
    live_fixture fixture;
    int32_t rank;
    int64_t nth; /* from 1; 0: never */
    int64_t calls[RANKS];
    reshard_status seen[RANKS];
    char text[RANKS][200];
} blinding;

/* Of the rank whose thread this is. */
static _Thread_local struct {
    blinding *b;
    int32_t rank;
    void *(*map)(void *state, int32_t peer, const void *address, size_t bytes);
} mine;

static void *map_or_not(void *state, int32_t peer, const void *address, size_t bytes)
{
    int64_t call = ++mine.b->calls[mine.rank];
    bool blind = mine.rank == mine.b->rank && mine.b->nth != 0 && call >= mine.b->nth;
    return blind ? NULL : mine.map(state, peer, address, bytes);
}

static reshard_status run_blind(void *user, reshard_group *group)
{
    blinding *b = user;
    int32_t rank = reshard_group_rank(group);
    mine.b = b;
    mine.rank = rank;
    mine.map = group->root->endpoint.map;
    if (mine.map != NULL)
        group->root->endpoint.map = map_or_not;
    b->seen[rank] = live_run_rank(&b->fixture.l, group);
    (void)strncpy(b->text[rank], reshard_error_text(), sizeof b->text[rank] - 1);
    return b->seen[rank];
}

static reshard_status run(blinding *b, int mapped)
{
    reshard_sim_options sim = {.size = sizeof sim, .seed = (uint64_t)b->nth, .mapped = mapped};
    memset(b->calls, 0, sizeof b->calls);
    return reshard_sim_run(NULL, RANKS, &sim, run_blind, b);
}

/* Sources and targets are mapped as often as there are direct copies with peers; never without
 * sight. */
static void test_direct__maps_what_it_copies(void **state)
{
    (void)state;
    for (int i = 0; i < PAIRS * 3; i++) {
        blinding b = {.nth = 0};
        live_fixture_init(&b.fixture, pairs[i / 3][0], pairs[i / 3][1], i % 3 == 1);
        assert_int_equal(run(&b, i % 3 != 2), RESHARD_OK);
        assert_true(simulate_equal(b.fixture.to, b.fixture.wanted));
        int64_t total = 0;
        for (int32_t r = 0; r < RANKS; r++)
            total += b.calls[r];
        if (i % 3 == 0)
            assert_true(total > 0);
        else
            assert_int_equal(total, 0);
        live_fixture_release(&b.fixture);
    }
}

static void check_blind(blinding *b)
{
    b->fixture.l.runs = 1;
    for (b->nth = 1;; b->nth++) {
        reshard_status status = run(b, 1);
        if (b->calls[b->rank] < b->nth) {
            assert_int_equal(status, RESHARD_OK);
            assert_true(b->nth > 1);
            return;
        }
        assert_int_equal(status, RESHARD_ERR_GROUP_BROKEN);
        for (int32_t r = 0; r < RANKS; r++)
            assert_int_equal(b->seen[r], RESHARD_ERR_GROUP_BROKEN);
        assert_non_null(strstr(b->text[b->rank], "cannot map it"));
    }
}

static void test_direct__memory_that_is_not_seen(void **state)
{
    (void)state;
    for (int i = 0; i < PAIRS; i++) {
        for (int32_t rank = 0; rank < RANKS; rank++) {
            blinding b = {.rank = rank};
            live_fixture_init(&b.fixture, pairs[i][0], pairs[i][1], 0);
            check_blind(&b);
            live_fixture_release(&b.fixture);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_direct__maps_what_it_copies),
        cmocka_unit_test(test_direct__memory_that_is_not_seen),
    };
    return cmocka_run_group_tests_name("direct", tests, NULL, NULL);
}
