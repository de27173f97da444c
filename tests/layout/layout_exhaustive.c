/* SPDX-License-Identifier: Apache-2.0 */
/*
 * layout_exhaustive.c - every length of 0..17 over 1..8 ranks by each rule, with and without units
 * and limits; every pair of placements on two axes, and many triples on three.
 */
#include "tests/support/compare.h"
#include "tests/support/harness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

static bool check_case(const harness_case *given, words *said)
{
    const char *why = "";
    reshard_layout *layout = NULL;
    oracle_layout *expected =
        oracle_layout_create(&given->specs[0], given->ndim, given->shape, &why);
    bool by_constructor = given->seed % 2 == 1;
    reshard_status status =
        compare_create(&given->specs[0], by_constructor, given->ndim, given->shape, &layout);
    bool right;
    if (expected == NULL)
        right = status != RESHARD_OK || words_say(said, "accepted, though %s", why);
    else if (status != RESHARD_OK)
        right = words_say(said, "refused: %s", reshard_error_text());
    else
        right = compare_layout(layout, expected, said);
    reshard_layout_release(layout);
    oracle_layout_destroy(expected);
    return right;
}

static void init_case(harness_case *made, int32_t axis_count, const int32_t *sizes)
{
    oracle_spec *spec = &made->specs[0];
    memset(made, 0, sizeof *made);
    made->spec_count = 1;
    spec->kind = RESHARD_SPEC_CUTS;
    spec->axis_count = axis_count;
    spec->default_ranks = true;
    for (int32_t i = 0; i < axis_count; i++)
        spec->sizes[i] = sizes[i];
}

static void set_numbers(oracle_cut *cut, int64_t n, int32_t count)
{
    cut->count = count;
    for (int32_t i = 0; i < count; i++)
        cut->values[i] = 0;
    for (int64_t i = 0; i < n; i++)
        cut->values[(i * i + i / 3) % count]++;
}

/* One dim of n elements over k ranks by one rule, with each of some units and limits. */
static void check_rule(harness_case *made, reshard_shard_rule rule, int64_t n, int32_t k)
{
    static const int64_t units[] = {0, 1, 2, 3, 5};
    static const int64_t limits[] = {0, 1, 2, 3, 9};
    init_case(made, 1, &k);
    made->ndim = 1;
    made->shape[0] = n;
    made->specs[0].cut_count = 1;
    for (int i = 0; i < 25; i++) {
        oracle_cut *cut = &made->specs[0].cuts[0];
        memset(cut, 0, sizeof *cut);
        cut->kind = RESHARD_SHARD;
        cut->rule = rule;
        cut->unit = units[i % 5];
        cut->max = limits[i / 5];
        int64_t unit = cut->unit > 0 ? cut->unit : 1;
        int32_t pieces = cut->max > 0 && cut->max < k ? (int32_t)cut->max : k;
        if (rule == RESHARD_PACKED)
            set_numbers(cut, n, 3);
        if (rule == RESHARD_RAGGED)
            set_numbers(cut, n, pieces);
        for (int64_t factor = 1; factor <= 4; factor++) {
            if (rule == RESHARD_STRIDED || rule == RESHARD_CYCLIC)
                cut->factor = rule == RESHARD_CYCLIC ? factor * unit : factor;
            else if (factor > 1)
                break;
            made->seed++;
            harness_check("one cut", made, check_case);
        }
    }
}

static void test_layout__every_length(void **state)
{
    (void)state;
    static harness_case made;
    for (int rule = RESHARD_CHUNK; rule <= RESHARD_CYCLIC; rule++) {
        for (int64_t n = 0; n <= 17; n++) {
            for (int32_t k = 1; k <= 8; k++)
                check_rule(&made, (reshard_shard_rule)rule, n, k);
        }
    }
}

/* One dim cut twice, by every pair of rules; the second time as a dim or in the flat order. */
static void test_layout__every_nested_length(void **state)
{
    (void)state;
    static const int32_t sizes[][2] = {{3, 2}, {2, 3}, {4, 3}};
    static harness_case made;
    for (int i = 0; i < 36 * 3 * 27 * 2 * 2; i++) {
        int rules[2] = {i % 6, i / 6 % 6};
        int rest = i / 36 / 3 / 27;
        init_case(&made, 2, sizes[i / 36 % 3]);
        made.seed = (uint64_t)i;
        made.ndim = 1;
        made.shape[0] = i / 36 / 3 % 27;
        oracle_spec *spec = &made.specs[0];
        for (int32_t axis = 0; axis < 2; axis++) {
            oracle_cut *cut = &spec->cuts[axis];
            int64_t n = oracle_length_left(spec, 1, made.shape, 0);
            cut->axis = axis;
            cut->kind = RESHARD_SHARD;
            cut->dim = axis == 1 && rest % 2 == 1 ? RESHARD_DIM_FLAT : 0;
            cut->rule = (reshard_shard_rule)rules[axis];
            cut->factor = 2 + rest / 2;
            if (cut->rule == RESHARD_PACKED || cut->rule == RESHARD_RAGGED)
                set_numbers(cut, n > 0 ? n : 0,
                            cut->rule == RESHARD_PACKED ? 2 : spec->sizes[axis]);
            spec->cut_count++;
        }
        harness_check("two cuts of one dim", &made, check_case);
    }
}

/* ---- combinations ---------------------------------------------------------------------------- */

enum { PLACEMENTS = 15 };

/* The number-th placement for an axis of `size`, made so that it suits lengths of about n. */
static void set_placement(int number, int32_t axis, int32_t size, int64_t n, oracle_cut *cut)
{
    memset(cut, 0, sizeof *cut);
    cut->axis = axis;
    cut->kind = RESHARD_SHARD;
    switch (number) {
    case 0:
        cut->kind = RESHARD_REPLICATE;
        return;
    case 1:
        cut->kind = RESHARD_PARTIAL;
        return;
    case 2:
        cut->kind = RESHARD_AT;
        cut->count = 1;
        cut->values[0] = size - 1;
        return;
    case 3:
    case 4:
    case 5:
        cut->dim = number - 3 < 2 ? number - 3 : -1;
        return;
    case 6:
        cut->dim = RESHARD_DIM_FLAT;
        return;
    case 7:
        cut->dim = RESHARD_DIM_FLAT;
        cut->rule = RESHARD_CYCLIC;
        cut->factor = 2;
        return;
    case 13:
        cut->max = 2;
        return;
    case 14:
        cut->unit = 2;
        return;
    default:
        cut->rule = (reshard_shard_rule)(number - 8 + RESHARD_BALANCED);
        break;
    }
    cut->factor = 2;
    if (cut->rule == RESHARD_PACKED)
        set_numbers(cut, n, 2);
    if (cut->rule == RESHARD_RAGGED)
        set_numbers(cut, n, size);
}

/* Cuts axis after axis in the given order, each made for what is left of dim 0. */
static void set_cuts(harness_case *made, const int *numbers, const int32_t *order)
{
    oracle_spec *spec = &made->specs[0];
    spec->cut_count = 0;
    for (int32_t i = 0; i < spec->axis_count; i++) {
        int32_t axis = order[i];
        int64_t n = oracle_length_left(spec, made->ndim, made->shape, 0);
        set_placement(numbers[i], axis, spec->sizes[axis], n > 0 ? n : 0, &spec->cuts[i]);
        spec->cut_count++;
    }
}

static void test_layout__every_pair(void **state)
{
    (void)state;
    static const int32_t meshes[][2] = {{2, 3}, {3, 2}, {4, 1}, {1, 4}, {2, 2}};
    static const int64_t shapes[][2] = {{6, 5}, {7, 3}, {12, 4}, {1, 2}, {0, 3}};
    static const int32_t orders[][2] = {{0, 1}, {1, 0}};
    static harness_case made;
    for (int i = 0; i < PLACEMENTS * PLACEMENTS * 50; i++) {
        int numbers[2] = {i % PLACEMENTS, i / PLACEMENTS % PLACEMENTS};
        int rest = i / (PLACEMENTS * PLACEMENTS);
        init_case(&made, 2, meshes[rest % 5]);
        made.seed = (uint64_t)i;
        made.ndim = 2;
        memcpy(made.shape, shapes[rest / 5 % 5], sizeof shapes[0]);
        made.specs[0].named = rest / 25 == 1;
        made.specs[0].with_at = rest / 25 == 1;
        set_cuts(&made, numbers, orders[rest / 25]);
        harness_check("two cuts", &made, check_case);
    }
}

static void test_layout__many_triples(void **state)
{
    (void)state;
    static const int64_t extents[] = {0, 1, 2, 3, 5, 6, 7, 8, 11};
    static harness_case made;
    draw_state draw;
    draw_seed(&draw, harness_seed());
    int64_t count = harness_count(6000);
    for (int64_t i = 0; i < count; i++) {
        int32_t sizes[3], order[3] = {0, 1, 2};
        int numbers[3];
        for (int axis = 0; axis < 3; axis++) {
            sizes[axis] = (int32_t)draw_between(&draw, 1, 3);
            numbers[axis] = (int)draw_below(&draw, PLACEMENTS);
        }
        init_case(&made, 3, sizes);
        made.seed = (uint64_t)i;
        made.ndim = (int32_t)draw_between(&draw, 2, 3);
        for (int32_t d = 0; d < made.ndim; d++)
            made.shape[d] = extents[draw_below(&draw, 9)];
        if (draw_chance(&draw, 50)) {
            made.specs[0].named = true;
            made.specs[0].with_at = true;
            draw_shuffle(&draw, 3, order);
        }
        set_cuts(&made, numbers, order);
        harness_check("three cuts", &made, check_case);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_layout__every_length),
        cmocka_unit_test(test_layout__every_nested_length),
        cmocka_unit_test(test_layout__every_pair),
        cmocka_unit_test(test_layout__many_triples),
    };
    return cmocka_run_group_tests_name("layout_exhaustive", tests, NULL, NULL);
}
