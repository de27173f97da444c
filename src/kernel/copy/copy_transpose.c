/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_transpose.c - copies planes whose neighbours are along columns in the source and along rows
 * in the target. They are copied in tiles of a few cache lines in both directions, so that every
 * line that a tile touches is used up before it is evicted, even if the steps are powers of two and
 * the lines of a column compete for the same cache sets.
 *
 * A streamed tile is first transposed into a buffer, from which whole lines of the target are
 * written. Inside a tile, blocks such as 4x4 or 8x8 elements are transposed in registers; the rest
 * at the edges is copied element by element.
 */
#include "kernel/copy/kernels.h"

#if RS_X86
#include <immintrin.h>
#endif

/*
 * A tile takes a few lines of each row of the source, so that memory is read in order. It gives
 * each column of the target so many bytes that the lines it shares with the next tile matter
 * little. Tiles of small units are smaller, because they have more columns.
 */
#define TILE_SOURCE_BYTES(unit) ((unit) == 1 ? 128 : 256)
#define TILE_TARGET_BYTES(unit) ((unit) < 4 ? 512 : 1024)
/* Padding between the buffer's columns, so that a power of two does not put them all in one cache
 * set. */
#define BUFFER_PITCH_EXTRA 64
#define BUFFER_BYTES (128 * (512 + BUFFER_PITCH_EXTRA))
/* Target columns at multiples of this many bytes compete for a few cache sets. */
#define COMPETING_BYTES 512

static void copy_tile_plain(const rs_plane *plane, const unsigned char *source,
                            unsigned char *target)
{
    for (int64_t column = 0; column < plane->columns; column++)
        rs_units_copy(source + column * plane->source_column, plane->source_row,
                      target + column * plane->target_column, plane->target_row, plane->unit,
                      plane->rows);
}

static const rs_copy_kernel tile_plain = {"transpose", copy_tile_plain};

#if RS_X86
RS_INLINE __m128i load_16(const unsigned char *source)
{
    return _mm_loadu_si128((const __m128i *)source);
}

RS_INLINE void store_16(unsigned char *target, __m128i value)
{
    _mm_storeu_si128((__m128i *)target, value);
}

/* Transpose one block. Its rows are source_step apart in the source, its columns target_step apart
 * in the target. */
RS_INLINE void transpose_1(const unsigned char *source, int64_t source_step, unsigned char *target,
                           int64_t target_step)
{
    __m128i a[8], b[4], c[4];
    for (int i = 0; i < 8; i++)
        a[i] = _mm_loadl_epi64((const __m128i *)(source + i * source_step));
    for (int i = 0; i < 4; i++)
        b[i] = _mm_unpacklo_epi8(a[2 * i], a[2 * i + 1]);
    for (int i = 0; i < 2; i++) {
        c[2 * i] = _mm_unpacklo_epi16(b[2 * i], b[2 * i + 1]);
        c[2 * i + 1] = _mm_unpackhi_epi16(b[2 * i], b[2 * i + 1]);
    }
    for (int i = 0; i < 2; i++) {
        __m128i low = _mm_unpacklo_epi32(c[i], c[i + 2]), high = _mm_unpackhi_epi32(c[i], c[i + 2]);
        unsigned char *column = target + 4 * i * target_step;
        _mm_storel_epi64((__m128i *)column, low);
        _mm_storel_epi64((__m128i *)(column + target_step), _mm_unpackhi_epi64(low, low));
        _mm_storel_epi64((__m128i *)(column + 2 * target_step), high);
        _mm_storel_epi64((__m128i *)(column + 3 * target_step), _mm_unpackhi_epi64(high, high));
    }
}

RS_INLINE void transpose_2(const unsigned char *source, int64_t source_step, unsigned char *target,
                           int64_t target_step)
{
    __m128i a[8], b[8];
    for (int i = 0; i < 8; i++)
        a[i] = load_16(source + i * source_step);
    for (int i = 0; i < 4; i++) {
        b[i] = _mm_unpacklo_epi16(a[2 * i], a[2 * i + 1]);
        b[i + 4] = _mm_unpackhi_epi16(a[2 * i], a[2 * i + 1]);
    }
    for (int i = 0; i < 4; i++) {
        a[i] = _mm_unpacklo_epi32(b[2 * i], b[2 * i + 1]);
        a[i + 4] = _mm_unpackhi_epi32(b[2 * i], b[2 * i + 1]);
    }
    /* Now a[0], a[1] hold columns 0 and 1; a[4], a[5] columns 2 and 3; a[2], a[3] columns 4 and 5;
     * a[6], a[7] columns 6 and 7. */
    static const int place[4] = {0, 4, 2, 6};
    for (int i = 0; i < 4; i++) {
        __m128i top = a[place[i]], bottom = a[place[i] + 1];
        store_16(target + 2 * i * target_step, _mm_unpacklo_epi64(top, bottom));
        store_16(target + (2 * i + 1) * target_step, _mm_unpackhi_epi64(top, bottom));
    }
}

RS_INLINE void transpose_4(const unsigned char *source, int64_t source_step, unsigned char *target,
                           int64_t target_step)
{
    __m128i a = load_16(source), b = load_16(source + source_step);
    __m128i c = load_16(source + 2 * source_step), d = load_16(source + 3 * source_step);
    __m128i ab_low = _mm_unpacklo_epi32(a, b), ab_high = _mm_unpackhi_epi32(a, b);
    __m128i cd_low = _mm_unpacklo_epi32(c, d), cd_high = _mm_unpackhi_epi32(c, d);
    store_16(target, _mm_unpacklo_epi64(ab_low, cd_low));
    store_16(target + target_step, _mm_unpackhi_epi64(ab_low, cd_low));
    store_16(target + 2 * target_step, _mm_unpacklo_epi64(ab_high, cd_high));
    store_16(target + 3 * target_step, _mm_unpackhi_epi64(ab_high, cd_high));
}

RS_INLINE void transpose_8(const unsigned char *source, int64_t source_step, unsigned char *target,
                           int64_t target_step)
{
    __m128i a = load_16(source), b = load_16(source + source_step);
    store_16(target, _mm_unpacklo_epi64(a, b));
    store_16(target + target_step, _mm_unpackhi_epi64(a, b));
}

RS_INLINE void transpose_16(const unsigned char *source, int64_t source_step, unsigned char *target,
                            int64_t target_step)
{
    __m128i a[8];
    (void)target_step;
    for (int i = 0; i < 8; i++)
        a[i] = load_16(source + i * source_step);
    for (int i = 0; i < 8; i++)
        store_16(target + 16 * i, a[i]);
}

RS_AVX2 RS_INLINE void transpose_4_avx2(const unsigned char *source, int64_t source_step,
                                        unsigned char *target, int64_t target_step)
{
    __m256i a[8], b[8];
    for (int i = 0; i < 8; i++)
        a[i] = _mm256_loadu_si256((const __m256i *)(source + i * source_step));
    for (int i = 0; i < 8; i += 2) {
        b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
        b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        a[i] = _mm256_unpacklo_epi64(b[i], b[i + 2]);
        a[i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 2]);
        a[i + 2] = _mm256_unpacklo_epi64(b[i + 1], b[i + 3]);
        a[i + 3] = _mm256_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_si256((__m256i *)(target + i * target_step),
                            _mm256_permute2x128_si256(a[i], a[i + 4], 0x20));
        _mm256_storeu_si256((__m256i *)(target + (i + 4) * target_step),
                            _mm256_permute2x128_si256(a[i], a[i + 4], 0x31));
    }
}

RS_AVX2 RS_INLINE void transpose_8_avx2(const unsigned char *source, int64_t source_step,
                                        unsigned char *target, int64_t target_step)
{
    __m256i a[4];
    for (int i = 0; i < 4; i++)
        a[i] = _mm256_loadu_si256((const __m256i *)(source + i * source_step));
    for (int i = 0; i < 2; i++) {
        __m256i top =
            i == 0 ? _mm256_unpacklo_epi64(a[0], a[1]) : _mm256_unpackhi_epi64(a[0], a[1]);
        __m256i bottom =
            i == 0 ? _mm256_unpacklo_epi64(a[2], a[3]) : _mm256_unpackhi_epi64(a[2], a[3]);
        _mm256_storeu_si256((__m256i *)(target + i * target_step),
                            _mm256_permute2x128_si256(top, bottom, 0x20));
        _mm256_storeu_si256((__m256i *)(target + (i + 2) * target_step),
                            _mm256_permute2x128_si256(top, bottom, 0x31));
    }
}

/* Copies the units in columns from `column` on or in rows from `row` on, one by one. */
static void copy_edges(const rs_plane *plane, const unsigned char *source, unsigned char *target,
                       int64_t row, int64_t column)
{
    rs_plane edge = *plane;
    edge.rows = plane->rows - row;
    edge.columns = column;
    copy_tile_plain(&edge, source + row * plane->source_row, target + row * plane->unit);
    edge.rows = plane->rows;
    edge.columns = plane->columns - column;
    copy_tile_plain(&edge, source + column * plane->unit, target + column * plane->target_column);
}

/* Later rows are prefetched while these are transposed: they are in other pages, into which the
 * processor does not prefetch. */
#define DEFINE_TILE(function, attribute, unit, block_rows, block_columns, transpose)        \
    attribute static void function(const rs_plane *plane, const unsigned char *source,      \
                                   unsigned char *target)                                   \
    {                                                                                       \
        int64_t rows = plane->rows / (block_rows) * (block_rows);                           \
        int64_t columns = plane->columns / (block_columns) * (block_columns);               \
        int64_t source_row = plane->source_row, target_column = plane->target_column;       \
        for (int64_t row = 0; row < rows; row += (block_rows)) {                            \
            const unsigned char *from = source + row * source_row;                          \
            if (row + PREFETCH_ROWS < plane->rows)                                          \
                for (int64_t ahead = 0; ahead < (block_rows); ahead++)                      \
                    for (int64_t i = 0; i < columns * (unit); i += RS_LINE_BYTES)           \
                        rs_prefetch((uintptr_t)from +                                       \
                                    (uintptr_t)((PREFETCH_ROWS + ahead) * source_row + i)); \
            for (int64_t column = 0; column < columns; column += (block_columns))           \
                transpose(from + column * (unit), source_row,                               \
                          target + column * target_column + row * (unit), target_column);   \
        }                                                                                   \
        if (rows < plane->rows || columns < plane->columns)                                 \
            copy_edges(plane, source, target, rows, columns);                               \
    }
#define PREFETCH_ROWS 8

DEFINE_TILE(copy_tile_1, , 1, 8, 8, transpose_1)
DEFINE_TILE(copy_tile_2, , 2, 8, 8, transpose_2)
DEFINE_TILE(copy_tile_4, , 4, 4, 4, transpose_4)
DEFINE_TILE(copy_tile_8, , 8, 2, 2, transpose_8)
DEFINE_TILE(copy_tile_16, , 16, 8, 1, transpose_16)
DEFINE_TILE(copy_tile_4_avx2, RS_AVX2, 4, 8, 8, transpose_4_avx2)
DEFINE_TILE(copy_tile_8_avx2, RS_AVX2, 8, 4, 4, transpose_8_avx2)

static const struct {
    int64_t unit;
    rs_cpu cpu;
    rs_copy_kernel kernel;
} tiles[] = {
    {1, RS_CPU_PORTABLE, {"transpose 1", copy_tile_1}},
    {2, RS_CPU_PORTABLE, {"transpose 2", copy_tile_2}},
    {4, RS_CPU_AVX2, {"transpose 4, avx2", copy_tile_4_avx2}},
    {4, RS_CPU_PORTABLE, {"transpose 4", copy_tile_4}},
    {8, RS_CPU_AVX2, {"transpose 8, avx2", copy_tile_8_avx2}},
    {8, RS_CPU_PORTABLE, {"transpose 8", copy_tile_8}},
    {16, RS_CPU_PORTABLE, {"transpose 16", copy_tile_16}},
};
#endif

const rs_copy_kernel *rs_kernel_tile(const rs_plane *plane)
{
#if RS_X86
    bool dense = plane->source_column == plane->unit && plane->target_row == plane->unit;
    for (size_t i = 0; dense && i < sizeof tiles / sizeof tiles[0]; i++)
        if (tiles[i].unit == plane->unit && tiles[i].cpu <= plane->cpu)
            return &tiles[i].kernel;
#endif
    (void)plane;
    return &tile_plain;
}

/* Copies a tile through the buffer. The tile's columns must be dense in the target. */
static void copy_tile_staged(const rs_plane *tile, const unsigned char *source,
                             unsigned char *target)
{
    _Alignas(RS_LINE_BYTES) unsigned char buffer[BUFFER_BYTES];
    rs_plane staged = *tile;
    int64_t bytes = tile->rows * tile->unit;
    staged.target_row = tile->unit;
    staged.target_column = bytes + BUFFER_PITCH_EXTRA;
    tile->tile->run(&staged, source, buffer);
    for (int64_t column = 0; column < tile->columns; column++) {
        unsigned char *to = target + column * tile->target_column;
        if (tile->streams)
            rs_stream(tile->cpu, to, buffer + column * staged.target_column, (size_t)bytes);
        else
            memcpy(to, buffer + column * staged.target_column, (size_t)bytes);
    }
}

static void copy_tiled(const rs_plane *plane, const unsigned char *source, unsigned char *target)
{
    int64_t unit = plane->unit;
    int64_t tile_rows = TILE_TARGET_BYTES(unit) / unit;
    int64_t tile_columns = TILE_SOURCE_BYTES(unit) / unit;
    bool competes = unit < 16 && plane->target_column % COMPETING_BYTES == 0;
    bool stages = plane->target_row == unit && (plane->streams || competes);
    for (int64_t row = 0; row < plane->rows; row += tile_rows) {
        for (int64_t column = 0; column < plane->columns; column += tile_columns) {
            rs_plane tile = *plane;
            int64_t rows_left = plane->rows - row, columns_left = plane->columns - column;
            tile.rows = rows_left < tile_rows ? rows_left : tile_rows;
            tile.columns = columns_left < tile_columns ? columns_left : tile_columns;
            const unsigned char *from =
                source + row * plane->source_row + column * plane->source_column;
            unsigned char *to = target + row * plane->target_row + column * plane->target_column;
            (stages ? copy_tile_staged : plane->tile->run)(&tile, from, to);
        }
    }
}

const rs_copy_kernel rs_kernel_tiled = {"tiled", copy_tiled};
