/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_assignment.c - best assignments, against trying all permutations.
 */
#include "plan/assignment.h"
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/harness.h"

#include <string.h>

enum { N_MAX = 7, CASES = 1500 };

/* The best sum of the rows from `row` on, when `taken` columns (a bit each) are gone. */
static int64_t best_from(int32_t n, const int64_t *gains, int32_t row, uint32_t taken)
{
    if (row == n)
        return 0;
    int64_t best = INT64_MIN;
    for (int32_t c = 0; c < n; c++) {
        if (taken >> c & 1)
            continue;
        int64_t sum = gains[row * n + c] + best_from(n, gains, row + 1, taken | 1U << c);
        best = sum > best ? sum : best;
    }
    return best;
}

static void draw_gains(draw_state *draw, int32_t n, int64_t *gains)
{
    int64_t scale = draw_chance(draw, 30) ? 3 : draw_chance(draw, 30) ? INT64_MAX / 64 : 1000;
    bool sparse = draw_chance(draw, 50); /* as bytes that ranks have in common are */
    for (int32_t i = 0; i < n * n; i++)
        gains[i] = sparse && draw_chance(draw, 60) ? 0 : draw_below(draw, scale);
}

static void check_case(uint64_t seed)
{
    draw_state draw;
    draw_seed(&draw, seed);
    int32_t n = (int32_t)draw_between(&draw, 0, N_MAX), columns[N_MAX];
    int64_t gains[N_MAX * N_MAX], sum = 0;
    uint32_t taken = 0;
    draw_gains(&draw, n, gains);
    assert_int_equal(rs_assignment_solve(NULL, n, gains, columns), RESHARD_OK);
    for (int32_t row = 0; row < n; row++) {
        assert_true(columns[row] >= 0 && columns[row] < n);
        assert_false(taken >> columns[row] & 1);
        taken |= 1U << columns[row];
        sum += gains[row * n + columns[row]];
    }
    int64_t best = best_from(n, gains, 0, 0);
    if (sum != best)
        fail_msg("gains %lld, %lld is possible; repeat with RESHARD_TEST_SEED=%llu "
                 "RESHARD_TEST_SCALE=0",
                 (long long)sum, (long long)best, (unsigned long long)seed);
}

static void test_solve__as_good_as_all_permutations(void **state)
{
    (void)state;
    for (int64_t i = 0; i < harness_count(CASES); i++)
        check_case(harness_seed() + (uint64_t)i);
}

/* Where nothing is gained by moving, every row stays at home. */
static void test_solve__stays_at_home(void **state)
{
    (void)state;
    int64_t gains[N_MAX * N_MAX];
    int32_t columns[N_MAX];
    for (int32_t i = 0; i < N_MAX * N_MAX; i++)
        gains[i] = 5;
    assert_int_equal(rs_assignment_solve(NULL, N_MAX, gains, columns), RESHARD_OK);
    for (int32_t row = 0; row < N_MAX; row++)
        assert_int_equal(columns[row], row);
}

static reshard_status solve(reshard_context *context, void *user)
{
    int32_t columns[N_MAX];
    return rs_assignment_solve(context, N_MAX, user, columns);
}

static void test_solve__without_memory(void **state)
{
    (void)state;
    int64_t gains[N_MAX * N_MAX] = {0};
    words said = {0};
    if (!context_fail_each(solve, gains, &said))
        fail_msg("%s", said.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_solve__as_good_as_all_permutations),
        cmocka_unit_test(test_solve__stays_at_home),
        cmocka_unit_test(test_solve__without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
