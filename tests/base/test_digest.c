/* SPDX-License-Identifier: Apache-2.0 */
/* Digests: equal to SipHash-2-4-128 for whole words, and telling apart what differs. */
#include "base/digest.h"
#include "siphash_vectors.h"
#include "tests/support/check.h"

#include <string.h>

static uint64_t word(int i)
{
    return (uint64_t)(i + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

static void test_digest__words_are_siphash(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof siphash_vectors / sizeof siphash_vectors[0]; k++) {
        rs_digest digest;
        uint64_t result[2];
        rs_digest_init(&digest);
        for (int i = 0; i < siphash_vectors[k].count; i++)
            rs_digest_u64(&digest, word(i));
        rs_digest_finish(&digest, result);
        assert_true(result[0] == siphash_vectors[k].digest[0]);
        assert_true(result[1] == siphash_vectors[k].digest[1]);
    }
}

static void test_digest__signed_words_are_the_same_words(void **state)
{
    (void)state;
    int64_t values[4];
    rs_digest digest;
    uint64_t result[2];
    for (int i = 0; i < 4; i++)
        values[i] = (int64_t)word(i);
    rs_digest_init(&digest);
    rs_digest_i64s(&digest, values, 4);
    rs_digest_finish(&digest, result);
    assert_int_equal(siphash_vectors[4].count, 4);
    assert_memory_equal(result, siphash_vectors[4].digest, sizeof result);
}

static void test_digest__finish_leaves_the_state_open(void **state)
{
    (void)state;
    rs_digest digest;
    uint64_t early[2], result[2];
    rs_digest_init(&digest);
    rs_digest_finish(&digest, early);
    assert_memory_equal(early, siphash_vectors[0].digest, sizeof early);
    rs_digest_u64(&digest, word(0));
    rs_digest_finish(&digest, early);
    rs_digest_u64(&digest, word(1));
    rs_digest_finish(&digest, result);
    assert_int_equal(siphash_vectors[2].count, 2);
    assert_memory_equal(result, siphash_vectors[2].digest, sizeof result);
}

static void digest_texts(const char *a, const char *b, uint64_t out_digest[2])
{
    rs_digest digest;
    rs_digest_init(&digest);
    rs_digest_bytes(&digest, a, strlen(a));
    rs_digest_bytes(&digest, b, strlen(b));
    rs_digest_finish(&digest, out_digest);
}

static void test_digest__bytes_keep_their_borders(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"ab", "c"}, {"a", "bc"}, {"", "abc"}, {"abc", ""}, {"12345678", "9"}, {"123456789", ""},
    };
    enum { COUNT = sizeof pairs / sizeof pairs[0] };
    uint64_t digests[COUNT][2];
    for (int i = 0; i < COUNT; i++) {
        digest_texts(pairs[i][0], pairs[i][1], digests[i]);
        for (int k = 0; k < i; k++)
            assert_memory_not_equal(digests[i], digests[k], sizeof digests[i]);
    }
}

static void test_digest__bytes_are_little_endian_words(void **state)
{
    (void)state;
    rs_digest bytes, words;
    uint64_t a[2], b[2];
    rs_digest_init(&bytes);
    rs_digest_bytes(&bytes, "\x01\x02\x03\x04\x05\x06\x07\x08\xff", 9);
    rs_digest_finish(&bytes, a);
    rs_digest_init(&words);
    rs_digest_u64(&words, 9);
    rs_digest_u64(&words, UINT64_C(0x0807060504030201));
    rs_digest_u64(&words, 0xff);
    rs_digest_finish(&words, b);
    assert_memory_equal(a, b, sizeof a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_digest__words_are_siphash),
        cmocka_unit_test(test_digest__signed_words_are_the_same_words),
        cmocka_unit_test(test_digest__finish_leaves_the_state_open),
        cmocka_unit_test(test_digest__bytes_keep_their_borders),
        cmocka_unit_test(test_digest__bytes_are_little_endian_words),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
