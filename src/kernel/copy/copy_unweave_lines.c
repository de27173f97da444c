/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_unweave_lines.c - takes one source apart, as copy_unweave.c does, but makes each line of a
 * target in a register and streams it at once. Nothing is stored twice, so this is about as fast as
 * a plain copy. It needs permutations of 64 bytes.
 *
 * A line begins somewhere within a unit, at byte `into` of it, and that decides which bytes of the
 * source it consists of. So there is a recipe for each `into`: which vectors to load, and where the
 * bytes of each go. It is the same for all targets and all along a row. Units as long as a line
 * need no recipe: a line is a part of one, or the end of one and the beginning of the next.
 *
 * What a row has before its first whole line and after its last one goes through a stage. Where the
 * next row follows in the target, the stage holds the line that both share.
 */
#include "kernel/copy/kernels.h"

#include "base/checked.h"

#if RS_X86
#include <immintrin.h>

#include <assert.h>

#define VECTOR_BYTES 64
/* Longer units are copied one target after the other. */
#define UNIT_MAX 512
/* A line of longer units needs few vectors, and one of short units at most as many as there are
 * strands, and one more. */
#define LOADS_MAX (RS_STRANDS_MAX + 1)
/* Enough for a line and a unit that goes beyond it. */
#define STAGE_BYTES (UNIT_MAX + RS_LINE_BYTES)
/* How much of the source all targets are made of in a turn, and how far ahead of it the source is
 * prefetched: each target reads it with gaps, which the processor does not foresee. */
#define TURN_BYTES 2048
#define AHEAD_BYTES 8192
/* Shorter rows of a target are mostly staged. */
#define ROW_BYTES_MIN 768

typedef struct recipe {
    _Alignas(VECTOR_BYTES) unsigned char places[VECTOR_BYTES]; /* of each byte in its vector */
    int64_t vectors[LOADS_MAX]; /* where each vector begins, from the line's first unit on */
    uint64_t masks[LOADS_MAX];  /* which bytes of the line it gives */
} recipe;

typedef struct recipes {
    int64_t unit, step; /* bytes of a unit, and from one to the next in the source */
    int64_t loads;      /* of each line; some may give nothing */
    int64_t reads;      /* bytes from a line's first unit to the end of its last vector */
    bool dense;         /* whether no vector lies between those that are loaded */
    recipe by_into[RS_LINE_BYTES];
} recipes;

/* Where a target stands: its next line begins with byte `into` of the unit at `source`. */
typedef struct cursor {
    const unsigned char *source;
    int64_t into;
    unsigned char *target;
    int64_t lines; /* to be made */
} cursor;

static bool has_long_units(const recipes *by)
{
    return by->unit >= RS_LINE_BYTES;
}

/* ---- recipes --------------------------------------------------------------------------------- */

/* Without divisions, because there may be many recipes for copies that are not large. */
static void fill_recipe(recipes *by, int64_t into)
{
    recipe *one = &by->by_into[into];
    int64_t loads = 0, from = into, left = by->unit - into; /* of the unit */
    memset(one, 0, sizeof *one);
    for (int64_t i = 0; i < RS_LINE_BYTES; i++) {
        int64_t vector = from / VECTOR_BYTES * VECTOR_BYTES;
        if (loads == 0 || one->vectors[loads - 1] != vector) {
            assert(loads < LOADS_MAX);
            by->dense = by->dense && vector == loads * VECTOR_BYTES;
            one->vectors[loads++] = vector;
        }
        one->places[i] = (unsigned char)(from - vector);
        one->masks[loads - 1] |= (uint64_t)1 << i;
        from++;
        if (--left == 0) {
            left = by->unit;
            from += by->step - by->unit;
        }
    }
    by->loads = rs_max(by->loads, loads);
    by->reads = rs_max(by->reads, one->vectors[loads - 1] + VECTOR_BYTES);
}

/* The largest power of two that divides all places at which lines can begin in a unit. */
static int64_t find_grain(const rs_strands *strands)
{
    uintptr_t bits = (uintptr_t)strands->unit;
    for (int32_t k = 0; k < strands->count; k++)
        bits |= (uintptr_t)strands->targets[k] | (uintptr_t)strands->planes[k].target_row;
    return (int64_t)(bits & -bits);
}

static void fill_recipes(recipes *by, const rs_strands *strands)
{
    const int64_t grain = find_grain(strands);
    by->unit = strands->unit;
    by->step = strands->count * strands->unit;
    by->loads = 0;
    by->reads = 0;
    by->dense = true;
    if (has_long_units(by))
        return;
    for (int64_t into = 0; into < by->unit; into += grain)
        fill_recipe(by, into);
}

/* ---- lines ----------------------------------------------------------------------------------- */

RS_AVX512 RS_INLINE __m512i make_line(const recipe *how, const unsigned char *source, bool dense,
                                      int64_t loads)
{
    const __m512i places = _mm512_load_si512(how->places);
    __m512i line = _mm512_maskz_permutexvar_epi8(how->masks[0], places, _mm512_loadu_si512(source));
    for (int64_t i = 1; i < loads; i++) {
        __m512i from = _mm512_loadu_si512(source + (dense ? i * VECTOR_BYTES : how->vectors[i]));
        line = _mm512_mask_permutexvar_epi8(line, how->masks[i], places, from);
    }
    return line;
}

RS_AVX512 RS_INLINE void stream_lines(const recipes *by, cursor *at, int64_t count, bool dense)
{
    const int64_t unit = by->unit, step = by->step;
    const int64_t whole = RS_LINE_BYTES / unit * step, rest = RS_LINE_BYTES % unit;
    const unsigned char *source = at->source;
    int64_t into = at->into;
    for (int64_t i = 0; i < count; i++) {
        __m512i line = make_line(&by->by_into[into], source, dense, by->loads);
        _mm512_stream_si512((__m512i *)(void *)(at->target + i * RS_LINE_BYTES), line);
        source += whole;
        into += rest;
        if (into >= unit) {
            into -= unit;
            source += step;
        }
    }
    at->source = source;
    at->into = into;
    at->target += count * RS_LINE_BYTES;
    at->lines -= count;
}

/* The same for long units. What a line does not need is not read. */
RS_AVX512 static void stream_pieces(const recipes *by, cursor *at, int64_t count)
{
    const unsigned char *source = at->source;
    int64_t into = at->into;
    for (int64_t i = 0; i < count; i++) {
        int64_t left = by->unit - into;
        __m512i line;
        if (left >= RS_LINE_BYTES) {
            line = _mm512_loadu_si512(source + into);
        } else {
            __mmask64 first = ((__mmask64)1 << left) - 1;
            line = _mm512_maskz_loadu_epi8(first, source + into);
            line = _mm512_mask_loadu_epi8(line, ~first, source + by->step - left);
        }
        _mm512_stream_si512((__m512i *)(void *)(at->target + i * RS_LINE_BYTES), line);
        into += RS_LINE_BYTES;
        if (into >= by->unit) {
            into -= by->unit;
            source += by->step;
        }
    }
    at->source = source;
    at->into = into;
    at->target += count * RS_LINE_BYTES;
    at->lines -= count;
}

RS_AVX512 static void make_lines(const recipes *by, cursor *at, int64_t count)
{
    if (has_long_units(by))
        stream_pieces(by, at, count);
    else if (by->dense)
        stream_lines(by, at, count, true);
    else
        stream_lines(by, at, count, false);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The lines that `bytes` bytes have, of those whose vectors end in the `ahead` bytes that can be
 * read from the unit at which the first line begins. */
static int64_t count_lines(const recipes *by, int64_t into, int64_t bytes, int64_t ahead)
{
    if (has_long_units(by))
        return bytes / RS_LINE_BYTES;
    assert(ahead >= by->reads);
    int64_t units = (ahead - by->reads) / by->step + 1; /* at which a line may begin */
    return rs_min(bytes / RS_LINE_BYTES, (units * by->unit - 1 - into) / RS_LINE_BYTES + 1);
}

/* Fills the line that is under way in the stage, and finds out where the next ones come from. */
static cursor begin_lines(const recipes *by, const rs_strands *strands, int32_t strand, int64_t row,
                          rs_staging *stage)
{
    const rs_plane *plane = &strands->planes[strand];
    const unsigned char *from = strands->sources[strand] + row * plane->source_row;
    const unsigned char *end =
        strands->sources[0] + row * plane->source_row + strands->columns * by->step;
    int64_t lacking = (int64_t)((RS_LINE_BYTES - stage->fill) % RS_LINE_BYTES);
    int64_t head = rs_divide_up(lacking, by->unit);
    assert(head < plane->columns);
    rs_strands_stage(strands, strand, row, 0, head, stage);
    int64_t over = (int64_t)stage->fill; /* bytes of the last unit that belong to the next line */
    cursor at = {.source = from + head * by->step, .target = stage->target};
    if (over != 0) {
        at.source -= by->step;
        at.into = by->unit - over;
    }
    at.lines = count_lines(by, at.into, (plane->columns - head) * by->unit + over, end - at.source);
    return at;
}

/* Stages what the row has after the lines. If none were made, the stage holds the same as
 * before. */
static void end_lines(const recipes *by, const rs_strands *strands, int32_t strand, int64_t row,
                      const cursor *at, rs_staging *stage)
{
    const rs_plane *plane = &strands->planes[strand];
    const unsigned char *from = strands->sources[strand] + row * plane->source_row;
    int64_t column = (at->source - from) / by->step;
    stage->target = at->target;
    stage->fill = 0;
    if (at->into != 0) { /* a unit of which the last line has the beginning */
        stage->fill = (size_t)(by->unit - at->into);
        memcpy(stage->bytes, at->source + at->into, stage->fill);
        column++;
    }
    rs_strands_stage(strands, strand, row, column, plane->columns, stage);
}

static void run_row(const recipes *by, const rs_strands *strands, int64_t row, rs_staging *stages)
{
    cursor cursors[RS_STRANDS_MAX];
    const int32_t count = strands->count;
    const int64_t turn = TURN_BYTES / RS_LINE_BYTES / count;
    for (int32_t k = 0; k < count; k++)
        cursors[k] = begin_lines(by, strands, k, row, &stages[k]);
    for (bool working = true; working;) {
        working = false;
        for (uintptr_t i = 0; i < TURN_BYTES; i += RS_LINE_BYTES)
            rs_prefetch((uintptr_t)cursors[0].source + AHEAD_BYTES + i);
        for (int32_t k = 0; k < count; k++) {
            make_lines(by, &cursors[k], rs_min(cursors[k].lines, turn));
            working = working || cursors[k].lines > 0;
        }
    }
    for (int32_t k = 0; k < count; k++)
        end_lines(by, strands, k, row, &cursors[k], &stages[k]);
}

bool rs_unweave_lines(const rs_strands *strands)
{
    const rs_plane *plane = &strands->planes[0];
    if (plane->cpu < RS_CPU_AVX512 || !plane->streams || strands->unit > UNIT_MAX ||
        strands->columns * strands->unit < ROW_BYTES_MIN)
        return false;
    _Alignas(RS_LINE_BYTES) unsigned char memory[RS_STRANDS_MAX][RS_STAGING_MEMORY(STAGE_BYTES)];
    rs_staging stages[RS_STRANDS_MAX];
    for (int32_t k = 0; k < strands->count; k++)
        stages[k] = (rs_staging){.bytes = memory[k], .capacity = STAGE_BYTES, .cpu = plane->cpu};
    recipes by;
    fill_recipes(&by, strands);
    for (int64_t row = 0; row < plane->rows; row++) {
        rs_strands_begin_row(strands, row, stages);
        run_row(&by, strands, row, stages);
    }
    for (int32_t k = 0; k < strands->count; k++)
        rs_staging_end(&stages[k]);
    return true;
}
#else
bool rs_unweave_lines(const rs_strands *strands)
{
    (void)strands;
    return false;
}
#endif
