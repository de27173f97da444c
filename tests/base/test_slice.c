/* SPDX-License-Identifier: Apache-2.0 */
/* test_slice.c - names compare by their bytes, NUL, high bytes and empty ones included. */
#include "base/slice.h"
#include "tests/support/check.h"

static rs_slice slice_of(const char *bytes, size_t count)
{
    return (rs_slice){bytes, count};
}

static void test_equals(void **state)
{
    (void)state;
    assert_true(rs_slice_equals(rs_slice_of("layer.0"), "layer.0"));
    assert_true(rs_slice_equals(slice_of("layer.0.weight", 7), "layer.0"));
    assert_false(rs_slice_equals(rs_slice_of("layer.0"), "layer.01"));
    assert_false(rs_slice_equals(rs_slice_of("layer.01"), "layer.0"));
    assert_false(rs_slice_equals(slice_of("a\0b", 3), "a"));
    assert_true(rs_slice_equals(slice_of(NULL, 0), ""));
    assert_false(rs_slice_equals(slice_of(NULL, 0), "a"));
}

/* In rising order: bytes are unsigned, and what another begins with comes before it. */
static void test_compare(void **state)
{
    (void)state;
    const rs_slice rising[] = {slice_of(NULL, 0),      slice_of("\0", 1),  rs_slice_of("a"),
                               slice_of("a\0", 2),     rs_slice_of("a.b"), rs_slice_of("ab"),
                               rs_slice_of("\xc3\xa9")};
    for (size_t i = 0; i < sizeof rising / sizeof *rising; i++) {
        for (size_t j = 0; j < sizeof rising / sizeof *rising; j++) {
            int order = rs_slice_compare(rising[i], rising[j]);
            assert_int_equal((order > 0) - (order < 0), (i > j) - (i < j));
            order = rs_compare_slices(&rising[i], &rising[j]);
            assert_int_equal((order > 0) - (order < 0), (i > j) - (i < j));
        }
    }
}

static void test_shown(void **state)
{
    (void)state;
    char text[300] = {0};
    assert_int_equal(rs_slice_shown(slice_of(text, 0)), 0);
    assert_int_equal(rs_slice_shown(slice_of(text, 199)), 199);
    assert_int_equal(rs_slice_shown(slice_of(text, 300)), 200);
}

static void test_ends_and_begins(void **state)
{
    (void)state;
    rs_slice name = {"a.weight!", 8}, none = {NULL, 0};
    assert_true(rs_slice_begins(name, "a.") && rs_slice_begins(name, "a.weight"));
    assert_false(rs_slice_begins(name, "a.weight!") || rs_slice_begins(name, "b"));
    assert_true(rs_slice_ends(name, "weight") && rs_slice_ends(name, "a.weight"));
    assert_false(rs_slice_ends(name, "!") || rs_slice_ends(name, "a.") ||
                 rs_slice_ends(name, "a.weight!"));
    assert_true(rs_slice_begins(none, "") && rs_slice_ends(none, ""));
    assert_false(rs_slice_begins(none, "a") || rs_slice_ends(none, "a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equals),
        cmocka_unit_test(test_compare),
        cmocka_unit_test(test_ends_and_begins),
        cmocka_unit_test(test_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
