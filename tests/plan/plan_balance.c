/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_balance.c - the exact balance against the true optimum.
 *
 * Each element that a buffer needs and its rank does not hold is one unit of work for one of its
 * holders. By the theorem of Hall, the least load of the busiest sender is the maximum, over all
 * sets H of ranks, of the work that only ranks of H can do, divided by the size of H and rounded
 * up. With few ranks all sets can be tried.
 */
#include "tests/support/planning.h"

#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MAX = 12 };

/* Work by the set of ranks that can do it. */
static void count_work(const planning *made, int32_t rank_count, int64_t *work)
{
    int64_t volume = made->source->volume;
    uint8_t *held = oracle_held(made->source, rank_count);
    uint8_t *needed = oracle_held(made->target, rank_count);
    for (int64_t e = 0; e < volume; e++) {
        uint32_t holders = 0;
        for (int32_t rank = 0; rank < rank_count; rank++)
            holders |= held[rank * volume + e] > 0 ? 1u << rank : 0;
        for (int32_t rank = 0; rank < rank_count; rank++) {
            /* A rank gets it for each of its buffers. */
            if (held[rank * volume + e] == 0)
                work[holders] += needed[rank * volume + e];
        }
    }
    free(held);
    free(needed);
}

static int64_t find_least(const planning *made, int32_t rank_count)
{
    int64_t *work = calloc((size_t)1 << rank_count, sizeof *work);
    int64_t least = 0;
    if (work == NULL)
        abort();
    count_work(made, rank_count, work);
    for (uint32_t set = 1; set < 1u << rank_count; set++) {
        int64_t inside = 0, size = 0;
        for (uint32_t holders = set; holders != 0; holders = (holders - 1) & set)
            inside += work[holders];
        for (int32_t rank = 0; rank < rank_count; rank++)
            size += set >> rank & 1u;
        int64_t load = (inside + size - 1) / size;
        least = load > least ? load : least;
    }
    free(work);
    return least;
}

static bool measure(const harness_case *given, reshard_balance balance, int64_t *out_least,
                    int64_t *out_load, words *said)
{
    planning made;
    reshard_plan_stats stats = {.size = sizeof stats};
    reshard_plan_options options = {.size = sizeof options, .balance = balance, .single_stage = 1};
    planning_state state = planning_init(&made, given, RESHARD_F32, &options, said);
    int32_t rank_count = 0;
    bool right = state != PLANNING_REFUSED;
    *out_least = -1;
    if (state == PLANNING_READY) {
        rank_count = rs_plan_forward(made.plan)->rank_count;
        right = planning_run(&made, given->seed, NULL, NULL, NULL, said);
        if (right && (reshard_plan_get_stats(made.plan, &stats, NULL) != RESHARD_OK ||
                      reshard_plan_check(made.plan) != RESHARD_OK))
            right = words_say(said, "stats or check: %s", reshard_error_text());
        if (right && rank_count <= RANKS_MAX) {
            *out_least = find_least(&made, rank_count);
            *out_load = (int64_t)(stats.bytes_out_max / made.item_bytes);
        }
    }
    planning_free(&made);
    return right;
}

static bool check_pair(const harness_case *given, words *said)
{
    int64_t least, exact, rule;
    if (!measure(given, RESHARD_BALANCE_EXACT, &least, &exact, said))
        return false;
    if (least < 0)
        return true;
    if (!measure(given, RESHARD_BALANCE_RULE, &least, &rule, said))
        return false;
    if (exact > rule)
        return words_say(said, "exact: %lld elements from the busiest, the rule: %lld",
                         (long long)exact, (long long)rule);
    if (exact != least)
        return words_say(said, "exact: %lld elements from the busiest, the least is %lld",
                         (long long)exact, (long long)least);
    return true;
}

static void generate_pair(draw_state *draw, harness_case *made)
{
    made->spec_count = 2;
    generate_shape(draw, 120, &made->ndim, made->shape);
    for (int i = 0; i < 2; i++)
        generate_spec(draw, GENERATE_FEW_RANKS | GENERATE_LISTED, made->ndim, made->shape,
                      &made->specs[i]);
}

static void test_balance__exact_is_least(void **state)
{
    (void)state;
    harness_run("balance of a random pair", 4000, generate_pair, check_pair);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_balance__exact_is_least)};
    return cmocka_run_group_tests_name("plan_balance", tests, NULL, NULL);
}
