/* SPDX-License-Identifier: Apache-2.0 */
/* Names and texts of statuses, dtypes and reductions; the error text of a thread. */
#include "base/error.h"
#include "system/thread.h"
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

static void test_error__has_words_and_returns_the_status(void **state)
{
    (void)state;
    assert_int_equal(rs_fail(RESHARD_ERR_RANGE, "rank %d of %d", 7, 4), RESHARD_ERR_RANGE);
    assert_string_equal(reshard_error_text(), "rank 7 of 4");
    assert_int_equal(rs_fail(RESHARD_ERR_GAP, "other words"), RESHARD_ERR_GAP);
    assert_string_equal(reshard_error_text(), "other words");
}

static void test_error__is_one_line(void **state)
{
    (void)state;
    (void)rs_fail(RESHARD_ERR_SYNTAX, "a\nb\rc\td\x1b[31me\x7f");
    assert_string_equal(reshard_error_text(), "a\\x0ab\\x0dc\\x09d\\x1b[31me\\x7f");
    (void)rs_fail_within(RESHARD_ERR_SYNTAX, "file\n%s", "x\v");
    assert_string_equal(reshard_error_text(),
                        "file\\x0ax\\x0b: a\\x0ab\\x0dc\\x09d\\x1b[31me\\x7f");
    (void)rs_fail(RESHARD_ERR_SYNTAX, "gr\xc3\xbc\xc3\x9f");
    assert_string_equal(reshard_error_text(), "gr\xc3\xbc\xc3\x9f");
}

static void test_error__may_quote_the_one_before(void **state)
{
    (void)state;
    (void)rs_fail(RESHARD_ERR_IO, "inner");
    (void)rs_fail(RESHARD_ERR_IO, "outer (%s)", reshard_error_text());
    assert_string_equal(reshard_error_text(), "outer (inner)");
}

static void test_error__within_adds_prefixes(void **state)
{
    (void)state;
    (void)rs_fail(RESHARD_ERR_INVALID, "dimension 2 does not exist");
    assert_int_equal(rs_fail_within(RESHARD_ERR_INVALID, "spec \"%s\"", "4: S(2)"),
                     RESHARD_ERR_INVALID);
    assert_int_equal(rs_fail_within(RESHARD_ERR_INVALID, "rank %d", 3), RESHARD_ERR_INVALID);
    assert_string_equal(reshard_error_text(),
                        "rank 3: spec \"4: S(2)\": dimension 2 does not exist");
}

static void test_error__within_leaves_success_alone(void **state)
{
    (void)state;
    (void)rs_fail(RESHARD_ERR_INVALID, "old words");
    assert_int_equal(rs_fail_within(RESHARD_OK, "prefix"), RESHARD_OK);
    assert_string_equal(reshard_error_text(), "old words");
}

static void test_error__is_cut_when_too_long(void **state)
{
    (void)state;
    static char long_text[5000];
    memset(long_text, 'x', sizeof long_text - 1);
    (void)rs_fail(RESHARD_ERR_INVALID, "%s", long_text);
    size_t length = strlen(reshard_error_text());
    assert_in_range(length, 500, 4096);
    for (int i = 0; i < 20; i++) {
        (void)rs_fail_within(RESHARD_ERR_INVALID, "%s", long_text);
        assert_in_range(strlen(reshard_error_text()), 1, length);
    }
    (void)rs_fail_within(RESHARD_ERR_INVALID, "front");
    assert_memory_equal(reshard_error_text(), "front: xxx", 10);
}

static void fail_elsewhere(void *user)
{
    int *out_was_empty = user;
    *out_was_empty = reshard_error_text()[0] == '\0';
    (void)rs_fail(RESHARD_ERR_IO, "from another thread");
}

static void test_error__belongs_to_its_thread(void **state)
{
    (void)state;
    int was_empty = 0;
    rs_thread thread;
    (void)rs_fail(RESHARD_ERR_INVALID, "mine");
    assert_int_equal(rs_thread_start(&thread, fail_elsewhere, &was_empty), RESHARD_OK);
    rs_thread_join(&thread);
    assert_true(was_empty);
    assert_string_equal(reshard_error_text(), "mine");
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
        cmocka_unit_test(test_error__has_words_and_returns_the_status),
        cmocka_unit_test(test_error__is_one_line),
        cmocka_unit_test(test_error__may_quote_the_one_before),
        cmocka_unit_test(test_error__within_adds_prefixes),
        cmocka_unit_test(test_error__within_leaves_success_alone),
        cmocka_unit_test(test_error__is_cut_when_too_long),
        cmocka_unit_test(test_error__belongs_to_its_thread),
        cmocka_unit_test(test_dtype__numbers_that_are_none),
        cmocka_unit_test(test_reduction__names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
