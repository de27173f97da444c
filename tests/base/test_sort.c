/* SPDX-License-Identifier: Apache-2.0 */
/* The comparisons of plain numbers at the ends of their types, and sorting nothing. */
#include "base/sort.h"
#include "tests/support/check.h"

static void test_sort__i32(void **state)
{
    (void)state;
    int32_t items[] = {3, INT32_MIN, 0, INT32_MAX, -1, 3};
    static const int32_t sorted[] = {INT32_MIN, -1, 0, 3, 3, INT32_MAX};
    rs_sort(items, 6, sizeof items[0], rs_compare_i32);
    assert_memory_equal(items, sorted, sizeof sorted);
}

static void test_sort__i64(void **state)
{
    (void)state;
    int64_t items[] = {INT64_MAX, 5, INT64_MIN, INT64_C(1) << 32, 0};
    static const int64_t sorted[] = {INT64_MIN, 0, 5, INT64_C(1) << 32, INT64_MAX};
    rs_sort(items, 5, sizeof items[0], rs_compare_i64);
    assert_memory_equal(items, sorted, sizeof sorted);
}

static void test_sort__u64(void **state)
{
    (void)state;
    uint64_t items[] = {UINT64_MAX, 0, UINT64_C(1) << 63, 7};
    static const uint64_t sorted[] = {0, 7, UINT64_C(1) << 63, UINT64_MAX};
    rs_sort(items, 4, sizeof items[0], rs_compare_u64);
    assert_memory_equal(items, sorted, sizeof sorted);
}

static void test_sort__nothing(void **state)
{
    (void)state;
    int32_t one = 7;
    rs_sort(NULL, 0, sizeof one, rs_compare_i32);
    rs_sort(&one, 1, sizeof one, rs_compare_i32);
    assert_int_equal(one, 7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sort__i32),
        cmocka_unit_test(test_sort__i64),
        cmocka_unit_test(test_sort__u64),
        cmocka_unit_test(test_sort__nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
