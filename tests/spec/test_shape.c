/* SPDX-License-Identifier: Apache-2.0 */
/* Shapes: text, check and volume. */
#include "base/shape.h"
#include "spec_case.h"
#include "text/text.h"

#include <reshard/layout.h>

static void test_shape__legal(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        const char *canonical;
        int32_t ndim;
        int64_t volume;
    } rows[] = {
        {"10x7", "10x7", 2, 70},
        {"5", "5", 1, 5},
        {"scalar", "scalar", 0, 1},
        {" scalar\n", "scalar", 0, 1},
        {" 2 x 3 x 4 ", "2x3x4", 3, 24},
        {"0", "0", 1, 0},
        {"0x9223372036854775807", "0x9223372036854775807", 2, 0},
        {"1x1x1x1x1x1x1x9223372036854775807", "1x1x1x1x1x1x1x9223372036854775807", 8, INT64_MAX},
        {"007", "7", 1, 7},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int32_t ndim = -1;
        int64_t shape[RESHARD_NDIM_MAX];
        char buffer[128];
        rs_text text;
        assert_int_equal(reshard_shape_parse(rows[i].text, &ndim, shape), RESHARD_OK);
        assert_int_equal(ndim, rows[i].ndim);
        assert_true(rs_volume(ndim, shape) == rows[i].volume);
        rs_text_init(&text, buffer, sizeof buffer);
        rs_text_add_shape(&text, ndim, shape);
        assert_string_equal(buffer, rows[i].canonical);
    }
}

static void test_shape__errors(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        reshard_status status;
        const char *words;
    } rows[] = {
        {NULL, RESHARD_ERR_SYNTAX, "shape is empty"},
        {"", RESHARD_ERR_SYNTAX, "shape is empty"},
        {"10y7", RESHARD_ERR_SYNTAX,
         "shape \"10y7\": at byte 3: expected \"x\" or the end, found \"y7\""},
        {"10x", RESHARD_ERR_SYNTAX, "at byte 4: expected a number, found the end"},
        {"x10", RESHARD_ERR_SYNTAX, "at byte 1: expected a shape"},
        {"-1", RESHARD_ERR_SYNTAX, "at byte 1: expected a shape"},
        {"scalarx3", RESHARD_ERR_SYNTAX, "at byte 1: expected a shape"},
        {"scalar 3", RESHARD_ERR_SYNTAX, "at byte 8: expected"},
        {"3 4", RESHARD_ERR_SYNTAX, "at byte 3: expected"},
        {"1x1x1x1x1x1x1x1x1", RESHARD_ERR_RANGE, "at byte 17: more than 8 dimensions"},
        {"9223372036854775808", RESHARD_ERR_RANGE, "number too large"},
        {"4294967296x2147483648", RESHARD_ERR_RANGE, "more than 2^63-1 elements"},
        {"0x4294967296x2147483648", RESHARD_ERR_RANGE, "more than 2^63-1 elements"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int32_t ndim = 77;
        int64_t shape[RESHARD_NDIM_MAX] = {77};
        reshard_status status = reshard_shape_parse(rows[i].text, &ndim, shape);
        spec_case_expect_failure(rows[i].text != NULL ? rows[i].text : "NULL", status,
                                 rows[i].status, rows[i].words);
        assert_int_equal(ndim, 77);
        assert_int_equal(shape[0], 77);
    }
}

static void test_shape__check(void **state)
{
    (void)state;
    const int64_t negative[] = {3, -1};
    assert_int_equal(rs_shape_check(0, NULL), RESHARD_OK);
    assert_int_equal(rs_shape_check(-1, negative), RESHARD_ERR_RANGE);
    assert_int_equal(rs_shape_check(9, negative), RESHARD_ERR_RANGE);
    assert_int_equal(rs_shape_check(1, NULL), RESHARD_ERR_INVALID);
    assert_int_equal(rs_shape_check(1, negative), RESHARD_OK);
    spec_case_expect_failure("3x-1", rs_shape_check(2, negative), RESHARD_ERR_RANGE,
                             "dimension 1 has the negative length -1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shape__legal),
        cmocka_unit_test(test_shape__errors),
        cmocka_unit_test(test_shape__check),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
