/* SPDX-License-Identifier: Apache-2.0 */
/* test_core.c - a thread finds its core and leaves it, and what it may use stays what it was. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "system/core.h"

#include "tests/support/check.h"

#include <sched.h>

static int64_t count_allowed(void)
{
    cpu_set_t allowed;
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    return CPU_COUNT(&allowed);
}

static void test_core__now(void **state)
{
    (void)state;
    cpu_set_t allowed;
    assert_int_equal(sched_getaffinity(0, sizeof allowed, &allowed), 0);
    int core = rs_core_now();
    assert_in_range(core, 0, RS_CORES_MAX - 1);
    assert_true(CPU_ISSET((size_t)core, &allowed));
}

static void test_core__count(void **state)
{
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(rs_core_count(), count_allowed());
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    CPU_SET((size_t)rs_core_now(), &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(rs_core_count(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void test_core__leave(void **state)
{
    (void)state;
    cpu_set_t before, after;
    if (rs_core_count() < 2)
        skip();
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int moved = 0;
    for (int i = 0; i < 100; i++) {
        rs_cores taken = {{false}};
        int own = rs_core_now();
        taken.has[own] = true;
        assert_true(rs_core_leave(&taken));
        moved += rs_core_now() != own;
    }
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
    assert_true(moved >= 50); /* the system may move it, too, but not as often */
}

static void test_core__nowhere_to_go(void **state)
{
    (void)state;
    cpu_set_t before, after;
    rs_cores taken;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    for (int i = 0; i < RS_CORES_MAX; i++)
        taken.has[i] = true;
    assert_false(rs_core_leave(&taken));
    assert_int_equal(sched_getaffinity(0, sizeof after, &after), 0);
    assert_true(CPU_EQUAL(&before, &after));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_core__now),
        cmocka_unit_test(test_core__count),
        cmocka_unit_test(test_core__leave),
        cmocka_unit_test(test_core__nowhere_to_go),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
