/* SPDX-License-Identifier: Apache-2.0 */
/* One safetensors file, or a folder of them: whole tensors, each name once. */
#include "tests/checkpoint/format/format_case.h"

#include "tests/support/info.h"

#define W "\"w\":{\"dtype\":\"U8\",\"shape\":[2,3],\"data_offsets\":[0,6]}"

static void test_safetensors__a_file(void **state)
{
    (void)state;
    format_case_safetensors("x.safetensors",
                            "{\"v\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[6,8]}," W "}",
                            "abcdefyz");
    reshard_checkpoint *checkpoint = format_case_check("x.safetensors", NULL, "safetensors", "v,w");
    format_case_data(checkpoint, "w", "abcdef", 1, 0);
    format_case_data(checkpoint, "v", "yz", 1, 0);
    assert_int_equal(info_checkpoint(checkpoint).bytes, 8);
    reshard_checkpoint_destroy(checkpoint);
    /* By its contents alone, as the blobs of the hub's cache are named. */
    format_case_safetensors("0123abcd", "{" W "}", "abcdef");
    reshard_checkpoint_destroy(format_case_check("0123abcd", NULL, "safetensors", "w"));
}

static void test_safetensors__a_folder(void **state)
{
    (void)state;
    format_case_safetensors("x.safetensors", "{" W "}", "abcdef");
    format_case_safetensors("y.safetensors",
                            "{\"v\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", "z");
    format_case_text("config.json", "{}");
    reshard_checkpoint *checkpoint = format_case_check("", NULL, "safetensors", "v,w");
    format_case_data(checkpoint, "v", "z", 1, 0);
    assert_string_equal(reshard_checkpoint_file_name(checkpoint, 1), "y.safetensors");
    reshard_checkpoint_destroy(checkpoint);
    format_case_safetensors("z.safetensors", "{" W "}", "abcdef");
    format_case_fails(
        "", NULL, RESHARD_ERR_OVERLAP,
        "tensor \"w\" is in x.safetensors and in z.safetensors, and neither file says "
        "which part of the tensor it holds; if they are the files of ranks, give their mesh");
    format_case_error(RESHARD_HINT_SOURCE_MESH, "w");
}

static void test_safetensors__wrong(void **state)
{
    static const struct {
        const char *header, *data;
        reshard_status status;
        const char *words;
    } rows[] = {
        {"{" W "}", "abcde", RESHARD_ERR_CORRUPT, "it is truncated"},
        {"{" W "}", "abcdefg", RESHARD_ERR_CORRUPT, "bytes too many"},
        {"{" W, "abcdef", RESHARD_ERR_SYNTAX, "ends too early"},
        {"{" W "," W "}", "abcdef", RESHARD_ERR_CORRUPT, "should begin at 6"},
        {"{" W ",\"v\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[5,7]}}", "abcdefg",
         RESHARD_ERR_CORRUPT, "tensor \"v\": its data is at bytes 5 to 7, but should begin at 6"},
        {"{" W ",\"v\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[7,8]}}", "abcdefgh",
         RESHARD_ERR_CORRUPT, "should begin at 6"},
        {"{\"w\":{\"dtype\":\"U8\",\"shape\":[2,2],\"data_offsets\":[0,6]}}", "abcdef",
         RESHARD_ERR_CORRUPT, "shape and dtype make 4 bytes, data_offsets 6"},
        {"{\"w\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", "ab",
         RESHARD_ERR_INVALID, "whole byte"},
        {"{" W ",\"w\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[6,6]}}", "abcdef",
         RESHARD_ERR_CORRUPT, "occurs twice"},
        {"[]", "", RESHARD_ERR_SYNTAX, "the header is not an object"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        format_case_safetensors("x.safetensors", rows[i].header, rows[i].data);
        format_case_fails("x.safetensors", NULL, rows[i].status, rows[i].words);
    }
    format_case_write("x.safetensors", "\x40\0\0\0\0\0\0\0{}", 10);
    format_case_fails("x.safetensors", NULL, RESHARD_ERR_CORRUPT,
                      "its header has 64 bytes, but the file only");
    format_case_write("x.safetensors", "\x40\0\0", 3);
    format_case_fails("x.safetensors", NULL, RESHARD_ERR_CORRUPT, "too few for a safetensors file");
}

static void test_safetensors__reports_that_grow(void **state)
{
    struct {
        reshard_stored_tensor tensor;
        int64_t later;
    } newer = {.tensor.size = sizeof newer, .later = 7};
    reshard_stored_tensor older = {.size = offsetof(reshard_stored_tensor, ndim), .ndim = -1};
    reshard_stored_piece piece = {0};
    (void)state;
    format_case_safetensors("x.safetensors", "{" W "}", "abcdef");
    reshard_checkpoint *checkpoint = format_case_open("x.safetensors", NULL);
    assert_int_equal(reshard_checkpoint_tensor(checkpoint, 0, &newer.tensor), RESHARD_OK);
    assert_int_equal(newer.tensor.ndim, 2);
    assert_int_equal(newer.later, 0);
    assert_int_equal(reshard_checkpoint_tensor(checkpoint, 0, &older), RESHARD_OK);
    assert_int_equal(older.dtype, RESHARD_U8);
    assert_int_equal(older.ndim, -1);
    assert_int_equal(reshard_checkpoint_piece(checkpoint, 0, 0, &piece), RESHARD_ERR_INVALID);
    reshard_checkpoint_destroy(checkpoint);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, format_case_begin, format_case_end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_safetensors__a_file),
        TEST(test_safetensors__a_folder),
        TEST(test_safetensors__wrong),
        TEST(test_safetensors__reports_that_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
