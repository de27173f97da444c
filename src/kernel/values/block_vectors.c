/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_vectors.c - codes are unpacked as bytes, 16 or 32 at a time, then widened to f32,
 * multiplied by their scale and, in types that have one, moved by their minimum. Scales and
 * minimums of a block are computed together. Four bits are looked up in a table of 16 codes; so
 * types differ mostly in their table.
 *
 * Like block_types.c, this file is compiled without fused multiply-add.
 */
#include "kernel/values/block_vectors.h"

#include "kernel/copy/kernels.h"
#include "kernel/values/float.h"

#if RS_X86
#include <immintrin.h>

/* What is done with the second number of a run. */
typedef enum shift { NONE, MINUS, PLUS } shift;

RS_AVX2 RS_INLINE __m128i load_16(const uint8_t *at)
{
    return _mm_loadu_si128((const __m128i *)(const void *)at);
}

RS_AVX2 RS_INLINE __m256i load_32(const uint8_t *at)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)at);
}

RS_AVX2 RS_INLINE float read_f16(const uint8_t *at)
{
    uint16_t bits;
    memcpy(&bits, at, sizeof bits);
    return _cvtsh_ss(bits);
}

/* Eight values, of the lower half of the codes. */
RS_AVX2 RS_INLINE void put_8(float *values, __m128i codes, __m256 scale, __m256 other, shift kind)
{
    __m256 value = _mm256_mul_ps(scale, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes)));
    if (kind == MINUS)
        value = _mm256_sub_ps(value, other);
    else if (kind == PLUS)
        value = _mm256_add_ps(value, other);
    _mm256_storeu_ps(values, value);
}

RS_AVX2 RS_INLINE void put_16(float *values, __m128i codes, float scale, float other, shift kind)
{
    __m256 scales = _mm256_set1_ps(scale), others = _mm256_set1_ps(other);
    put_8(values, codes, scales, others, kind);
    put_8(values + 8, _mm_unpackhi_epi64(codes, codes), scales, others, kind);
}

/* The halves have scales of their own. */
RS_AVX2 RS_INLINE void put_halves(float *values, __m256i codes, const float scales[2],
                                  const float others[2], shift kind)
{
    put_16(values, _mm256_castsi256_si128(codes), scales[0], others[0], kind);
    put_16(values + 16, _mm256_extracti128_si256(codes, 1), scales[1], others[1], kind);
}

RS_AVX2 RS_INLINE void put_32(float *values, __m256i codes, float scale, float other, shift kind)
{
    const float scales[2] = {scale, scale}, others[2] = {other, other};
    put_halves(values, codes, scales, others, kind);
}

/* Bits `place` to `place` + 7 of each byte that are in the mask. */
RS_AVX2 RS_INLINE __m256i take_bits(__m256i bytes, int place, int mask)
{
    return _mm256_and_si256(_mm256_srli_epi16(bytes, place), _mm256_set1_epi8((char)mask));
}

/* The codes of 16 bytes: first those of the lower halves of all bytes, then those of the upper
 * ones. */
RS_AVX2 RS_INLINE __m256i look_up(const int8_t table[16], __m128i bytes)
{
    __m256i both = _mm256_set_m128i(_mm_srli_epi16(bytes, 4), bytes);
    __m256i codes = _mm256_broadcastsi128_si256(load_16((const uint8_t *)table));
    return _mm256_shuffle_epi8(codes, _mm256_and_si256(both, _mm256_set1_epi8(15)));
}

static const int8_t plain_table[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

/* ---- 32 elements ----------------------------------------------------------------------------- */

RS_AVX2 void rs_q8_0_avx2(const uint8_t *blocks, int64_t count, float *values)
{
    for (int64_t i = 0; i < count; i++, blocks += 34, values += 32)
        put_32(values, load_32(blocks + 2), read_f16(blocks), 0, NONE);
}

RS_AVX2 void rs_q4_0_avx2(const uint8_t *blocks, int64_t count, float *values)
{
    static const int8_t table[16] = {-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7};
    for (int64_t i = 0; i < count; i++, blocks += 18, values += 32)
        put_32(values, look_up(table, load_16(blocks + 2)), read_f16(blocks), 0, NONE);
}

RS_AVX2 void rs_q4_1_avx2(const uint8_t *blocks, int64_t count, float *values)
{
    for (int64_t i = 0; i < count; i++, blocks += 20, values += 32)
        put_32(values, look_up(plain_table, load_16(blocks + 4)), read_f16(blocks),
               read_f16(blocks + 2), PLUS);
}

/* 16 for each of the 32 bits that is set, and 0 for others. */
RS_AVX2 RS_INLINE __m256i spread_bits(const uint8_t *at)
{
    const __m256i bytes =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i places = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    int32_t bits;
    memcpy(&bits, at, sizeof bits);
    __m256i set = _mm256_and_si256(_mm256_shuffle_epi8(_mm256_set1_epi32(bits), bytes), places);
    return _mm256_and_si256(_mm256_cmpeq_epi8(set, places), _mm256_set1_epi8(16));
}

RS_AVX2 void rs_q5_0_avx2(const uint8_t *blocks, int64_t count, float *values)
{
    static const int8_t table[16] = {-16, -15, -14, -13, -12, -11, -10, -9,
                                     -8,  -7,  -6,  -5,  -4,  -3,  -2,  -1};
    for (int64_t i = 0; i < count; i++, blocks += 22, values += 32) {
        __m256i low = look_up(table, load_16(blocks + 6));
        put_32(values, _mm256_add_epi8(low, spread_bits(blocks + 2)), read_f16(blocks), 0, NONE);
    }
}

RS_AVX2 void rs_q5_1_avx2(const uint8_t *blocks, int64_t count, float *values)
{
    for (int64_t i = 0; i < count; i++, blocks += 24, values += 32) {
        __m256i low = look_up(plain_table, load_16(blocks + 8));
        put_32(values, _mm256_add_epi8(low, spread_bits(blocks + 4)), read_f16(blocks),
               read_f16(blocks + 2), PLUS);
    }
}

RS_AVX2 void rs_mxfp4_avx2(const uint8_t *blocks, int64_t count, float *values)
{
    for (int64_t i = 0; i < count; i++, blocks += 17, values += 32)
        put_32(values, look_up(rs_e2m1_doubled, load_16(blocks + 1)), rs_half_of_e8m0(blocks[0]), 0,
               NONE);
}

RS_AVX2 void rs_iq4_nl_avx2(const uint8_t *blocks, int64_t count, float *values)
{
    for (int64_t i = 0; i < count; i++, blocks += 18, values += 32)
        put_32(values, look_up(rs_iq4_steps, load_16(blocks + 2)), read_f16(blocks), 0, NONE);
}

/* ---- 64 elements ----------------------------------------------------------------------------- */

RS_AVX2 void rs_nvfp4_avx2(const uint8_t *blocks, int64_t count, float *values)
{
    for (int64_t i = 0; i < count; i++, blocks += 36)
        for (int run = 0; run < 4; run += 2, values += 32) {
            const float scales[2] = {rs_half_of_ue4m3(blocks[run]),
                                     rs_half_of_ue4m3(blocks[run + 1])};
            /* The bytes of a run hold its first eight codes and its last eight. */
            __m256i codes = look_up(rs_e2m1_doubled, load_16(blocks + 4 + 8 * run));
            put_halves(values, _mm256_permute4x64_epi64(codes, 0xd8), scales, scales, NONE);
        }
}

/* ---- 256 elements ---------------------------------------------------------------------------- */

/* Multiplies eight numbers of up to seven bits. */
RS_AVX2 RS_INLINE void scale_8(float by, uint64_t numbers, float products[8])
{
    __m256i wide = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128((int64_t)numbers));
    _mm256_storeu_ps(products, _mm256_mul_ps(_mm256_set1_ps(by), _mm256_cvtepi32_ps(wide)));
}

RS_AVX2 void rs_q2_k_avx2(const uint8_t *blocks, int64_t count, float *values)
{
    const uint64_t low = 0x0f0f0f0f0f0f0f0f;
    for (int64_t i = 0; i < count; i++, blocks += 84) {
        float d = read_f16(blocks + 80), least = read_f16(blocks + 82), scales[16], below[16];
        uint64_t numbers[2];
        memcpy(numbers, blocks, sizeof numbers);
        for (int half = 0; half < 2; half++) {
            scale_8(d, numbers[half] & low, scales + 8 * half);
            scale_8(least, numbers[half] >> 4 & low, below + 8 * half);
        }
        for (int run = 0; run < 16; run += 2, values += 32) {
            __m256i codes = load_32(blocks + 16 + 32 * (run / 8));
            put_halves(values, take_bits(codes, run % 8, 3), scales + run, below + run, MINUS);
        }
    }
}

/* Sixteen numbers of six bits: the lower four bits of each, then the upper two. They are more by
 * 32 than what they stand for. */
RS_AVX2 RS_INLINE void read_q3_k_scales(const uint8_t *at, float d, float scales[16])
{
    const uint32_t low = 0x0f0f0f0f, two = 0x03030303;
    uint32_t words[3];
    memcpy(words, at, sizeof words);
    for (int k = 0; k < 4; k++) {
        uint32_t number = (words[k % 2] >> (k / 2 * 4) & low) | (words[2] >> (2 * k) & two) << 4;
        __m128i wide = _mm_cvtepi8_epi32(_mm_cvtsi32_si128((int32_t)number));
        __m128 factors = _mm_cvtepi32_ps(_mm_sub_epi32(wide, _mm_set1_epi32(32)));
        _mm_storeu_ps(scales + 4 * k, _mm_mul_ps(_mm_set1_ps(d), factors));
    }
}

RS_AVX2 void rs_q3_k_avx2(const uint8_t *blocks, int64_t count, float *values)
{
    for (int64_t i = 0; i < count; i++, blocks += 110) {
        float scales[16];
        const __m256i high = load_32(blocks);
        read_q3_k_scales(blocks + 96, read_f16(blocks + 108), scales);
        for (int run = 0; run < 16; run += 2, values += 32) {
            __m256i low = take_bits(load_32(blocks + 32 + 32 * (run / 8)), run % 8, 3);
            __m256i bit = _mm256_set1_epi8((char)(1 << run / 2));
            __m256i set = _mm256_cmpeq_epi8(_mm256_and_si256(high, bit), bit);
            __m256i less = _mm256_andnot_si256(set, _mm256_set1_epi8(4));
            put_halves(values, _mm256_sub_epi8(low, less), scales + run, scales + run, NONE);
        }
    }
}

/* Scales and minimums of Q4_K and Q5_K, of six bits each: the last four of each have their upper
 * two bits where the first four have nothing. */
RS_AVX2 RS_INLINE void read_pairs(const uint8_t *block, float scales[8], float below[8])
{
    const uint32_t six = 0x3f3f3f3f, low = 0x0f0f0f0f, two = 0x03030303;
    uint32_t words[3];
    memcpy(words, block + 4, sizeof words);
    uint32_t later = (words[2] & low) | (words[0] >> 6 & two) << 4;
    uint32_t later_below = (words[2] >> 4 & low) | (words[1] >> 6 & two) << 4;
    scale_8(read_f16(block), (uint64_t)later << 32 | (words[0] & six), scales);
    scale_8(read_f16(block + 2), (uint64_t)later_below << 32 | (words[1] & six), below);
}

RS_AVX2 void rs_q4_k_avx2(const uint8_t *blocks, int64_t count, float *values)
{
    for (int64_t i = 0; i < count; i++, blocks += 144) {
        float scales[8], below[8];
        read_pairs(blocks, scales, below);
        for (int run = 0; run < 8; run += 2, values += 64) {
            __m256i both = load_32(blocks + 16 + 16 * run);
            put_32(values, take_bits(both, 0, 15), scales[run], below[run], MINUS);
            put_32(values + 32, take_bits(both, 4, 15), scales[run + 1], below[run + 1], MINUS);
        }
    }
}

RS_AVX2 void rs_q5_k_avx2(const uint8_t *blocks, int64_t count, float *values)
{
    for (int64_t i = 0; i < count; i++, blocks += 176) {
        float scales[8], below[8];
        const __m256i high = load_32(blocks + 16);
        read_pairs(blocks, scales, below);
        for (int run = 0; run < 8; run++, values += 32) {
            __m256i low = take_bits(load_32(blocks + 48 + 32 * (run / 2)), run % 2 * 4, 15);
            __m256i bit = _mm256_slli_epi16(take_bits(high, run, 1), 4);
            put_32(values, _mm256_or_si256(low, bit), scales[run], below[run], MINUS);
        }
    }
}

RS_AVX2 void rs_q6_k_avx2(const uint8_t *blocks, int64_t count, float *values)
{
    for (int64_t i = 0; i < count; i++, blocks += 210) {
        float scales[16], d = read_f16(blocks + 208);
        uint64_t numbers[2];
        memcpy(numbers, blocks + 192, sizeof numbers);
        scale_8(d, numbers[0], scales);
        scale_8(d, numbers[1], scales + 8);
        for (int run = 0; run < 8; run++, values += 32) {
            int quarter = run % 4;
            __m256i low = load_32(blocks + 64 * (run / 4) + 32 * (quarter % 2));
            __m256i high = take_bits(load_32(blocks + 128 + 32 * (run / 4)), 2 * quarter, 3);
            __m256i code =
                _mm256_or_si256(take_bits(low, quarter / 2 * 4, 15), _mm256_slli_epi16(high, 4));
            put_halves(values, _mm256_sub_epi8(code, _mm256_set1_epi8(32)), scales + 2 * run,
                       scales + 2 * run, NONE);
        }
    }
}

RS_AVX2 void rs_iq4_xs_avx2(const uint8_t *blocks, int64_t count, float *values)
{
    for (int64_t i = 0; i < count; i++, blocks += 136) {
        float d = read_f16(blocks);
        int high = blocks[2] | blocks[3] << 8;
        for (int run = 0; run < 8; run++, values += 32) {
            int low = blocks[4 + run / 2] >> (run % 2 * 4) & 15;
            int factor = (low | (high >> (2 * run) & 3) << 4) - 32;
            put_32(values, look_up(rs_iq4_steps, load_16(blocks + 8 + 16 * run)), d * (float)factor,
                   0, NONE);
        }
    }
}
#endif
