/* SPDX-License-Identifier: Apache-2.0 */
/* The scanner: each row is a text and the tokens it is made of, or the words of its error. */
#include "tests/support/check.h"
#include "text/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One letter for each token, strings and numbers behind it as written: {k"a"n1} */
static reshard_status trace(const char *text, size_t count, char *out, size_t room)
{
    static const char letters[] = "{}[]kstfx";
    rs_json json;
    rs_json_token token;
    size_t used = 0;
    rs_json_init(&json, "text", text, count);
    out[0] = '\0';
    for (;;) {
        reshard_status status = rs_json_next(&json, &token);
        if (status != RESHARD_OK)
            return status;
        if (token.kind == RS_JSON_END)
            return RESHARD_OK;
        int length =
            token.kind == RS_JSON_NUMBER
                ? snprintf(out + used, room - used, "n%.*s", (int)token.count, token.bytes)
            : token.kind == RS_JSON_KEY || token.kind == RS_JSON_STRING
                ? snprintf(out + used, room - used, "%c'%.*s'", letters[token.kind],
                           (int)token.count, token.bytes)
                : snprintf(out + used, room - used, "%c",
                           letters[token.kind > RS_JSON_NUMBER ? token.kind - 1 : token.kind]);
        used += (size_t)length;
        assert_true(used < room);
    }
}

static void test_json__tokens(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
    } rows[] = {
        {"{}", "{}"},
        {" \t\r\n[ ] ", "[]"},
        {"{\"a\":1,\"b\":[true,false,null,\"x\"]}", "{k'a'n1k'b'[tfxs'x']}"},
        {"[1,-0,0.5,1e9,-2E-3,1.5e+2,18446744073709551616]",
         "[n1n-0n0.5n1e9n-2E-3n1.5e+2n18446744073709551616]"},
        {"\"\"", "s''"},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9\"", "s'\\\"\\\\\\/\\b\\f\\n\\r\\t\\u00e9'"},
        {"[[[[]]],{\"\":{}}]", "[[[[]]]{k''{}}]"},
        {"\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f\"",
         "s'\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f'"},
        {"null", "x"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char seen[256];
        assert_int_equal(trace(rows[i].text, strlen(rows[i].text), seen, sizeof seen), RESHARD_OK);
        assert_string_equal(seen, rows[i].expected);
    }
}

static void test_json__refusals(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } rows[] = {
        {"", "text, byte 0: the text ends too early"},
        {"  ", "byte 2: the text ends too early"},
        {"{", "byte 1: the text ends too early"},
        {"{\"a\"", "byte 4: a colon is missing"},
        {"{\"a\":}", "byte 5: no JSON value begins like this"},
        {"{\"a\":1,}", "byte 7: a key in quotes is missing"},
        {"{a:1}", "byte 1: a key in quotes is missing"},
        {"{\"a\":1 \"b\":2}", "byte 7: a comma is missing"},
        {"[1,]", "byte 3: no JSON value begins like this"},
        {"[,1]", "byte 1: no JSON value begins like this"},
        {"[1 2]", "byte 3: a comma is missing"},
        {"[1}", "byte 2: a comma is missing"},
        {"{]", "byte 1: a key in quotes is missing"},
        {"[] []", "byte 3: text behind the end"},
        {"1 2", "byte 2: text behind the end"},
        {"\xef\xbb\xbf{}", "byte 0: no JSON value begins like this"},
        {"// x\n{}", "byte 0: no JSON value begins like this"},
        {"01", "byte 0: a number with leading zeros"},
        {"-", "byte 0: a number without digits"},
        {"-01", "byte 0: a number with leading zeros"},
        {"+1", "byte 0: no JSON value begins like this"},
        {".5", "byte 0: no JSON value begins like this"},
        {"1.", "byte 0: a number without digits behind the point"},
        {"1e", "byte 0: a number without digits in its exponent"},
        {"1e+", "byte 0: a number without digits in its exponent"},
        {"NaN", "byte 0: no JSON value begins like this"},
        {"nul", "byte 0: neither a value nor a word"},
        {"Infinity", "byte 0: no JSON value begins like this"},
        {"'a'", "byte 0: no JSON value begins like this"},
        {"\"a", "byte 0: a string that does not end"},
        {"\"a\\", "the text ends inside a string"},
        {"\"a\nb\"", "byte 2: a control character inside a string"},
        {"\"\x1f\"", "byte 1: a control character inside a string"},
        {"\"\\x41\"", "byte 1: an escape that JSON does not have"},
        {"\"\\u12g4\"", "byte 1: \\u needs four hexadecimal digits"},
        {"\"\\u12", "byte 1: \\u needs four hexadecimal digits"},
        {"\"\\ud800\"", "byte 1: the first half of a surrogate pair without the second"},
        {"\"\\ud800\\u0041\"", "byte 1: the first half"},
        {"\"\\ud800\\ud800\"", "byte 1: the first half"},
        {"\"\\udc00\"", "byte 1: the second half"},
        {"\"\xff\"", "byte 1: bytes that are not UTF-8"},
        {"\"\xc0\xaf\"", "byte 1: bytes that are not UTF-8"},
        {"\"\xe0\x80\x80\"", "byte 1: bytes that are not UTF-8"},
        {"\"\xed\xa0\x80\"", "byte 1: bytes that are not UTF-8"},
        {"\"\xf4\x90\x80\x80\"", "byte 1: bytes that are not UTF-8"},
        {"\"\xf0\x8f\x80\x80\"", "byte 1: bytes that are not UTF-8"},
        {"\"\xe2\x82\"", "byte 1: bytes that are not UTF-8"},
        {"\"\xe2\x82", "byte 1: bytes that are not UTF-8"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char seen[256];
        /* A copy of exactly this length, so that a read beyond the end is seen. */
        size_t count = strlen(rows[i].text);
        char *text = malloc(count + (count == 0));
        assert_non_null(text);
        memcpy(text, rows[i].text, count);
        reshard_status status = trace(text, count, seen, sizeof seen);
        free(text);
        if (status != RESHARD_ERR_SYNTAX || strstr(reshard_error_text(), rows[i].words) == NULL)
            fail_msg("%s: %s, not \"%s\"", rows[i].text, reshard_error_text(), rows[i].words);
    }
    assert_int_equal(trace("{}\0", 3, (char[64]){0}, 64), RESHARD_ERR_SYNTAX);
}

static void test_json__depth(void **state)
{
    (void)state;
    for (int depth = 1; depth <= 300; depth++) {
        char text[601], seen[1024];
        memset(text, '[', (size_t)depth);
        memset(text + depth, ']', (size_t)depth);
        reshard_status status = trace(text, 2 * (size_t)depth, seen, sizeof seen);
        assert_int_equal(status, depth <= 127 ? RESHARD_OK : RESHARD_ERR_SYNTAX);
    }
}

static void test_json__strings_are_decoded(void **state)
{
    (void)state;
    static const struct {
        const char *text, *expected;
        size_t count;
    } rows[] = {
        {"\"plain\"", "plain", 5},
        {"\"\\\"\\\\\\/\\b\\f\\n\\r\\t\"", "\"\\/\b\f\n\r\t", 8},
        {"\"a\\u0000b\"", "a\0b", 3},
        {"\"\\u00e9\\u20ac\\ud83d\\ude00\\u007F\"", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\x7f", 10},
        {"\"\\uD834\\uDD1E\\uffff\"", "\xf0\x9d\x84\x9e\xef\xbf\xbf", 7},
        {"\"\\udbff\\udfff\"", "\xf4\x8f\xbf\xbf", 4},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rs_json json;
        rs_json_token token;
        char decoded[64];
        rs_json_init(&json, "text", rows[i].text, strlen(rows[i].text));
        assert_int_equal(rs_json_next(&json, &token), RESHARD_OK);
        assert_int_equal(rs_json_decode(&token, decoded), rows[i].count);
        assert_memory_equal(decoded, rows[i].expected, rows[i].count);
        if (strlen(rows[i].expected) == rows[i].count)
            assert_true(rs_json_token_is(&token, rows[i].expected));
        assert_false(rs_json_token_is(&token, "plai"));
        assert_false(rs_json_token_is(&token, "plains"));
        assert_false(rs_json_token_is(&token, "a"));
    }
}

static void test_json__numbers_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t expected;
        reshard_status status;
    } rows[] = {
        {"0", 0, RESHARD_OK},
        {"9007199254740993", 9007199254740993u, RESHARD_OK},
        {"18446744073709551615", UINT64_MAX, RESHARD_OK},
        {"18446744073709551616", 0, RESHARD_ERR_RANGE},
        {"99999999999999999999999", 0, RESHARD_ERR_RANGE},
        {"-0", 0, RESHARD_ERR_SYNTAX},
        {"-1", 0, RESHARD_ERR_SYNTAX},
        {"2.0", 0, RESHARD_ERR_SYNTAX},
        {"16e0", 0, RESHARD_ERR_SYNTAX},
        {"\"1\"", 0, RESHARD_ERR_SYNTAX},
        {"null", 0, RESHARD_ERR_SYNTAX},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        rs_json json;
        rs_json_token token;
        uint64_t number = 7;
        rs_json_init(&json, "text", rows[i].text, strlen(rows[i].text));
        assert_int_equal(rs_json_next(&json, &token), RESHARD_OK);
        assert_int_equal(rs_json_unsigned(&json, &token, &number), rows[i].status);
        assert_true(number == (rows[i].status == RESHARD_OK ? rows[i].expected : 7));
    }
}

static void test_json__skips_whole_values(void **state)
{
    (void)state;
    static const char text[] = "{\"a\":{\"b\":[1,{}],\"c\":[[]]},\"d\":\"e\",\"f\":[],\"g\":7}";
    rs_json json;
    rs_json_token token;
    rs_json_init(&json, "text", text, sizeof text - 1);
    assert_int_equal(rs_json_expect(&json, RS_JSON_OBJECT_BEGIN, "an object", &token), RESHARD_OK);
    for (const char *key = "adfg"; *key != '\0'; key++) {
        assert_int_equal(rs_json_expect(&json, RS_JSON_KEY, "a key", &token), RESHARD_OK);
        assert_memory_equal(token.bytes, key, 1);
        assert_int_equal(rs_json_skip(&json), RESHARD_OK);
    }
    assert_int_equal(rs_json_expect(&json, RS_JSON_OBJECT_END, "an end", &token), RESHARD_OK);
    assert_int_equal(rs_json_expect(&json, RS_JSON_KEY, "more is wanted", &token),
                     RESHARD_ERR_SYNTAX);
    assert_non_null(strstr(reshard_error_text(), "more is wanted"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json__tokens),
        cmocka_unit_test(test_json__refusals),
        cmocka_unit_test(test_json__depth),
        cmocka_unit_test(test_json__strings_are_decoded),
        cmocka_unit_test(test_json__numbers_are_exact),
        cmocka_unit_test(test_json__skips_whole_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
