/* SPDX-License-Identifier: Apache-2.0 */
/* Tables: a value stays with its key, whatever comes after it. */
#include "base/table.h"
#include "tests/support/check.h"

#include <stdio.h>
#include <string.h>

#define KEYS 5000

static size_t write_key(int i, char key[32])
{
    int length = snprintf(key, 32, "%.*s%d", i % 11, "layers.layers.", i);
    return (size_t)length;
}

static void test_table__keeps_values_while_it_grows(void **state)
{
    static int values[KEYS];
    rs_table table;
    char key[32];
    (void)state;
    rs_table_init(&table, NULL);
    for (int i = 0; i < KEYS; i++) {
        void **place = rs_table_at(&table, key, write_key(i, key));
        assert_non_null(place);
        assert_null(*place);
        *place = &values[i];
        memset(key, 'x', sizeof key); /* the table has a copy */
    }
    for (int i = 0; i < KEYS; i++)
        assert_ptr_equal(*rs_table_at(&table, key, write_key(i, key)), &values[i]);
    assert_int_equal(table.count, KEYS);
    rs_table_release(&table);
}

static void test_table__keys_differ_by_length_and_by_any_byte(void **state)
{
    static const struct {
        const char *bytes;
        size_t count;
    } keys[] = {{"", 0},           {"\0", 1},           {"\0\0", 2},        {"abcdefgh", 8},
                {"abcdefgh\0", 9}, {"abcdefghijk", 11}, {"abcdefghijl", 11}};
    enum { COUNT = sizeof keys / sizeof *keys };
    rs_table table;
    (void)state;
    rs_table_init(&table, NULL);
    for (int round = 0; round < 2; round++) {
        for (size_t i = 0; i < COUNT; i++) {
            void **place = rs_table_at(&table, keys[i].bytes, keys[i].count);
            assert_ptr_equal(*place, round == 0 ? NULL : (void *)&keys[i]);
            *place = (void *)&keys[i];
        }
    }
    assert_int_equal(table.count, COUNT);
    rs_table_release(&table);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table__keeps_values_while_it_grows),
        cmocka_unit_test(test_table__keys_differ_by_length_and_by_any_byte),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
