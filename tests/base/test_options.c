/* SPDX-License-Identifier: Apache-2.0 */
/* Options and reports between programs and libraries of different releases. */
#include "base/options.h"

#include "tests/support/check.h"

#include <string.h>

/* What one release knows, and what the next one does. */
typedef struct old_options {
    size_t size;
    int32_t depth, width;
} old_options;

typedef struct new_options {
    size_t size;
    int32_t depth, width;
    double height;
} new_options;

static void test_options__none_are_all_zero(void **state)
{
    (void)state;
    new_options read;
    memset(&read, 0xff, sizeof read);
    assert_int_equal(rs_options_read("test", NULL, &read, sizeof read), RESHARD_OK);
    assert_int_equal(read.size, sizeof read);
    assert_int_equal(read.depth, 0);
    assert_true(read.height == 0);
}

static void test_options__an_older_program(void **state)
{
    (void)state;
    old_options given = {.size = sizeof given, .depth = 3, .width = 4};
    new_options read;
    memset(&read, 0xff, sizeof read);
    assert_int_equal(rs_options_read("test", &given, &read, sizeof read), RESHARD_OK);
    assert_int_equal(read.size, sizeof read);
    assert_int_equal(read.depth, 3);
    assert_int_equal(read.width, 4);
    assert_true(read.height == 0);
}

static void test_options__a_newer_program(void **state)
{
    (void)state;
    new_options given = {.size = sizeof given, .depth = 3};
    old_options read = {.depth = -1};
    assert_int_equal(rs_options_read("test options", &given, &read, sizeof read), RESHARD_OK);
    assert_int_equal(read.size, sizeof read);
    assert_int_equal(read.depth, 3);

    given.height = 1;
    read.depth = -1;
    assert_int_equal(rs_options_read("test options", &given, &read, sizeof read),
                     RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "test options: "));
    assert_int_equal(read.depth, -1);
}

static void test_options__a_size_that_was_not_set(void **state)
{
    (void)state;
    old_options given = {.depth = 3}, read;
    assert_int_equal(rs_options_read("test options", &given, &read, sizeof read),
                     RESHARD_ERR_INVALID);
    assert_non_null(strstr(reshard_error_text(), "size is 0"));
}

static void test_report__both_directions(void **state)
{
    (void)state;
    new_options made = {.size = sizeof made, .depth = 3, .width = 4, .height = 5};
    old_options small = {.size = sizeof small};
    assert_int_equal(rs_report_write("report", &made, sizeof made, &small), RESHARD_OK);
    assert_int_equal(small.size, sizeof small);
    assert_int_equal(small.width, 4);

    new_options large = {.size = sizeof large, .height = 7};
    old_options less = {.size = sizeof less, .depth = 8};
    assert_int_equal(rs_report_write("report", &less, sizeof less, &large), RESHARD_OK);
    assert_int_equal(large.size, sizeof large);
    assert_int_equal(large.depth, 8);
    assert_true(large.height == 0);

    old_options unset = {.depth = 1};
    assert_int_equal(rs_report_write("report", &made, sizeof made, &unset), RESHARD_ERR_INVALID);
    assert_int_equal(unset.depth, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_options__none_are_all_zero),
        cmocka_unit_test(test_options__an_older_program),
        cmocka_unit_test(test_options__a_newer_program),
        cmocka_unit_test(test_options__a_size_that_was_not_set),
        cmocka_unit_test(test_report__both_directions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
