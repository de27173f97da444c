/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_weave.c - runs k copies at once that interleave their sources in one target: copy i writes
 * units i, i + k, i + 2k and so on, and reads its source densely. One after another, each copy
 * would touch every line of the target; woven, the target is written once, in order, and around the
 * caches if it is large.
 *
 * Which loop is used depends on the unit. Loops over elements of 1, 2, 4 and 8 bytes are written so
 * that the compiler turns them into vector loads and interleaving stores. Other units are permuted
 * as in copy_shuffle.c: a block of the target is merged from one vector of each source, or one
 * vector is stored for each unit and the next unit overwrites what was too much of it.
 */
#include "kernel/copy/kernels.h"

#include "base/checked.h"

#if RS_X86
#include <immintrin.h>
#endif

typedef struct weave weave;

/* Weaves `length` units of each source. `ahead` bytes may be read of each source, `room` bytes
 * written. */
typedef struct piece {
    int64_t length;
    const unsigned char *sources[RS_STRANDS_MAX];
    unsigned char *target;
    int64_t ahead, room;
} piece;

typedef void weave_fn(const weave *by, const piece *what);

struct weave {
    int32_t count; /* of sources */
    int64_t unit;
    weave_fn *run;
    int64_t groups;                             /* units of each source in a block */
    _Alignas(64) unsigned char places[64];      /* of each byte of a block in its source vector */
    uint64_t masks[RS_STRANDS_MAX];             /* which bytes each source gives */
    unsigned char shuffles[RS_STRANDS_MAX][16]; /* for blocks of 16 bytes: both in one */
};

typedef uint8_t __attribute__((may_alias)) unit1;
typedef uint16_t __attribute__((may_alias, aligned(1))) unit2;
typedef uint32_t __attribute__((may_alias, aligned(1))) unit4;
typedef uint64_t __attribute__((may_alias, aligned(1))) unit8;

/* ---- elements -------------------------------------------------------------------------------- */

#define LINE(unit, i) const unit *restrict s##i = (const unit *)(const void *)what->sources[i]
#define DEFINE_WEAVES(unit, suffix, attributes)                                             \
    attributes static void weave_2_##suffix(const weave *by, const piece *what)             \
    {                                                                                       \
        LINE(unit, 0);                                                                      \
        LINE(unit, 1);                                                                      \
        unit *restrict t = (unit *)(void *)what->target;                                    \
        const int64_t length = what->length;                                                \
        (void)by;                                                                           \
        for (int64_t i = 0; i < length; i++) {                                              \
            t[2 * i] = s0[i];                                                               \
            t[2 * i + 1] = s1[i];                                                           \
        }                                                                                   \
    }                                                                                       \
    attributes static void weave_4_##suffix(const weave *by, const piece *what)             \
    {                                                                                       \
        LINE(unit, 0);                                                                      \
        LINE(unit, 1);                                                                      \
        LINE(unit, 2);                                                                      \
        LINE(unit, 3);                                                                      \
        unit *restrict t = (unit *)(void *)what->target;                                    \
        const int64_t length = what->length;                                                \
        (void)by;                                                                           \
        for (int64_t i = 0; i < length; i++) {                                              \
            t[4 * i] = s0[i];                                                               \
            t[4 * i + 1] = s1[i];                                                           \
            t[4 * i + 2] = s2[i];                                                           \
            t[4 * i + 3] = s3[i];                                                           \
        }                                                                                   \
    }                                                                                       \
    static weave_fn *find_##suffix(int32_t count)                                           \
    {                                                                                       \
        return count == 2 ? weave_2_##suffix : count == 4 ? weave_4_##suffix : weave_units; \
    }

/* The units of one source after those of another; the target's part stays in the cache. */
static void weave_rest(const weave *by, const piece *what, int64_t done)
{
    int64_t step = by->count * by->unit;
    for (int32_t k = 0; k < by->count; k++)
        rs_units_copy(what->sources[k] + done * by->unit, by->unit,
                      what->target + done * step + k * by->unit, step, by->unit,
                      what->length - done);
}

static void weave_units(const weave *by, const piece *what)
{
    weave_rest(by, what, 0);
}

DEFINE_WEAVES(unit1, 1, )
DEFINE_WEAVES(unit2, 2, )
DEFINE_WEAVES(unit4, 4, )
DEFINE_WEAVES(unit8, 8, )
#if RS_X86
DEFINE_WEAVES(unit1, 1_avx2, RS_AVX2)
DEFINE_WEAVES(unit2, 2_avx2, RS_AVX2)
DEFINE_WEAVES(unit4, 4_avx2, RS_AVX2)
DEFINE_WEAVES(unit8, 8_avx2, RS_AVX2)

/* ---- permutations ---------------------------------------------------------------------------- */

/* The number of blocks of which no vector reads or writes too much. */
static int64_t count_blocks(const weave *by, const piece *what, int64_t reads, int64_t writes)
{
    int64_t source_step = by->groups * by->unit, target_step = source_step * by->count;
    int64_t readable = what->ahead < reads ? 0 : (what->ahead - reads) / source_step + 1;
    int64_t writable = what->room < writes ? 0 : (what->room - writes) / target_step + 1;
    return rs_min(what->length / by->groups, rs_min(readable, writable));
}

/* A block of 64 bytes has at most 32 of each source. */
RS_AVX512 RS_INLINE __m512i load_part(const unsigned char *source, bool half)
{
    return half ? _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)source))
                : _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)source));
}

RS_AVX512 RS_INLINE void weave_blocks_64(const weave *by, const piece *what, int64_t count,
                                         bool half, int64_t blocks)
{
    const int64_t source_step = by->groups * by->unit, target_step = source_step * count;
    const __m512i places = _mm512_load_si512(by->places);
    const unsigned char *sources[RS_STRANDS_MAX];
    __mmask64 masks[RS_STRANDS_MAX];
    for (int64_t k = 0; k < count; k++) {
        sources[k] = what->sources[k];
        masks[k] = by->masks[k];
    }
    for (int64_t i = 0; i < blocks; i++) {
        __m512i made = _mm512_maskz_permutexvar_epi8(masks[0], places,
                                                     load_part(sources[0] + i * source_step, half));
        for (int64_t k = 1; k < count; k++) {
            __m512i from = load_part(sources[k] + i * source_step, half);
            made = _mm512_or_si512(made, _mm512_maskz_permutexvar_epi8(masks[k], places, from));
        }
        _mm512_storeu_si512(what->target + i * target_step, made);
    }
}

RS_AVX512 static void weave_64(const weave *by, const piece *what)
{
    bool half = by->groups * by->unit > 16;
    int64_t blocks = count_blocks(by, what, half ? 32 : 16, 64);
    if (half)
        weave_blocks_64(by, what, by->count, true, blocks);
    else if (by->count == 3)
        weave_blocks_64(by, what, 3, false, blocks);
    else if (by->count == 4)
        weave_blocks_64(by, what, 4, false, blocks);
    else if (by->count == 8)
        weave_blocks_64(by, what, 8, false, blocks);
    else
        weave_blocks_64(by, what, by->count, false, blocks);
    weave_rest(by, what, blocks * by->groups);
}

RS_AVX2 RS_INLINE __m128i load_16(const unsigned char *source)
{
    return _mm_loadu_si128((const __m128i *)(const void *)source);
}

RS_AVX2 static void weave_16(const weave *by, const piece *what)
{
    const int64_t source_step = by->groups * by->unit, target_step = source_step * by->count;
    int64_t blocks = count_blocks(by, what, 16, 16);
    for (int64_t i = 0; i < blocks; i++) {
        __m128i made = _mm_setzero_si128();
        for (int32_t k = 0; k < by->count; k++)
            made = _mm_or_si128(made, _mm_shuffle_epi8(load_16(what->sources[k] + i * source_step),
                                                       load_16(by->shuffles[k])));
        _mm_storeu_si128((__m128i *)(void *)(what->target + i * target_step), made);
    }
    weave_rest(by, what, blocks * by->groups);
}

/* ---- one vector for each unit ---------------------------------------------------------------- */

#define DEFINE_SPILL(width)                                                                 \
    static void spill_##width(const weave *by, const piece *what)                           \
    {                                                                                       \
        const int64_t unit = by->unit, count = by->count;                                   \
        const int64_t blocks = count_blocks(by, what, width, (count - 1) * unit + (width)); \
        unsigned char *target = what->target;                                               \
        const unsigned char *sources[RS_STRANDS_MAX];                                       \
        memcpy(sources, what->sources, sizeof sources);                                     \
        for (int64_t i = 0; i < blocks; i++)                                                \
            for (int64_t k = 0; k < count; k++, target += unit) {                           \
                unsigned char vector[width];                                                \
                memcpy(vector, sources[k] + i * unit, width);                               \
                memcpy(target, vector, width);                                              \
            }                                                                               \
        weave_rest(by, what, blocks);                                                       \
    }

DEFINE_SPILL(8)
DEFINE_SPILL(16)
#endif

/* ---- which one ------------------------------------------------------------------------------- */

#if RS_X86
RS_INLINE void fill_places(weave *by, int64_t width)
{
    by->groups = width / (by->count * by->unit);
    memset(by->shuffles, 0x80, sizeof by->shuffles);
    int64_t byte = 0;
    for (int64_t i = 0; i < by->groups; i++) {
        for (int32_t k = 0; k < by->count; k++) {
            for (int64_t b = 0; b < by->unit; b++, byte++) {
                by->places[byte] = (unsigned char)(i * by->unit + b);
                by->masks[k] |= (uint64_t)1 << byte;
                if (width == 16)
                    by->shuffles[k][byte] = by->places[byte];
            }
        }
    }
}
#endif

static weave_fn *find_plain(int64_t unit, int32_t count)
{
    return unit == 1   ? find_1(count)
           : unit == 2 ? find_2(count)
           : unit == 4 ? find_4(count)
           : unit == 8 ? find_8(count)
                       : weave_units;
}

/* Returns false if the copies are better run one after the other. */
static bool choose(weave *by, rs_cpu cpu)
{
    const int64_t unit = by->unit;
    by->groups = 1;
    by->run = find_plain(unit, by->count);
#if RS_X86
    if (cpu >= RS_CPU_AVX2 && by->run != weave_units) {
        by->run = unit == 1   ? find_1_avx2(by->count)
                  : unit == 2 ? find_2_avx2(by->count)
                  : unit == 4 ? find_4_avx2(by->count)
                              : find_8_avx2(by->count);
    } else if (cpu >= RS_CPU_AVX512 && unit * by->count <= 64) {
        by->run = weave_64;
        fill_places(by, 64);
    } else if (cpu >= RS_CPU_AVX2 && 2 * unit * by->count <= 16) {
        by->run = weave_16;
        fill_places(by, 16);
    } else if (unit > 4 && unit <= 16) {
        by->run = unit <= 8 ? spill_8 : spill_16;
    }
#endif
    (void)cpu;
    return unit <= RS_LINE_BYTES;
}

/* The number of columns woven at a time, so that all sources and the target stay in the nearest
 * cache. */
#define WEAVE_COLUMNS 1024

/* The part of a row of the sources from `column` on. */
static piece make_piece(const rs_strands *strands, int64_t row, int64_t column)
{
    piece made = {.ahead = (strands->columns - column) * strands->unit};
    for (int32_t k = 0; k < strands->count; k++)
        made.sources[k] =
            strands->sources[k] + row * strands->planes[k].source_row + column * strands->unit;
    return made;
}

static void weave_row(const weave *by, const rs_strands *strands, int64_t row,
                      unsigned char *target)
{
    int64_t step = by->count * by->unit;
    for (int64_t column = 0; column < strands->columns; column += WEAVE_COLUMNS) {
        piece what = make_piece(strands, row, column);
        what.length = rs_min(WEAVE_COLUMNS, strands->columns - column);
        what.target = target + column * step;
        what.room = (strands->columns - column) * step;
        by->run(by, &what);
    }
}

static void weave_row_staged(const weave *by, const rs_strands *strands, int64_t row,
                             rs_staging *stage)
{
    int64_t step = by->count * by->unit;
    for (int64_t column = 0; column < strands->columns;) {
        int64_t room = rs_staging_room(stage);
        piece what = make_piece(strands, row, column);
        what.length = rs_min(room / step, strands->columns - column);
        what.target = rs_staging_next(stage);
        what.room = room + RS_LINE_BYTES;
        by->run(by, &what);
        column += what.length;
        stage->fill += (size_t)(what.length * step);
        rs_staging_flush(stage);
    }
}

bool rs_weave(const rs_strands *strands)
{
    if (rs_weave_lines(strands))
        return true;
    const rs_plane *plane = &strands->planes[0];
    weave by = {.count = strands->count, .unit = strands->unit};
    if (!choose(&by, plane->cpu))
        return false;
    _Alignas(RS_LINE_BYTES) unsigned char memory[RS_STAGING_MEMORY(RS_STAGING_BYTES)];
    rs_staging stage = {.bytes = memory, .capacity = RS_STAGING_BYTES, .cpu = plane->cpu};
    for (int64_t row = 0; row < plane->rows; row++) {
        unsigned char *target = strands->targets[0] + row * plane->target_row;
        if (plane->streams) {
            rs_staging_begin(&stage, target);
            weave_row_staged(&by, strands, row, &stage);
            rs_staging_end(&stage);
        } else {
            weave_row(&by, strands, row, target);
        }
        rs_strands_copy_rests(strands, row);
    }
    return true;
}
