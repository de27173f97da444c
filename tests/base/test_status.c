/* SPDX-License-Identifier: Apache-2.0 */
/* Names and texts of statuses, dtypes and reductions. */
#include <reshard/base.h>

#include "tests/support/check.h"

#include <stdio.h>
#include <string.h>

static void test_status__names_and_texts(void **state)
{
    (void)state;
    static const struct {
        reshard_status status;
        const char *name;
        const char *text;
    } rows[] = {
        {0, "RESHARD_OK", "success"},
        {-1, "RESHARD_ERR_INVALID", "invalid argument"},
        {-3, "RESHARD_ERR_RANGE", "number out of range"},
        {-11, "RESHARD_ERR_MISMATCH", "ranks do not agree"},
        {-12, "RESHARD_ERR_UNFINISHED", "left unfinished"},
        {-100, "RESHARD_ERR_IO", "input or output failed"},
        {-200, "RESHARD_ERR_GROUP_BROKEN", "the group is broken"},
        {1, "unknown status", "unknown status"},
        {-13, "unknown status", "unknown status"},
        {INT32_MIN, "unknown status", "unknown status"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_string_equal(reshard_status_name(rows[i].status), rows[i].name);
        assert_string_equal(reshard_status_text(rows[i].status), rows[i].text);
    }
}

static void test_status__texts_differ(void **state)
{
    (void)state;
    static const reshard_status all[] = {
#define NUMBER(name, number, text) number,
        RESHARD_STATUS_LIST(NUMBER)
#undef NUMBER
    };
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        assert_true(all[i] <= 0);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(reshard_status_text(all[i]), reshard_status_text(all[k]));
    }
}

static void test_version__is_that_of_the_header(void **state)
{
    (void)state;
    char text[32];
    snprintf(text, sizeof text, "%d.%d.%d", RESHARD_VERSION_MAJOR, RESHARD_VERSION_MINOR,
             RESHARD_VERSION_PATCH);
    assert_string_equal(reshard_version(), text);
}

static void test_dtype__numbers_that_are_none(void **state)
{
    (void)state;
    assert_string_equal(reshard_dtype_name(RESHARD_DTYPE_COUNT), "?");
    assert_string_equal(reshard_dtype_name(RESHARD_DTYPE_NONE), "?");
    assert_string_equal(reshard_dtype_name((reshard_dtype)1000), "?");
    assert_int_equal(reshard_dtype_bits(RESHARD_DTYPE_COUNT), 0);
    assert_int_equal(reshard_dtype_bits(RESHARD_DTYPE_NONE), 0);
    assert_int_equal(reshard_dtype_bits((reshard_dtype)1000), 0);
}

static void test_reduction__names(void **state)
{
    (void)state;
    assert_string_equal(reshard_reduction_name(RESHARD_SUM), "sum");
    assert_string_equal(reshard_reduction_name(RESHARD_AVG), "avg");
    assert_string_equal(reshard_reduction_name(RESHARD_PROD), "prod");
    assert_string_equal(reshard_reduction_name(RESHARD_MIN), "min");
    assert_string_equal(reshard_reduction_name(RESHARD_MAX), "max");
    assert_string_equal(reshard_reduction_name(RESHARD_BAND), "band");
    assert_string_equal(reshard_reduction_name(RESHARD_BOR), "bor");
    assert_string_equal(reshard_reduction_name(RESHARD_BXOR), "bxor");
    assert_string_equal(reshard_reduction_name(RESHARD_REDUCTION_COUNT), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status__names_and_texts),
        cmocka_unit_test(test_status__texts_differ),
        cmocka_unit_test(test_version__is_that_of_the_header),
        cmocka_unit_test(test_dtype__numbers_that_are_none),
        cmocka_unit_test(test_reduction__names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
