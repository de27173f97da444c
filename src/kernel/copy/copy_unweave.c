/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_unweave.c - runs k copies at once that take one source apart: copy i reads units i, i + k,
 * i + 2k and so on, and writes its target densely. One after another, each copy would touch every
 * line of the source; here the source is read once, in order, while all targets are written.
 *
 * If the copies are large, each target has a stage of its own, from which whole lines are streamed.
 * Stages are small, so that a turn reads about a page of the source: with larger ones, reading
 * stops while all targets are written, and writing while the next part is read.
 *
 * There are two ways. A block of the source is permuted once for each target, which gets the first
 * bytes of the result; or one vector is loaded and stored for each unit, of which the unit is only
 * the beginning. What is stored too much is overwritten by what follows. Blocks whose vectors would
 * reach beyond the last unit are left to rs_units_copy.
 */
#include "kernel/copy/kernels.h"

#include "base/checked.h"

#if RS_X86
#include <immintrin.h>
#endif

/* Of one target. */
#define STAGE_BYTES 512
/* Shorter rows of a target begin and end too many stages to be worth it. */
#define STAGED_ROW_BYTES_MIN 4096

typedef struct unweave unweave;

/* Takes `length` units for each target. `ahead` bytes may be read, `room` bytes written to each
 * target. */
typedef struct piece {
    int64_t length;
    const unsigned char *source;
    unsigned char *targets[RS_STRANDS_MAX];
    int64_t ahead, room;
} piece;

typedef void unweave_fn(const unweave *by, const piece *what);

struct unweave {
    int32_t count; /* of targets */
    int64_t unit;
    unweave_fn *run;
    int64_t groups; /* units of each target in a block */
    /* by target: which bytes of a block it gets, in blocks of 64 or of 16 bytes */
    _Alignas(64) unsigned char orders[RS_STRANDS_MAX][64];
};

static void unweave_rest(const unweave *by, const piece *what, int64_t done)
{
    int64_t step = by->count * by->unit;
    for (int32_t k = 0; k < by->count; k++)
        rs_units_copy(what->source + done * step + k * by->unit, step,
                      what->targets[k] + done * by->unit, by->unit, by->unit, what->length - done);
}

/* The number of blocks of which no vector reads or writes too much. It is asked once in a stage, so
 * divisions would take as long as the copy. */
static int64_t count_blocks(const unweave *by, const piece *what, int64_t reads, int64_t writes)
{
    int64_t target_step = by->groups * by->unit, source_step = target_step * by->count;
    int64_t blocks = by->groups == 1 ? what->length : what->length / by->groups;
    if (blocks > 0 && (blocks - 1) * source_step > what->ahead - reads)
        blocks = what->ahead < reads ? 0 : (what->ahead - reads) / source_step + 1;
    if (blocks > 0 && (blocks - 1) * target_step > what->room - writes)
        blocks = what->room < writes ? 0 : (what->room - writes) / target_step + 1;
    return blocks;
}

/* ---- permutations ---------------------------------------------------------------------------- */

#if RS_X86
/* A block of 64 bytes has at most 32 for each target. */
RS_AVX512 RS_INLINE void store_part(unsigned char *target, __m512i made, bool half)
{
    if (half)
        _mm256_storeu_si256((__m256i *)(void *)target, _mm512_castsi512_si256(made));
    else
        _mm_storeu_si128((__m128i *)(void *)target, _mm512_castsi512_si128(made));
}

RS_AVX512 RS_INLINE void unweave_blocks_64(const unweave *by, const piece *what, int64_t count,
                                           bool half, int64_t blocks)
{
    const int64_t target_step = by->groups * by->unit, source_step = target_step * count;
    unsigned char *targets[RS_STRANDS_MAX];
    memcpy(targets, what->targets, sizeof targets);
    for (int64_t i = 0; i < blocks; i++) {
        __m512i from = _mm512_loadu_si512(what->source + i * source_step);
        for (int64_t k = 0; k < count; k++) {
            __m512i order = _mm512_load_si512(by->orders[k]);
            store_part(targets[k] + i * target_step, _mm512_permutexvar_epi8(order, from), half);
        }
    }
}

RS_AVX512 static void unweave_64(const unweave *by, const piece *what)
{
    bool half = by->groups * by->unit > 16;
    int64_t blocks = count_blocks(by, what, 64, half ? 32 : 16);
    if (half && by->count == 2)
        unweave_blocks_64(by, what, 2, true, blocks);
    else if (half && by->count == 3)
        unweave_blocks_64(by, what, 3, true, blocks);
    else if (half)
        unweave_blocks_64(by, what, by->count, true, blocks);
    else if (by->count == 4)
        unweave_blocks_64(by, what, 4, false, blocks);
    else if (by->count == 8)
        unweave_blocks_64(by, what, 8, false, blocks);
    else
        unweave_blocks_64(by, what, by->count, false, blocks);
    unweave_rest(by, what, blocks * by->groups);
}

RS_AVX2 RS_INLINE __m128i load_16(const unsigned char *source)
{
    return _mm_loadu_si128((const __m128i *)(const void *)source);
}

/* A block of 16 bytes has at most 8 for each target. */
RS_AVX2 RS_INLINE void unweave_blocks_16(const unweave *by, const piece *what, int64_t count,
                                         int64_t blocks)
{
    const int64_t target_step = by->groups * by->unit, source_step = target_step * count;
    const unsigned char *source = what->source;
    unsigned char *targets[RS_STRANDS_MAX];
    __m128i orders[RS_STRANDS_MAX];
    for (int64_t k = 0; k < count; k++) {
        targets[k] = what->targets[k];
        orders[k] = load_16(by->orders[k]);
    }
    for (int64_t i = 0; i < blocks; i++) {
        __m128i from = load_16(source + i * source_step);
        for (int64_t k = 0; k < count; k++)
            _mm_storel_epi64((__m128i *)(void *)(targets[k] + i * target_step),
                             _mm_shuffle_epi8(from, orders[k]));
    }
}

RS_AVX2 static void unweave_16(const unweave *by, const piece *what)
{
    int64_t blocks = count_blocks(by, what, 16, 8);
    if (by->count == 2)
        unweave_blocks_16(by, what, 2, blocks);
    else if (by->count == 3)
        unweave_blocks_16(by, what, 3, blocks);
    else if (by->count == 4)
        unweave_blocks_16(by, what, 4, blocks);
    else
        unweave_blocks_16(by, what, by->count, blocks);
    unweave_rest(by, what, blocks * by->groups);
}

static void fill_orders(unweave *by, int64_t width)
{
    by->groups = width / (by->count * by->unit);
    memset(by->orders, 0, sizeof by->orders);
    for (int32_t k = 0; k < by->count; k++)
        for (int64_t i = 0; i < by->groups; i++)
            for (int64_t b = 0; b < by->unit; b++)
                by->orders[k][i * by->unit + b] =
                    (unsigned char)((i * by->count + k) * by->unit + b);
}
#endif

/* ---- one vector for each unit ---------------------------------------------------------------- */

RS_INLINE void spill(const unweave *by, const piece *what, int64_t count, int64_t width)
{
    const int64_t unit = by->unit;
    const int64_t blocks = count_blocks(by, what, (count - 1) * unit + width, width);
    const unsigned char *source = what->source;
    unsigned char *targets[RS_STRANDS_MAX];
    memcpy(targets, what->targets, sizeof targets);
    for (int64_t i = 0; i < blocks; i++)
        for (int64_t k = 0; k < count; k++, source += unit) {
            unsigned char vector[64];
            memcpy(vector, source, (size_t)width);
            memcpy(targets[k] + i * unit, vector, (size_t)width);
        }
    unweave_rest(by, what, blocks);
}

#define DEFINE_SPILL(width)                                         \
    static void spill_##width(const unweave *by, const piece *what) \
    {                                                               \
        if (by->count == 2)                                         \
            spill(by, what, 2, width);                              \
        else if (by->count == 3)                                    \
            spill(by, what, 3, width);                              \
        else if (by->count == 4)                                    \
            spill(by, what, 4, width);                              \
        else if (by->count == 8)                                    \
            spill(by, what, 8, width);                              \
        else                                                        \
            spill(by, what, by->count, width);                      \
    }

DEFINE_SPILL(8)
DEFINE_SPILL(16)
DEFINE_SPILL(32)
DEFINE_SPILL(64)

typedef unsigned char half_line
    __attribute__((vector_size(RS_LINE_BYTES / 2), aligned(1), may_alias));

/* Units of more than a line: the last line of each overlaps the one before. */
RS_INLINE void take_long(const unweave *by, const piece *what)
{
    const int64_t unit = by->unit;
    const unsigned char *source = what->source;
    for (int64_t i = 0; i < what->length; i++)
        for (int32_t k = 0; k < by->count; k++, source += unit) {
            unsigned char *target = what->targets[k] + i * unit;
            for (int64_t at = 0; at < unit; at += RS_LINE_BYTES) {
                int64_t from = rs_min(at, unit - RS_LINE_BYTES);
                const half_line *halves = (const half_line *)(const void *)(source + from);
                half_line a = halves[0], b = halves[1];
                ((half_line *)(void *)(target + from))[0] = a;
                ((half_line *)(void *)(target + from))[1] = b;
            }
        }
}

static void unweave_long(const unweave *by, const piece *what)
{
    take_long(by, what);
}

#if RS_X86
/* Two loads and stores for each line instead of four. */
RS_AVX2 static void unweave_long_avx2(const unweave *by, const piece *what)
{
    take_long(by, what);
}
#endif

/* ---- which one ------------------------------------------------------------------------------- */

static void choose(unweave *by, rs_cpu cpu)
{
    const int64_t group = by->unit * by->count; /* bytes */
    by->groups = 1;
    by->run = by->unit <= 8    ? spill_8
              : by->unit <= 16 ? spill_16
              : by->unit <= 32 ? spill_32
              : by->unit <= 64 ? spill_64
                               : unweave_long;
#if RS_X86
    if (cpu >= RS_CPU_AVX2 && by->unit > RS_LINE_BYTES)
        by->run = unweave_long_avx2;
    if (cpu >= RS_CPU_AVX512 && 2 * group <= 64) {
        by->run = unweave_64;
        fill_orders(by, 64);
    } else if (cpu >= RS_CPU_AVX2 && 2 * group <= 16) {
        by->run = unweave_16;
        fill_orders(by, 16);
    }
#endif
    (void)group;
    (void)cpu;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The rest of a row that all targets have, from `column` on. */
static piece make_piece(const rs_strands *strands, int64_t row, int64_t column)
{
    int64_t step = strands->count * strands->unit, left = strands->columns - column;
    return (piece){
        .length = left,
        .source = strands->sources[0] + row * strands->planes[0].source_row + column * step,
        .ahead = left * step,
        .room = left * strands->unit,
    };
}

static void unweave_row(const unweave *by, const rs_strands *strands, int64_t row)
{
    piece what = make_piece(strands, row, 0);
    for (int32_t k = 0; k < by->count; k++)
        what.targets[k] = strands->targets[k] + row * strands->planes[k].target_row;
    by->run(by, &what);
    rs_strands_copy_rests(strands, row);
}

static void unweave_row_staged(const unweave *by, const rs_strands *strands, int64_t row,
                               rs_staging *stages)
{
    for (int64_t column = 0; column < strands->columns;) {
        piece what = make_piece(strands, row, column);
        int64_t room = INT64_MAX;
        for (int32_t k = 0; k < by->count; k++) {
            what.targets[k] = rs_staging_next(&stages[k]);
            room = rs_min(room, rs_staging_room(&stages[k]));
        }
        what.length = rs_min(what.length, (int64_t)((uint32_t)room / (uint32_t)by->unit));
        what.room = room + RS_LINE_BYTES;
        by->run(by, &what);
        column += what.length;
        for (int32_t k = 0; k < by->count; k++) {
            stages[k].fill += (size_t)(what.length * by->unit);
            rs_staging_flush(&stages[k]);
        }
    }
    for (int32_t k = 0; k < by->count; k++)
        rs_strands_stage(strands, k, row, strands->columns, strands->planes[k].columns, &stages[k]);
}

bool rs_unweave(const rs_strands *strands)
{
    if (rs_unweave_lines(strands))
        return true;
    const rs_plane *plane = &strands->planes[0];
    /* Long units are streamed without a stage, and so are those of which a kernel makes whole lines
     * in registers. */
    if (plane->streams &&
        (strands->unit > RS_LINE_BYTES || rs_gather_makes_lines(plane) ||
         (plane->rows > 1 && strands->columns * strands->unit < STAGED_ROW_BYTES_MIN)))
        return false;
    unweave by; /* small copies would notice the time to clear the orders */
    by.count = strands->count;
    by.unit = strands->unit;
    choose(&by, plane->cpu);
    if (!plane->streams) {
        for (int64_t row = 0; row < plane->rows; row++)
            unweave_row(&by, strands, row);
        return true;
    }
    _Alignas(RS_LINE_BYTES) unsigned char memory[RS_STRANDS_MAX][RS_STAGING_MEMORY(STAGE_BYTES)];
    rs_staging stages[RS_STRANDS_MAX];
    for (int32_t k = 0; k < by.count; k++)
        stages[k] = (rs_staging){.bytes = memory[k], .capacity = STAGE_BYTES, .cpu = plane->cpu};
    for (int64_t row = 0; row < plane->rows; row++) {
        rs_strands_begin_row(strands, row, stages);
        unweave_row_staged(&by, strands, row, stages);
    }
    for (int32_t k = 0; k < by.count; k++)
        rs_staging_end(&stages[k]);
    return true;
}
