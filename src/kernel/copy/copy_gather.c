/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_gather.c - copies single elements of 1, 2, 4 or 8 bytes that are dense in the target and at
 * a constant step in the source, such as one component of interleaved data.
 *
 * Each kernel collects 32 bytes of the target in a register. For steps of 2, 3 and 4 elements it
 * loads whole vectors, including the gaps, and shuffles them; a plain loop copies the last
 * elements, so that no load goes past the end. For other steps it loads the elements one by one.
 */
#include "kernel/copy/kernels.h"

#if RS_X86
#include <immintrin.h>

#define VECTOR_BYTES 32

RS_AVX2 RS_INLINE __m256i load(const unsigned char *source)
{
    return _mm256_loadu_si256((const __m256i *)source);
}

/* Takes from two vectors of [a0 _ a1 _ ...]. */
RS_AVX2 RS_INLINE __m256i take_4_of_2(const unsigned char *source, int64_t step)
{
    (void)step;
    __m256 a = _mm256_castsi256_ps(load(source)), b = _mm256_castsi256_ps(load(source + 32));
    __m256i mixed = _mm256_castps_si256(_mm256_shuffle_ps(a, b, 0x88));
    return _mm256_permute4x64_epi64(mixed, 0xd8);
}

/* Takes from three vectors: places 0 3 6 of the first, 1 4 7 of the second and 2 5 of the third. */
RS_AVX2 RS_INLINE __m256i take_4_of_3(const unsigned char *source, int64_t step)
{
    (void)step;
    const __m256i place_a = _mm256_setr_epi32(0, 3, 6, 0, 0, 0, 0, 0);
    const __m256i place_b = _mm256_setr_epi32(0, 0, 0, 1, 4, 7, 0, 0);
    const __m256i place_c = _mm256_setr_epi32(0, 0, 0, 0, 0, 0, 2, 5);
    __m256i a = _mm256_permutevar8x32_epi32(load(source), place_a);
    __m256i b = _mm256_permutevar8x32_epi32(load(source + 32), place_b);
    __m256i c = _mm256_permutevar8x32_epi32(load(source + 64), place_c);
    return _mm256_blend_epi32(_mm256_blend_epi32(a, b, 0x38), c, 0xc0);
}

/* Takes from four vectors of [a0 _ _ _ | a1 _ _ _]. */
RS_AVX2 RS_INLINE __m256i take_4_of_4(const unsigned char *source, int64_t step)
{
    (void)step;
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i low = _mm256_unpacklo_epi32(load(source), load(source + 32));
    __m256i high = _mm256_unpacklo_epi32(load(source + 64), load(source + 96));
    return _mm256_permutevar8x32_epi32(_mm256_unpacklo_epi64(low, high), order);
}

RS_AVX2 RS_INLINE int32_t load_4(const unsigned char *source)
{
    int32_t value;
    memcpy(&value, source, sizeof value);
    return value;
}

RS_AVX2 RS_INLINE __m256i take_4(const unsigned char *source, int64_t step)
{
    const unsigned char *half = source + 4 * step;
    return _mm256_setr_epi32(load_4(source), load_4(source + step), load_4(source + 2 * step),
                             load_4(source + 3 * step), load_4(half), load_4(half + step),
                             load_4(half + 2 * step), load_4(half + 3 * step));
}

RS_AVX2 RS_INLINE int64_t load_8(const unsigned char *source)
{
    int64_t value;
    memcpy(&value, source, sizeof value);
    return value;
}

RS_AVX2 RS_INLINE __m256i take_8(const unsigned char *source, int64_t step)
{
    return _mm256_setr_epi64x(load_8(source), load_8(source + step), load_8(source + 2 * step),
                              load_8(source + 3 * step));
}

/* Takes from two vectors. The pack instruction works within 128-bit halves, so the quarters are put
 * in order afterwards. */
RS_AVX2 RS_INLINE __m256i take_2_of_2(const unsigned char *source, int64_t step)
{
    (void)step;
    const __m256i mask = _mm256_set1_epi32(0xffff);
    __m256i a = _mm256_and_si256(load(source), mask), b = _mm256_and_si256(load(source + 32), mask);
    return _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8);
}

/* Takes from four vectors by packing twice; each vector has four elements, two in each half. */
RS_AVX2 RS_INLINE __m256i take_2_of_4(const unsigned char *source, int64_t step)
{
    (void)step;
    const __m256i mask = _mm256_set1_epi64x(0xffff);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i a = _mm256_and_si256(load(source), mask);
    __m256i b = _mm256_and_si256(load(source + 32), mask);
    __m256i c = _mm256_and_si256(load(source + 64), mask);
    __m256i d = _mm256_and_si256(load(source + 96), mask);
    __m256i packed = _mm256_packus_epi32(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
    return _mm256_permutevar8x32_epi32(packed, order);
}

/* The same for bytes. */
RS_AVX2 RS_INLINE __m256i take_1_of_2(const unsigned char *source, int64_t step)
{
    (void)step;
    const __m256i mask = _mm256_set1_epi16(0xff);
    __m256i a = _mm256_and_si256(load(source), mask), b = _mm256_and_si256(load(source + 32), mask);
    return _mm256_permute4x64_epi64(_mm256_packus_epi16(a, b), 0xd8);
}

RS_AVX2 RS_INLINE __m256i take_1_of_4(const unsigned char *source, int64_t step)
{
    (void)step;
    const __m256i mask = _mm256_set1_epi32(0xff);
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    __m256i a = _mm256_and_si256(load(source), mask);
    __m256i b = _mm256_and_si256(load(source + 32), mask);
    __m256i c = _mm256_and_si256(load(source + 64), mask);
    __m256i d = _mm256_and_si256(load(source + 96), mask);
    __m256i packed = _mm256_packus_epi16(_mm256_packus_epi32(a, b), _mm256_packus_epi32(c, d));
    return _mm256_permutevar8x32_epi32(packed, order);
}

RS_AVX2 RS_INLINE int16_t load_2(const unsigned char *source)
{
    int16_t value;
    memcpy(&value, source, sizeof value);
    return value;
}

RS_AVX2 RS_INLINE __m128i take_2_half(const unsigned char *source, int64_t step)
{
    const unsigned char *half = source + 4 * step;
    return _mm_setr_epi16(load_2(source), load_2(source + step), load_2(source + 2 * step),
                          load_2(source + 3 * step), load_2(half), load_2(half + step),
                          load_2(half + 2 * step), load_2(half + 3 * step));
}

RS_AVX2 RS_INLINE __m256i take_2(const unsigned char *source, int64_t step)
{
    return _mm256_setr_m128i(take_2_half(source, step), take_2_half(source + 8 * step, step));
}

/*
 * Copies one row. A take may read up to `step` bytes from the start of its last element on, so at
 * least one element has to follow. Streaming writes whole cache lines, because half a line is slow.
 */
#define DEFINE_GATHER(function, unit, take)                                                       \
    RS_AVX2 static void function##_row(const unsigned char *source, int64_t step,                 \
                                       unsigned char *target, int64_t count, bool streams)        \
    {                                                                                             \
        enum { PER_VECTOR = VECTOR_BYTES / (unit), PER_LINE = RS_LINE_BYTES / (unit) };           \
        int64_t i = 0;                                                                            \
        if (streams && rs_to_line(target) % (unit) == 0) {                                        \
            int64_t head = (int64_t)(rs_to_line(target) / (unit));                                \
            for (; i < head && i < count; i++)                                                    \
                memcpy(target + i * (unit), source + i * step, unit);                             \
            for (; i + PER_LINE < count; i += PER_LINE) {                                         \
                __m256i low = take(source + i * step, step);                                      \
                __m256i high = take(source + (i + PER_VECTOR) * step, step);                      \
                _mm256_stream_si256((__m256i *)(target + i * (unit)), low);                       \
                _mm256_stream_si256((__m256i *)(target + i * (unit) + VECTOR_BYTES), high);       \
            }                                                                                     \
        }                                                                                         \
        for (; i + PER_VECTOR < count; i += PER_VECTOR)                                           \
            _mm256_storeu_si256((__m256i *)(target + i * (unit)), take(source + i * step, step)); \
        for (; i < count; i++)                                                                    \
            memcpy(target + i * (unit), source + i * step, unit);                                 \
    }                                                                                             \
    static void function(const rs_plane *plane, const unsigned char *source,                      \
                         unsigned char *target)                                                   \
    {                                                                                             \
        for (int64_t row = 0; row < plane->rows; row++)                                           \
            function##_row(source + row * plane->source_row, plane->source_column,                \
                           target + row * plane->target_row, plane->columns, plane->streams);     \
    }

DEFINE_GATHER(gather_1_of_2, 1, take_1_of_2)
DEFINE_GATHER(gather_1_of_4, 1, take_1_of_4)
DEFINE_GATHER(gather_2, 2, take_2)
DEFINE_GATHER(gather_2_of_2, 2, take_2_of_2)
DEFINE_GATHER(gather_2_of_4, 2, take_2_of_4)
DEFINE_GATHER(gather_4, 4, take_4)
DEFINE_GATHER(gather_4_of_2, 4, take_4_of_2)
DEFINE_GATHER(gather_4_of_3, 4, take_4_of_3)
DEFINE_GATHER(gather_4_of_4, 4, take_4_of_4)
DEFINE_GATHER(gather_8, 8, take_8)

/* Indexed by unit and by step in units, where 0 stands for any step. */
static const struct {
    int64_t unit, step;
    rs_copy_kernel kernel;
} gathers[] = {
    {1, 2, {"gather 1 of 2", gather_1_of_2}}, {1, 4, {"gather 1 of 4", gather_1_of_4}},
    {2, 2, {"gather 2 of 2", gather_2_of_2}}, {2, 4, {"gather 2 of 4", gather_2_of_4}},
    {2, 0, {"gather 2", gather_2}},           {4, 2, {"gather 4 of 2", gather_4_of_2}},
    {4, 3, {"gather 4 of 3", gather_4_of_3}}, {4, 4, {"gather 4 of 4", gather_4_of_4}},
    {4, 0, {"gather 4", gather_4}},           {8, 0, {"gather 8", gather_8}},
};

static const rs_copy_kernel *find_gather(int64_t unit, int64_t step)
{
    for (size_t i = 0; i < sizeof gathers / sizeof gathers[0]; i++)
        if (gathers[i].unit == unit && gathers[i].step * unit == step)
            return &gathers[i].kernel;
    return NULL;
}
#endif

bool rs_gather_makes_lines(const rs_plane *plane)
{
#if RS_X86
    return plane->cpu >= RS_CPU_AVX2 && plane->target_column == plane->unit &&
           find_gather(plane->unit, plane->source_column) != NULL;
#else
    (void)plane;
    return false;
#endif
}

/* From the fastest to the one that can do most. */
const rs_copy_kernel *rs_kernel_gather(const rs_plane *plane)
{
    const rs_copy_kernel *kernel = NULL;
#if RS_X86
    if (plane->cpu < RS_CPU_AVX2 || plane->target_column != plane->unit)
        return NULL;
    kernel = find_gather(plane->unit, plane->source_column);
    if (kernel == NULL)
        kernel = rs_kernel_shuffle_64(plane);
    if (kernel == NULL)
        kernel = find_gather(plane->unit, 0);
    if (kernel == NULL)
        kernel = rs_kernel_shuffle(plane);
#endif
    (void)plane;
    return kernel;
}
