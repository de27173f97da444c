/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised blocks: every bit is the same on all processors, so the vectors do what the obvious
 * functions do. What the values are is compared with the definition in
 * tests/checkpoint/gguf/test_gguf.py, and with ggml by `make test-llama`. */
#include "kernel/values/block_types.h"
#include "tests/support/check.h"

#include <math.h>
#include <string.h>

#define BLOCKS 16
#define BLOCK_BYTES_MAX 292

static uint64_t draw(void)
{
    static uint64_t random = 88172645463325252u;
    random ^= random << 13, random ^= random >> 7, random ^= random << 17;
    return random;
}

/* Any bits; in every second trial with words in between that are extreme as scales: infinite, NaN,
 * subnormal, the largest, zeros, and the last codes of the 8-bit scales. */
static void fill_blocks(uint8_t *blocks, size_t bytes, int trial)
{
    static const uint16_t words[] = {0x7c00, 0xfc00, 0x7e00, 0x7c01, 0xffff, 0x7f7f, 0x0001,
                                     0x8001, 0x03ff, 0x0000, 0x8000, 0x7bff, 0x00ff, 0x0100};
    for (size_t i = 0; i < bytes; i++)
        blocks[i] = (uint8_t)draw();
    for (size_t i = 0; trial % 2 != 0 && i + 2 <= bytes; i += 2) {
        if (draw() % 2 == 0)
            memcpy(blocks + i, &words[draw() % (sizeof words / sizeof words[0])], 2);
    }
}

/* Bit for bit. Only where two NaNs meet, which of them comes out is the compiler's choice. */
static void check_same(const char *type, const float *plain, const float *best, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (memcmp(&plain[i], &best[i], sizeof plain[i]) != 0 &&
            !(isnan(plain[i]) && isnan(best[i])))
            fail_msg("%s: value %zu is %a, and %a in vectors", type, i, (double)plain[i],
                     (double)best[i]);
    }
}

static void test_block_types__all_processors(void **state)
{
    static uint8_t memory[BLOCKS * BLOCK_BYTES_MAX];
    static float plain[BLOCKS * RS_BLOCK_ELEMENTS_MAX], best[BLOCKS * RS_BLOCK_ELEMENTS_MAX];
    int decoded = 0;
    (void)state;
    for (uint32_t number = 0; number < 64; number++) {
        const rs_block_type *type = rs_block_type_find(RS_CPU_PORTABLE, number);
        const rs_block_type *other = rs_block_type_find(rs_cpu_detect(), number);
        assert_int_equal(type != NULL, other != NULL);
        if (type == NULL)
            continue;
        assert_string_equal(type->name, other->name);
        assert_int_equal(type->bytes, other->bytes);
        assert_int_equal(type->elements, other->elements);
        assert_true(type->bytes <= BLOCK_BYTES_MAX && type->elements <= RS_BLOCK_ELEMENTS_MAX);
        assert_int_equal(type->decode != NULL, other->decode != NULL);
        /* at the end of the memory, so that a read beyond it is noticed */
        uint8_t *blocks = memory + sizeof memory - BLOCKS * (size_t)type->bytes;
        for (int trial = 0; type->decode != NULL && trial < 400; trial++) {
            fill_blocks(blocks, BLOCKS * (size_t)type->bytes, trial);
            type->decode(blocks, BLOCKS, plain);
            other->decode(blocks, BLOCKS, best);
            check_same(type->name, plain, best, (size_t)type->elements * BLOCKS);
        }
        decoded += type->decode != NULL;
    }
    assert_int_equal(decoded, 14);
}

/* Encodes blocks on both kinds of processors, and compares. Returns what both do. */
static int64_t encode(const float *values)
{
    static uint8_t plain[BLOCKS * 34], best[BLOCKS * 34];
    memset(plain, 7, sizeof plain);
    memset(best, 7, sizeof best);
    int64_t wrong =
        rs_block_type_find(RS_CPU_PORTABLE, RS_BLOCK_Q8_0)->encode(values, BLOCKS, plain);
    assert_int_equal(
        rs_block_type_find(rs_cpu_detect(), RS_BLOCK_Q8_0)->encode(values, BLOCKS, best), wrong);
    assert_memory_equal(plain, best, 34 * (size_t)(wrong < 0 ? BLOCKS : wrong));
    return wrong;
}

static void test_block_types__encoding(void **state)
{
    static float values[BLOCKS * 32];
    const float wrong[] = {(float)INFINITY, -(float)INFINITY, (float)NAN, 8.4e6f};
    int64_t refused = 0;
    (void)state;
    for (int trial = 0; trial < 4000; trial++) {
        for (size_t i = 0; i < BLOCKS * 32; i++) {
            /* any bits; or numbers half way between codes, where 127 is the largest */
            uint32_t bits = (uint32_t)draw();
            if (trial % 2 == 0)
                memcpy(&values[i], &bits, sizeof bits);
            else
                values[i] = i % 32 == 0 ? 127 : ((float)(bits % 508) - 254) / 2;
        }
        refused += encode(values) >= 0;
    }
    assert_int_equal(refused, 2000); /* sixteen blocks of any bits have some that are not finite */
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        memset(values, 0, sizeof values);
        values[5 * 32 + 31] = wrong[i];
        assert_int_equal(encode(values), 5);
    }
    values[5 * 32 + 31] = 8.3e6f;
    values[0] = 1e-44f; /* its scale has no reciprocal */
    assert_int_equal(encode(values), -1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_block_types__all_processors),
                                       cmocka_unit_test(test_block_types__encoding)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
