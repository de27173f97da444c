/* SPDX-License-Identifier: Apache-2.0 */
/* digest.c - SipHash-2-4-128 over 64-bit words. rs_digest_finish works on a copy, so more values
 * can be added afterwards. */
#include "base/digest.h"

#include <string.h>

static uint64_t rotate(uint64_t x, int bits)
{
    return x << bits | x >> (64 - bits);
}

static void mix(uint64_t v[4], int rounds)
{
    for (int i = 0; i < rounds; i++) {
        v[0] += v[1];
        v[1] = rotate(v[1], 13) ^ v[0];
        v[0] = rotate(v[0], 32);
        v[2] += v[3];
        v[3] = rotate(v[3], 16) ^ v[2];
        v[0] += v[3];
        v[3] = rotate(v[3], 21) ^ v[0];
        v[2] += v[1];
        v[1] = rotate(v[1], 17) ^ v[2];
        v[2] = rotate(v[2], 32);
    }
}

void rs_digest_init(rs_digest *digest)
{
    /* The paper's constants with the key (0, 0); 0xee selects 128 bits of output. */
    digest->v[0] = UINT64_C(0x736f6d6570736575);
    digest->v[1] = UINT64_C(0x646f72616e646f6d) ^ 0xee;
    digest->v[2] = UINT64_C(0x6c7967656e657261);
    digest->v[3] = UINT64_C(0x7465646279746573);
    digest->count = 0;
}

void rs_digest_u64(rs_digest *digest, uint64_t value)
{
    digest->v[3] ^= value;
    mix(digest->v, 2);
    digest->v[0] ^= value;
    digest->count++;
}

void rs_digest_i64s(rs_digest *digest, const int64_t *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        rs_digest_u64(digest, (uint64_t)values[i]);
}

void rs_digest_bytes(rs_digest *digest, const void *bytes, size_t count)
{
    const unsigned char *p = bytes;
    rs_digest_u64(digest, count);
    for (; count >= 8; count -= 8, p += 8) {
        /* On little-endian processors the compiler makes this a single load. */
        uint64_t low =
            (uint64_t)p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24;
        uint64_t high =
            (uint64_t)p[4] | (uint64_t)p[5] << 8 | (uint64_t)p[6] << 16 | (uint64_t)p[7] << 24;
        rs_digest_u64(digest, low | high << 32);
    }
    if (count != 0) {
        uint64_t word = 0;
        for (size_t k = 0; k < count; k++)
            word |= (uint64_t)p[k] << (8 * k);
        rs_digest_u64(digest, word);
    }
}

void rs_digest_finish(const rs_digest *digest, uint64_t out_digest[2])
{
    rs_digest copy = *digest;
    rs_digest_u64(&copy, (copy.count * 8) << 56);
    copy.v[2] ^= 0xee;
    mix(copy.v, 4);
    out_digest[0] = copy.v[0] ^ copy.v[1] ^ copy.v[2] ^ copy.v[3];
    copy.v[1] ^= 0xdd;
    mix(copy.v, 4);
    out_digest[1] = copy.v[0] ^ copy.v[1] ^ copy.v[2] ^ copy.v[3];
}

uint64_t rs_hash_bytes(const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t hash = count, word;
    for (; count >= sizeof word; count -= sizeof word, at += sizeof word) {
        memcpy(&word, at, sizeof word);
        hash = rs_mix(hash ^ word);
    }
    word = 0;
    if (count != 0)
        memcpy(&word, at, count);
    return rs_mix(hash ^ word);
}
