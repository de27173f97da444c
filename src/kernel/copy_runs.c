/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_runs.c - copies long runs, and has the streaming that all kernels use.
 *
 * Streaming stores are cheap, so the speed is that of reading. The processor prefetches within a
 * page of 4 KiB but not into the next one. So several pages are read side by side, and short rows
 * with gaps between them are prefetched explicitly.
 */
#include "kernel/kernels.h"

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

/* The lines to prefetch: one of each row of a block in turn, so that they come from several pages
 * at once. One line is prefetched for each line that is written. */
typedef struct advance {
    uintptr_t block;
    int64_t step;
    int64_t row, column;
} advance;

RS_INLINE void ask_for_line(advance *next)
{
    rs_prefetch(next->block + (uintptr_t)(next->row * next->step + next->column));
    if (++next->row == BLOCK_ROWS) {
        next->row = 0;
        next->column += RS_LINE_BYTES;
    }
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

void rs_stream_rows(rs_cpu cpu, int64_t rows, int64_t bytes, const unsigned char *source,
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
    advance next = {.step = source_step};
    for (; row < rows; row++) {
        if (row % BLOCK_ROWS == 0) {
            next.block = (uintptr_t)source + (uintptr_t)((row + BLOCK_ROWS) * source_step);
            next.row = 0;
            next.column = 0;
        }
        stream_run(cpu, target + row * target_step, source + row * source_step, (size_t)bytes,
                   asks && row + BLOCK_ROWS < rows ? &next : NULL);
    }
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
