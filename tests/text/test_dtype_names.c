/* SPDX-License-Identifier: Apache-2.0 */
/* Names of element types: ours, and those of safetensors, PyTorch and NumPy. */
#include "tests/support/check.h"
#include "text/dtype_names.h"

#include <string.h>

static void test_dtype__parses_both_names(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        reshard_dtype dtype;
        int bits;
    } rows[] = {
        {"f32", RESHARD_F32, 32},        {"F32", RESHARD_F32, 32},
        {"bf16", RESHARD_BF16, 16},      {"BF16", RESHARD_BF16, 16},
        {"bool", RESHARD_BOOL, 8},       {"BOOL", RESHARD_BOOL, 8},
        {"f8_e4m3", RESHARD_F8_E4M3, 8}, {"F8_E8M0", RESHARD_F8_E8M0, 8},
        {"f4", RESHARD_F4, 4},           {"f6_e2m3", RESHARD_F6_E2M3, 6},
        {"c64", RESHARD_C64, 64},        {"U64", RESHARD_U64, 64},
        {"c128", RESHARD_C128, 128},     {"C128", RESHARD_C128, 128},
        {"Bf16", RESHARD_BF16, 16},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        reshard_dtype dtype = RESHARD_DTYPE_COUNT;
        assert_int_equal(reshard_dtype_parse(rows[i].text, &dtype), RESHARD_OK);
        assert_int_equal(dtype, rows[i].dtype);
        assert_int_equal(reshard_dtype_bits(dtype), rows[i].bits);
    }
}

static void test_dtype__every_name_parses_back(void **state)
{
    (void)state;
    for (int i = 1; i < (int)RESHARD_DTYPE_COUNT; i++) {
        reshard_dtype dtype = RESHARD_DTYPE_COUNT;
        assert_int_equal(reshard_dtype_parse(reshard_dtype_name((reshard_dtype)i), &dtype),
                         RESHARD_OK);
        assert_int_equal(dtype, i);
        assert_in_range(reshard_dtype_bits(dtype), 4, 128);
    }
}

static void test_dtype__unknown_names_fail(void **state)
{
    (void)state;
    static const char *const names[] = {"",       "f",       " f32", "f32 ",        "bool\n",
                                        "torch.", "torch.x", "f8",   "float8_e4m3", "<f3",
                                        "<",      "<f32",    "uint"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        reshard_dtype dtype = RESHARD_I64;
        assert_int_equal(reshard_dtype_parse(names[i], &dtype), RESHARD_ERR_NOT_FOUND);
        assert_int_equal(dtype, RESHARD_I64);
        assert_non_null(strstr(reshard_error_text(), "is not known"));
        assert_null(strchr(reshard_error_text(), '\n'));
    }
}

/* What torch and numpy print for their types, written down by hand. */
static void test_dtype__parses_names_of_others(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        reshard_dtype dtype;
    } rows[] = {
        {"bfloat16", RESHARD_BF16},
        {"torch.bfloat16", RESHARD_BF16},
        {"torch.float16", RESHARD_F16},
        {"half", RESHARD_F16},
        {"torch.half", RESHARD_F16},
        {"Half", RESHARD_F16},
        {"fp16", RESHARD_F16},
        {"<f2", RESHARD_F16},
        {"float", RESHARD_F32},
        {"torch.float32", RESHARD_F32},
        {"FLOAT32", RESHARD_F32},
        {"fp32", RESHARD_F32},
        {"<f4", RESHARD_F32},
        {"=f4", RESHARD_F32},
        {"double", RESHARD_F64},
        {"torch.float64", RESHARD_F64},
        {"<f8", RESHARD_F64},
        {"fp8_e4m3", RESHARD_F8_E4M3},
        {"float8_e4m3fn", RESHARD_F8_E4M3},
        {"torch.float8_e4m3fn", RESHARD_F8_E4M3},
        {"float8_e5m2", RESHARD_F8_E5M2},
        {"fp8_e5m2", RESHARD_F8_E5M2},
        {"torch.float8_e4m3fnuz", RESHARD_F8_E4M3FNUZ},
        {"torch.float8_e8m0fnu", RESHARD_F8_E8M0},
        {"int8", RESHARD_I8},
        {"|i1", RESHARD_I8},
        {"|u1", RESHARD_U8},
        {"torch.uint8", RESHARD_U8},
        {"short", RESHARD_I16},
        {"<u2", RESHARD_U16},
        {"int", RESHARD_I32},
        {"INT32", RESHARD_I32},
        {"torch.long", RESHARD_I64},
        {"<i8", RESHARD_I64},
        {"<u8", RESHARD_U64},
        {"complex64", RESHARD_C64},
        {"<c8", RESHARD_C64},
        {"torch.complex128", RESHARD_C128},
        {"<c16", RESHARD_C128},
        {"torch.bool", RESHARD_BOOL},
        {"|b1", RESHARD_BOOL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        reshard_dtype dtype = RESHARD_DTYPE_COUNT;
        assert_int_equal(reshard_dtype_parse(rows[i].text, &dtype), RESHARD_OK);
        assert_int_equal(dtype, rows[i].dtype);
    }
}

static void test_dtype__near_misses(void **state)
{
    (void)state;
    static const struct {
        const char *text, *said;
    } rows[] = {
        {"bflaot16", "dtype \"bflaot16\" is not known; did you mean \"bfloat16\"?"},
        {"torch.float1", "dtype \"torch.float1\" is not known; did you mean \"float16\"?"},
        {"bfloat", "dtype \"bfloat\" is not known; did you mean \"bfloat16\"?"},
        {"fp8_e4m4", "dtype \"fp8_e4m4\" is not known; did you mean \"fp8_e4m3\"?"},
        {"whatever", "dtype \"whatever\" is not known (try f32, bfloat16, fp8_e4m3, i64, ...)"},
        {">f4", "dtype \">f4\" has its highest byte first; only \"<\" is known"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        reshard_dtype dtype = RESHARD_DTYPE_COUNT;
        assert_int_equal(reshard_dtype_parse(rows[i].text, &dtype), RESHARD_ERR_NOT_FOUND);
        assert_string_equal(reshard_error_text(), rows[i].said);
    }
}

static void test_dtype__names_in_torch(void **state)
{
    (void)state;
    assert_string_equal(rs_dtype_torch_name(RESHARD_BF16), "bfloat16");
    assert_string_equal(rs_dtype_torch_name(RESHARD_F8_E4M3), "float8_e4m3fn");
    assert_string_equal(rs_dtype_torch_name(RESHARD_F64), "float64");
    assert_null(rs_dtype_torch_name(RESHARD_F4));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dtype__parses_both_names),
        cmocka_unit_test(test_dtype__every_name_parses_back),
        cmocka_unit_test(test_dtype__unknown_names_fail),
        cmocka_unit_test(test_dtype__parses_names_of_others),
        cmocka_unit_test(test_dtype__near_misses),
        cmocka_unit_test(test_dtype__names_in_torch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
