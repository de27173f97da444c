/* SPDX-License-Identifier: Apache-2.0 */
/* sha256.c - SHA-256 in portable C, and its padding. Names are those of FIPS 180-4, section
 * 6.2.2. */
#include "checkpoint/archive/sha256.h"

#include <string.h>

/* The first 32 bits of the fractional parts of the cube roots of the first 64 primes. */
const uint32_t rs_sha256_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t rotate(uint32_t word, int bits)
{
    return word >> bits | word << (32 - bits);
}

static uint32_t load(const unsigned char *bytes)
{
    return (uint32_t)bytes[0] << 24 | (uint32_t)bytes[1] << 16 | (uint32_t)bytes[2] << 8 | bytes[3];
}

static void store(uint32_t word, unsigned char *bytes)
{
    for (int i = 0; i < 4; i++)
        bytes[i] = (unsigned char)(word >> (24 - 8 * i));
}

static void spread(const unsigned char *bytes, uint32_t w[64])
{
    for (int t = 0; t < 16; t++)
        w[t] = load(bytes + 4 * t);
    for (int t = 16; t < 64; t++) {
        uint32_t s0 = rotate(w[t - 15], 7) ^ rotate(w[t - 15], 18) ^ w[t - 15] >> 3;
        uint32_t s1 = rotate(w[t - 2], 17) ^ rotate(w[t - 2], 19) ^ w[t - 2] >> 10;
        w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
}

/* One step. Instead of moving the eight variables along, the caller rotates the arguments. */
static inline void step(uint32_t a, uint32_t b, uint32_t c, uint32_t *d, uint32_t e, uint32_t f,
                        uint32_t g, uint32_t *h, uint32_t constant_and_w)
{
    uint32_t s0 = rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22);
    uint32_t s1 = rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25);
    uint32_t t1 = *h + s1 + ((e & f) ^ (~e & g)) + constant_and_w;
    *d += t1;
    *h = t1 + s0 + ((a & b) ^ (a & c) ^ (b & c));
}

static void mix(uint32_t state[8], const uint32_t w[64])
{
    const uint32_t *k = rs_sha256_constants;
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3];
    uint32_t e = state[4], f = state[5], g = state[6], h = state[7];
    for (int t = 0; t < 64; t += 8) {
        step(a, b, c, &d, e, f, g, &h, k[t] + w[t]);
        step(h, a, b, &c, d, e, f, &g, k[t + 1] + w[t + 1]);
        step(g, h, a, &b, c, d, e, &f, k[t + 2] + w[t + 2]);
        step(f, g, h, &a, b, c, d, &e, k[t + 3] + w[t + 3]);
        step(e, f, g, &h, a, b, c, &d, k[t + 4] + w[t + 4]);
        step(d, e, f, &g, h, a, b, &c, k[t + 5] + w[t + 5]);
        step(c, d, e, &f, g, h, a, &b, k[t + 6] + w[t + 6]);
        step(b, c, d, &e, f, g, h, &a, k[t + 7] + w[t + 7]);
    }
    const uint32_t mixed[8] = {a, b, c, d, e, f, g, h};
    for (int i = 0; i < 8; i++)
        state[i] += mixed[i];
}

void rs_sha256_blocks_plain(uint32_t state[8], const unsigned char *bytes, size_t blocks)
{
    uint32_t w[64];
    for (size_t i = 0; i < blocks; i++) {
        spread(bytes + 64 * i, w);
        mix(state, w);
    }
}

void rs_sha256_init(rs_sha256 *hash, rs_sha256_blocks_fn *blocks)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    hash->blocks = blocks != NULL ? blocks : rs_sha256_blocks_best();
    hash->count = 0;
    memcpy(hash->state, start, sizeof start);
}

void rs_sha256_add(rs_sha256 *hash, const void *bytes, size_t count)
{
    const unsigned char *next = bytes;
    size_t used = (size_t)(hash->count % 64);
    hash->count += count;
    if (used != 0) {
        size_t part = count < 64 - used ? count : 64 - used;
        memcpy(hash->rest + used, next, part);
        if (used + part < 64)
            return;
        hash->blocks(hash->state, hash->rest, 1);
        next += part;
        count -= part;
    }
    hash->blocks(hash->state, next, count / 64);
    if (count % 64 != 0)
        memcpy(hash->rest, next + count / 64 * 64, count % 64);
}

void rs_sha256_finish(rs_sha256 *hash, unsigned char out[RS_SHA256_BYTES])
{
    uint64_t bits = hash->count * 8;
    unsigned char end[72] = {0x80};
    size_t zeros = (size_t)(119 - hash->count % 64) % 64; /* leaves 8 bytes in the last block */
    store((uint32_t)(bits >> 32), end + 1 + zeros);
    store((uint32_t)bits, end + 5 + zeros);
    rs_sha256_add(hash, end, 9 + zeros);
    for (int i = 0; i < 8; i++)
        store(hash->state[i], out + 4 * i);
}

void rs_sha256_text(const unsigned char hash[RS_SHA256_BYTES], char out_text[RS_SHA256_TEXT])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < RS_SHA256_BYTES; i++) {
        out_text[2 * i] = digits[hash[i] >> 4];
        out_text[2 * i + 1] = digits[hash[i] & 15];
    }
    out_text[RS_SHA256_TEXT - 1] = '\0';
}
