/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_shuffle.c - copies units of 1 to 16 bytes that are dense in the target and at a constant
 * step in the source: columns of bytes, heads of odd sizes, every third element.
 *
 * There are two ways. "shuffle" makes a block of the target, which is as many whole units as fit
 * into a vector, from the vectors of the source that hold them: each is permuted, and they are
 * merged. "spill" loads and stores one vector for each unit, of which the unit is only the
 * beginning; the next unit overwrites what was too much.
 *
 * Blocks therefore read and write more bytes than they need. Those whose vectors would reach beyond
 * the last unit are left to rs_units_copy.
 */
#include "kernel/copy/kernels.h"

#include "base/checked.h"

#if RS_X86
#include <immintrin.h>

/* More source vectors than this for a block are not worth it. */
#define VECTORS_MAX 16

/* How blocks of one form are made. */
typedef struct shuffle {
    int64_t unit, step;                      /* of the copy, in bytes */
    int64_t units;                           /* in a block */
    int64_t source_block, target_block;      /* bytes from one block to the next */
    int64_t reads, writes;                   /* bytes of one block's vectors */
    int64_t vectors;                         /* of the source, in a block */
    _Alignas(64) unsigned char places[64];   /* for 64 bytes: of each byte in its source vector */
    uint64_t masks[VECTORS_MAX];             /* which bytes each source vector gives */
    unsigned char shuffles[VECTORS_MAX][16]; /* for 16 bytes: both in one */
} shuffle;

typedef void blocks_fn(const shuffle *by, const unsigned char *source, unsigned char *target,
                       int64_t count);

/* Units that are worth a vector of their own. Longer ones are copied as two pieces as fast. */
#define SPILL_BYTES_MIN 5
#define SPILL_BYTES_MAX 16

static int64_t count_vectors(int64_t unit, int64_t step, int64_t width)
{
    return rs_divide_up((width / unit - 1) * step + unit, width);
}

/* Loading fewer vectors than there are units has to make up for the permutations. */
static bool is_worth_it(int64_t unit, int64_t step, int64_t width)
{
    if (unit > width || step > RS_LINE_BYTES * VECTORS_MAX)
        return false;
    int64_t vectors = count_vectors(unit, step, width), units = width / unit;
    if (vectors > VECTORS_MAX)
        return false;
    if (width == 64)
        return 4 * vectors <= units;
    return unit < SPILL_BYTES_MIN ? vectors < units : 2 * vectors <= units;
}

/* Inlined, because the divisions by `width` would take longer than a small copy. */
RS_INLINE void fill_blocks(shuffle *by, int64_t width)
{
    by->units = width / by->unit;
    by->vectors = count_vectors(by->unit, by->step, width);
    by->reads = by->vectors * width;
    by->writes = width;
    if (width == 16)
        memset(by->shuffles, 0x80, (size_t)by->vectors * 16); /* which gives a zero */
    int64_t byte = 0;
    for (int64_t i = 0; i < by->units; i++) {
        for (int64_t k = 0; k < by->unit; k++, byte++) {
            uint64_t from = (uint64_t)(i * by->step + k), vector = from / (uint64_t)width;
            unsigned char place = (unsigned char)(from % (uint64_t)width);
            if (width == 16) {
                by->shuffles[vector][byte] = place;
            } else {
                by->places[byte] = place;
                by->masks[vector] |= (uint64_t)1 << byte;
            }
        }
    }
}

static void fill_spills(shuffle *by, int64_t width)
{
    by->units = 1;
    by->reads = width;
    by->writes = width;
}

/* ---- 64 bytes -------------------------------------------------------------------------------- */

RS_AVX512 RS_INLINE __m512i make_64(const __mmask64 *masks, __m512i places,
                                    const unsigned char *source, int64_t vectors)
{
    __m512i made = _mm512_maskz_permutexvar_epi8(masks[0], places, _mm512_loadu_si512(source));
    for (int64_t i = 1; i < vectors; i++) {
        __m512i from = _mm512_loadu_si512(source + 64 * i);
        made = _mm512_or_si512(made, _mm512_maskz_permutexvar_epi8(masks[i], places, from));
    }
    return made;
}

RS_AVX512 RS_INLINE void shuffle_64(const shuffle *by, const unsigned char *source,
                                    unsigned char *target, int64_t count, int64_t vectors)
{
    const __m512i places = _mm512_load_si512(by->places);
    const int64_t source_block = by->source_block, target_block = by->target_block;
    __mmask64 masks[VECTORS_MAX];
    memcpy(masks, by->masks, (size_t)vectors * sizeof *masks);
    for (int64_t i = 0; i < count; i++)
        _mm512_storeu_si512(target + i * target_block,
                            make_64(masks, places, source + i * source_block, vectors));
}

RS_AVX512 static void blocks_64(const shuffle *by, const unsigned char *source,
                                unsigned char *target, int64_t count)
{
    if (by->vectors == 2)
        shuffle_64(by, source, target, count, 2);
    else if (by->vectors == 3)
        shuffle_64(by, source, target, count, 3);
    else if (by->vectors == 4)
        shuffle_64(by, source, target, count, 4);
    else
        shuffle_64(by, source, target, count, by->vectors);
}

RS_AVX512 RS_INLINE void stream_64(const shuffle *by, const unsigned char *source,
                                   unsigned char *target, int64_t count, int64_t vectors)
{
    const __m512i places = _mm512_load_si512(by->places);
    const int64_t source_block = by->source_block;
    __mmask64 masks[VECTORS_MAX];
    memcpy(masks, by->masks, (size_t)vectors * sizeof *masks);
    for (int64_t i = 0; i < count; i++)
        _mm512_stream_si512((__m512i *)(void *)(target + i * RS_LINE_BYTES),
                            make_64(masks, places, source + i * source_block, vectors));
}

/* For units that fill a line, and a target at the beginning of one. */
RS_AVX512 static void lines_64(const shuffle *by, const unsigned char *source,
                               unsigned char *target, int64_t count)
{
    if (by->vectors == 2)
        stream_64(by, source, target, count, 2);
    else if (by->vectors == 3)
        stream_64(by, source, target, count, 3);
    else if (by->vectors == 4)
        stream_64(by, source, target, count, 4);
    else
        stream_64(by, source, target, count, by->vectors);
}

/* ---- 16 bytes -------------------------------------------------------------------------------- */

RS_AVX2 RS_INLINE __m128i load_16(const unsigned char *source)
{
    return _mm_loadu_si128((const __m128i *)(const void *)source);
}

RS_AVX2 RS_INLINE __m256i load_two(const unsigned char *low, const unsigned char *high)
{
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load_16(low)), load_16(high), 1);
}

/* Two blocks at a time, one in each half of the vectors. */
RS_AVX2 RS_INLINE void shuffle_16(const shuffle *by, const unsigned char *source,
                                  unsigned char *target, int64_t count, int64_t vectors)
{
    for (int64_t i = 0; i < count; i += 2) {
        const unsigned char *low = source + i * by->source_block;
        const unsigned char *high = i + 1 < count ? low + by->source_block : low;
        __m256i made = _mm256_setzero_si256();
        for (int64_t k = 0; k < vectors; k++) {
            __m256i order = _mm256_broadcastsi128_si256(load_16(by->shuffles[k]));
            __m256i from = load_two(low + 16 * k, high + 16 * k);
            made = _mm256_or_si256(made, _mm256_shuffle_epi8(from, order));
        }
        unsigned char *to = target + i * by->target_block;
        _mm_storeu_si128((__m128i *)(void *)to, _mm256_castsi256_si128(made));
        if (i + 1 < count)
            _mm_storeu_si128((__m128i *)(void *)(to + by->target_block),
                             _mm256_extracti128_si256(made, 1));
    }
}

RS_AVX2 static void blocks_16(const shuffle *by, const unsigned char *source, unsigned char *target,
                              int64_t count)
{
    if (by->vectors == 2)
        shuffle_16(by, source, target, count, 2);
    else if (by->vectors == 3)
        shuffle_16(by, source, target, count, 3);
    else if (by->vectors == 4)
        shuffle_16(by, source, target, count, 4);
    else
        shuffle_16(by, source, target, count, by->vectors);
}

/* ---- one vector for each unit ---------------------------------------------------------------- */

#define DEFINE_SPILL(width, attributes)                                                  \
    attributes static void spill_##width(const shuffle *by, const unsigned char *source, \
                                         unsigned char *target, int64_t count)           \
    {                                                                                    \
        const int64_t step = by->source_block, unit = by->target_block;                  \
        for (int64_t i = 0; i < count; i++) {                                            \
            unsigned char vector[width];                                                 \
            memcpy(vector, source + i * step, width);                                    \
            memcpy(target + i * unit, vector, width);                                    \
        }                                                                                \
    }

DEFINE_SPILL(8, )
DEFINE_SPILL(16, )

/* ---- planes ---------------------------------------------------------------------------------- */

/* Copies `count` units. `ahead` bytes may be read from source on, `room` bytes written from target
 * on. */
static void run_blocks(const shuffle *by, blocks_fn *run, const unsigned char *source,
                       unsigned char *target, int64_t count, int64_t ahead, int64_t room)
{
    int64_t blocks = count / by->units;
    int64_t readable = ahead < by->reads ? 0 : (ahead - by->reads) / by->source_block + 1;
    int64_t writable = room < by->writes ? 0 : (room - by->writes) / by->target_block + 1;
    blocks = rs_min(blocks, rs_min(readable, writable));
    run(by, source, target, blocks);
    int64_t done = blocks * by->units;
    rs_units_copy(source + done * by->step, by->step, target + done * by->unit, by->unit, by->unit,
                  count - done);
}

static int64_t count_ahead(const rs_plane *plane, int64_t column)
{
    return (plane->columns - 1 - column) * plane->source_column + plane->unit;
}

static void run_staged(const rs_plane *plane, const shuffle *by, blocks_fn *run,
                       const unsigned char *source, unsigned char *target)
{
    _Alignas(RS_LINE_BYTES) unsigned char memory[RS_STAGING_MEMORY(RS_STAGING_BYTES)];
    rs_staging stage = {.bytes = memory, .capacity = RS_STAGING_BYTES, .cpu = plane->cpu};
    int64_t unit = plane->unit;
    rs_staging_begin(&stage, target);
    for (int64_t row = 0; row < plane->rows; row++) {
        const unsigned char *from = source + row * plane->source_row;
        if (row > 0 && plane->target_row != plane->columns * unit) {
            rs_staging_end(&stage);
            rs_staging_begin(&stage, target + row * plane->target_row);
        }
        for (int64_t column = 0; column < plane->columns;) {
            int64_t room = rs_staging_room(&stage);
            int64_t count = rs_min(plane->columns - column, room / unit);
            run_blocks(by, run, from + column * by->step, rs_staging_next(&stage), count,
                       count_ahead(plane, column), room + RS_LINE_BYTES);
            column += count;
            stage.fill += (size_t)(count * unit);
            rs_staging_flush(&stage);
        }
    }
    rs_staging_end(&stage);
}

static void run_plane(const rs_plane *plane, shuffle *by, blocks_fn *run,
                      const unsigned char *source, unsigned char *target)
{
    by->source_block = by->units * by->step;
    by->target_block = by->units * by->unit;
    if (plane->streams) {
        run_staged(plane, by, run, source, target);
        return;
    }
    for (int64_t row = 0; row < plane->rows; row++)
        run_blocks(by, run, source + row * plane->source_row, target + row * plane->target_row,
                   plane->columns, count_ahead(plane, 0), plane->columns * plane->unit);
}

/* Whole lines of the target are streamed as they are made. */
static void run_lines(const rs_plane *plane, const shuffle *by, const unsigned char *source,
                      unsigned char *target)
{
    for (int64_t row = 0; row < plane->rows; row++) {
        const unsigned char *from = source + row * plane->source_row;
        unsigned char *to = target + row * plane->target_row;
        int64_t head = rs_min((int64_t)rs_to_line(to) / plane->unit, plane->columns);
        rs_units_copy(from, by->step, to, by->unit, by->unit, head);
        run_blocks(by, lines_64, from + head * by->step, to + head * by->unit,
                   plane->columns - head, head < plane->columns ? count_ahead(plane, head) : 0,
                   (plane->columns - head) * by->unit);
    }
}

static void copy_shuffle_64(const rs_plane *plane, const unsigned char *source,
                            unsigned char *target)
{
    shuffle by = {.unit = plane->unit, .step = plane->source_column};
    fill_blocks(&by, 64);
    uintptr_t starts = (uintptr_t)target | (uintptr_t)plane->target_row;
    if (plane->streams && RS_LINE_BYTES % plane->unit == 0 &&
        starts % (uintptr_t)plane->unit == 0) {
        by.source_block = by.units * by.step;
        by.target_block = RS_LINE_BYTES;
        run_lines(plane, &by, source, target);
        return;
    }
    run_plane(plane, &by, blocks_64, source, target);
}

static void copy_shuffle_16(const rs_plane *plane, const unsigned char *source,
                            unsigned char *target)
{
    shuffle by = {.unit = plane->unit, .step = plane->source_column};
    fill_blocks(&by, 16);
    run_plane(plane, &by, blocks_16, source, target);
}

static void copy_spill(const rs_plane *plane, const unsigned char *source, unsigned char *target)
{
    shuffle by = {.unit = plane->unit, .step = plane->source_column};
    fill_spills(&by, plane->unit <= 8 ? 8 : 16);
    run_plane(plane, &by, plane->unit <= 8 ? spill_8 : spill_16, source, target);
}

static const rs_copy_kernel by_64 = {"shuffle 64", copy_shuffle_64};
static const rs_copy_kernel by_16 = {"shuffle 16", copy_shuffle_16};
static const rs_copy_kernel spill = {"spill", copy_spill};

/* Rows with fewer bytes would mostly be copied unit by unit. */
#define ROW_BYTES_MIN 256

static bool is_fitting(const rs_plane *plane)
{
    return plane->cpu >= RS_CPU_AVX2 && plane->target_column == plane->unit &&
           plane->source_column > 0 && plane->unit <= SPILL_BYTES_MAX &&
           plane->columns * plane->unit >= ROW_BYTES_MIN;
}
#endif

const rs_copy_kernel *rs_kernel_shuffle_64(const rs_plane *plane)
{
#if RS_X86
    if (is_fitting(plane) && plane->cpu >= RS_CPU_AVX512 &&
        is_worth_it(plane->unit, plane->source_column, 64))
        return &by_64;
#endif
    (void)plane;
    return NULL;
}

const rs_copy_kernel *rs_kernel_shuffle(const rs_plane *plane)
{
#if RS_X86
    bool is_power = (plane->unit & (plane->unit - 1)) == 0;
    if (!is_fitting(plane))
        return NULL;
    if (is_worth_it(plane->unit, plane->source_column, 16))
        return &by_16;
    if (!is_power && plane->unit >= SPILL_BYTES_MIN && plane->unit <= SPILL_BYTES_MAX)
        return &spill;
#endif
    (void)plane;
    return NULL;
}
