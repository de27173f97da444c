/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cores.c - ranks that find themselves on one core, as after a wake-up, part again. The system
 * alone leaves two threads together that hand work to each other all the time.
 */
#include "system/core.h"

#include "tests/support/check.h"
#include "tests/support/ranks.h"

#include <string.h>

enum { RANKS = 2, TIMES = 10, BARRIERS = 10 };

typedef struct seen {
    int core;                          /* where both are put */
    int cores[RANKS][TIMES][BARRIERS]; /* where the rank was after each barrier */
} seen;

static reshard_status come_together(void *user, reshard_group *group)
{
    seen *s = user;
    int32_t rank = reshard_group_rank(group);
    for (int i = 0; i < TIMES; i++) {
        rs_cores others;
        for (int k = 0; k < RS_CORES_MAX; k++)
            others.has[k] = k != s->core;
        TRY(reshard_group_barrier(group));
        CHECK(rs_core_leave(&others));
        for (int k = 0; k < BARRIERS; k++) {
            TRY(reshard_group_barrier(group));
            s->cores[rank][i][k] = rs_core_now();
        }
    }
    return RESHARD_OK;
}

static void test_cores__ranks_part(void **state)
{
    (void)state;
    seen s = {.core = rs_core_now()};
    if (rs_core_count() < RANKS)
        skip();
    run_ranks(RANKS, come_together, &s);
    int parted = 0;
    for (int i = 0; i < TIMES; i++)
        parted += memcmp(s.cores[0][i], s.cores[1][i], sizeof s.cores[0][i]) != 0;
    assert_in_range(parted, TIMES / 2, TIMES);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cores__ranks_part),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
