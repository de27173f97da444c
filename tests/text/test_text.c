/* SPDX-License-Identifier: Apache-2.0 */
/* Text into buffers of fixed capacity: what fits, what is cut, what is counted. */
#include "tests/support/check.h"
#include "text/text.h"

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

static void check_escaped(const char *bytes, size_t count, const char *expected)
{
    char buffer[128];
    assert_int_equal(reshard_text_escape(bytes, count, buffer, sizeof buffer), strlen(expected));
    assert_string_equal(buffer, expected);
    /* Escaping twice changes nothing. */
    char again[128];
    (void)reshard_text_escape(buffer, strlen(buffer), again, sizeof again);
    assert_string_equal(again, expected);
}

static void test_escape__what_would_not_show_or_stay_on_its_line(void **state)
{
    (void)state;
    static const struct {
        const char *bytes, *expected;
    } rows[] = {
        {"model.layers.0.weight", "model.layers.0.weight"},
        {"gr\xc3\xbc\xc3\x9f \xe6\xa8\xa1\xe5\x9e\x8b \xf0\x9f\x98\x80",
         "gr\xc3\xbc\xc3\x9f \xe6\xa8\xa1\xe5\x9e\x8b \xf0\x9f\x98\x80"},
        {"a\nb\rc\td\x1b[31me\x7f", "a\\x0ab\\x0dc\\x09d\\x1b[31me\\x7f"},
        {"\xc2\x9b"
         "31m \xc2\x85",
         "\\u009b31m \\u0085"},
        {"\xe2\x80\xae \xe2\x81\xa6 \xd8\x9c \xe2\x80\x8f", "\\u202e \\u2066 \\u061c \\u200f"},
        {"\xe2\x80\xa8\xe2\x80\xa9\xef\xbb\xbf\xe2\x80\x8b", "\\u2028\\u2029\\ufeff\\u200b"},
        {"\xf3\xa0\x81\x81", "\\U000e0041"},
        {"\x9b\xff\xc3(\xed\xa0\x80\xe2\x80", "\\x9b\\xff\\xc3(\\xed\\xa0\\x80\\xe2\\x80"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check_escaped(rows[i].bytes, strlen(rows[i].bytes), rows[i].expected);
    check_escaped("a\0b", 3, "a\\x00b");
}

static void test_escape__no_escape_is_cut(void **state)
{
    (void)state;
    static const char bytes[] = "ab\x1b\xe2\x80\xae\xc3\xbcz";
    static const char *const whole[] = {"",
                                        "a",
                                        "ab",
                                        "ab\\x1b",
                                        "ab\\x1b\\u202e",
                                        "ab\\x1b\\u202e\xc3\xbc",
                                        "ab\\x1b\\u202e\xc3\xbcz"};
    for (size_t capacity = 1; capacity <= 20; capacity++) {
        char buffer[20];
        memset(buffer, '#', sizeof buffer);
        assert_int_equal(reshard_text_escape(bytes, sizeof bytes - 1, buffer, capacity), 15);
        size_t best = 0;
        for (size_t i = 0; i < sizeof whole / sizeof whole[0]; i++)
            best = strlen(whole[i]) < capacity ? i : best;
        assert_string_equal(buffer, whole[best]);
        for (size_t i = capacity; i < sizeof buffer; i++)
            assert_int_equal(buffer[i], '#');
    }
    assert_int_equal(reshard_text_escape(bytes, sizeof bytes - 1, NULL, 0), 15);
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
        cmocka_unit_test(test_escape__what_would_not_show_or_stay_on_its_line),
        cmocka_unit_test(test_escape__no_escape_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
