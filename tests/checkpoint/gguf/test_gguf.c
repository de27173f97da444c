/* SPDX-License-Identifier: Apache-2.0 */
/* GGUF files made by hand. Wrong ones are refused, each with one line, and without memory for what
 * the file only claims. Types and conversions are in tests/checkpoint/gguf/test_gguf.py. */
#include "checkpoint/gguf/gguf.h"
#include "tests/checkpoint/format/format_case.h"

#include <string.h>

/* A file that is put together piece by piece. */
static struct {
    unsigned char bytes[8192];
    size_t count;
} made;

static void put(uint64_t number, size_t bytes)
{
    assert_true(made.count + bytes <= sizeof made.bytes);
    for (size_t i = 0; i < bytes; i++)
        made.bytes[made.count++] = (unsigned char)(number >> (8 * i));
}

static void put_bytes(const char *bytes, size_t count)
{
    assert_true(made.count + count <= sizeof made.bytes);
    memcpy(made.bytes + made.count, bytes, count);
    made.count += count;
}

static void put_text(const char *text)
{
    put(strlen(text), 8);
    put_bytes(text, strlen(text));
}

static void begin(uint32_t version, uint64_t tensors, uint64_t values)
{
    made.count = 0;
    put_bytes("GGUF", 4);
    put(version, 4);
    put(tensors, 8);
    put(values, 8);
}

static void put_tensor(const char *name, uint32_t ndim, const uint64_t *dims, uint32_t type,
                       uint64_t offset)
{
    put_text(name);
    put(ndim, 4);
    for (uint32_t i = 0; i < ndim; i++)
        put(dims[i], 8);
    put(type, 4);
    put(offset, 8);
}

static void end(size_t alignment, const char *data, size_t count)
{
    while (made.count % alignment != 0)
        put(0, 1);
    put_bytes(data, count);
    format_case_write("m.gguf", made.bytes, made.count);
}

static void refused(reshard_status status, const char *words)
{
    end(32, "", 0);
    format_case_fails("m.gguf", NULL, status, words);
}

static const uint64_t dims_2_3[] = {3, 2}, dims_6[] = {6};

static void test_gguf__a_file(void **state)
{
    (void)state;
    begin(3, 2, 1);
    put_text("general.architecture");
    put(RS_GGUF_TEXT, 4);
    put_text("none");
    put_tensor("w", 2, dims_2_3, 24, 0); /* I8, [2, 3] */
    put_tensor("b", 1, dims_6, 24, 32);
    end(32, "abcdef\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0ABCDEF", 38);
    reshard_checkpoint *checkpoint = format_case_check("m.gguf", NULL, "gguf", "b,w");
    format_case_data(checkpoint, "w", "abcdef", 1, 0);
    format_case_data(checkpoint, "b", "ABCDEF", 1, 0);
    reshard_stored_tensor tensor = {.size = sizeof tensor};
    assert_int_equal(reshard_checkpoint_tensor(checkpoint, 1, &tensor), RESHARD_OK);
    assert_int_equal(tensor.ndim, 2);
    assert_int_equal(tensor.shape[0], 2);
    assert_int_equal(tensor.shape[1], 3);
    assert_null(tensor.stored_as);
    reshard_checkpoint_destroy(checkpoint);
}

static void test_gguf__heads(void **state)
{
    (void)state;
    format_case_text("m.gguf", "");
    format_case_fails("m.gguf", NULL, RESHARD_ERR_CORRUPT, "the magic at byte 0 takes 4 bytes");
    format_case_text("m.gguf", "GGUX12345678901234567890");
    format_case_fails("m.gguf", NULL, RESHARD_ERR_SYNTAX, "does not begin with GGUF");
    begin(1, 0, 0);
    refused(RESHARD_ERR_UNSUPPORTED, "has version 1 of GGUF; versions 2 and 3 can be read");
    begin(4, 0, 0);
    refused(RESHARD_ERR_UNSUPPORTED, "version 4 of GGUF");
    begin(0, 0, 0);
    refused(RESHARD_ERR_UNSUPPORTED, "version 0 of GGUF");
    begin(0x03000000, 0, 0);
    refused(RESHARD_ERR_UNSUPPORTED, "its numbers are big-endian, which cannot be read; convert it "
                                     "with llama.cpp's gguf_convert_endian.py");
    made.count = 16;
    format_case_write("m.gguf", made.bytes, made.count);
    begin(3, 0, 0);
    made.count = 20;
    format_case_write("m.gguf", made.bytes, made.count);
    format_case_fails("m.gguf", NULL, RESHARD_ERR_CORRUPT,
                      "the number of key-values at byte 16 takes 8 bytes");
}

static void put_key(const char *key, uint32_t kind)
{
    begin(3, 0, 1);
    put_text(key);
    put(kind, 4);
}

static void test_gguf__key_values(void **state)
{
    char long_key[66000];
    (void)state;
    begin(3, 0, UINT64_MAX);
    refused(RESHARD_ERR_SYNTAX, "a key at byte 24 has 0 bytes");
    begin(3, 0, 1);
    put(UINT64_MAX, 8);
    refused(RESHARD_ERR_SYNTAX, "a key at byte 24 has 18446744073709551615 bytes");
    begin(3, 0, 1);
    put(60000, 8);
    refused(RESHARD_ERR_CORRUPT, "a key at byte 32 takes 60000 bytes");
    put_key("k", 13);
    refused(RESHARD_ERR_SYNTAX, "key \"k\": its value has kind 13; kinds are numbered 0 to 12");
    put_key("k", RS_GGUF_TEXT);
    put(UINT64_MAX, 8);
    refused(RESHARD_ERR_CORRUPT, "k at byte");
    put_key("k", RS_GGUF_LIST);
    put(RS_GGUF_LIST, 4);
    put(1, 8);
    refused(RESHARD_ERR_UNSUPPORTED,
            "key \"k\": its value is a list of lists, which cannot be read");
    put_key("k", RS_GGUF_LIST);
    put(RS_GGUF_U32, 4);
    put(UINT64_C(1) << 62, 8); /* times four: 0 in 64 bits */
    refused(RESHARD_ERR_CORRUPT, "takes 18446744073709551615 bytes");
    put_key("k", RS_GGUF_LIST);
    put(RS_GGUF_TEXT, 4);
    put(UINT64_MAX, 8);
    put_text("one");
    refused(RESHARD_ERR_CORRUPT, "but the file ends after");
    begin(3, 0, 2);
    for (int i = 0; i < 2; i++) {
        put_text("twice");
        put(RS_GGUF_U8, 4);
        put(1, 1);
    }
    refused(RESHARD_ERR_SYNTAX, "key \"twice\" occurs twice");
    memset(long_key, 'k', sizeof long_key);
    begin(3, 0, 1);
    put(sizeof long_key, 8);
    format_case_write("m.gguf", made.bytes, made.count);
    format_case_fails("m.gguf", NULL, RESHARD_ERR_SYNTAX, "has 66000 bytes; 1 to");
}

static void test_gguf__alignments(void **state)
{
    static const uint32_t wrong[] = {0, 3, 24, 0xffffffff};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        put_key("general.alignment", RS_GGUF_U32);
        put(wrong[i], 4);
        refused(RESHARD_ERR_SYNTAX, "general.alignment must be a u32 and a power of two");
    }
    put_key("general.alignment", RS_GGUF_I32);
    put(32, 4);
    refused(RESHARD_ERR_SYNTAX, "general.alignment must be");
    /* The largest puts the data behind the file. */
    begin(3, 1, 1);
    put_text("general.alignment");
    put(RS_GGUF_U32, 4);
    put(0x80000000, 4);
    put_tensor("w", 1, dims_6, 24, 0);
    refused(RESHARD_ERR_CORRUPT, "has 6 bytes from byte 2147483648 on, but the file has");
}

static void one_tensor(const char *name, uint32_t ndim, const uint64_t *dims, uint32_t type,
                       uint64_t offset, reshard_status status, const char *words)
{
    begin(3, 1, 0);
    put_tensor(name, ndim, dims, type, offset);
    refused(status, words);
}

static void test_gguf__tensors(void **state)
{
    static const uint64_t five[] = {1, 1, 1, 1, 1}, negative[] = {UINT64_MAX}, odd[] = {33};
    static const uint64_t wraps[] = {UINT64_C(1) << 62, 64}, huge[] = {UINT64_C(1) << 62};
    static const uint64_t floats[] = {UINT64_C(1) << 56, 32}, blocks[] = {UINT64_C(1) << 62};
    char name[200];
    (void)state;
    memset(name, 'n', sizeof name);
    name[128] = '\0';
    one_tensor("", 1, dims_6, 24, 0, RESHARD_ERR_SYNTAX, "a tensor's name at byte 24 has 0 bytes");
    one_tensor(name, 1, dims_6, 24, 0, RESHARD_ERR_SYNTAX, "has 128 bytes; 1 to");
    one_tensor("w", 5, five, 24, 0, RESHARD_ERR_UNSUPPORTED, "it has more than four dimensions: 5");
    one_tensor("w", 1, negative, 24, 0, RESHARD_ERR_RANGE,
               "an extent is beyond 2^63-1: 18446744073709551615");
    one_tensor("w", 2, wraps, 24, 0, RESHARD_ERR_RANGE, "its size goes beyond 63 bits");
    one_tensor("w", 1, huge, 27, 0, RESHARD_ERR_RANGE, "its size goes beyond 63 bits");
    /* Small in the file, but not as f32. */
    one_tensor("w", 2, floats, 10, 0, RESHARD_ERR_RANGE, "its size goes beyond 63 bits");
    one_tensor("w", 1, blocks, 8, 0, RESHARD_ERR_RANGE, "its size goes beyond 63 bits");
    one_tensor("w", 1, odd, 8, 0, RESHARD_ERR_SYNTAX,
               "its rows have 33 elements, which is not a multiple of the 32 in a block of Q8_0");
    one_tensor("w", 0, dims_6, 8, 0, RESHARD_ERR_SYNTAX, "its rows have 1 elements");
    one_tensor("w", 1, dims_6, 4, 0, RESHARD_ERR_UNSUPPORTED, "no type with the number 4");
    one_tensor("w", 1, dims_6, 36, 0, RESHARD_ERR_UNSUPPORTED, "no type with the number 36");
    one_tensor("w", 1, dims_6, 43, 0, RESHARD_ERR_UNSUPPORTED, "no type with the number 43");
    one_tensor("w", 1, dims_6, UINT32_MAX, 0, RESHARD_ERR_UNSUPPORTED,
               "no type with the number 4294967295");
    one_tensor("w", 1, dims_6, 24, 32, RESHARD_ERR_CORRUPT,
               "begins at byte 32 of the data, but the one before it ends at 0");
    one_tensor("w", 1, dims_6, 24, 0, RESHARD_ERR_CORRUPT, "is the download complete?");
    begin(3, UINT64_MAX, 0);
    put_tensor("w", 1, dims_6, 24, 0);
    refused(RESHARD_ERR_CORRUPT, "a tensor's name at byte 57 takes 8 bytes");
    begin(3, 2, 0);
    put_tensor("w", 1, dims_6, 24, 0);
    put_tensor("w", 1, dims_6, 24, 32);
    end(32, "abcdef\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0ABCDEF", 38);
    format_case_fails("m.gguf", NULL, RESHARD_ERR_OVERLAP, "tensor \"w\" is in m.gguf");
    begin(3, 2, 0);
    put_tensor("w", 1, dims_6, 24, 0);
    put_tensor("v", 1, dims_6, 24, 6);
    refused(RESHARD_ERR_CORRUPT, "begins at byte 6 of the data, but the one before it ends at 32");
}

/* A file cut anywhere is refused, or holds all tensors that it says it has. */
static void test_gguf__cut_files(void **state)
{
    static const uint64_t dims_32[] = {32};
    (void)state;
    begin(3, 2, 1);
    put_text("k");
    put(RS_GGUF_LIST, 4);
    put(RS_GGUF_TEXT, 4);
    put(2, 8);
    put_text("a");
    put_text("b");
    put_tensor("q", 1, dims_32, 8, 0);
    put_tensor("w", 2, dims_2_3, 24, 64);
    end(32, "", 0);
    size_t whole = made.count + 70;
    memset(made.bytes + made.count, 0, 70);
    for (size_t count = 4; count < whole; count++) {
        format_case_write("m.gguf", made.bytes, count);
        format_case_fails("m.gguf", NULL, RESHARD_ERR_CORRUPT, "m.gguf: ");
    }
    format_case_write("m.gguf", made.bytes, whole);
    reshard_checkpoint_destroy(format_case_check("m.gguf", NULL, "gguf", "q,w"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, format_case_begin, format_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_gguf__a_file),     TEST(test_gguf__heads),   TEST(test_gguf__key_values),
        TEST(test_gguf__alignments), TEST(test_gguf__tensors), TEST(test_gguf__cut_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
