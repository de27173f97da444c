/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_types.c - one function for each type, which decodes one block. Multi-byte numbers are
 * little-endian. This file is compiled without fused multiply-add, which would round once where
 * ggml rounds twice.
 *
 * block_vectors.c does the same for processors with AVX2.
 */
#include "kernel/values/block_types.h"

#include "kernel/copy/kernels.h"
#include "kernel/values/block_vectors.h"
#include "kernel/values/float.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#if RS_X86
#include <immintrin.h>
#endif

static inline float read_f16(const uint8_t *at)
{
    return rs_f16_to_f32((uint16_t)(at[0] | at[1] << 8));
}

/* ---- 32 elements ----------------------------------------------------------------------------- */

RS_INLINE void decode_q8_0(const uint8_t *block, float *values)
{
    float d = read_f16(block);
    for (int i = 0; i < 32; i++)
        values[i] = d * (float)(int8_t)block[2 + i];
}

RS_INLINE void decode_q4_0(const uint8_t *block, float *values)
{
    float d = read_f16(block);
    for (int i = 0; i < 16; i++) {
        values[i] = d * (float)((block[2 + i] & 15) - 8);
        values[i + 16] = d * (float)((block[2 + i] >> 4) - 8);
    }
}

RS_INLINE void decode_q4_1(const uint8_t *block, float *values)
{
    float d = read_f16(block), m = read_f16(block + 2);
    for (int i = 0; i < 16; i++) {
        values[i] = d * (float)(block[4 + i] & 15) + m;
        values[i + 16] = d * (float)(block[4 + i] >> 4) + m;
    }
}

/* The fifth bit of element i is bit i of these four bytes. */
static inline uint32_t read_high(const uint8_t *at)
{
    return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

RS_INLINE void decode_q5_0(const uint8_t *block, float *values)
{
    float d = read_f16(block);
    uint32_t high = read_high(block + 2);
    for (int i = 0; i < 16; i++) {
        int low = (block[6 + i] & 15) | (int)(high >> i & 1) << 4;
        int next = block[6 + i] >> 4 | (int)(high >> (i + 16) & 1) << 4;
        values[i] = d * (float)(low - 16);
        values[i + 16] = d * (float)(next - 16);
    }
}

RS_INLINE void decode_q5_1(const uint8_t *block, float *values)
{
    float d = read_f16(block), m = read_f16(block + 2);
    uint32_t high = read_high(block + 4);
    for (int i = 0; i < 16; i++) {
        int low = (block[8 + i] & 15) | (int)(high >> i & 1) << 4;
        int next = block[8 + i] >> 4 | (int)(high >> (i + 16) & 1) << 4;
        values[i] = d * (float)low + m;
        values[i + 16] = d * (float)next + m;
    }
}

RS_INLINE void decode_mxfp4(const uint8_t *block, float *values)
{
    float d = rs_half_of_e8m0(block[0]);
    for (int i = 0; i < 16; i++) {
        values[i] = (float)rs_e2m1_doubled[block[1 + i] & 15] * d;
        values[i + 16] = (float)rs_e2m1_doubled[block[1 + i] >> 4] * d;
    }
}

RS_INLINE void decode_iq4_nl(const uint8_t *block, float *values)
{
    float d = read_f16(block);
    for (int i = 0; i < 16; i++) {
        values[i] = d * (float)rs_iq4_steps[block[2 + i] & 15];
        values[i + 16] = d * (float)rs_iq4_steps[block[2 + i] >> 4];
    }
}

/* ---- 64 elements ----------------------------------------------------------------------------- */

RS_INLINE void decode_nvfp4(const uint8_t *block, float *values)
{
    for (int run = 0; run < 4; run++) {
        float d = rs_half_of_ue4m3(block[run]);
        const uint8_t *codes = block + 4 + 8 * run;
        for (int i = 0; i < 8; i++) {
            values[16 * run + i] = (float)rs_e2m1_doubled[codes[i] & 15] * d;
            values[16 * run + i + 8] = (float)rs_e2m1_doubled[codes[i] >> 4] * d;
        }
    }
}

/* ---- 256 elements ---------------------------------------------------------------------------- */

RS_INLINE void decode_q2_k(const uint8_t *block, float *values)
{
    const uint8_t *scales = block, *codes = block + 16;
    float d = read_f16(block + 80), least = read_f16(block + 82);
    for (int run = 0; run < 16; run++) {
        const uint8_t *from = codes + 32 * (run / 8) + 16 * (run % 2);
        int shift = run % 8 / 2 * 2;
        float scale = d * (float)(scales[run] & 15), below = least * (float)(scales[run] >> 4);
        for (int i = 0; i < 16; i++)
            values[16 * run + i] = scale * (float)(from[i] >> shift & 3) - below;
    }
}

RS_INLINE void decode_q3_k(const uint8_t *block, float *values)
{
    const uint8_t *high = block, *codes = block + 32, *scales = block + 96;
    float d = read_f16(block + 108);
    for (int run = 0; run < 16; run++) {
        int low = run < 8 ? scales[run] & 15 : scales[run - 8] >> 4;
        int factor = (low | (scales[8 + run % 4] >> (2 * (run / 4)) & 3) << 4) - 32;
        const uint8_t *from = codes + 32 * (run / 8) + 16 * (run % 2);
        const uint8_t *bits = high + 16 * (run % 2);
        int shift = run % 8 / 2 * 2, bit = run / 2;
        float scale = d * (float)factor;
        for (int i = 0; i < 16; i++) {
            int less = 4 - (bits[i] >> bit & 1) * 4;
            values[16 * run + i] = scale * (float)((from[i] >> shift & 3) - less);
        }
    }
}

/* The scale and the minimum of each run of 32, of six bits each, in 12 bytes. */
static inline int scale_of(const uint8_t *scales, int run)
{
    return run < 4 ? scales[run] & 63 : (scales[run + 4] & 15) | scales[run - 4] >> 6 << 4;
}

static inline int minimum_of(const uint8_t *scales, int run)
{
    return run < 4 ? scales[run + 4] & 63 : scales[run + 4] >> 4 | scales[run] >> 6 << 4;
}

RS_INLINE void decode_q4_k(const uint8_t *block, float *values)
{
    float d = read_f16(block), least = read_f16(block + 2);
    const uint8_t *scales = block + 4;
    for (int run = 0; run < 8; run++) {
        const uint8_t *from = block + 16 + 32 * (run / 2);
        int shift = run % 2 * 4;
        float scale = d * (float)scale_of(scales, run);
        float below = least * (float)minimum_of(scales, run);
        for (int i = 0; i < 32; i++)
            values[32 * run + i] = scale * (float)(from[i] >> shift & 15) - below;
    }
}

RS_INLINE void decode_q5_k(const uint8_t *block, float *values)
{
    float d = read_f16(block), least = read_f16(block + 2);
    const uint8_t *scales = block + 4, *high = block + 16;
    for (int run = 0; run < 8; run++) {
        const uint8_t *from = block + 48 + 32 * (run / 2);
        int shift = run % 2 * 4;
        float scale = d * (float)scale_of(scales, run);
        float below = least * (float)minimum_of(scales, run);
        for (int i = 0; i < 32; i++) {
            int code = (from[i] >> shift & 15) | (high[i] >> run & 1) << 4;
            values[32 * run + i] = scale * (float)code - below;
        }
    }
}

RS_INLINE void decode_q6_k(const uint8_t *block, float *values)
{
    float d = read_f16(block + 208);
    for (int run = 0; run < 8; run++) {
        int quarter = run % 4;
        const uint8_t *low = block + 64 * (run / 4) + 32 * (quarter % 2);
        const uint8_t *high = block + 128 + 32 * (run / 4);
        const uint8_t *scales = block + 192 + 2 * run;
        int shift = quarter / 2 * 4, place = 2 * quarter;
        for (int half = 0; half < 2; half++) {
            float scale = d * (float)(int8_t)scales[half];
            for (int i = 16 * half; i < 16 * half + 16; i++) {
                int code = (low[i] >> shift & 15) | (high[i] >> place & 3) << 4;
                values[32 * run + i] = scale * (float)(code - 32);
            }
        }
    }
}

RS_INLINE void decode_iq4_xs(const uint8_t *block, float *values)
{
    float d = read_f16(block);
    int high = block[2] | block[3] << 8;
    for (int run = 0; run < 8; run++) {
        int factor = (block[4 + run / 2] >> (run % 2 * 4) & 15) | (high >> (2 * run) & 3) << 4;
        float scale = d * (float)(factor - 32);
        const uint8_t *codes = block + 8 + 16 * run;
        for (int i = 0; i < 16; i++) {
            values[32 * run + i] = scale * (float)rs_iq4_steps[codes[i] & 15];
            values[32 * run + i + 16] = scale * (float)rs_iq4_steps[codes[i] >> 4];
        }
    }
}

/* ---- encoding -------------------------------------------------------------------------------- */

#define INFINITE_BITS 0x7f800000
#define F16_INFINITE_BITS 0x7c00

/* What a block is divided by, so that its largest value gets the code 127. Codes are computed with
 * the scale as f32, although f16 is stored, and with its reciprocal, as ggml does. */
typedef struct q8_0_scale {
    float factor;
    uint16_t stored;
} q8_0_scale;

/* largest_bits: those of the largest magnitude, or of a NaN, which is above all numbers. */
RS_INLINE bool find_scale(int32_t largest_bits, q8_0_scale *scale)
{
    float largest;
    memcpy(&largest, &largest_bits, sizeof largest);
    float d = largest / 127.0f;
    scale->stored = rs_f32_to_f16(d);
    scale->factor = d != 0 ? 1.0f / d : 0.0f;
    if (scale->factor > FLT_MAX)
        scale->factor = 0; /* of a scale that f16 rounds to 0 anyway */
    return largest_bits < INFINITE_BITS && scale->stored < F16_INFINITE_BITS;
}

static int64_t encode_plain(const float *values, int64_t count, uint8_t *blocks)
{
    for (int64_t i = 0; i < count; i++, values += 32, blocks += 34) {
        int32_t most = 0; /* without the sign, bits are ordered like magnitudes */
        q8_0_scale scale;
        for (int k = 0; k < 32; k++) {
            int32_t bits;
            memcpy(&bits, &values[k], sizeof bits);
            bits &= INT32_MAX;
            most = bits > most ? bits : most;
        }
        if (!find_scale(most, &scale))
            return i;
        blocks[0] = (uint8_t)(scale.stored & 255);
        blocks[1] = (uint8_t)(scale.stored >> 8);
        for (int k = 0; k < 32; k++)
            blocks[2 + k] = (uint8_t)(int8_t)roundf(values[k] * scale.factor);
    }
    return -1;
}

#if RS_X86
/* Rounds halves away from zero, as roundf does for numbers below 2^23. What is added is the largest
 * number below 0.5: with it the sum of 0.5 is rounded up to 1, and that of a number just below 0.5
 * is not. */
RS_AVX2 static inline __m256i round_away(__m256 numbers)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), half = _mm256_set1_ps(0x1.fffffep-2f);
    return _mm256_cvttps_epi32(
        _mm256_add_ps(numbers, _mm256_or_ps(_mm256_and_ps(sign, numbers), half)));
}

RS_AVX2 static inline int32_t largest_of(__m256i numbers)
{
    __m128i four =
        _mm_max_epi32(_mm256_castsi256_si128(numbers), _mm256_extracti128_si256(numbers, 1));
    __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
}

RS_AVX2 static int64_t encode_avx2(const float *values, int64_t count, uint8_t *blocks)
{
    const __m256i magnitude = _mm256_set1_epi32(INT32_MAX);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7); /* undoes that of packing */
    for (int64_t i = 0; i < count; i++, values += 32, blocks += 34) {
        __m256 parts[4];
        __m256i codes[4], most = _mm256_setzero_si256();
        q8_0_scale scale;
        for (int k = 0; k < 4; k++) {
            parts[k] = _mm256_loadu_ps(values + 8 * k);
            most =
                _mm256_max_epi32(most, _mm256_and_si256(magnitude, _mm256_castps_si256(parts[k])));
        }
        if (!find_scale(largest_of(most), &scale))
            return i;
        for (int k = 0; k < 4; k++)
            codes[k] = round_away(_mm256_mul_ps(parts[k], _mm256_set1_ps(scale.factor)));
        __m256i bytes = _mm256_packs_epi16(_mm256_packs_epi32(codes[0], codes[1]),
                                           _mm256_packs_epi32(codes[2], codes[3]));
        memcpy(blocks, &scale.stored, sizeof scale.stored);
        _mm256_storeu_si256((__m256i *)(void *)(blocks + 2),
                            _mm256_permutevar8x32_epi32(bytes, order));
    }
    return -1;
}
#endif

/* ---- all types ------------------------------------------------------------------------------- */

/* The types that can be decoded: ggml's number, name, function, and elements and bytes of a
 * block. */
#define TYPES(X)                      \
    X(2, "Q4_0", q4_0, 32, 18)        \
    X(3, "Q4_1", q4_1, 32, 20)        \
    X(6, "Q5_0", q5_0, 32, 22)        \
    X(7, "Q5_1", q5_1, 32, 24)        \
    X(8, "Q8_0", q8_0, 32, 34)        \
    X(10, "Q2_K", q2_k, 256, 84)      \
    X(11, "Q3_K", q3_k, 256, 110)     \
    X(12, "Q4_K", q4_k, 256, 144)     \
    X(13, "Q5_K", q5_k, 256, 176)     \
    X(14, "Q6_K", q6_k, 256, 210)     \
    X(20, "IQ4_NL", iq4_nl, 32, 18)   \
    X(23, "IQ4_XS", iq4_xs, 256, 136) \
    X(39, "MXFP4", mxfp4, 32, 17)     \
    X(40, "NVFP4", nvfp4, 64, 36)

#define DEFINE_PLAIN(number, name, word, elements, bytes)                         \
    static void word##_plain(const uint8_t *blocks, int64_t count, float *values) \
    {                                                                             \
        for (int64_t i = 0; i < count; i++)                                       \
            decode_##word(blocks + i * (bytes), values + i * (elements));         \
    }
TYPES(DEFINE_PLAIN)

#define PLAIN_ROW(number, name, word, elements, bytes) \
    [number] = {name, elements, bytes, word##_plain,   \
                (number) == RS_BLOCK_Q8_0 ? encode_plain : NULL},

#define NUMBER_COUNT 43

/* These are known by name and size: other tensors of their file can be read. */
#define OTHER_ROWS                                                                   \
    [9] = {"Q8_1", 32, 36, NULL, NULL}, [15] = {"Q8_K", 256, 292, NULL, NULL},       \
    [16] = {"IQ2_XXS", 256, 66, NULL, NULL}, [17] = {"IQ2_XS", 256, 74, NULL, NULL}, \
    [18] = {"IQ3_XXS", 256, 98, NULL, NULL}, [19] = {"IQ1_S", 256, 50, NULL, NULL},  \
    [21] = {"IQ3_S", 256, 110, NULL, NULL}, [22] = {"IQ2_S", 256, 82, NULL, NULL},   \
    [29] = {"IQ1_M", 256, 56, NULL, NULL}, [34] = {"TQ1_0", 256, 54, NULL, NULL},    \
    [35] = {"TQ2_0", 256, 66, NULL, NULL}, [41] = {"Q1_0", 128, 18, NULL, NULL},     \
    [42] = {"Q2_0", 64, 18, NULL, NULL},

static const rs_block_type plain_types[NUMBER_COUNT] = {TYPES(PLAIN_ROW) OTHER_ROWS};

#if RS_X86
#define AVX2_ROW(number, name, word, elements, bytes)    \
    [number] = {name, elements, bytes, rs_##word##_avx2, \
                (number) == RS_BLOCK_Q8_0 ? encode_avx2 : NULL},
static const rs_block_type avx2_types[NUMBER_COUNT] = {TYPES(AVX2_ROW) OTHER_ROWS};
#endif

const rs_block_type *rs_block_type_find(rs_cpu cpu, uint32_t number)
{
    const rs_block_type *types = plain_types;
#if RS_X86
    if (cpu >= RS_CPU_AVX2)
        types = avx2_types;
#else
    (void)cpu;
#endif
    return number < NUMBER_COUNT && types[number].name != NULL ? &types[number] : NULL;
}
