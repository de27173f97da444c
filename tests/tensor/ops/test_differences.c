/* SPDX-License-Identifier: Apache-2.0 */
/* test_differences.c - gradients of every distributed operation and of redistribute, between
 * threads, against finite differences. tests/mpi runs the same between processes. */
#include "tests/support/check.h"
#include "tests/support/harness.h"
#include "tests/tensor/differences.h"

static reshard_status run_rank(void *user, reshard_group *group)
{
    return differences_run(group, *(const int32_t *)user, harness_seed());
}

static void test_differences__every_operation(void **state)
{
    (void)state;
    int32_t turns = (int32_t)harness_count(1);
    for (int32_t ranks = 1; ranks <= 5; ranks++) {
        if (reshard_group_run(NULL, ranks, run_rank, &turns) != RESHARD_OK)
            fail_msg("%d ranks, seed %llu: %s", (int)ranks, (unsigned long long)harness_seed(),
                     reshard_error_text());
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_differences__every_operation),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
