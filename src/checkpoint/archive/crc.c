/* SPDX-License-Identifier: Apache-2.0 */
/*
 * crc.c - CRC-32 by folding with the carry-less multiply of x86-64, where the processor has it
 * (Gopal et al., "Fast CRC computation for generic polynomials using PCLMULQDQ", 2009).
 *
 * Multiplying a block of 16 bytes by a power of x and adding it to a later block leaves the
 * remainder unchanged. Four lanes fold the message into its last four blocks, and these into one;
 * zlib then computes the CRC of that block and of the bytes that follow it. The CRC register is
 * xor-ed into the first four bytes, so that it counts as zero from there on.
 */
#include "checkpoint/archive/crc.h"

#include <zlib.h>

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>

#define CARRYLESS __attribute__((target("pclmul")))
#define BLOCK ((size_t)16)
#define LANES ((size_t)4)
#define FOLDED_BYTES_MIN ((size_t)256)

CARRYLESS static inline __m128i load(const unsigned char *bytes)
{
    return _mm_loadu_si128((const __m128i *)(const void *)bytes);
}

CARRYLESS static inline __m128i fold(__m128i block, __m128i powers, __m128i onto)
{
    __m128i low = _mm_clmulepi64_si128(block, powers, 0x00);
    __m128i high = _mm_clmulepi64_si128(block, powers, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), onto);
}

/* Folds all blocks, a multiple of four, into one. `start` is the CRC register before them. */
CARRYLESS static void fold_all(uint32_t start, const unsigned char *bytes, size_t count,
                               unsigned char out_block[16])
{
    /* x^(512+32), x^(512-32) and x^(128+32), x^(128-32), modulo the polynomial, bits reversed */
    const __m128i by_lanes = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_one = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    __m128i lanes[LANES];
    for (size_t i = 0; i < LANES; i++)
        lanes[i] = load(bytes + i * BLOCK);
    lanes[0] = _mm_xor_si128(lanes[0], _mm_cvtsi32_si128((int)start));
    for (size_t at = LANES * BLOCK; at < count; at += LANES * BLOCK) {
        for (size_t i = 0; i < LANES; i++)
            lanes[i] = fold(lanes[i], by_lanes, load(bytes + at + i * BLOCK));
    }
    __m128i last = lanes[0];
    for (size_t i = 1; i < LANES; i++)
        last = fold(last, by_one, lanes[i]);
    _mm_storeu_si128((__m128i *)(void *)out_block, last);
}

uint32_t rs_crc32(uint32_t crc, const void *bytes, size_t count)
{
    const unsigned char *from = bytes;
    unsigned char folded[16];
    if (count < FOLDED_BYTES_MIN || !__builtin_cpu_supports("pclmul"))
        return (uint32_t)crc32_z(crc, from, count);
    size_t whole = count / (LANES * BLOCK) * (LANES * BLOCK);
    fold_all(~crc, from, whole, folded);
    /* zlib inverts the CRC it is given, so all ones stand for a register of zero. */
    crc = (uint32_t)crc32_z(UINT32_MAX, folded, sizeof folded);
    return (uint32_t)crc32_z(crc, from + whole, count - whole);
}

#else

uint32_t rs_crc32(uint32_t crc, const void *bytes, size_t count)
{
    return (uint32_t)crc32_z(crc, bytes, count);
}

#endif
