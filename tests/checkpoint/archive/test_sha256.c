/* SPDX-License-Identifier: Apache-2.0 */
/* test_sha256.c - the examples of FIPS 180, and the fast form against the plain one. The Python
 * tests of `reshard digest --sha256` hold both against hashlib. */
#include "checkpoint/archive/sha256.h"
#include "tests/support/check.h"
#include "tests/support/random.h"

#include <string.h>

static void check_hash(const void *bytes, size_t count, const char *expected)
{
    rs_sha256_blocks_fn *const forms[] = {rs_sha256_blocks_plain, NULL};
    for (int i = 0; i < 2; i++) {
        rs_sha256 hash;
        unsigned char out[RS_SHA256_BYTES];
        char text[RS_SHA256_TEXT];
        rs_sha256_init(&hash, forms[i]);
        rs_sha256_add(&hash, bytes, count);
        rs_sha256_finish(&hash, out);
        rs_sha256_text(out, text);
        assert_string_equal(text, expected);
    }
}

static void test_sha256__known_values(void **state)
{
    (void)state;
    static char as[1000000];
    memset(as, 'a', sizeof as);
    check_hash("", 0, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check_hash("abc", 3, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check_hash("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
               "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check_hash(as, sizeof as, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

/* Every length up to four blocks, added in parts of random sizes, by both forms. */
static void test_sha256__parts_and_forms_agree(void **state)
{
    (void)state;
    unsigned char bytes[256];
    draw_state random;
    draw_seed(&random, 7);
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)draw_below(&random, 256);
    for (size_t count = 0; count <= sizeof bytes; count++) {
        unsigned char whole[RS_SHA256_BYTES], parts[RS_SHA256_BYTES];
        rs_sha256 hash;
        rs_sha256_init(&hash, rs_sha256_blocks_plain);
        rs_sha256_add(&hash, bytes, count);
        rs_sha256_finish(&hash, whole);
        rs_sha256_init(&hash, NULL);
        for (size_t at = 0, part; at < count; at += part) {
            part = 1 + (size_t)draw_below(&random, (int64_t)(count - at));
            rs_sha256_add(&hash, bytes + at, part);
        }
        rs_sha256_finish(&hash, parts);
        assert_memory_equal(whole, parts, sizeof whole);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sha256__known_values),
        cmocka_unit_test(test_sha256__parts_and_forms_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
