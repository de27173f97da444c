/* SPDX-License-Identifier: Apache-2.0 */
/* Text into buffers of fixed capacity: what fits, what is cut, what is counted. */
#include "base/text.h"
#include "tests/support/check.h"

#include <string.h>

static void test_text__joins_what_is_added(void **state)
{
    (void)state;
    char buffer[64];
    rs_text text;
    rs_text_init(&text, buffer, sizeof buffer);
    assert_string_equal(buffer, "");
    rs_text_add(&text, "%s=%d", "tp", 4);
    rs_text_add(&text, "%s", "");
    rs_text_add(&text, ": S(%d)", -1);
    assert_string_equal(buffer, "tp=4: S(-1)");
    assert_int_equal(text.length, 11);
}

static void test_text__cuts_but_counts_at_every_capacity(void **state)
{
    (void)state;
    static const char whole[] = "abc12345xyz";
    for (size_t capacity = 0; capacity <= sizeof whole + 2; capacity++) {
        char buffer[sizeof whole + 3];
        rs_text text;
        memset(buffer, '#', sizeof buffer);
        rs_text_init(&text, capacity != 0 ? buffer : NULL, capacity);
        rs_text_add(&text, "abc");
        rs_text_add(&text, "%d", 12345);
        rs_text_add(&text, "xyz");
        assert_int_equal(text.length, strlen(whole));
        if (capacity != 0) {
            size_t kept = capacity - 1 < strlen(whole) ? capacity - 1 : strlen(whole);
            assert_int_equal(strlen(buffer), kept);
            assert_memory_equal(buffer, whole, kept);
        }
        for (size_t i = capacity; i < sizeof buffer; i++)
            assert_int_equal(buffer[i], '#');
    }
}

static void test_text__asked_for_its_length_first(void **state)
{
    (void)state;
    rs_text text;
    rs_text_init(&text, NULL, 0);
    for (int i = 0; i < 1000; i++)
        rs_text_add(&text, "%04d ", i);
    assert_int_equal(text.length, 5000);
}

static void test_text__shapes(void **state)
{
    (void)state;
    static const int64_t shape[] = {10, 0, INT64_MAX, 1, 2, 3, 4, 5};
    static const struct {
        int32_t ndim;
        const char *expected;
    } rows[] = {
        {0, "scalar"},
        {1, "10"},
        {2, "10x0"},
        {3, "10x0x9223372036854775807"},
        {8, "10x0x9223372036854775807x1x2x3x4x5"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char buffer[64];
        rs_text text;
        rs_text_init(&text, buffer, sizeof buffer);
        rs_text_add_shape(&text, rows[i].ndim, shape);
        assert_string_equal(buffer, rows[i].expected);
    }
}

static void test_text__boxes(void **state)
{
    (void)state;
    static const int64_t offset[] = {0, 4, 7}, size[] = {2, 4, 0};
    static const char *const expected[] = {"[]", "[0:2]", "[0:2,4:8]", "[0:2,4:8,7:7]"};
    for (int32_t ndim = 0; ndim < 4; ndim++) {
        char buffer[64];
        rs_text text;
        rs_text_init(&text, buffer, sizeof buffer);
        rs_text_add_box(&text, ndim, offset, size);
        assert_string_equal(buffer, expected[ndim]);
    }
}

static void test_text__digits_and_letters(void **state)
{
    (void)state;
    for (int c = -1; c < 256; c++) {
        assert_int_equal(rs_is_digit(c), c > 0 && strchr("0123456789", c) != NULL);
        assert_int_equal(
            rs_is_letter(c),
            c > 0 && strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", c) != NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text__joins_what_is_added),
        cmocka_unit_test(test_text__cuts_but_counts_at_every_capacity),
        cmocka_unit_test(test_text__asked_for_its_length_first),
        cmocka_unit_test(test_text__shapes),
        cmocka_unit_test(test_text__boxes),
        cmocka_unit_test(test_text__digits_and_letters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
