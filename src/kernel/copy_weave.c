/* SPDX-License-Identifier: Apache-2.0 */
/*
 * copy_weave.c - runs k copies at once that interleave their sources in one target: copy i writes
 * elements i, i + k, i + 2k and so on, and reads its source densely. One after another, each copy
 * would touch every line of the target; woven, the target is written once, in order. The loops are
 * written so that the compiler turns them into vector loads and interleaving stores.
 */
#include "kernel/kernels.h"

#include "base/checked.h"

#define WEAVE_MAX 16

/* Weaves one line: `length` elements of each source. */
typedef void weave_fn(int32_t count, int64_t length, const unsigned char *const *sources,
                      unsigned char *target);

typedef uint16_t __attribute__((may_alias, aligned(1))) unit2;
typedef uint32_t __attribute__((may_alias, aligned(1))) unit4;
typedef uint64_t __attribute__((may_alias, aligned(1))) unit8;

#define LINE(unit, i) const unit *restrict s##i = (const unit *)(const void *)sources[i]
#define DEFINE_WEAVES(unit, suffix, attributes)                                                    \
    attributes static void weave_2_##suffix(                                                       \
        int32_t count, int64_t length, const unsigned char *const *sources, unsigned char *target) \
    {                                                                                              \
        LINE(unit, 0);                                                                             \
        LINE(unit, 1);                                                                             \
        unit *restrict t = (unit *)(void *)target;                                                 \
        (void)count;                                                                               \
        for (int64_t i = 0; i < length; i++) {                                                     \
            t[2 * i] = s0[i];                                                                      \
            t[2 * i + 1] = s1[i];                                                                  \
        }                                                                                          \
    }                                                                                              \
    attributes static void weave_4_##suffix(                                                       \
        int32_t count, int64_t length, const unsigned char *const *sources, unsigned char *target) \
    {                                                                                              \
        LINE(unit, 0);                                                                             \
        LINE(unit, 1);                                                                             \
        LINE(unit, 2);                                                                             \
        LINE(unit, 3);                                                                             \
        unit *restrict t = (unit *)(void *)target;                                                 \
        (void)count;                                                                               \
        for (int64_t i = 0; i < length; i++) {                                                     \
            t[4 * i] = s0[i];                                                                      \
            t[4 * i + 1] = s1[i];                                                                  \
            t[4 * i + 2] = s2[i];                                                                  \
            t[4 * i + 3] = s3[i];                                                                  \
        }                                                                                          \
    }                                                                                              \
    attributes static void weave_any_##suffix(                                                     \
        int32_t count, int64_t length, const unsigned char *const *sources, unsigned char *target) \
    {                                                                                              \
        for (int32_t k = 0; k < count; k++) {                                                      \
            const unit *restrict s = (const unit *)(const void *)sources[k];                       \
            unit *restrict t = (unit *)(void *)target + k;                                         \
            for (int64_t i = 0; i < length; i++)                                                   \
                t[i * count] = s[i];                                                               \
        }                                                                                          \
    }                                                                                              \
    static weave_fn *find_##suffix(int32_t count)                                                  \
    {                                                                                              \
        return count == 2 ? weave_2_##suffix : count == 4 ? weave_4_##suffix : weave_any_##suffix; \
    }

DEFINE_WEAVES(unit2, 2, )
DEFINE_WEAVES(unit4, 4, )
DEFINE_WEAVES(unit8, 8, )
#if RS_X86
DEFINE_WEAVES(unit2, 2_avx2, RS_AVX2)
DEFINE_WEAVES(unit4, 4_avx2, RS_AVX2)
DEFINE_WEAVES(unit8, 8_avx2, RS_AVX2)
#endif

static weave_fn *find_weave(int64_t unit, int32_t count)
{
#if RS_X86
    if (rs_cpu_detect() == RS_CPU_AVX2)
        return unit == 2 ? find_2_avx2(count) : unit == 4 ? find_4_avx2(count) : find_8_avx2(count);
#endif
    return unit == 2 ? find_2(count) : unit == 4 ? find_4(count) : find_8(count);
}

/* Swaps rows and columns if that makes the source dense along the columns. */
static rs_plane turn(const rs_plane *plane)
{
    rs_plane turned = *plane;
    if (plane->source_column != plane->unit && plane->source_row == plane->unit) {
        turned.rows = plane->columns;
        turned.columns = plane->rows;
        turned.source_row = plane->source_column;
        turned.source_column = plane->source_row;
        turned.target_row = plane->target_column;
        turned.target_column = plane->target_row;
    }
    return turned;
}

static bool is_alike(const rs_plane *a, const rs_plane *b)
{
    return a->rows == b->rows && a->columns == b->columns && a->unit == b->unit &&
           a->target_row == b->target_row && a->target_column == b->target_column;
}

/* The number of columns woven at a time, so that all sources and the target stay in the nearest
 * cache. */
#define WEAVE_COLUMNS 1024

bool rs_weave(int32_t count, const rs_copy *const *copies, const void *const *sources,
              void *const *targets)
{
    if (count < 2 || count > WEAVE_MAX)
        return false;
    rs_plane planes[WEAVE_MAX];
    const unsigned char *at[WEAVE_MAX] = {NULL};
    int64_t row_steps[WEAVE_MAX];
    unsigned char *base = targets[0];
    for (int32_t i = 0; i < count; i++) {
        if (copies[i]->nest.count != 0 || copies[i]->kernel == NULL)
            return false;
        planes[i] = turn(&copies[i]->plane);
        if ((unsigned char *)targets[i] < base)
            base = targets[i];
    }
    int64_t unit = planes[0].unit;
    if ((unit != 2 && unit != 4 && unit != 8) || planes[0].target_column != count * unit)
        return false;
    for (int32_t i = 0; i < count; i++) {
        int64_t place = ((unsigned char *)targets[i] - base) / unit;
        if (!is_alike(&planes[i], &planes[0]) || planes[i].source_column != unit ||
            place >= count || at[place] != NULL)
            return false;
        at[place] = sources[i];
        row_steps[place] = planes[i].source_row;
    }
    weave_fn *weave = find_weave(unit, count);
    for (int64_t row = 0; row < planes[0].rows; row++) {
        for (int64_t column = 0; column < planes[0].columns; column += WEAVE_COLUMNS) {
            const unsigned char *lines[WEAVE_MAX];
            for (int32_t i = 0; i < count; i++)
                lines[i] = at[i] + row * row_steps[i] + column * unit;
            weave(count, rs_min(WEAVE_COLUMNS, planes[0].columns - column), lines,
                  base + row * planes[0].target_row + column * count * unit);
        }
    }
    return true;
}
