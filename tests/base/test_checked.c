/* SPDX-License-Identifier: Apache-2.0 */
/* Checked arithmetic at the edges of its types. */
#include "base/checked.h"
#include "tests/support/check.h"

static void test_checked__multiply(void **state)
{
    (void)state;
    static const struct {
        int64_t a, b, product;
        bool fits;
    } rows[] = {
        {0, INT64_MAX, 0, true},
        {1, INT64_MAX, INT64_MAX, true},
        {-1, INT64_MAX, -INT64_MAX, true},
        {-1, INT64_MIN, 0, false},
        {2, INT64_MAX / 2, INT64_MAX - 1, true},
        {2, INT64_MAX / 2 + 1, 0, false},
        {INT64_C(1) << 32, INT64_C(1) << 31, 0, false},
        {INT64_C(1) << 31, INT64_C(1) << 31, INT64_C(1) << 62, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t product = 0;
        assert_int_equal(rs_multiply(rows[i].a, rows[i].b, &product), rows[i].fits);
        if (rows[i].fits)
            assert_true(product == rows[i].product);
    }
}

static void test_checked__add(void **state)
{
    (void)state;
    int64_t sum = 0;
    assert_true(rs_add(INT64_MAX - 1, 1, &sum) && sum == INT64_MAX);
    assert_false(rs_add(INT64_MAX, 1, &sum));
    assert_true(rs_add(INT64_MIN, INT64_MAX, &sum) && sum == -1);
    assert_false(rs_add(INT64_MIN, -1, &sum));
}

static void test_checked__sizes(void **state)
{
    (void)state;
    size_t result = 0;
    assert_true(rs_multiply_size(SIZE_MAX, 1, &result) && result == SIZE_MAX);
    assert_false(rs_multiply_size(SIZE_MAX / 2 + 1, 2, &result));
    assert_true(rs_add_size(SIZE_MAX - 1, 1, &result) && result == SIZE_MAX);
    assert_false(rs_add_size(SIZE_MAX, 1, &result));
}

static void test_checked__divide_up(void **state)
{
    (void)state;
    assert_int_equal(rs_divide_up(0, 1), 0);
    assert_int_equal(rs_divide_up(0, 7), 0);
    assert_int_equal(rs_divide_up(1, 7), 1);
    assert_int_equal(rs_divide_up(7, 7), 1);
    assert_int_equal(rs_divide_up(8, 7), 2);
    assert_true(rs_divide_up(INT64_MAX, 1) == INT64_MAX);
    assert_true(rs_divide_up(INT64_MAX, 2) == INT64_MAX / 2 + 1);
    assert_true(rs_divide_up(INT64_MAX, INT64_MAX) == 1);
    assert_true(rs_divide_up(1, INT64_MAX) == 1);
}

static void test_checked__multiply_divide(void **state)
{
    (void)state;
    assert_int_equal(rs_multiply_divide(10, 7, 4), 17);
    assert_int_equal(rs_multiply_divide(0, INT64_MAX, 1), 0);
    assert_true(rs_multiply_divide(INT64_MAX, INT64_MAX, INT64_MAX) == INT64_MAX);
    assert_true(rs_multiply_divide(INT64_MAX, 3, 4) == INT64_MAX / 4 * 3 + 2);
    assert_true(rs_multiply_divide(INT64_MAX, INT64_MAX - 1, INT64_MAX) == INT64_MAX - 1);
}

static void test_checked__min_and_max(void **state)
{
    (void)state;
    assert_true(rs_min(INT64_MIN, INT64_MAX) == INT64_MIN);
    assert_true(rs_max(INT64_MIN, INT64_MAX) == INT64_MAX);
    assert_true(rs_min(3, 3) == 3 && rs_max(3, 3) == 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_checked__multiply),
        cmocka_unit_test(test_checked__add),
        cmocka_unit_test(test_checked__sizes),
        cmocka_unit_test(test_checked__divide_up),
        cmocka_unit_test(test_checked__multiply_divide),
        cmocka_unit_test(test_checked__min_and_max),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
