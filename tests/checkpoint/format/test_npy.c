/* SPDX-License-Identifier: Apache-2.0 */
/* NumPy's files made by hand: headers in every form that is allowed, and wrong ones, which are
 * refused. test_npy.py compares archives, also compressed ones, with Python's. */
#include "tests/checkpoint/format/format_case.h"

#include <string.h>

/* A .npy of a version with a header and data of text. */
static void write_npy(const char *name, int version, const char *header, const char *data)
{
    char bytes[2048] = "\x93NUMPY";
    size_t length = strlen(header), count = strlen(data), at = version == 1 ? 10 : 12;
    assert_true(at + length + count <= sizeof bytes);
    bytes[6] = (char)version;
    bytes[7] = 0;
    for (size_t i = 8; i < at; i++)
        bytes[i] = (char)(length >> (8 * (i - 8)) & 0xff);
    memcpy(bytes + at, header, length);
    memcpy(bytes + at + length, data, count);
    format_case_write(name, bytes, at + length + count);
}

static void test_npy__a_folder(void **state)
{
    (void)state;
    write_npy("a.npy", 1, "{'descr': '|u1', 'fortran_order': False, 'shape': (2, 3), }   \n",
              "abcdef");
    write_npy("b.c.npy", 2, "{\"shape\":(2L,3L),\"descr\":\"|u1\",\"fortran_order\":True}",
              "abcdef");
    write_npy("scalar.npy", 3, "{'descr': '|u1', 'fortran_order': False, 'shape': ()}", "z");
    write_npy("line.npy", 1, "{'descr': '|i1', 'fortran_order': True, 'shape': (3,), }", "xyz");
    write_npy("empty.npy", 1, "{'descr': '|u1', 'fortran_order': True, 'shape': (0, 3)}", "");
    format_case_text("readme.txt", "not an array");
    reshard_checkpoint *checkpoint = format_case_check("", NULL, "npy", "a,b.c,empty,line,scalar");
    format_case_data(checkpoint, "a", "abcdef", 1, 0);
    format_case_data(checkpoint, "b.c", "acebdf", 1, 0); /* by columns: its rows are a c e, b d f */
    format_case_data(checkpoint, "scalar", "z", 1, 0);
    format_case_data(checkpoint, "line", "xyz", 1, 0);
    reshard_checkpoint_destroy(checkpoint);
    reshard_checkpoint_destroy(format_case_check("a.npy", NULL, "npy", "a"));
}

#define GOOD "'descr': '|u1', 'fortran_order': False, 'shape': (2,)"

static void test_npy__wrong(void **state)
{
    static const struct {
        int version;
        const char *header, *data;
        reshard_status status;
        const char *words;
    } rows[] = {
        {1, "{" GOOD "}", "a", RESHARD_ERR_CORRUPT,
         "has 1 bytes of data, but by its shape it should have 2"},
        {1, "{" GOOD "}", "abc", RESHARD_ERR_CORRUPT,
         "has 3 bytes of data, but by its shape it should have 2"},
        {4, "{" GOOD "}", "ab", RESHARD_ERR_UNSUPPORTED,
         "has version 4 of NumPy's format, which cannot be read"},
        {1, "{" GOOD ", 'x': 1}", "ab", RESHARD_ERR_SYNTAX, "its keys are not"},
        {1, "{" GOOD ", 'shape': (2,)}", "ab", RESHARD_ERR_SYNTAX, "each once"},
        {1, "{'descr': '|u1', 'shape': (2,)}", "ab", RESHARD_ERR_SYNTAX, "is missing"},
        {1, "{" GOOD, "ab", RESHARD_ERR_SYNTAX, "a comma is missing"},
        {1, "{" GOOD "} os", "ab", RESHARD_ERR_SYNTAX, "something follows it"},
        {1, "", "ab", RESHARD_ERR_SYNTAX, "does not begin with {"},
        {1, "{'descr': '<f4", "ab", RESHARD_ERR_SYNTAX, "a text does not end"},
        {1, "{'descr': '<\\x66'", "ab", RESHARD_ERR_SYNTAX, "a text holds a backslash"},
        {1, "{'descr': '>f4', 'fortran_order': False, 'shape': ()}", "abcd",
         RESHARD_ERR_UNSUPPORTED, "its elements are '>f4', which is big-endian"},
        {1, "{'descr': '|O', 'fortran_order': False, 'shape': ()}", "abcd", RESHARD_ERR_UNSUPPORTED,
         "its elements are '|O', Python objects"},
        {1, "{'descr': '|V2', 'fortran_order': False, 'shape': ()}", "ab", RESHARD_ERR_UNSUPPORTED,
         "its elements are '|V2', raw bytes without a type"},
        {1, "{'descr': '<U3', 'fortran_order': False, 'shape': ()}", "ab", RESHARD_ERR_UNSUPPORTED,
         "its elements are '<U3'"},
        {1, "{'descr': '|f4', 'fortran_order': False, 'shape': ()}", "abcd",
         RESHARD_ERR_UNSUPPORTED, "its elements are '|f4'"},
        {1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': ()}", "abcd",
         RESHARD_ERR_UNSUPPORTED, "records of several fields"},
        {1, "{'descr': '|u1', 'fortran_order': 0, 'shape': ()}", "a", RESHARD_ERR_SYNTAX,
         "neither True nor False"},
        {1, "{'descr': '|u1', 'fortran_order': False, 'shape': 2}", "ab", RESHARD_ERR_SYNTAX,
         "not a tuple of numbers"},
        {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (-2,)}", "ab", RESHARD_ERR_SYNTAX,
         "not a tuple of numbers"},
        {1, "{'descr': '|u1', 'fortran_order': False, 'shape': (9223372036854775808,)}", "ab",
         RESHARD_ERR_RANGE, "an extent is beyond 2^63-1"},
        {1, "{'descr': '|u1', 'fortran_order': True, 'shape': (4611686018427387904,16)}", "ab",
         RESHARD_ERR_RANGE, "its size goes beyond 64 bits"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        write_npy("a.npy", rows[i].version, rows[i].header, rows[i].data);
        format_case_fails("a.npy", NULL, rows[i].status, rows[i].words);
    }
    format_case_write("a.npy", "\x93NUMPY\1\0\xff\xff{", 11);
    format_case_fails("a.npy", NULL, RESHARD_ERR_CORRUPT,
                      "its header has 65535 bytes, the file has 11");
    format_case_write("a.npy", "\x93NUMPZ\1\0\1\0{", 11);
    format_case_fails("a.npy", NULL, RESHARD_ERR_SYNTAX, "does not begin like a NumPy file");
    format_case_write("a.npy", "", 0);
    format_case_fails("a.npy", NULL, RESHARD_ERR_SYNTAX, "does not begin like a NumPy file");
    format_case_text("a.npz", "not an archive");
    format_case_fails("a.npz", NULL, RESHARD_ERR_CORRUPT, "a.npz");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, format_case_begin, format_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_npy__a_folder),
        TEST(test_npy__wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
