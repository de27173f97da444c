/* SPDX-License-Identifier: Apache-2.0 */
/* The CRC against its definition, bit by bit: all lengths around a block, places and beginnings. */
#include "checkpoint/archive/crc.h"
#include "tests/support/check.h"

/* The definition: bits from the lowest, the polynomial reversed, ones before and after. */
static uint32_t crc_of(uint32_t crc, const unsigned char *bytes, size_t count)
{
    crc = ~crc;
    for (size_t i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static void test_crc__definition(void **state)
{
    static unsigned char bytes[4200];
    uint32_t random = 1;
    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++) {
        random = random * 1664525u + 1013904223u;
        bytes[i] = (unsigned char)(random >> 24);
    }
    for (size_t count = 0; count < 1100; count++) {
        size_t at = count % 17;
        uint32_t before = count % 3 == 0 ? 0 : random + (uint32_t)count;
        assert_int_equal(rs_crc32(before, bytes + at, count), crc_of(before, bytes + at, count));
    }
    assert_int_equal(rs_crc32(0, bytes, sizeof bytes), crc_of(0, bytes, sizeof bytes));
    assert_int_equal(rs_crc32(0, "123456789", 9), 0xcbf43926u);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = 0;
    assert_int_equal(rs_crc32(0, bytes, sizeof bytes), crc_of(0, bytes, sizeof bytes));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_crc__definition)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
