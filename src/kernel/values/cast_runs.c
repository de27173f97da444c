/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cast_runs.c - converts runs of floating values to f32 and from f32; all casts go through f32.
 * f16, bf16 and the 8-bit types fit f32 exactly. f64 does not: on its way to a narrower type it is
 * rounded to odd, that is, truncated, with the last bit set if anything was lost. The second
 * conversion then rounds as if it had seen all bits, because f32 has more than two extra bits.
 */
#include "kernel/values/cast_runs.h"
#include "kernel/copy/kernels.h"
#include "kernel/values/cast.h"
#include "kernel/values/float.h"

#if RS_X86
#include <immintrin.h>
#endif

#define DEFINE_RUN(function, source_type, target_type, convert)                             \
    static void function(const unsigned char *source, unsigned char *target, int64_t count) \
    {                                                                                       \
        for (int64_t i = 0; i < count; i++) {                                               \
            source_type from;                                                               \
            memcpy(&from, source + i * (int64_t)sizeof from, sizeof from);                  \
            target_type to = convert(from);                                                 \
            memcpy(target + i * (int64_t)sizeof to, &to, sizeof to);                        \
        }                                                                                   \
    }

static inline float f64_to_f32(double value)
{
    return (float)value;
}

static inline double f32_to_f64(float value)
{
    return (double)value;
}

static inline float f64_to_f32_odd(double value)
{
    float nearest = (float)value;
    if (value != value || (double)nearest == value)
        return nearest;
    /* Truncate: take the neighbour towards zero, unless the nearest value is that already. Setting
     * the last bit then gives the odd one of the two neighbours. Values beyond the range of f32,
     * rounded to infinity, become its largest finite value. */
    uint32_t bits = rs_f32_bits(nearest);
    double magnitude = value < 0 ? -value : value, found = nearest < 0 ? -nearest : nearest;
    if (found > magnitude)
        bits--;
    return rs_f32_make(bits | 1);
}

DEFINE_RUN(f16_to_f32_plain, uint16_t, float, rs_f16_to_f32)
DEFINE_RUN(bf16_to_f32_plain, uint16_t, float, rs_bf16_to_f32)
DEFINE_RUN(f64_to_f32_plain, double, float, f64_to_f32)
DEFINE_RUN(f64_to_f32_odd_plain, double, float, f64_to_f32_odd)
DEFINE_RUN(f32_to_f16_plain, float, uint16_t, rs_f32_to_f16)
DEFINE_RUN(f32_to_bf16_plain, float, uint16_t, rs_f32_to_bf16)
DEFINE_RUN(f32_to_f64_plain, float, double, f32_to_f64)
DEFINE_RUN(f8_e4m3_to_f32_plain, uint8_t, float, rs_f8_e4m3_to_f32)
DEFINE_RUN(f8_e5m2_to_f32_plain, uint8_t, float, rs_f8_e5m2_to_f32)
DEFINE_RUN(f32_to_f8_e4m3_plain, float, uint8_t, rs_f32_to_f8_e4m3)
DEFINE_RUN(f32_to_f8_e5m2_plain, float, uint8_t, rs_f32_to_f8_e5m2)

static void f32_to_f32(const unsigned char *source, unsigned char *target, int64_t count)
{
    memcpy(target, source, (size_t)count * sizeof(float));
}

#if RS_X86
/* Converts vectors of eight, and the rest by the plain function. */
#define DEFINE_VECTORS(function, source_bytes, target_bytes, convert, plain)         \
    RS_AVX2 static void function(const unsigned char *source, unsigned char *target, \
                                 int64_t count)                                      \
    {                                                                                \
        int64_t i = 0;                                                               \
        for (; i + 8 <= count; i += 8)                                               \
            convert(source + i * (source_bytes), target + i * (target_bytes));       \
        plain(source + i * (source_bytes), target + i * (target_bytes), count - i);  \
    }

RS_AVX2 RS_INLINE __m128i load_16(const unsigned char *source)
{
    return _mm_loadu_si128((const __m128i *)source);
}

RS_AVX2 RS_INLINE void convert_f16_to_f32(const unsigned char *source, unsigned char *target)
{
    _mm256_storeu_ps((float *)target, _mm256_cvtph_ps(load_16(source)));
}

RS_AVX2 RS_INLINE void convert_f32_to_f16(const unsigned char *source, unsigned char *target)
{
    __m256 value = _mm256_loadu_ps((const float *)source);
    _mm_storeu_si128((__m128i *)target,
                     _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

RS_AVX2 RS_INLINE void convert_bf16_to_f32(const unsigned char *source, unsigned char *target)
{
    __m256i bits = _mm256_slli_epi32(_mm256_cvtepu16_epi32(load_16(source)), 16);
    __m256 value = _mm256_castsi256_ps(bits);
    __m256 nan = _mm256_cmp_ps(value, value, _CMP_UNORD_Q);
    __m256i quiet = _mm256_and_si256(_mm256_castps_si256(nan), _mm256_set1_epi32(0x400000));
    _mm256_storeu_si256((__m256i *)target, _mm256_or_si256(bits, quiet));
}

RS_AVX2 RS_INLINE void convert_f32_to_bf16(const unsigned char *source, unsigned char *target)
{
    __m256i bits = _mm256_loadu_si256((const __m256i *)source);
    __m256 value = _mm256_castsi256_ps(bits);
    __m256i upper = _mm256_srli_epi32(bits, 16);
    __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(value, value, _CMP_UNORD_Q));
    __m256i result = _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), quiet, nan);
    __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(result, result), 0xd8);
    _mm_storeu_si128((__m128i *)target, _mm256_castsi256_si128(packed));
}

/* The same, 16 at a time. */
RS_AVX512 static void f32_to_bf16_avx512(const unsigned char *source, unsigned char *target,
                                         int64_t count)
{
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m512i bits = _mm512_loadu_si512(source + 4 * i);
        __m512i upper = _mm512_srli_epi32(bits, 16);
        __m512i odd = _mm512_and_si512(upper, _mm512_set1_epi32(1));
        __m512i sum = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
        __m512 value = _mm512_castsi512_ps(bits);
        __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
        __m512i result =
            _mm512_mask_or_epi32(_mm512_srli_epi32(sum, 16), nan, upper, _mm512_set1_epi32(0x40));
        _mm256_storeu_si256((__m256i *)(target + 2 * i), _mm512_cvtepi32_epi16(result));
    }
    f32_to_bf16_plain(source + 4 * i, target + 2 * i, count - i);
}

RS_AVX2 RS_INLINE void convert_f64_to_f32(const unsigned char *source, unsigned char *target)
{
    _mm_storeu_ps((float *)target, _mm256_cvtpd_ps(_mm256_loadu_pd((const double *)source)));
    _mm_storeu_ps((float *)target + 4,
                  _mm256_cvtpd_ps(_mm256_loadu_pd((const double *)source + 4)));
}

RS_AVX2 RS_INLINE void convert_f32_to_f64(const unsigned char *source, unsigned char *target)
{
    _mm256_storeu_pd((double *)target, _mm256_cvtps_pd(_mm_loadu_ps((const float *)source)));
    _mm256_storeu_pd((double *)target + 4,
                     _mm256_cvtps_pd(_mm_loadu_ps((const float *)source + 4)));
}

/* The 29 bits that f32 has no room for are folded into its last bit. That is right unless the
 * result is subnormal in f32, which would drop more bits. */
RS_AVX2 RS_INLINE void convert_f64_to_f32_odd(const unsigned char *source, unsigned char *target)
{
    const __m256i lost = _mm256_set1_epi64x((INT64_C(1) << 29) - 1);
    const __m256d sign = _mm256_set1_pd(-0.0), least = _mm256_set1_pd(0x1p-126);
    for (int half = 0; half < 2; half++) {
        const double *from = (const double *)source + 4 * half;
        __m256d value = _mm256_loadu_pd(from);
        __m256d magnitude = _mm256_andnot_pd(sign, value);
        if (_mm256_movemask_pd(_mm256_cmp_pd(magnitude, least, _CMP_LT_OQ)) != 0) {
            f64_to_f32_odd_plain((const unsigned char *)from, target + 16 * half, 4);
            continue;
        }
        __m256i bits = _mm256_castpd_si256(value);
        __m256i none = _mm256_cmpeq_epi64(_mm256_and_si256(bits, lost), _mm256_setzero_si256());
        __m256i last = _mm256_andnot_si256(none, _mm256_set1_epi64x(INT64_C(1) << 29));
        __m256i cut = _mm256_or_si256(_mm256_andnot_si256(lost, bits), last);
        _mm_storeu_ps((float *)(target + 16 * half), _mm256_cvtpd_ps(_mm256_castsi256_pd(cut)));
    }
}

RS_AVX2 RS_INLINE __m128i load_8(const unsigned char *source)
{
    return _mm_loadl_epi64((const __m128i *)source);
}

/* e5m2 is the upper byte of f16. */
RS_AVX2 RS_INLINE void convert_f8_e5m2_to_f32(const unsigned char *source, unsigned char *target)
{
    __m128i halves = _mm_unpacklo_epi8(_mm_setzero_si128(), load_8(source));
    _mm256_storeu_ps((float *)target, _mm256_cvtph_ps(halves));
}

/* An e4m3 whose bits are moved into an f16 has 2^-8 times its value. The last code, which would be
 * 480, is NaN. */
RS_AVX2 RS_INLINE void convert_f8_e4m3_to_f32(const unsigned char *source, unsigned char *target)
{
    __m128i upper = _mm_unpacklo_epi8(_mm_setzero_si128(), load_8(source));
    __m128i magnitude = _mm_srli_epi16(_mm_slli_epi16(upper, 1), 2);
    __m128i halves = _mm_or_si128(magnitude, _mm_and_si128(upper, _mm_set1_epi16(-0x8000)));
    __m256 value = _mm256_mul_ps(_mm256_cvtph_ps(halves), _mm256_set1_ps(256));
    __m256 size = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), value);
    __m256 last = _mm256_cmp_ps(size, _mm256_set1_ps(480), _CMP_EQ_OQ);
    __m256 nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7ff00000));
    _mm256_storeu_ps((float *)target, _mm256_or_ps(value, _mm256_and_ps(last, nan)));
}

/* How an f32 is narrowed to an 8-bit type: the number of fraction bits dropped, the difference of
 * the exponent biases, the first value that is too large, and a power of two whose last place is
 * the smallest value of the type, so that adding it rounds values that are subnormal there. */
typedef struct f8_form {
    int dropped, bias;
    uint32_t beyond, magic;
} f8_form;

/* Returns the codes without signs, one in each 32 bits. */
RS_AVX2 RS_INLINE __m256i narrow_to_f8(__m256i magnitude, f8_form form)
{
    __m256i bounded = _mm256_min_epu32(magnitude, _mm256_set1_epi32((int)form.beyond));
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bounded, form.dropped), _mm256_set1_epi32(1));
    __m256i half = _mm256_set1_epi32((1 << (form.dropped - 1)) - 1 - (int)(form.bias << 23));
    __m256i sum = _mm256_add_epi32(_mm256_add_epi32(bounded, half), odd);
    __m256i magic = _mm256_set1_epi32((int)form.magic);
    __m256 shifted = _mm256_add_ps(_mm256_castsi256_ps(bounded), _mm256_castsi256_ps(magic));
    __m256i small = _mm256_sub_epi32(_mm256_castps_si256(shifted), magic);
    __m256i is_small = _mm256_cmpgt_epi32(_mm256_set1_epi32((form.bias + 1) << 23), bounded);
    return _mm256_blendv_epi8(_mm256_srli_epi32(sum, form.dropped), small, is_small);
}

RS_AVX2 RS_INLINE void store_f8(__m256i codes, __m256i bits, unsigned char *target)
{
    __m256i sign = _mm256_and_si256(_mm256_srli_epi32(bits, 24), _mm256_set1_epi32(0x80));
    __m256i all = _mm256_or_si256(codes, sign);
    __m128i halves =
        _mm_packus_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
    _mm_storel_epi64((__m128i *)target, _mm_packus_epi16(halves, halves));
}

RS_AVX2 RS_INLINE void convert_f32_to_f8_e4m3(const unsigned char *source, unsigned char *target)
{
    const f8_form form = {20, 120, 0x43f00000, 141u << 23}; /* beyond: 480, magic: 2^14 */
    __m256i bits = _mm256_loadu_si256((const __m256i *)source);
    __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    store_f8(narrow_to_f8(magnitude, form), bits, target);
}

RS_AVX2 RS_INLINE void convert_f32_to_f8_e5m2(const unsigned char *source, unsigned char *target)
{
    const f8_form form = {21, 112, 0x47800000, 134u << 23}; /* beyond: 2^16, magic: 2^7 */
    __m256i bits = _mm256_loadu_si256((const __m256i *)source);
    __m256i magnitude = _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff));
    __m256i nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
    __m256i codes = narrow_to_f8(magnitude, form);
    store_f8(_mm256_or_si256(codes, _mm256_and_si256(nan, _mm256_set1_epi32(3))), bits, target);
}

DEFINE_VECTORS(f16_to_f32_avx2, 2, 4, convert_f16_to_f32, f16_to_f32_plain)
DEFINE_VECTORS(bf16_to_f32_avx2, 2, 4, convert_bf16_to_f32, bf16_to_f32_plain)
DEFINE_VECTORS(f64_to_f32_avx2, 8, 4, convert_f64_to_f32, f64_to_f32_plain)
DEFINE_VECTORS(f64_to_f32_odd_avx2, 8, 4, convert_f64_to_f32_odd, f64_to_f32_odd_plain)
DEFINE_VECTORS(f32_to_f16_avx2, 4, 2, convert_f32_to_f16, f32_to_f16_plain)
DEFINE_VECTORS(f32_to_bf16_avx2, 4, 2, convert_f32_to_bf16, f32_to_bf16_plain)
DEFINE_VECTORS(f32_to_f64_avx2, 4, 8, convert_f32_to_f64, f32_to_f64_plain)
DEFINE_VECTORS(f8_e4m3_to_f32_avx2, 1, 4, convert_f8_e4m3_to_f32, f8_e4m3_to_f32_plain)
DEFINE_VECTORS(f8_e5m2_to_f32_avx2, 1, 4, convert_f8_e5m2_to_f32, f8_e5m2_to_f32_plain)
DEFINE_VECTORS(f32_to_f8_e4m3_avx2, 4, 1, convert_f32_to_f8_e4m3, f32_to_f8_e4m3_plain)
DEFINE_VECTORS(f32_to_f8_e5m2_avx2, 4, 1, convert_f32_to_f8_e5m2, f32_to_f8_e5m2_plain)
#define CHOOSE(cpu, name) ((cpu) >= RS_CPU_AVX2 ? name##_avx2 : name##_plain)
#define CHOOSE_BF16(cpu) ((cpu) >= RS_CPU_AVX512 ? f32_to_bf16_avx512 : CHOOSE(cpu, f32_to_bf16))
#else
#define CHOOSE(cpu, name) ((void)(cpu), name##_plain)
#define CHOOSE_BF16(cpu) CHOOSE(cpu, f32_to_bf16)
#endif

rs_cast_run_fn *rs_cast_find_to_f32(rs_cpu cpu, reshard_dtype dtype)
{
    switch (dtype) {
    case RESHARD_F16:
        return CHOOSE(cpu, f16_to_f32);
    case RESHARD_BF16:
        return CHOOSE(cpu, bf16_to_f32);
    case RESHARD_F32:
        return f32_to_f32;
    case RESHARD_F64:
        return CHOOSE(cpu, f64_to_f32);
    case RESHARD_F8_E4M3:
        return CHOOSE(cpu, f8_e4m3_to_f32);
    case RESHARD_F8_E5M2:
        return CHOOSE(cpu, f8_e5m2_to_f32);
    default:
        return NULL;
    }
}

rs_cast_run_fn *rs_cast_find_from_f32(rs_cpu cpu, reshard_dtype dtype)
{
    switch (dtype) {
    case RESHARD_F16:
        return CHOOSE(cpu, f32_to_f16);
    case RESHARD_BF16:
        return CHOOSE_BF16(cpu);
    case RESHARD_F32:
        return f32_to_f32;
    case RESHARD_F64:
        return CHOOSE(cpu, f32_to_f64);
    case RESHARD_F8_E4M3:
        return CHOOSE(cpu, f32_to_f8_e4m3);
    case RESHARD_F8_E5M2:
        return CHOOSE(cpu, f32_to_f8_e5m2);
    default:
        return NULL;
    }
}

rs_cast_run_fn *rs_cast_find_f64_to_odd(rs_cpu cpu)
{
    return CHOOSE(cpu, f64_to_f32_odd);
}
