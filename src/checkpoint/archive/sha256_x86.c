/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sha256_x86.c - SHA-256 by the SHA instructions of x86-64, chosen at run time.
 *
 * One instruction does two steps on the state, which it takes in two registers: a, b, e, f and c,
 * d, g, h, the first letter in the highest lane. Two more compute four words of the message
 * schedule from the sixteen before them.
 */
#include "checkpoint/archive/sha256.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <cpuid.h>
#include <immintrin.h>

#define HASHING __attribute__((target("sha,sse4.1")))

/* Does four steps. */
HASHING static inline void steps(__m128i *abef, __m128i *cdgh, __m128i w, const uint32_t *constants)
{
    __m128i sum = _mm_add_epi32(w, _mm_loadu_si128((const __m128i *)(const void *)constants));
    *cdgh = _mm_sha256rnds2_epu32(*cdgh, *abef, sum);
    *abef = _mm_sha256rnds2_epu32(*abef, *cdgh, _mm_shuffle_epi32(sum, 0x0e));
}

/* Computes the four words that follow w3 and puts them in place of w0. */
HASHING static inline void follow(__m128i *w0, __m128i w1, __m128i w2, __m128i w3)
{
    __m128i sum = _mm_add_epi32(_mm_sha256msg1_epu32(*w0, w1), _mm_alignr_epi8(w3, w2, 4));
    *w0 = _mm_sha256msg2_epu32(sum, w3);
}

HASHING static inline __m128i load_words(const unsigned char *bytes)
{
    const __m128i big_endian = _mm_set_epi64x(0x0c0d0e0f08090a0b, 0x0405060700010203);
    return _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(const void *)bytes), big_endian);
}

HASHING static inline void mix(__m128i *abef, __m128i *cdgh, const unsigned char *bytes)
{
    const uint32_t *k = rs_sha256_constants;
    __m128i a = *abef, c = *cdgh;
    __m128i w0 = load_words(bytes), w1 = load_words(bytes + 16);
    __m128i w2 = load_words(bytes + 32), w3 = load_words(bytes + 48);
    for (int t = 0;; t += 16) {
        steps(&a, &c, w0, k + t);
        steps(&a, &c, w1, k + t + 4);
        steps(&a, &c, w2, k + t + 8);
        steps(&a, &c, w3, k + t + 12);
        if (t == 48)
            break;
        follow(&w0, w1, w2, w3);
        follow(&w1, w2, w3, w0);
        follow(&w2, w3, w0, w1);
        follow(&w3, w0, w1, w2);
    }
    *abef = _mm_add_epi32(*abef, a);
    *cdgh = _mm_add_epi32(*cdgh, c);
}

HASHING static void mix_blocks(uint32_t state[8], const unsigned char *bytes, size_t blocks)
{
    __m128i *halves = (__m128i *)(void *)state;
    __m128i badc = _mm_shuffle_epi32(_mm_loadu_si128(halves), 0xb1);
    __m128i hgfe = _mm_shuffle_epi32(_mm_loadu_si128(halves + 1), 0x1b);
    __m128i abef = _mm_alignr_epi8(badc, hgfe, 8);
    __m128i cdgh = _mm_blend_epi16(hgfe, badc, 0xf0);
    for (size_t i = 0; i < blocks; i++)
        mix(&abef, &cdgh, bytes + 64 * i);
    __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
    __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
    _mm_storeu_si128(halves, _mm_blend_epi16(feba, dchg, 0xf0));
    _mm_storeu_si128(halves + 1, _mm_alignr_epi8(dchg, feba, 8));
}

rs_sha256_blocks_fn *rs_sha256_blocks_best(void)
{
    unsigned eax, ebx, ecx, edx;
    int has_sha = __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) && (ebx >> 29 & 1) != 0;
    return has_sha && __builtin_cpu_supports("sse4.1") ? mix_blocks : rs_sha256_blocks_plain;
}

#else

rs_sha256_blocks_fn *rs_sha256_blocks_best(void)
{
    return rs_sha256_blocks_plain;
}

#endif
