/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_flow.c - sharing out loads, against the bound that no sharing can beat: for every set of
 * members, what only they can carry, divided among them (Hall). The busiest member carries exactly
 * the largest such bound, and every amount is shared out whole.
 */
#include "plan/flow.h"
#include "tests/support/check.h"
#include "tests/support/context.h"
#include "tests/support/harness.h"

#include <string.h>

enum { MEMBERS_MAX = 7, GROUPS_MAX = 9, CASES = 4000 };

typedef struct drawn {
    rs_flow_problem problem;
    int64_t amounts[GROUPS_MAX], first[GROUPS_MAX + 1];
    int32_t list[GROUPS_MAX * MEMBERS_MAX];
    uint32_t sets[GROUPS_MAX]; /* the members of each group, a bit each */
} drawn;

static void draw_problem(uint64_t seed, drawn *made)
{
    draw_state draw;
    draw_seed(&draw, seed);
    int32_t members = (int32_t)draw_between(&draw, 1, MEMBERS_MAX);
    int32_t groups = (int32_t)draw_between(&draw, 0, GROUPS_MAX);
    made->first[0] = 0;
    int64_t scale = draw_chance(&draw, 20) ? INT64_MAX / 1000 : 50;
    for (int32_t g = 0; g < groups; g++) {
        made->amounts[g] = draw_below(&draw, scale) / (draw_chance(&draw, 30) ? 8 : 1);
        made->sets[g] = (uint32_t)draw_between(&draw, 1, (1 << members) - 1);
        int64_t end = made->first[g];
        for (int32_t m = 0; m < members; m++) {
            if (made->sets[g] >> m & 1)
                made->list[end++] = m;
        }
        made->first[g + 1] = end;
    }
    made->problem = (rs_flow_problem){members, groups, made->amounts, made->first, made->list};
}

/* The largest of: what the groups within a set of members amount to, divided by the set's size. */
static int64_t least_load(const drawn *given)
{
    int64_t bound = 0;
    for (uint32_t set = 1; set < 1U << given->problem.member_count; set++) {
        int64_t amount = 0, size = __builtin_popcount(set);
        for (int32_t g = 0; g < given->problem.group_count; g++)
            amount += (given->sets[g] & ~set) == 0 ? given->amounts[g] : 0;
        int64_t each = amount / size + (amount % size != 0);
        bound = each > bound ? each : bound;
    }
    return bound;
}

static void check_case(uint64_t seed)
{
    drawn given;
    draw_problem(seed, &given);
    int64_t shares[GROUPS_MAX * MEMBERS_MAX], loads[MEMBERS_MAX] = {0}, busiest = 0;
    assert_int_equal(rs_flow_share(NULL, &given.problem, shares), RESHARD_OK);
    for (int32_t g = 0; g < given.problem.group_count; g++) {
        int64_t sum = 0;
        for (int64_t i = given.first[g]; i < given.first[g + 1]; i++) {
            assert_true(shares[i] >= 0);
            sum += shares[i];
            loads[given.list[i]] += shares[i];
        }
        assert_int_equal(sum, given.amounts[g]);
    }
    for (int32_t m = 0; m < given.problem.member_count; m++)
        busiest = loads[m] > busiest ? loads[m] : busiest;
    if (busiest != least_load(&given))
        fail_msg("busiest member carries %lld, %lld is possible; repeat with "
                 "RESHARD_TEST_SEED=%llu RESHARD_TEST_SCALE=0",
                 (long long)busiest, (long long)least_load(&given), (unsigned long long)seed);
}

static void test_share__busiest_carries_the_bound(void **state)
{
    (void)state;
    for (int64_t i = 0; i < harness_count(CASES); i++)
        check_case(harness_seed() + (uint64_t)i);
}

static reshard_status share(reshard_context *context, void *user)
{
    int64_t shares[GROUPS_MAX * MEMBERS_MAX];
    return rs_flow_share(context, &((drawn *)user)->problem, shares);
}

static void test_share__without_memory(void **state)
{
    (void)state;
    drawn given;
    draw_problem(1, &given);
    words said = {0};
    if (!context_fail_each(share, &given, &said))
        fail_msg("%s", said.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_share__busiest_carries_the_bound),
        cmocka_unit_test(test_share__without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
