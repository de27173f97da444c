/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_limits.c - plans that no machine can work out are refused at once, with the number; those
 * that are large but regular are not.
 */
#include "base/limits.h"
#include "tests/support/check.h"

#include <reshard/plan_inspect.h>

#include <stdbool.h>
#include <string.h>

static reshard_status create(const char *from, const char *to, int32_t ndim, int64_t n,
                             const reshard_plan_options *options, reshard_plan **out_plan)
{
    reshard_layout *source = NULL, *target = NULL;
    int64_t shape[2] = {n, n};
    assert_int_equal(reshard_layout_parse(NULL, from, ndim, shape, &source), RESHARD_OK);
    assert_int_equal(reshard_layout_parse(NULL, to, ndim, shape, &target), RESHARD_OK);
    reshard_status status =
        reshard_plan_create_simple(NULL, source, target, RESHARD_U8, options, out_plan);
    reshard_layout_release(source);
    reshard_layout_release(target);
    return status;
}

static reshard_plan *make(const char *from, const char *to, int32_t ndim, int64_t n)
{
    reshard_plan *plan = NULL;
    if (create(from, to, ndim, n, NULL, &plan) != RESHARD_OK)
        fail_msg("%s to %s: %s", from, to, reshard_error_text());
    return plan;
}

static void expect_words(const char *words)
{
    if (strstr(reshard_error_text(), words) == NULL)
        fail_msg("\"%s\" does not say \"%s\"", reshard_error_text(), words);
}

static void test_limits__parts(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        int32_t ndim;
        int64_t n;
    } cases[] = {
        {"4: S(0/1)", "3: S(0/1)", 1, INT64_MAX},
        {"4: S(0/1)", "3: S(0)", 1, INT64_MAX},
        {"4: S(0)", "3: S(0/1)", 1, INT64_MAX},
        {"4: S(0*1000000000000)", "3: S(0)", 1, INT64_MAX},
        {"4: S(flat/1)", "3: S(0)", 2, 3000000000},
        {"4: S(0)", "3: S(flat/1)", 2, 3000000000},
        {"4: R", "3: S(0/1)", 1, INT64_MAX},
        {"2,2: S(0/1), R", "3: S(0/1)", 2, 3000000000},
        {"2: S(0/1)", "2: R", 1, 4 * (RS_PART_STEPS_MAX + 1)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        reshard_plan *plan = make(cases[i].from, cases[i].to, cases[i].ndim, cases[i].n);
        reshard_part *part = NULL;
        reshard_status status = reshard_part_create(NULL, plan, 0, &part);
        if (status != RESHARD_ERR_RANGE)
            fail_msg("%s to %s: %s", cases[i].from, cases[i].to, reshard_status_name(status));
        expect_words("steps; at most 67108864 are taken");
        reshard_plan_release(plan);
    }
}

/* Two billion ranks, each with some neighbours only, or with all of them at regular steps. */
static void test_limits__regular(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"2147483647: S(0)", "2147483647: S(0~)"}, {"2147483647: S(0)", "2147483647: S(1)"},
        {"2147483647: S(0)", "2147483646: S(0)"},  {"2: S(0)", "2147483647: S(1)"},
        {"2147483647: S(0)", "4: S(0)"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        reshard_plan *plan = make(pairs[i][0], pairs[i][1], 2, 3000000000);
        reshard_part *part = NULL;
        if (reshard_part_create(NULL, plan, 1, &part) != RESHARD_OK)
            fail_msg("%s to %s: %s", pairs[i][0], pairs[i][1], reshard_error_text());
        reshard_part_stats stats = {.size = sizeof stats};
        reshard_part_get_stats(part, &stats);
        assert_true(stats.bytes_in + stats.bytes_out + stats.bytes_kept > 0);
        reshard_part_destroy(part);
        reshard_plan_release(plan);
    }
}

static void test_limits__whole(void **state)
{
    (void)state;
    reshard_plan_stats stats = {.size = sizeof stats};
    reshard_plan *plan = make("1048577: S(0)", "1048577: S(1)", 2, 2000000);
    assert_int_equal(reshard_plan_get_stats(plan, &stats, NULL), RESHARD_ERR_RANGE);
    expect_words("a plan over 1048577 ranks; at most 1048576");
    assert_int_equal(reshard_plan_check(plan), RESHARD_ERR_RANGE);
    reshard_plan_release(plan);
    plan = make("1000000: R", "1000000: S(0)", 2, 1000000); /* ranks squared */
    assert_int_equal(reshard_plan_get_stats(plan, &stats, NULL), RESHARD_ERR_RANGE);
    expect_words("steps; at most 268435456");
    reshard_plan_release(plan);
    reshard_plan_options exact = {.size = sizeof exact, .balance = RESHARD_BALANCE_EXACT};
    plan = NULL;
    assert_int_equal(create("2000000: P", "2000000: R", 2, 1000000, &exact, &plan),
                     RESHARD_ERR_RANGE);
    reshard_plan_options relabel = {.size = sizeof relabel, .relabel = 1};
    assert_int_equal(create("4: S(0)", "2147483647: S(0)", 1, INT64_MAX, &relabel, &plan),
                     RESHARD_ERR_UNSUPPORTED);
    assert_null(plan);
}

/* What relabelling goes through: 2^31 copies of each part, and 2^31 pieces. */
static void test_limits__relabel(void **state)
{
    (void)state;
    reshard_plan_options relabel = {.size = sizeof relabel, .relabel = 1};
    reshard_plan *plan = NULL;
    assert_int_equal(create("2147483647: R", "4096: S(0)", 1, INT64_MAX / 4, &relabel, &plan),
                     RESHARD_ERR_RANGE);
    expect_words("have more than 268435456 holders in the source");
    assert_int_equal(create("2147483647: S(0)", "3647: S(0)", 1, 21474734600, &relabel, &plan),
                     RESHARD_ERR_RANGE);
    expect_words("more than 268435456");
    assert_null(plan);
}

static reshard_status create_f64(const char *from, const char *to, int64_t n,
                                 const reshard_plan_options *options, reshard_plan **out_plan)
{
    reshard_layout *source = NULL, *target = NULL;
    assert_int_equal(reshard_layout_parse(NULL, from, 1, &n, &source), RESHARD_OK);
    assert_int_equal(reshard_layout_parse(NULL, to, 1, &n, &target), RESHARD_OK);
    reshard_status status =
        reshard_plan_create_simple(NULL, source, target, RESHARD_F64, options, out_plan);
    reshard_layout_release(source);
    reshard_layout_release(target);
    return status;
}

/* More bytes than 64 bits can count: no figures instead of wrong ones, but the moves are there. */
static void test_limits__bytes(void **state)
{
    (void)state;
    static const struct {
        const char *from, *to;
        int64_t n;
        bool part_fits; /* each rank's bytes do, only their sum does not */
    } cases[] = {
        {"2: R", "4: R", (int64_t)1 << 62, false},
        {"4: P(sum)", "4: S(0)", (int64_t)1 << 62, false},
        {"4: S(0)", "8: R", (int64_t)1 << 60, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        reshard_plan *plan = NULL;
        reshard_part *part = NULL;
        reshard_plan_stats stats = {.size = sizeof stats};
        reshard_part_stats one = {.size = sizeof one};
        assert_int_equal(create_f64(cases[i].from, cases[i].to, cases[i].n, NULL, &plan),
                         RESHARD_OK);
        assert_int_equal(reshard_plan_get_stats(plan, &stats, NULL), RESHARD_ERR_RANGE);
        expect_words("bytes");
        assert_int_equal(reshard_part_create(NULL, plan, 3, &part), RESHARD_OK);
        assert_int_equal(reshard_part_get_stats(part, &one),
                         cases[i].part_fits ? RESHARD_OK : RESHARD_ERR_RANGE);
        reshard_part_destroy(part);
        reshard_plan_release(plan);
    }
    reshard_plan_stats stats = {.size = sizeof stats};
    reshard_plan *plan = make("2: R", "4: R", 1, (int64_t)1 << 62);
    assert_int_equal(reshard_plan_get_stats(plan, &stats, NULL), RESHARD_ERR_RANGE);
    reshard_plan_release(plan);
    plan = NULL;
    reshard_plan_options exact = {.size = sizeof exact, .balance = RESHARD_BALANCE_EXACT};
    reshard_plan_options relabel = {.size = sizeof relabel, .relabel = 1};
    assert_int_equal(create_f64("2: R", "6: R", (int64_t)1 << 62, &exact, &plan),
                     RESHARD_ERR_RANGE);
    expect_words("leave it to the rule");
    assert_int_equal(create_f64("2: R", "4: R", (int64_t)1 << 62, &relabel, &plan),
                     RESHARD_ERR_RANGE);
    expect_words("relabel: ");
    assert_null(plan);
}

/* Two dims of many blocks have their product of single moves: no list of them, no matrix by
 * them. */
static void test_limits__singles(void **state)
{
    (void)state;
    reshard_plan *plan = make("2,2: S(0/1), S(1/1)", "2: S(0/1)", 2, 20000);
    uint64_t matrix[16];
    reshard_plan_stats stats = {.size = sizeof stats};
    assert_int_equal(reshard_plan_get_stats(plan, &stats, matrix), RESHARD_OK);
    assert_true(stats.moves > (uint64_t)RS_MOVES_LISTED_MAX);
    assert_int_equal(matrix[0 * 4 + 0], 100000000); /* rank 0 has half the columns of its rows */
    assert_int_equal(matrix[1 * 4 + 0], 100000000);
    assert_int_equal(matrix[0 * 4 + 1], 0);
    assert_int_equal(reshard_plan_check(plan), RESHARD_ERR_RANGE);
    expect_words("single moves (at most 16777216)");
    reshard_part *part = NULL;
    reshard_stream *stream = NULL;
    assert_int_equal(reshard_part_create(NULL, plan, 0, &part), RESHARD_OK);
    assert_int_equal(reshard_stream_create(part, 0, 1, 0, &stream), RESHARD_ERR_RANGE);
    expect_words("16777216 single moves");
    reshard_part_destroy(part);
    reshard_plan_release(plan);
}

/* Few enough single moves, but each is looked for among many pieces. */
static void test_limits__check_steps(void **state)
{
    (void)state;
    reshard_plan *plan = make("2: S(0/1)", "3: S(0/1)", 1, 20000);
    assert_int_equal(reshard_plan_check(plan), RESHARD_OK);
    reshard_plan_release(plan);
    plan = make("2: S(0/1)", "3: S(0/1)", 1, 200000);
    assert_int_equal(reshard_plan_check(plan), RESHARD_ERR_RANGE);
    expect_words("steps (at most 4294967296) is too long");
    reshard_plan_release(plan);
}

static void test_limits__balance(void **state)
{
    (void)state;
    reshard_plan_options exact = {.size = sizeof exact, .balance = RESHARD_BALANCE_EXACT};
    reshard_plan *plan = NULL;
    assert_int_equal(create("3: R", "2[5..6]: S(0/1)", 1, RS_BALANCED_MAX + 2, &exact, &plan),
                     RESHARD_ERR_RANGE);
    expect_words("an exact balance of more than 524288 moves; leave it to the rule");
    assert_null(plan);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_limits__parts),       cmocka_unit_test(test_limits__regular),
        cmocka_unit_test(test_limits__whole),       cmocka_unit_test(test_limits__relabel),
        cmocka_unit_test(test_limits__bytes),       cmocka_unit_test(test_limits__singles),
        cmocka_unit_test(test_limits__check_steps), cmocka_unit_test(test_limits__balance),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
