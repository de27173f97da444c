/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_weave_lines.c - interleaves strands in one target, as copy_weave.c does, but makes each line
 * of the target in a register and streams it at once. It needs permutations of 64 bytes.
 *
 * A line begins somewhere within a round, which is one unit of each strand: at byte `into` of it.
 * That decides how many bytes of each strand the line has, and where they go; what a strand gives
 * follows what it gave before. So there is a recipe for each `into`. Units as long as a line need
 * none: a line is a part of one, or the end of one and the beginning of the next strand's.
 *
 * What a row has before its first whole line and after its last one is copied piece by piece.
 */
#include "kernel/copy/kernels.h"

#include "base/checked.h"

#if RS_X86
#include <immintrin.h>

#define VECTOR_BYTES 64
/* More recipes take too long to make, and more room than the nearest cache should give them. */
#define RECIPES_MAX 128
/* How far ahead the sources are prefetched. */
#define AHEAD_BYTES 2048
/* Shorter rows are mostly begun and ended. */
#define ROW_BYTES_MIN 1024

typedef struct recipe {
    _Alignas(VECTOR_BYTES) unsigned char places[VECTOR_BYTES]; /* of each byte in its vector */
    uint64_t masks[RS_STRANDS_MAX];                            /* which bytes each strand gives */
    unsigned char given[RS_STRANDS_MAX];                       /* how many */
    const struct recipe *next;                                 /* for the next line */
} recipe;

typedef struct recipes {
    int32_t count; /* of strands */
    int64_t unit, round, grain;
    int64_t given;               /* the most that a line has of a strand */
    recipe by_into[RECIPES_MAX]; /* in steps of `grain` */
} recipes;

/* Where a row stands: at byte `at` of the row, which has `bytes` bytes. */
typedef struct row_cursor {
    const unsigned char *sources[RS_STRANDS_MAX]; /* of the row's beginning */
    unsigned char *target;
    int64_t at, bytes;
} row_cursor;

static bool has_long_units(const recipes *by)
{
    return by->unit >= RS_LINE_BYTES;
}

/* ---- recipes --------------------------------------------------------------------------------- */

/* Without divisions, because there may be many recipes for copies that are not large. */
static void fill_recipe(recipes *by, int64_t into)
{
    recipe *one = &by->by_into[into / by->grain];
    int64_t strand = into / by->unit, left = by->unit - into % by->unit; /* of the unit */
    memset(one, 0, sizeof *one);
    for (int64_t i = 0; i < RS_LINE_BYTES; i++) {
        one->places[i] = one->given[strand]++;
        one->masks[strand] |= (uint64_t)1 << i;
        by->given = rs_max(by->given, one->given[strand]);
        if (--left == 0) {
            left = by->unit;
            strand = strand + 1 == by->count ? 0 : strand + 1;
        }
    }
    one->next = &by->by_into[(into + RS_LINE_BYTES) % by->round / by->grain];
}

/* Returns false if there would be too many. */
static bool fill_recipes(recipes *by, const rs_strands *strands)
{
    by->count = strands->count;
    by->unit = strands->unit;
    by->round = strands->count * strands->unit;
    by->given = 0;
    if (has_long_units(by))
        return true;
    /* The largest power of two that divides all places at which lines can begin in a round. */
    uintptr_t bits = (uintptr_t)by->round | (uintptr_t)strands->targets[0] |
                     (uintptr_t)strands->planes[0].target_row | RS_LINE_BYTES;
    by->grain = (int64_t)(bits & -bits);
    if (by->round / by->grain > RECIPES_MAX)
        return false;
    for (int64_t into = 0; into < by->round; into += by->grain)
        fill_recipe(by, into);
    return true;
}

/* ---- pieces ---------------------------------------------------------------------------------- */

/* What stands at a byte of the row, and how much of it belongs to the same unit. */
static const unsigned char *find_piece(const recipes *by, const row_cursor *row, int64_t at,
                                       int64_t *out_left)
{
    int64_t into = at % by->round;
    int64_t strand = into / by->unit;
    *out_left = by->unit - into % by->unit;
    return row->sources[strand] + at / by->round * by->unit + into % by->unit;
}

static void copy_pieces(const recipes *by, row_cursor *row, int64_t end)
{
    while (row->at < end) {
        int64_t left;
        const unsigned char *from = find_piece(by, row, row->at, &left);
        left = rs_min(left, end - row->at);
        memcpy(row->target + row->at, from, (size_t)left);
        row->at += left;
    }
}

/* ---- reading ahead --------------------------------------------------------------------------- */

/* All strands are read at about the same speed, so one line of each is asked for in turn, whenever
 * a line is written. Processors foresee a few sources by themselves, but not many. */
typedef struct ahead {
    int32_t strand, count;
    int64_t at; /* in each source's row */
} ahead;

static ahead begin_ahead(const recipes *by, const row_cursor *row)
{
    return (ahead){.count = by->count, .at = row->at / by->count + AHEAD_BYTES};
}

RS_INLINE void ask_for_line(ahead *next, const row_cursor *row)
{
    rs_prefetch((uintptr_t)row->sources[next->strand] + (uintptr_t)next->at);
    if (++next->strand == next->count) {
        next->strand = 0;
        next->at += RS_LINE_BYTES;
    }
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* The first bytes of a vector, `width` or, if that is 0, just the first `given`, so that nothing is
 * read beyond the end of a source. Most narrow loads stay within a line. */
RS_AVX512 RS_INLINE __m512i load_part(const unsigned char *source, int64_t width, int64_t given)
{
    if (width == 16)
        return _mm512_castsi128_si512(_mm_loadu_si128((const __m128i *)(const void *)source));
    if (width == 32)
        return _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)source));
    if (width == 64)
        return _mm512_loadu_si512(source);
    return _mm512_maskz_loadu_epi8(((__mmask64)1 << given) - 1, source);
}

RS_AVX512 RS_INLINE void stream_lines(const recipes *by, row_cursor *row, int64_t strands,
                                      int64_t count, int64_t width)
{
    const unsigned char *sources[RS_STRANDS_MAX];
    for (int64_t k = 0; k < strands; k++) {
        int64_t into = row->at % by->round - k * by->unit;
        sources[k] =
            row->sources[k] + row->at / by->round * by->unit + rs_max(0, rs_min(into, by->unit));
    }
    const recipe *how = &by->by_into[row->at % by->round / by->grain];
    ahead next = begin_ahead(by, row);
    unsigned char *target = row->target + row->at;
    for (int64_t i = 0; i < count; i++, target += RS_LINE_BYTES, how = how->next) {
        ask_for_line(&next, row);
        const __m512i places = _mm512_load_si512(how->places);
        __m512i line = _mm512_setzero_si512();
        for (int64_t k = 0; k < strands; k++) {
            __m512i from = load_part(sources[k], width, how->given[k]);
            line = _mm512_mask_permutexvar_epi8(line, how->masks[k], places, from);
            sources[k] += how->given[k];
        }
        _mm512_stream_si512((__m512i *)(void *)target, line);
    }
    row->at += count * RS_LINE_BYTES;
}

RS_AVX512 RS_INLINE void stream_by_count(const recipes *by, row_cursor *row, int64_t count,
                                         int64_t width)
{
    if (by->count == 2)
        stream_lines(by, row, 2, count, width);
    else if (by->count == 3)
        stream_lines(by, row, 3, count, width);
    else if (by->count == 4)
        stream_lines(by, row, 4, count, width);
    else if (by->count == 8)
        stream_lines(by, row, 8, count, width);
    else
        stream_lines(by, row, by->count, count, width);
}

RS_AVX512 static void stream_short_units(const recipes *by, row_cursor *row, int64_t count)
{
    /* A vector of each strand holds so many rounds, at most. */
    int64_t beyond = rs_divide_up(VECTOR_BYTES, by->unit) * by->round;
    int64_t within = rs_max(0, rs_min(count, (row->bytes - row->at - beyond) / RS_LINE_BYTES));
    if (by->given <= 16)
        stream_by_count(by, row, within, 16);
    else if (by->given <= 32)
        stream_by_count(by, row, within, 32);
    else
        stream_by_count(by, row, within, 64);
    stream_lines(by, row, by->count, count - within, 0);
}

/* No divisions here: they would take longer than the copy. */
RS_AVX512 static void stream_long_units(const recipes *by, row_cursor *row, int64_t count)
{
    int32_t strand = (int32_t)(row->at % by->round / by->unit);
    int64_t column = row->at / by->round * by->unit; /* where the units begin in all strands */
    int64_t into = row->at % by->unit;
    ahead next = begin_ahead(by, row);
    unsigned char *target = row->target + row->at;
    for (int64_t i = 0; i < count; i++, target += RS_LINE_BYTES) {
        ask_for_line(&next, row);
        const unsigned char *from = row->sources[strand] + column + into;
        int64_t left = by->unit - into;
        __m512i line;
        if (left > RS_LINE_BYTES) {
            line = _mm512_loadu_si512(from);
            into += RS_LINE_BYTES;
        } else {
            __mmask64 first = ~(__mmask64)0 >> (RS_LINE_BYTES - left);
            line = _mm512_maskz_loadu_epi8(first, from);
            if (++strand == by->count) {
                strand = 0;
                column += by->unit;
            }
            into = RS_LINE_BYTES - left;
            if (into != 0)
                line = _mm512_mask_loadu_epi8(line, ~first, row->sources[strand] + column - left);
        }
        _mm512_stream_si512((__m512i *)(void *)target, line);
    }
    row->at += count * RS_LINE_BYTES;
}

static void weave_row(const recipes *by, const rs_strands *strands, int64_t number)
{
    row_cursor row = {.bytes = strands->columns * by->round};
    for (int32_t k = 0; k < by->count; k++)
        row.sources[k] = strands->sources[k] + number * strands->planes[k].source_row;
    row.target = strands->targets[0] + number * strands->planes[0].target_row;
    copy_pieces(by, &row, (int64_t)rs_to_line(row.target));
    int64_t count = (row.bytes - row.at) / RS_LINE_BYTES;
    if (has_long_units(by))
        stream_long_units(by, &row, count);
    else
        stream_short_units(by, &row, count);
    copy_pieces(by, &row, row.bytes);
}

bool rs_weave_lines(const rs_strands *strands)
{
    const rs_plane *plane = &strands->planes[0];
    recipes by;
    if (plane->cpu < RS_CPU_AVX512 || !plane->streams ||
        strands->columns * strands->unit * strands->count < ROW_BYTES_MIN ||
        !fill_recipes(&by, strands))
        return false;
    for (int64_t row = 0; row < plane->rows; row++) {
        weave_row(&by, strands, row);
        rs_strands_copy_rests(strands, row);
    }
    return true;
}
#else
bool rs_weave_lines(const rs_strands *strands)
{
    (void)strands;
    return false;
}
#endif
