/* SPDX-License-Identifier: Apache-2.0 */
/*
 * plan_strided.c - strided links: one link for a part of every group and for every second row, what
 * is refused, and that long ones cost no more than short ones. property_links compares random ones
 * with the rule, element by element.
 */
#include "base/limits.h"
#include "plan/plan.h"
#include "tests/support/check.h"

#include <reshard/plan_inspect.h>

#include <string.h>

static reshard_plan_tensor make_tensor(const char *name, const char *spec, int32_t ndim,
                                       const int64_t *shape)
{
    reshard_plan_tensor tensor = {name, NULL, RESHARD_F32};
    assert_int_equal(reshard_layout_parse(NULL, spec, ndim, shape, &tensor.layout), RESHARD_OK);
    return tensor;
}

/* ---- what they are for ----------------------------------------------------------------------- */

enum { GROUPS = 128, QUERIES = 16, HEAD = 128, COLUMNS = 64, ROWS = GROUPS * (QUERIES + 2) * HEAD };

/* Rows of 128 groups [q | k | v], each with 16 query heads, taken apart: three links. */
static void test_strided__groups(void **state)
{
    (void)state;
    const int64_t rows[3] = {QUERIES * HEAD, HEAD, HEAD};
    const int64_t at[3] = {0, QUERIES * HEAD, (QUERIES + 1) * HEAD};
    reshard_plan_tensor targets[3];
    reshard_strided_link links[3];
    reshard_plan_tensor source =
        make_tensor("qkv", "8: S(0)", 2, (const int64_t[2]){ROWS, COLUMNS});
    for (int32_t i = 0; i < 3; i++) {
        targets[i] = make_tensor("part", "4: S(0)", 2, (int64_t[2]){GROUPS * rows[i], COLUMNS});
        links[i] = (reshard_strided_link){
            .size = sizeof links[i], .target = i, .source_at = {at[i]}, .axis_count = 3};
        links[i].axes[0] = (reshard_link_axis){GROUPS, 0, 0, (QUERIES + 2) * HEAD, rows[i]};
        links[i].axes[1] = (reshard_link_axis){rows[i], 0, 0, 1, 1};
        links[i].axes[2] = (reshard_link_axis){COLUMNS, 1, 1, 1, 1};
    }
    reshard_plan *plan = NULL;
    reshard_plan_stats stats = {.size = sizeof stats};
    assert_int_equal(
        reshard_plan_create_strided(NULL, 1, &source, 3, targets, 3, links, NULL, &plan),
        RESHARD_OK);
    assert_int_equal(reshard_plan_check(plan), RESHARD_OK);
    assert_int_equal(reshard_plan_get_stats(plan, &stats, NULL), RESHARD_OK);
    assert_int_equal(stats.bytes_total, (int64_t)ROWS * COLUMNS * 4);
    /* A rank of the source holds 16 groups, one of the targets 32. */
    assert_true(stats.moves <= 3 * 8);
    reshard_plan_release(plan);
    for (int32_t i = 0; i < 3; i++)
        reshard_layout_release(targets[i].layout);
    reshard_layout_release(source.layout);
}

/* Interleaved rows of two tensors become one, and the gap of a third stays zero. */
static void test_strided__every_second_row(void **state)
{
    (void)state;
    const int64_t half[2] = {1 << 20, 8}, whole[2] = {1 << 21, 8};
    reshard_plan_tensor sources[2] = {make_tensor("gate", "4: S(0)", 2, half),
                                      make_tensor("up", "4: S(0)", 2, half)};
    reshard_plan_tensor target = make_tensor("gate_up", "2: S(0)", 2, whole);
    reshard_strided_link links[2];
    for (int32_t i = 0; i < 2; i++) {
        links[i] = (reshard_strided_link){
            .size = sizeof links[i], .source = i, .target_at = {i}, .axis_count = 2};
        links[i].axes[0] = (reshard_link_axis){half[0], 0, 0, 1, 2};
        links[i].axes[1] = (reshard_link_axis){8, 1, 1, 1, 1};
    }
    for (int32_t count = 1; count <= 2; count++) {
        reshard_plan_options options = {.size = sizeof options, .zero_fill = count == 1};
        reshard_plan_stats stats = {.size = sizeof stats};
        reshard_plan *plan = NULL;
        assert_int_equal(reshard_plan_create_strided(NULL, 2, sources, 1, &target, count, links,
                                                     &options, &plan),
                         RESHARD_OK);
        assert_int_equal(reshard_plan_check(plan), RESHARD_OK);
        assert_int_equal(reshard_plan_get_stats(plan, &stats, NULL), RESHARD_OK);
        assert_true(stats.moves <= 8);
        reshard_plan_release(plan);
    }
    for (int32_t i = 0; i < 2; i++)
        reshard_layout_release(sources[i].layout);
    reshard_layout_release(target.layout);
}

/* ---- what is refused ------------------------------------------------------------------------- */

typedef struct refusal {
    const char *name;
    reshard_strided_link links[2];
    int32_t count;
    reshard_status status;
    const char *words;
} refusal;

#define SIZE .size = sizeof(reshard_strided_link)

/* From a tensor of 12 elements to another one. */
static const refusal refusals[] = {
    {"whole", {{SIZE, .axis_count = 1, .axes = {{12, 0, 0, 1, 1}}}}, 1, RESHARD_OK, ""},
    {"many axes", {{SIZE, .axis_count = 17}}, 1, RESHARD_ERR_RANGE, "17 axes"},
    {"negative size",
     {{SIZE, .axis_count = 1, .axes = {{-1, 0, 0, 1, 1}}}},
     1,
     RESHARD_ERR_RANGE,
     "axis 0 has -1 elements"},
    {"no such dim",
     {{SIZE, .axis_count = 1, .axes = {{12, 1, 0, 1, 1}}}},
     1,
     RESHARD_ERR_RANGE,
     "axis 0 goes along dimension 1 of the source, which has 1"},
    {"step 0",
     {{SIZE, .axis_count = 1, .axes = {{12, 0, 0, 1, 0}}}},
     1,
     RESHARD_ERR_RANGE,
     "axis 0 has a step of 0 in the target"},
    {"too long",
     {{SIZE, .axis_count = 1, .axes = {{12, 0, 0, 1, 2}}}},
     1,
     RESHARD_ERR_RANGE,
     "reaches over 23 elements; the dimension has 12"},
    {"too late",
     {{SIZE, .target_at = {1}, .axis_count = 1, .axes = {{12, 0, 0, 1, 1}}}},
     1,
     RESHARD_ERR_RANGE,
     "begins at 1 in dimension 0 of the target"},
    {"too early",
     {{SIZE, .source_at = {-1}, .axis_count = 1, .axes = {{12, 0, 0, 1, 1}}}},
     1,
     RESHARD_ERR_RANGE,
     "begins at -1"},
    {"not nested",
     {{SIZE, .axis_count = 2, .axes = {{3, 0, 0, 2, 4}, {4, 0, 0, 1, 1}}}},
     1,
     RESHARD_ERR_INVALID,
     "axis 0 has a step of 2, and needs one of at least 4"},
    {"beyond counting",
     {{SIZE, .axis_count = 1, .axes = {{INT64_MAX, 0, 0, 2, 2}}}},
     1,
     RESHARD_ERR_RANGE,
     "too many to count"},
    {"gap",
     {{SIZE, .axis_count = 1, .axes = {{6, 0, 0, 1, 2}}}},
     1,
     RESHARD_ERR_GAP,
     "links fill 6 of its 12 elements"},
    {"overlap of steps",
     {{SIZE, .axis_count = 1, .axes = {{6, 0, 0, 1, 2}}},
      {SIZE, .axis_count = 1, .axes = {{4, 0, 0, 1, 3}}}},
     2,
     RESHARD_ERR_OVERLAP,
     "two links fill the same element"},
    {"two sizes",
     {{SIZE, .axis_count = 1, .axes = {{6, 0, 0, 1, 2}}}, {.size = 8}},
     2,
     RESHARD_ERR_INVALID,
     "link 1: its size differs"},
    {"no tensor",
     {{SIZE, .source = 1, .axis_count = 1, .axes = {{12, 0, 0, 1, 1}}}},
     1,
     RESHARD_ERR_RANGE,
     "source 1 does not exist"},
    {"empty", {{SIZE, .axis_count = 1, .axes = {{0, 0, 0, 1, 1}}}}, 1, RESHARD_ERR_GAP, "0 of"},
};

static void test_strided__refused(void **state)
{
    (void)state;
    reshard_plan_tensor source = make_tensor("a", "2: S(0)", 1, (const int64_t[1]){12});
    reshard_plan_tensor target = make_tensor("b", "3: S(0)", 1, (const int64_t[1]){12});
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
        const refusal *row = &refusals[i];
        reshard_plan *plan = NULL;
        reshard_status status = reshard_plan_create_strided(NULL, 1, &source, 1, &target,
                                                            row->count, row->links, NULL, &plan);
        if (status != row->status ||
            (status != RESHARD_OK && strstr(reshard_error_text(), row->words) == NULL))
            fail_msg("%s: %s: %s", row->name, reshard_status_name(status), reshard_error_text());
        reshard_plan_release(plan);
    }
    reshard_layout_release(source.layout);
    reshard_layout_release(target.layout);
}

/* Steps that do not divide each other make one box of each element. */
static void test_strided__limit(void **state)
{
    (void)state;
    const int64_t n = 3 * RS_LINK_BOXES_MAX;
    reshard_plan_tensor source = make_tensor("a", "2: S(0)", 1, &n);
    reshard_plan_tensor target = make_tensor("b", "3: S(0)", 1, &n);
    reshard_strided_link links[2] = {{SIZE, .axis_count = 1}, {SIZE, .axis_count = 1}};
    links[0].axes[0] = (reshard_link_axis){n / 2, 0, 0, 1, 2};
    links[1].axes[0] = (reshard_link_axis){n / 3, 0, 0, 1, 3};
    reshard_plan *plan = NULL;
    assert_int_equal(
        reshard_plan_create_strided(NULL, 1, &source, 1, &target, 2, links, NULL, &plan),
        RESHARD_ERR_RANGE);
    assert_non_null(strstr(reshard_error_text(), "more than 262144 boxes"));
    reshard_layout_release(source.layout);
    reshard_layout_release(target.layout);
}

/* Plans of different strided links, and of none, have different digests. */
static void test_strided__digest(void **state)
{
    (void)state;
    const int64_t n = 12;
    reshard_plan_tensor source = make_tensor("a", "2: S(0)", 1, &n);
    reshard_plan_tensor target = make_tensor("b", "3: S(0)", 1, &n);
    reshard_strided_link turned = {SIZE, .axis_count = 2,
                                   .axes = {{3, 0, 0, 4, 1}, {4, 0, 0, 1, 3}}};
    reshard_strided_link straight = {SIZE, .axis_count = 1, .axes = {{12, 0, 0, 1, 1}}};
    uint64_t digests[3][2];
    reshard_plan *plans[3] = {NULL};
    assert_int_equal(
        reshard_plan_create_strided(NULL, 1, &source, 1, &target, 1, &turned, NULL, &plans[0]), 0);
    assert_int_equal(
        reshard_plan_create_strided(NULL, 1, &source, 1, &target, 1, &straight, NULL, &plans[1]),
        0);
    assert_int_equal(reshard_plan_create_simple(NULL, source.layout, target.layout, RESHARD_F32,
                                                NULL, &plans[2]),
                     0);
    for (int i = 0; i < 3; i++) {
        rs_plan_digest(plans[i], digests[i]);
        for (int k = 0; k < i; k++)
            assert_true(memcmp(digests[i], digests[k], sizeof digests[i]) != 0);
    }
    for (int i = 0; i < 3; i++)
        reshard_plan_release(plans[i]);
    reshard_layout_release(source.layout);
    reshard_layout_release(target.layout);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_strided__groups),  cmocka_unit_test(test_strided__every_second_row),
        cmocka_unit_test(test_strided__refused), cmocka_unit_test(test_strided__limit),
        cmocka_unit_test(test_strided__digest),
    };
    return cmocka_run_group_tests_name("plan_strided", tests, NULL, NULL);
}
