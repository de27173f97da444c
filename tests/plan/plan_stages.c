/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_stages.c - what passing through an intermediate layout is for: P to R over k ranks costs
 * each rank two (k-1)/k of the tensor, a broadcast costs its source one tensor, and many holders
 * share the sending. And what is asked for with single_stage comes to the same values.
 */
#include "tests/support/planning.h"

#include "plan/plan.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static harness_case made_case;

typedef struct loads {
    uint64_t in_max, out_max, out_first, total;
    int32_t stages;
} loads;

/* Carries the plan out, and tells what each rank had to bear. */
static void measure(bool single_stage, loads *out)
{
    planning made;
    simulate_run run = {0};
    words said = {""};
    reshard_plan_options options = {.size = sizeof options, .single_stage = single_stage};
    memset(out, 0, sizeof *out);
    if (planning_init(&made, &made_case, RESHARD_F32, &options, &said) != PLANNING_READY ||
        !planning_run(&made, 5, NULL, NULL, &run, &said)) {
        char *text = harness_case_text(&made_case);
        fail_msg("%s\n%s", said.text, text);
    }
    assert_int_equal(reshard_plan_check(made.plan), RESHARD_OK);
    out->stages = rs_plan_forward(made.plan)->stage_count;
    for (int32_t a = 0; a < run.rank_count; a++) {
        uint64_t in = 0, away = 0;
        for (int32_t b = 0; b < run.rank_count; b++) {
            in += a != b ? planning_traffic(&made, &run, b, a) : 0;
            away += a != b ? planning_traffic(&made, &run, a, b) : 0;
        }
        out->in_max = in > out->in_max ? in : out->in_max;
        out->out_max = away > out->out_max ? away : out->out_max;
        out->out_first = a == 0 ? away : out->out_first;
        out->total += away;
    }
    simulate_release(&run);
    planning_free(&made);
}

static const int64_t shapes[][2] = {{12, 10}, {7, 11}, {1, 5}, {31, 1}, {16, 16}};
enum { SHAPES = 5 };

static uint64_t tensor_bytes(int which)
{
    return (uint64_t)(shapes[which][0] * shapes[which][1]) * 4;
}

static void test_stages__all_reduce(void **state)
{
    (void)state;
    for (int which = 0; which < SHAPES; which++) {
        for (int32_t k = 2; k <= 9; k++) {
            loads seen, single;
            uint64_t bytes = tensor_bytes(which);
            memset(&made_case, 0, sizeof made_case);
            planning_set_shape(&made_case, 2, shapes[which]);
            planning_set_whole(&made_case.specs[0], k, 0, RESHARD_PARTIAL);
            planning_set_whole(&made_case.specs[1], k, 0, RESHARD_REPLICATE);
            measure(false, &seen);
            measure(true, &single);
            uint64_t limit = 2 * bytes * (uint64_t)(k - 1) / (uint64_t)k + 8 * (uint64_t)k;
            if (seen.in_max > limit || seen.out_max > limit)
                fail_msg("k %d, %llu bytes: %llu in, %llu out, not at most %llu", (int)k,
                         (unsigned long long)bytes, (unsigned long long)seen.in_max,
                         (unsigned long long)seen.out_max, (unsigned long long)limit);
            assert_int_equal(single.stages, 1);
        }
    }
}

static void test_stages__reduce_scatter(void **state)
{
    (void)state;
    for (int which = 0; which < SHAPES; which++) {
        for (int32_t k = 2; k <= 6; k++) {
            loads seen;
            memset(&made_case, 0, sizeof made_case);
            planning_set_shape(&made_case, 2, shapes[which]);
            planning_set_whole(&made_case.specs[0], k, 0, RESHARD_PARTIAL);
            planning_set_chunks(&made_case.specs[1], k, NULL, 0);
            measure(false, &seen);
            /* Every contribution but one's own arrives once, and nothing else does. */
            assert_int_equal(seen.total, tensor_bytes(which) * (uint64_t)(k - 1));
        }
    }
}

/* One rank to k others. The source hands out the tensor once, and its receivers pass it on. */
static void test_stages__broadcast(void **state)
{
    (void)state;
    for (int which = 0; which < SHAPES; which++) {
        for (int32_t k = 2; k <= 9; k++) {
            loads seen, single;
            uint64_t bytes = tensor_bytes(which);
            for (int32_t first = 0; first < 2; first++) {
                /* A source that is a target too takes part in the passing on. */
                uint64_t limit = first == 1 ? bytes : 2 * bytes * (uint64_t)(k - 1) / (uint64_t)k;
                limit += 8 * (uint64_t)k;
                memset(&made_case, 0, sizeof made_case);
                planning_set_shape(&made_case, 2, shapes[which]);
                planning_set_whole(&made_case.specs[0], 1, 0, RESHARD_REPLICATE);
                planning_set_whole(&made_case.specs[1], k, first, RESHARD_REPLICATE);
                measure(false, &seen);
                measure(true, &single);
                if (seen.out_first > limit || seen.in_max > limit)
                    fail_msg("k %d from %d, %llu bytes: %llu out of the source, %llu into a rank",
                             (int)k, (int)first, (unsigned long long)bytes,
                             (unsigned long long)seen.out_first, (unsigned long long)seen.in_max);
                assert_int_equal(single.stages, 1);
                assert_int_equal(single.total, bytes * (uint64_t)(first == 0 ? k - 1 : k));
            }
        }
    }
}

/* k holders to one: each sends its share, rounded up to whole rows. */
static void test_stages__holders_share(void **state)
{
    (void)state;
    static const int64_t shape[2] = {24, 35};
    for (int32_t k = 2; k <= 8; k++) {
        loads seen;
        uint64_t bytes = 24 * 35 * 4;
        memset(&made_case, 0, sizeof made_case);
        planning_set_shape(&made_case, 2, shape);
        planning_set_whole(&made_case.specs[0], k, 0, RESHARD_REPLICATE);
        planning_set_whole(&made_case.specs[1], 1, k, RESHARD_REPLICATE);
        measure(false, &seen);
        assert_int_equal(seen.total, bytes);
        if (seen.out_max > bytes / (uint64_t)k + 35 * 4)
            fail_msg("%d holders: one of them sends %llu of %llu bytes", (int)k,
                     (unsigned long long)seen.out_max, (unsigned long long)bytes);
    }
}

/* Bytes and stages of a plan between layouts of 16x16; two: for both targets at once. */
static uint64_t find_bytes(const char *from, const char *const *to, int count, reshard_dtype dtype,
                           reshard_dtype target_dtype, int32_t *out_stages)
{
    static const int64_t shape[] = {16, 16};
    reshard_plan_tensor sources[2], targets[2];
    reshard_link links[] = {reshard_link_whole(0, 0), reshard_link_whole(1, 1)};
    reshard_plan *plan = NULL;
    reshard_plan_stats stats = {.size = sizeof stats};
    for (int i = 0; i < count; i++) {
        sources[i] = (reshard_plan_tensor){.dtype = dtype};
        targets[i] = (reshard_plan_tensor){.dtype = target_dtype};
        assert_int_equal(reshard_layout_parse(NULL, from, 2, shape, &sources[i].layout), 0);
        assert_int_equal(reshard_layout_parse(NULL, to[i], 2, shape, &targets[i].layout), 0);
    }
    assert_int_equal(
        reshard_plan_create(NULL, count, sources, count, targets, count, links, NULL, &plan), 0);
    assert_int_equal(reshard_plan_get_stats(plan, &stats, NULL), RESHARD_OK);
    *out_stages = rs_plan_forward(plan)->stage_count;
    reshard_plan_release(plan);
    for (int i = 0; i < count; i++) {
        reshard_layout_release(sources[i].layout);
        reshard_layout_release(targets[i].layout);
    }
    return stats.bytes_moved;
}

/* A second stage where it pays, and not where a rank sends no less by it. Every link is decided for
 * itself. What is summed travels in the source's type, narrow as that may be. */
static void test_stages__where_they_pay(void **state)
{
    (void)state;
    static const char *const all[] = {"2: R", "3: R", "4: R", "2[0,1]: R"};
    static const char *const both[] = {"4: R", "2[0,1]: R"};
    int32_t stages = 0;
    (void)find_bytes("2: P", &all[0], 1, RESHARD_F32, RESHARD_F32, &stages);
    assert_int_equal(stages, 1);
    (void)find_bytes("3: P", &all[1], 1, RESHARD_F32, RESHARD_F32, &stages);
    assert_int_equal(stages, 2);
    uint64_t four = find_bytes("4: P", &all[2], 1, RESHARD_F32, RESHARD_F32, &stages);
    uint64_t two = find_bytes("4: P", &all[3], 1, RESHARD_F32, RESHARD_F32, &stages);
    assert_int_equal(find_bytes("4: P", both, 2, RESHARD_F32, RESHARD_F32, &stages), four + two);
    uint64_t half = find_bytes("4: P", &all[2], 1, RESHARD_F16, RESHARD_F16, &stages);
    assert_int_equal(find_bytes("4: P", &all[2], 1, RESHARD_F16, RESHARD_F32, &stages), half);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_stages__all_reduce),
        cmocka_unit_test(test_stages__reduce_scatter),
        cmocka_unit_test(test_stages__broadcast),
        cmocka_unit_test(test_stages__holders_share),
        cmocka_unit_test(test_stages__where_they_pay),
    };
    return cmocka_run_group_tests_name("plan_stages", tests, NULL, NULL);
}
