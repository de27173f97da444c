/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_runs.c - copies long runs, and has the streaming that all kernels use.
 *
 * Streaming stores are cheap, so the speed is that of reading. The processor prefetches within a
 * page of 4 KiB but not into the next one. Against that there are two ways. Several pages are read
 * side by side, and short rows with gaps between them are prefetched explicitly; or rows are read
 * in order, and prefetched two pages ahead. Which is faster, by up to a half, is a matter of the
 * processor, so parts of large copies are timed.
 */
#include "kernel/copy/kernels.h"

#include "base/checked.h"
#include "kernel/copy/choice.h"

#if RS_X86
#include <immintrin.h>

/* Rows of up to SHORT_BYTES are prefetched BLOCK_ROWS rows ahead or, if the source is dense, taken
 * in turn from SIDE_ROWS blocks of BLOCK_ROWS rows. Longer rows are read SIDE_ROWS at a time,
 * SIDE_BYTES of each in turn. Rows of LONG_BYTES or more are cut into parts of PART_BYTES, which
 * are treated as rows of that kind. */
#define SHORT_BYTES 2048
#define BLOCK_ROWS 8
#define LONG_BYTES 32768
#define PART_BYTES 8192
#define SIDE_ROWS 4
#define SIDE_BYTES 512

RS_INLINE __m128i load_16(const unsigned char *source)
{
    return _mm_loadu_si128((const __m128i *)source);
}

static void stream_lines_sse2(unsigned char *target, const unsigned char *source, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += RS_LINE_BYTES) {
        __m128i a = load_16(source + i), b = load_16(source + i + 16);
        __m128i c = load_16(source + i + 32), d = load_16(source + i + 48);
        _mm_stream_si128((__m128i *)(target + i), a);
        _mm_stream_si128((__m128i *)(target + i + 16), b);
        _mm_stream_si128((__m128i *)(target + i + 32), c);
        _mm_stream_si128((__m128i *)(target + i + 48), d);
    }
}

/* The lines to prefetch, one for each line that is written: `step` bytes apart and, after each
 * `count` of them, `jump` bytes further on. */
typedef struct advance {
    uintptr_t at;
    int64_t step, jump;
    int64_t count, left;
} advance;

RS_INLINE void ask_for_line(advance *next)
{
    rs_prefetch(next->at);
    next->at += (uintptr_t)next->step;
    if (--next->left == 0) {
        next->left = next->count;
        next->at += (uintptr_t)next->jump;
    }
}

/* One line of each row of a block in turn, so that they come from several pages at once. */
static advance ask_for_block(const unsigned char *block, int64_t step)
{
    return (advance){.at = (uintptr_t)block,
                     .step = step,
                     .jump = RS_LINE_BYTES - BLOCK_ROWS * step,
                     .count = BLOCK_ROWS,
                     .left = BLOCK_ROWS};
}

/* Two stores per line instead of four leave more room for loads in flight. */
RS_AVX2 RS_INLINE void stream_lines_avx2(unsigned char *target, const unsigned char *source,
                                         size_t bytes, advance *next)
{
    for (size_t i = 0; i < bytes; i += RS_LINE_BYTES) {
        if (next != NULL)
            ask_for_line(next);
        __m256i a = _mm256_loadu_si256((const __m256i *)(source + i));
        __m256i b = _mm256_loadu_si256((const __m256i *)(source + i + 32));
        _mm256_stream_si256((__m256i *)(target + i), a);
        _mm256_stream_si256((__m256i *)(target + i + 32), b);
    }
}

RS_AVX2 static void stream_avx2(unsigned char *target, const unsigned char *source, size_t bytes,
                                advance *next)
{
    if (next != NULL)
        stream_lines_avx2(target, source, bytes, next);
    else
        stream_lines_avx2(target, source, bytes, NULL);
}

static void stream_run(rs_cpu cpu, unsigned char *target, const unsigned char *source, size_t bytes,
                       advance *next)
{
    /* Partial lines at both ends go through the cache: another thread may own the rest of the line,
     * and streaming a partial line costs more than a whole one. */
    size_t head = rs_to_line(target);
    if (bytes < head + RS_LINE_BYTES) {
        memcpy(target, source, bytes);
        return;
    }
    if (head != 0)
        memcpy(target, source, head);
    size_t middle = (bytes - head) / RS_LINE_BYTES * RS_LINE_BYTES, end = head + middle;
    if (cpu >= RS_CPU_AVX2)
        stream_avx2(target + head, source + head, middle, next);
    else
        stream_lines_sse2(target + head, source + head, middle);
    if (end < bytes)
        memcpy(target + end, source + end, bytes - end);
}

void rs_stream(rs_cpu cpu, unsigned char *target, const unsigned char *source, size_t bytes)
{
    stream_run(cpu, target, source, bytes, NULL);
}

static void stream_side_by_side(rs_cpu cpu, int64_t bytes, const unsigned char *source,
                                int64_t source_step, unsigned char *target, int64_t target_step)
{
    int64_t starts[SIDE_ROWS] = {0};
    for (bool working = true; working;) {
        working = false;
        for (int64_t row = 0; row < SIDE_ROWS; row++) {
            unsigned char *to = target + row * target_step + starts[row];
            const unsigned char *from = source + row * source_step + starts[row];
            int64_t left = bytes - starts[row];
            int64_t part = SIDE_BYTES + (int64_t)rs_to_line(to);
            part = part < left ? part : left;
            rs_stream(cpu, to, from, (size_t)part);
            starts[row] += part;
            working = working || part < left;
        }
    }
}

/* Copies SIDE_ROWS blocks of BLOCK_ROWS short rows, taking one row of each block in turn. */
static void stream_blocks(rs_cpu cpu, int64_t bytes, const unsigned char *source,
                          unsigned char *target, int64_t target_step)
{
    for (int64_t i = 0; i < BLOCK_ROWS; i++) {
        for (int64_t row = i; row < SIDE_ROWS * BLOCK_ROWS; row += BLOCK_ROWS)
            stream_run(cpu, target + row * target_step, source + row * bytes, (size_t)bytes, NULL);
    }
}

/* From the first cache line of the target on, copies parts that are read side by side. */
static void stream_long(rs_cpu cpu, int64_t bytes, const unsigned char *source,
                        unsigned char *target)
{
    int64_t at = (int64_t)rs_to_line(target);
    memcpy(target, source, (size_t)at);
    for (; at + SIDE_ROWS * PART_BYTES <= bytes; at += SIDE_ROWS * PART_BYTES)
        stream_side_by_side(cpu, PART_BYTES, source + at, PART_BYTES, target + at, PART_BYTES);
    rs_stream(cpu, target + at, source + at, (size_t)(bytes - at));
}

void rs_stream_by_pages(rs_cpu cpu, int64_t rows, int64_t bytes, const unsigned char *source,
                        int64_t source_step, unsigned char *target, int64_t target_step)
{
    int64_t row = 0;
    bool asks = source_step != bytes && bytes <= SHORT_BYTES;
    if (bytes >= LONG_BYTES)
        for (; row < rows; row++)
            stream_long(cpu, bytes, source + row * source_step, target + row * target_step);
    if (bytes > SHORT_BYTES && bytes < LONG_BYTES)
        for (; row + SIDE_ROWS <= rows; row += SIDE_ROWS)
            stream_side_by_side(cpu, bytes, source + row * source_step, source_step,
                                target + row * target_step, target_step);
    if (bytes <= SHORT_BYTES && source_step == bytes)
        for (; row + SIDE_ROWS * BLOCK_ROWS <= rows; row += SIDE_ROWS * BLOCK_ROWS)
            stream_blocks(cpu, bytes, source + row * source_step, target + row * target_step,
                          target_step);
    advance next = {0};
    for (; row < rows; row++) {
        if (row % BLOCK_ROWS == 0)
            next = ask_for_block(source + (row + BLOCK_ROWS) * source_step, source_step);
        stream_run(cpu, target + row * target_step, source + row * source_step, (size_t)bytes,
                   asks && row + BLOCK_ROWS < rows ? &next : NULL);
    }
}

/* ---- in order -------------------------------------------------------------------------------- */

#define AHEAD_BYTES 8192

/* The lines AHEAD_BYTES further on than a row, where the gaps between rows do not count. */
static advance ask_ahead(const unsigned char *row, int64_t bytes, int64_t step)
{
    int64_t column = AHEAD_BYTES % bytes, lines = rs_divide_up(bytes, RS_LINE_BYTES);
    return (advance){.at = (uintptr_t)row + (uintptr_t)(AHEAD_BYTES / bytes * step + column),
                     .step = RS_LINE_BYTES,
                     .jump = step - lines * RS_LINE_BYTES,
                     .count = lines,
                     .left = rs_divide_up(bytes - column, RS_LINE_BYTES)};
}

void rs_stream_in_order(rs_cpu cpu, int64_t rows, int64_t bytes, const unsigned char *source,
                        int64_t source_step, unsigned char *target, int64_t target_step)
{
    const advance first = ask_ahead(source, bytes, source_step);
    for (int64_t row = 0; row < rows; row++) {
        advance next = first;
        next.at += (uintptr_t)(row * source_step);
        stream_run(cpu, target + row * target_step, source + row * source_step, (size_t)bytes,
                   &next);
    }
}

/* ---- parts that are timed -------------------------------------------------------------------- */

/* Of parts of at most 1 MiB, if they are large enough for the time to say something.
 * Rows are parted by turns of blocks. */
#define TIMED_BYTES_MAX ((int64_t)1 << 20)
#define TIMED_BYTES_MIN ((int64_t)1 << 17)
#define TIMED_ROWS (SIDE_ROWS * BLOCK_ROWS)

/* Of all rows that this process streams: short, longer and long ones, with and without gaps. */
static rs_choice_record orders[3][2];

static rs_choice_record *find_order(int64_t bytes, int64_t source_step)
{
    int length = bytes <= SHORT_BYTES ? 0 : bytes < LONG_BYTES ? 1 : 2;
    return &orders[length][source_step != bytes];
}

static void stream_part(rs_cpu cpu, int64_t rows, int64_t bytes, const unsigned char *source,
                        int64_t source_step, unsigned char *target, int64_t target_step)
{
    rs_choice_record *order = find_order(bytes, source_step);
    const bool times = rows * bytes >= TIMED_BYTES_MIN;
    rs_choice choice = {.second = rs_choice_best(order)};
    if (times)
        choice = rs_choice_start(order);
    if (choice.second)
        rs_stream_in_order(cpu, rows, bytes, source, source_step, target, target_step);
    else
        rs_stream_by_pages(cpu, rows, bytes, source, source_step, target, target_step);
    if (times)
        rs_choice_stop(&choice, (size_t)(rows * bytes));
}

void rs_stream_rows(rs_cpu cpu, int64_t rows, int64_t bytes, const unsigned char *source,
                    int64_t source_step, unsigned char *target, int64_t target_step)
{
    int64_t part = rs_max(TIMED_BYTES_MAX / bytes / TIMED_ROWS, 1) * TIMED_ROWS;
    if (bytes > TIMED_BYTES_MAX / TIMED_ROWS)
        part = rs_max(TIMED_BYTES_MAX / bytes / SIDE_ROWS, 1) * SIDE_ROWS;
    for (int64_t row = 0; row < rows; row += part)
        for (int64_t at = 0; at < bytes; at += TIMED_BYTES_MAX)
            stream_part(cpu, rs_min(rows - row, part), rs_min(bytes - at, TIMED_BYTES_MAX),
                        source + row * source_step + at, source_step,
                        target + row * target_step + at, target_step);
}
#else
void rs_stream(rs_cpu cpu, unsigned char *target, const unsigned char *source, size_t bytes)
{
    (void)cpu;
    memcpy(target, source, bytes);
}
#endif

static void copy_rows(const rs_plane *plane, const unsigned char *source, unsigned char *target)
{
    int64_t bytes = plane->columns * plane->unit;
#if RS_X86
    if (plane->streams) {
        rs_stream_rows(plane->cpu, plane->rows, bytes, source, plane->source_row, target,
                       plane->target_row);
        return;
    }
#endif
    for (int64_t row = 0; row < plane->rows; row++)
        memcpy(target + row * plane->target_row, source + row * plane->source_row, (size_t)bytes);
}

const rs_copy_kernel rs_kernel_rows = {"rows", copy_rows};
