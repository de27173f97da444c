/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fingerprint_carryless.c - remainders by the carry-less multiply of x86-64, chosen at run time.
 *
 * The idea is CRC by folding (Gopal et al., "Fast CRC computation for generic polynomials using
 * PCLMULQDQ", 2009), in the order of memory: a block of 128 bits, low + high * x^64, is brought
 * back by n bits as low * x^-n + high * x^(64-n). Both constants are reduced to 64 bits, so the sum
 * has 127 bits and can simply be added to the next block. Working on four blocks at a time hides
 * the latency of the multiply; if the processor multiplies registers of two or four blocks, 128
 * bytes in such registers are used instead. The last reduction is Barrett's.
 */
#include "checkpoint/engine/fingerprint_code.h"

#if defined(__x86_64__) && defined(__GNUC__)

#include <immintrin.h>
#include <stdbool.h>
#include <string.h>

#define CARRYLESS __attribute__((target("pclmul")))
#define WIDE __attribute__((target("avx2,pclmul,vpclmulqdq")))
#define WIDEST __attribute__((target("avx512f,pclmul,vpclmulqdq")))
#define LANES 4
/* for shorter runs, the longer tail costs more than it saves */
#define WIDE_BYTES_MIN ((size_t)256)

/* Loads the two constants of a modulus, the one for the low half first. */
CARRYLESS static inline __m128i load_pair(const uint64_t pair[2])
{
    return _mm_loadu_si128((const __m128i *)(const void *)pair);
}

CARRYLESS static inline __m128i load_block(const unsigned char *bytes)
{
    return _mm_loadu_si128((const __m128i *)(const void *)bytes);
}

CARRYLESS static inline __m128i bring_back(__m128i block, __m128i constants)
{
    return _mm_xor_si128(_mm_clmulepi64_si128(block, constants, 0x00),
                         _mm_clmulepi64_si128(block, constants, 0x11));
}

static inline uint64_t low_half(__m128i a)
{
    return (uint64_t)_mm_cvtsi128_si64(a);
}

static inline uint64_t high_half(__m128i a)
{
    return low_half(_mm_unpackhi_epi64(a, a));
}

CARRYLESS static inline __m128i multiply_halves(uint64_t a, uint64_t b)
{
    return _mm_clmulepi64_si128(_mm_cvtsi64_si128((long long)a), _mm_cvtsi64_si128((long long)b),
                                0x00);
}

CARRYLESS static inline uint64_t reduce(const rs_modulus *modulus, __m128i a)
{
    uint64_t high = high_half(a);
    uint64_t quotient = high ^ high_half(multiply_halves(high, modulus->quotient));
    return low_half(a) ^ low_half(multiply_halves(quotient, modulus->low));
}

CARRYLESS static void multiply_carryless(const rs_fingerprint_code *code,
                                         const uint64_t a[RS_MODULI], const uint64_t b[RS_MODULI],
                                         uint64_t out[RS_MODULI])
{
    for (int m = 0; m < RS_MODULI; m++)
        out[m] = reduce(&code->moduli[m], multiply_halves(a[m], b[m]));
}

/* Folds whole groups of four blocks, at least one group, into one block for each modulus. */
CARRYLESS static void fold_groups(const rs_fingerprint_code *code, const unsigned char *bytes,
                                  size_t group_count, __m128i out[RS_MODULI])
{
    __m128i back_a = load_pair(code->moduli[0].back_64), a[LANES];
    __m128i back_b = load_pair(code->moduli[1].back_64), b[LANES];
    for (int i = 0; i < LANES; i++)
        a[i] = b[i] = load_block(bytes + 16 * i);
    for (size_t group = 1; group < group_count; group++) {
        bytes += 16 * LANES;
        for (int i = 0; i < LANES; i++) {
            __m128i block = load_block(bytes + 16 * i);
            a[i] = _mm_xor_si128(bring_back(a[i], back_a), block);
            b[i] = _mm_xor_si128(bring_back(b[i], back_b), block);
        }
    }
    back_a = load_pair(code->moduli[0].back_16);
    back_b = load_pair(code->moduli[1].back_16);
    for (int i = 1; i < LANES; i++) {
        a[i] = _mm_xor_si128(bring_back(a[i - 1], back_a), a[i]);
        b[i] = _mm_xor_si128(bring_back(b[i - 1], back_b), b[i]);
    }
    out[0] = a[LANES - 1];
    out[1] = b[LANES - 1];
}

WIDE static inline __m256i load_two_blocks(const unsigned char *bytes)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)bytes);
}

WIDE static inline __m256i bring_two_back(__m256i blocks, __m256i constants)
{
    return _mm256_xor_si256(_mm256_clmulepi64_epi128(blocks, constants, 0x00),
                            _mm256_clmulepi64_epi128(blocks, constants, 0x11));
}

WIDE static inline __m256i load_pair_twice(const uint64_t pair[2])
{
    return _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)pair));
}

/* Joins the two blocks of a register. */
WIDE static inline __m128i join_blocks(__m256i blocks, const rs_modulus *modulus)
{
    __m128i constants = _mm_loadu_si128((const __m128i *)(const void *)modulus->back_16);
    __m128i first = _mm256_castsi256_si128(blocks);
    __m128i brought = _mm_xor_si128(_mm_clmulepi64_si128(first, constants, 0x00),
                                    _mm_clmulepi64_si128(first, constants, 0x11));
    return _mm_xor_si128(brought, _mm256_extracti128_si256(blocks, 1));
}

/* Like fold_groups, for groups of four registers of two blocks each. */
WIDE static void fold_wide_groups(const rs_fingerprint_code *code, const unsigned char *bytes,
                                  size_t group_count, __m128i out[RS_MODULI])
{
    __m256i back_a = load_pair_twice(code->moduli[0].back_128), a[LANES];
    __m256i back_b = load_pair_twice(code->moduli[1].back_128), b[LANES];
    for (int i = 0; i < LANES; i++)
        a[i] = b[i] = load_two_blocks(bytes + 32 * i);
    for (size_t group = 1; group < group_count; group++) {
        bytes += 32 * LANES;
        for (int i = 0; i < LANES; i++) {
            __m256i blocks = load_two_blocks(bytes + 32 * i);
            a[i] = _mm256_xor_si256(bring_two_back(a[i], back_a), blocks);
            b[i] = _mm256_xor_si256(bring_two_back(b[i], back_b), blocks);
        }
    }
    back_a = load_pair_twice(code->moduli[0].back_32);
    back_b = load_pair_twice(code->moduli[1].back_32);
    for (int i = 1; i < LANES; i++) {
        a[i] = _mm256_xor_si256(bring_two_back(a[i - 1], back_a), a[i]);
        b[i] = _mm256_xor_si256(bring_two_back(b[i - 1], back_b), b[i]);
    }
    out[0] = join_blocks(a[LANES - 1], &code->moduli[0]);
    out[1] = join_blocks(b[LANES - 1], &code->moduli[1]);
}

WIDEST static inline __m512i load_four_blocks(const unsigned char *bytes)
{
    return _mm512_loadu_si512((const void *)bytes);
}

/* Brings four blocks back, and adds the next four. */
WIDEST static inline __m512i bring_four_back(__m512i blocks, __m512i constants, __m512i next)
{
    return _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(blocks, constants, 0x00),
                                     _mm512_clmulepi64_epi128(blocks, constants, 0x11), next, 0x96);
}

/* Brings a sum back over four blocks, and adds each. The register is shifted; storing it on the
 * stack faults in what gcc 12 compiles for AddressSanitizer. */
WIDEST static inline __m128i join_four(__m128i sum, __m512i four, __m128i constants)
{
    for (int i = 0; i < 4; i++) {
        sum = _mm_xor_si128(bring_back(sum, constants), _mm512_castsi512_si128(four));
        four = _mm512_alignr_epi64(four, four, 2);
    }
    return sum;
}

/* Joins the eight blocks of two registers. */
WIDEST static inline __m128i join_all(__m512i first, __m512i second, const rs_modulus *modulus)
{
    __m128i constants = load_pair(modulus->back_16);
    return join_four(join_four(_mm_setzero_si128(), first, constants), second, constants);
}

/* Like fold_wide_groups, in two registers of four blocks each. */
WIDEST static void fold_widest_groups(const rs_fingerprint_code *code, const unsigned char *bytes,
                                      size_t group_count, __m128i out[RS_MODULI])
{
    __m512i back_a = _mm512_broadcast_i32x4(load_pair(code->moduli[0].back_128));
    __m512i back_b = _mm512_broadcast_i32x4(load_pair(code->moduli[1].back_128));
    __m512i a0 = load_four_blocks(bytes), a1 = load_four_blocks(bytes + 64), b0 = a0, b1 = a1;
    for (size_t group = 1; group < group_count; group++) {
        bytes += 128;
        __m512i next = load_four_blocks(bytes), last = load_four_blocks(bytes + 64);
        a0 = bring_four_back(a0, back_a, next);
        b0 = bring_four_back(b0, back_b, next);
        a1 = bring_four_back(a1, back_a, last);
        b1 = bring_four_back(b1, back_b, last);
    }
    out[0] = join_all(a0, a1, &code->moduli[0]);
    out[1] = join_all(b0, b1, &code->moduli[1]);
}

CARRYLESS static uint64_t remainder_carryless(const rs_fingerprint_code *code,
                                              const unsigned char *bytes, size_t count,
                                              uint64_t out[RS_MODULI])
{
    __m128i folded[RS_MODULI] = {_mm_setzero_si128(), _mm_setzero_si128()};
    __m128i back_a = load_pair(code->moduli[0].back_16);
    __m128i back_b = load_pair(code->moduli[1].back_16);
    bool wide = code->blocks_at_once > 1 && count >= WIDE_BYTES_MIN;
    size_t group_bytes = (wide ? 32 : 16) * LANES;
    size_t at = count / group_bytes * group_bytes;
    if (wide && code->blocks_at_once == 4)
        fold_widest_groups(code, bytes, at / group_bytes, folded);
    else if (wide)
        fold_wide_groups(code, bytes, at / group_bytes, folded);
    else if (at != 0)
        fold_groups(code, bytes, at / group_bytes, folded);
    while (at < count) {
        unsigned char last[16] = {0}; /* zeros after the end change nothing */
        __m128i block;
        if (count - at >= 16) {
            block = load_block(bytes + at);
        } else {
            memcpy(last, bytes + at, count - at);
            block = load_block(last);
        }
        folded[0] = _mm_xor_si128(bring_back(folded[0], back_a), block);
        folded[1] = _mm_xor_si128(bring_back(folded[1], back_b), block);
        at += 16;
    }
    for (int m = 0; m < RS_MODULI; m++)
        out[m] = reduce(&code->moduli[m], folded[m]);
    return (count - 1) / 16 * 16;
}

void rs_fingerprint_use_carryless(rs_fingerprint_code *code)
{
    if (!__builtin_cpu_supports("pclmul"))
        return;
    code->remainder = remainder_carryless;
    code->multiply = multiply_carryless;
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("vpclmulqdq"))
        code->blocks_at_once = __builtin_cpu_supports("avx512f") ? 4 : 2;
}

#else

void rs_fingerprint_use_carryless(rs_fingerprint_code *code)
{
    (void)code;
}

#endif
