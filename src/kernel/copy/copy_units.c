/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_units.c - copies short runs at constant steps on both sides. Units of 2^n bytes have a loop
 * with that size as a constant. Others are copied as two overlapping pieces, which needs no branch
 * per unit.
 *
 * When streaming, units of whole cache lines are streamed one by one if the target is aligned, and
 * units that are dense in the target are first collected in a small buffer.
 */
#include "kernel/copy/kernels.h"

#if RS_X86
#include <immintrin.h>
#endif

#define STAGE_BYTES 4096

RS_INLINE void copy_fixed(const unsigned char *source, int64_t source_step, unsigned char *target,
                          int64_t target_step, size_t unit, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        memcpy(target + i * target_step, source + i * source_step, unit);
}

/* Copies units of piece .. 2 * piece bytes: the first and the last `piece` bytes of each. */
RS_INLINE void copy_overlapping(const unsigned char *source, int64_t source_step,
                                unsigned char *target, int64_t target_step, size_t piece,
                                int64_t unit, int64_t count)
{
    int64_t rest = unit - (int64_t)piece;
    for (int64_t i = 0; i < count; i++) {
        unsigned char first[16], last[16];
        memcpy(first, source + i * source_step, piece);
        memcpy(last, source + i * source_step + rest, piece);
        memcpy(target + i * target_step, first, piece);
        memcpy(target + i * target_step + rest, last, piece);
    }
}

/* The same for units of 32 to 64 bytes, in pieces that fit into registers. */
static void copy_overlapping_32(const unsigned char *source, int64_t source_step,
                                unsigned char *target, int64_t target_step, int64_t unit,
                                int64_t count)
{
    const int64_t rest = unit - 32;
    for (int64_t i = 0; i < count; i++) {
        const unsigned char *from = source + i * source_step;
        unsigned char *to = target + i * target_step;
        unsigned char a[16], b[16], c[16], d[16];
        memcpy(a, from, 16);
        memcpy(b, from + 16, 16);
        memcpy(c, from + rest, 16);
        memcpy(d, from + rest + 16, 16);
        memcpy(to, a, 16);
        memcpy(to + 16, b, 16);
        memcpy(to + rest, c, 16);
        memcpy(to + rest + 16, d, 16);
    }
}

void rs_units_copy(const unsigned char *source, int64_t source_step, unsigned char *target,
                   int64_t target_step, int64_t unit, int64_t count)
{
    switch (unit) {
    case 1:
        copy_fixed(source, source_step, target, target_step, 1, count);
        return;
    case 2:
        copy_fixed(source, source_step, target, target_step, 2, count);
        return;
    case 4:
        copy_fixed(source, source_step, target, target_step, 4, count);
        return;
    case 8:
        copy_fixed(source, source_step, target, target_step, 8, count);
        return;
    case 16:
        copy_fixed(source, source_step, target, target_step, 16, count);
        return;
    case 32:
        copy_fixed(source, source_step, target, target_step, 32, count);
        return;
    case 64:
        copy_fixed(source, source_step, target, target_step, 64, count);
        return;
    default:
        break;
    }
    if (unit > 64)
        copy_fixed(source, source_step, target, target_step, (size_t)unit, count);
    else if (unit > 32)
        copy_overlapping_32(source, source_step, target, target_step, unit, count);
    else if (unit > 16)
        copy_overlapping(source, source_step, target, target_step, 16, unit, count);
    else if (unit > 8)
        copy_overlapping(source, source_step, target, target_step, 8, unit, count);
    else if (unit > 4)
        copy_overlapping(source, source_step, target, target_step, 4, unit, count);
    else
        copy_overlapping(source, source_step, target, target_step, 2, unit, count);
}

static void copy_units(const rs_plane *plane, const unsigned char *source, unsigned char *target)
{
    for (int64_t row = 0; row < plane->rows; row++)
        rs_units_copy(source + row * plane->source_row, plane->source_column,
                      target + row * plane->target_row, plane->target_column, plane->unit,
                      plane->columns);
}

static const rs_copy_kernel units = {"units", copy_units};

#if RS_X86
static void copy_units_staged(const rs_plane *plane, const unsigned char *source,
                              unsigned char *target)
{
    _Alignas(RS_LINE_BYTES) unsigned char stage[STAGE_BYTES];
    int64_t fitting = STAGE_BYTES / plane->unit;
    for (int64_t row = 0; row < plane->rows; row++) {
        for (int64_t first = 0; first < plane->columns; first += fitting) {
            int64_t left = plane->columns - first;
            int64_t count = left < fitting ? left : fitting;
            rs_units_copy(source + row * plane->source_row + first * plane->source_column,
                          plane->source_column, stage, plane->unit, plane->unit, count);
            rs_stream(plane->cpu, target + row * plane->target_row + first * plane->unit, stage,
                      (size_t)(count * plane->unit));
        }
    }
}

static const rs_copy_kernel units_staged = {"units, staged", copy_units_staged};

/* Loading several lines before the first store keeps more loads in flight. Returns the number of
 * lines done. */
RS_AVX2 static int64_t stream_lines(const unsigned char *source, int64_t source_step,
                                    unsigned char *target, int64_t target_step, int64_t count)
{
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        __m256i low[4], high[4];
        for (int k = 0; k < 4; k++) {
            const unsigned char *line = source + (i + k) * source_step;
            low[k] = _mm256_loadu_si256((const __m256i *)line);
            high[k] = _mm256_loadu_si256((const __m256i *)(line + 32));
        }
        for (int k = 0; k < 4; k++) {
            unsigned char *line = target + (i + k) * target_step;
            _mm256_stream_si256((__m256i *)line, low[k]);
            _mm256_stream_si256((__m256i *)(line + 32), high[k]);
        }
    }
    return i;
}

static void copy_lines(const rs_plane *plane, const unsigned char *source, unsigned char *target)
{
    bool dense = plane->target_column == plane->unit;
    if (rs_to_line(target) != 0 ||
        ((plane->target_row | plane->target_column) & (RS_LINE_BYTES - 1)) != 0) {
        (dense ? copy_units_staged : copy_units)(plane, source, target);
        return;
    }
    for (int64_t row = 0; row < plane->rows; row++) {
        const unsigned char *from = source + row * plane->source_row;
        unsigned char *to = target + row * plane->target_row;
        int64_t done = 0;
        if (plane->unit == RS_LINE_BYTES)
            done =
                stream_lines(from, plane->source_column, to, plane->target_column, plane->columns);
        rs_stream_rows(plane->cpu, plane->columns - done, plane->unit,
                       from + done * plane->source_column, plane->source_column,
                       to + done * plane->target_column, plane->target_column);
    }
}

static const rs_copy_kernel lines = {"lines", copy_lines};
#endif

const rs_copy_kernel *rs_kernel_units(const rs_plane *plane)
{
#if RS_X86
    if (plane->streams && plane->cpu >= RS_CPU_AVX2 && plane->unit % RS_LINE_BYTES == 0)
        return &lines;
    if (plane->streams && plane->target_column == plane->unit &&
        plane->columns * plane->unit >= RS_RUN_BYTES_MIN)
        return &units_staged;
#endif
    (void)plane;
    return &units;
}
