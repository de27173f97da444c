/* SPDX-License-Identifier: Apache-2.0 */
/* The writer: what it escapes, JSON inside JSON, and counting without writing. */
#include "tests/support/check.h"
#include "text/json_writer.h"

#include <stdio.h>
#include <string.h>

static const struct {
    const char *bytes, *once, *twice;
} rows[] = {
    {"", "\"\"", "\\\"\\\""},
    {"plain", "\"plain\"", "\\\"plain\\\""},
    {"a\"b", "\"a\\\"b\"", "\\\"a\\\\\\\"b\\\""},
    {"\\", "\"\\\\\"", "\\\"\\\\\\\\\\\""},
    {"long enough for words\n", "\"long enough for words\\u000a\"",
     "\\\"long enough for words\\\\u000a\\\""},
    {"seven..\x1f", "\"seven..\\u001f\"", "\\\"seven..\\\\u001f\\\""},
    {"sevenxx\"", "\"sevenxx\\\"\"", "\\\"sevenxx\\\\\\\"\\\""},
    {"\xc3\xa4\xc3\xb6\xc3\xbc\x7f ~!#[]", "\"\xc3\xa4\xc3\xb6\xc3\xbc\x7f ~!#[]\"",
     "\\\"\xc3\xa4\xc3\xb6\xc3\xbc\x7f ~!#[]\\\""},
};

/* A string, once as it is and once inside a quoted document. */
static void write_row(rs_json_writer *writer, const char *bytes)
{
    const int64_t numbers[] = {0, 7, 9223372036854775807};
    rs_json_writer_string(writer, rs_slice_of(bytes));
    rs_json_writer_begin_quoted(writer);
    rs_json_writer_string(writer, rs_slice_of(bytes));
    rs_json_writer_text(writer, ":\"");
    rs_json_writer_integers(writer, 3, numbers);
    rs_json_writer_end_quoted(writer);
    rs_json_writer_integers(writer, 0, NULL);
}

static void test_writer__escapes_once_and_twice(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char expected[256];
        rs_json_writer writer, counter;
        rs_json_writer_init(&writer, NULL);
        rs_json_writer_init(&counter, NULL);
        counter.counts_only = true;
        write_row(&writer, rows[i].bytes);
        write_row(&counter, rows[i].bytes);
        assert_int_equal(writer.status, RESHARD_OK);
        int length = snprintf(expected, sizeof expected, "%s\"%s:\\\"[0,7,9223372036854775807]\"[]",
                              rows[i].once, rows[i].twice);
        assert_int_equal(writer.count, length);
        assert_memory_equal(writer.bytes, expected, (size_t)length);
        assert_int_equal(counter.count, writer.count);
        assert_null(counter.bytes);
        rs_json_writer_release(&writer);
        rs_json_writer_release(&counter);
    }
}

/* Every byte at every place of a word is escaped or kept as the definition says. */
static void test_writer__every_byte_at_every_place(void **state)
{
    (void)state;
    for (int c = 1; c < 256; c++) {
        for (size_t place = 0; place < 19; place++) {
            char bytes[20] = "aaaaaaaaaaaaaaaaaaa";
            rs_json_writer writer;
            bytes[place] = (char)c;
            rs_json_writer_init(&writer, NULL);
            rs_json_writer_string(&writer, rs_slice_of(bytes));
            int64_t more = c < 0x20 ? 5 : c == '"' || c == '\\' ? 1 : 0;
            assert_int_equal(writer.count, 21 + more);
            if (more == 0)
                assert_memory_equal(writer.bytes + 1, bytes, 19);
            rs_json_writer_release(&writer);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_writer__escapes_once_and_twice),
        cmocka_unit_test(test_writer__every_byte_at_every_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
