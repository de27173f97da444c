/* SPDX-License-Identifier: Apache-2.0 */
/* Quantised blocks: every bit is the same on all processors. What the values are is compared with
 * the definition in tests/checkpoint/test_gguf.py, and with ggml by `make test-llama`. */
#include "kernel/block_types.h"
#include "tests/support/check.h"

#include <string.h>

#define BLOCKS 16
#define BLOCK_BYTES_MAX 292

static void test_block_types__all_processors(void **state)
{
    static uint8_t blocks[BLOCKS * BLOCK_BYTES_MAX];
    static float plain[BLOCKS * RS_BLOCK_ELEMENTS_MAX], best[BLOCKS * RS_BLOCK_ELEMENTS_MAX];
    uint64_t random = 88172645463325252u;
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
        for (int trial = 0; type->decode != NULL && trial < 200; trial++) {
            for (size_t i = 0; i < sizeof blocks; i++) {
                random ^= random << 13, random ^= random >> 7, random ^= random << 17;
                blocks[i] = (uint8_t)random;
            }
            type->decode(blocks, BLOCKS, plain);
            other->decode(blocks, BLOCKS, best);
            assert_memory_equal(plain, best, (size_t)type->elements * BLOCKS * sizeof(float));
        }
        decoded += type->decode != NULL;
    }
    assert_int_equal(decoded, 14);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_block_types__all_processors)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
