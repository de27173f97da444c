/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_copy.c - every copy kernel against the obvious loop: random shapes, strides, alignments and
 * ways to run, on buffers whose every other byte must stay as it was. Buffers have exactly the size
 * that the copy touches, so that a sanitizer sees a read past the ends.
 */
#include "kernel/copy/kernels.h"
#include "tests/support/check.h"
#include "tests/support/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIMS_MAX 6
#define ELEMENTS_MAX (1 << 16)
#define CASE_COUNT 1500
#define PARTS_MAX 4

typedef struct strided {
    int32_t element_bytes, ndim;
    int64_t size[DIMS_MAX];
    int64_t source_strides[DIMS_MAX], target_strides[DIMS_MAX];
} strided;

typedef struct side {
    unsigned char *memory; /* allocated */
    int64_t bytes;         /* of the memory */
    int64_t base;          /* where element 0 is */
} side;

/* Strides of an array with the dims in this order and up to `gap` elements left out after each. */
static void draw_strides(draw_state *draw, const strided *shape, int64_t gap, int64_t *strides)
{
    int32_t order[DIMS_MAX];
    for (int32_t d = 0; d < shape->ndim; d++)
        order[d] = d;
    if (draw_chance(draw, 60))
        draw_shuffle(draw, shape->ndim, order);
    int64_t stride = draw_chance(draw, 50) ? 1 : draw_between(draw, 1, 8);
    for (int32_t i = shape->ndim - 1; i >= 0; i--) {
        int32_t d = order[i];
        strides[d] = draw_chance(draw, 10) ? -stride : stride;
        stride = stride * (shape->size[d] > 0 ? shape->size[d] : 1);
        if (draw_chance(draw, 40))
            stride += draw_between(draw, 0, gap);
    }
}

static strided draw_shape(draw_state *draw)
{
    static const int32_t elements[] = {1, 2, 4, 8, 16, 1, 2, 4, 8, 16, 3, 12};
    strided shape = {.element_bytes = elements[draw_below(draw, 12)],
                     .ndim = (int32_t)draw_between(draw, 0, DIMS_MAX)};
    int64_t left = ELEMENTS_MAX / shape.element_bytes;
    for (int32_t d = 0; d < shape.ndim; d++) {
        int64_t high = draw_chance(draw, 25) ? 700 : 9;
        high = high < left ? high : left;
        shape.size[d] = draw_chance(draw, 1) ? 0 : draw_between(draw, 1, high);
        left /= shape.size[d] > 0 ? shape.size[d] : 1;
    }
    draw_strides(draw, &shape, 5, shape.source_strides);
    draw_strides(draw, &shape, 5, shape.target_strides);
    if (shape.ndim > 0 && draw_chance(draw, 5))
        shape.source_strides[draw_below(draw, shape.ndim)] = 0;
    return shape;
}

/* Memory for one side, beginning `offset` bytes after a cache line; `margin` bytes on both ends. */
static side make_side(const strided *shape, const int64_t *strides, int64_t margin, int64_t offset)
{
    int64_t low = 0, high = 0;
    for (int32_t d = 0; d < shape->ndim; d++) {
        int64_t reach = (shape->size[d] > 0 ? shape->size[d] - 1 : 0) * strides[d];
        *(reach < 0 ? &low : &high) += reach;
    }
    side made = {.base = offset + margin - low * shape->element_bytes};
    made.bytes = made.base + (high + 1) * shape->element_bytes + margin;
    void *memory = NULL;
    assert_int_equal(posix_memalign(&memory, 64, (size_t)made.bytes), 0);
    made.memory = memory;
    for (int64_t i = 0; i < made.bytes; i++)
        made.memory[i] = (unsigned char)draw_hash((uint64_t)i, (uint64_t)margin);
    return made;
}

static void run_parts(draw_state *draw, const rs_copy *copy, const void *source, void *target)
{
    int64_t count = rs_copy_outer_count(copy), first = 0;
    while (first < count) {
        int64_t part = draw_between(draw, 0, draw_chance(draw, 50) ? 3 : count - first);
        part = part < count - first ? part : count - first;
        rs_copy_run_part(copy, source, target, first, part);
        first += part;
    }
    rs_copy_fence();
}

static void run_somehow(draw_state *draw, const rs_copy *copy, const void *source, void *target)
{
    if (draw_chance(draw, 50))
        rs_copy_run(copy, source, target);
    else if (draw_chance(draw, 20))
        rs_copy_run_together(1, &copy, &source, &target);
    else
        run_parts(draw, copy, source, target);
}

static void print_case(uint64_t seed, const strided *shape, const rs_copy *copy, int64_t at)
{
    printf("seed %" PRIu64 ": byte %" PRId64 " differs, kernel %s, elements of %d bytes\n", seed,
           at, rs_copy_kernel_name(copy), shape->element_bytes);
    for (int32_t d = 0; d < shape->ndim; d++)
        printf("  size %" PRId64 " source stride %" PRId64 " target stride %" PRId64 "\n",
               shape->size[d], shape->source_strides[d], shape->target_strides[d]);
}

/* Copies and compares the target's whole memory, margins included, with the reference's. */
static void check_shape(draw_state *draw, uint64_t seed, const strided *shape,
                        const rs_copy_tuning *tuning)
{
    int64_t offset = draw_chance(draw, 50) ? 0 : draw_below(draw, 64);
    side source = make_side(shape, shape->source_strides, 0, draw_below(draw, 64));
    side target = make_side(shape, shape->target_strides, 64, offset);
    side wanted = make_side(shape, shape->target_strides, 64, offset);
    rs_copy copy;
    rs_copy_prepare_tuned(&copy, tuning, shape->element_bytes, shape->ndim, shape->size,
                          shape->source_strides, shape->target_strides);
    run_somehow(draw, &copy, source.memory + source.base, target.memory + target.base);
    rs_copy_reference(shape->element_bytes, shape->ndim, shape->size, shape->source_strides,
                      shape->target_strides, source.memory + source.base,
                      wanted.memory + wanted.base);
    int64_t at = 0;
    while (at < target.bytes && target.memory[at] == wanted.memory[at])
        at++;
    bool differs = at < target.bytes;
    if (differs)
        print_case(seed, shape, &copy, at);
    free(source.memory);
    free(target.memory);
    free(wanted.memory);
    assert_false(differs);
}

/* Any processor up to this one. */
static rs_cpu draw_cpu(draw_state *draw)
{
    return (rs_cpu)draw_below(draw, (int64_t)rs_cpu_detect() + 1);
}

static rs_copy_tuning draw_tuning(draw_state *draw)
{
    return (rs_copy_tuning){
        .cpu = draw_cpu(draw),
        .stream_bytes = draw_chance(draw, 50) ? 0 : SIZE_MAX,
        .measures = draw_chance(draw, 30),
    };
}

static void test_copy__random_shapes(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= CASE_COUNT; seed++) {
        draw_state draw;
        draw_seed(&draw, seed);
        strided shape = draw_shape(&draw);
        rs_copy_tuning tuning = draw_tuning(&draw);
        check_shape(&draw, seed, &shape, &tuning);
    }
}

/* Each row has to get this kernel: streamed or not, with AVX2 (if there is any) or without. */
typedef struct kernel_row {
    const char *streamed, *cached, *portable; /* portable: neither AVX2 nor streaming */
    strided shape;
    const char *wide; /* with AVX-512, if that is another one; streamed or not */
} kernel_row;

#define ONE(bytes, n, source, target) \
    {                                 \
        bytes, 1, {n}, {source},      \
        {                             \
            target                    \
        }                             \
    }
#define TWO(bytes, rows, columns, s0, s1, t0, t1) \
    {                                             \
        bytes, 2, {rows, columns}, {s0, s1},      \
        {                                         \
            t0, t1                                \
        }                                         \
    }

static const kernel_row kernel_rows[] = {
    {"rows", "rows", "rows", ONE(4, 5000, 1, 1), NULL},
    {"rows", "rows", "rows", TWO(1, 19, 512, 600, 1, 512, 1), NULL},
    {"rows", "rows", "rows", TWO(1, 19, 3000, 4000, 1, 3000, 1), NULL},
    {"rows", "rows", "rows", TWO(2, 13, 1025, 1025, 1, 1100, 1), NULL},
    {"rows", "rows", "rows", TWO(1, 9, 2570, 2600, 1, 3008, 1), NULL},
    {"lines", "units", "units", TWO(4, 103, 16, 64, 1, 16, 1), NULL},
    {"lines", "units", "units", TWO(4, 103, 16, 16, 1, 64, 1), NULL},
    {"lines", "units", "units", TWO(8, 51, 24, 72, 1, 24, 1), NULL},
    {"spill", "spill", "units", TWO(4, 700, 3, 8, 1, 3, 1), NULL},
    {"spill", "spill", "units", TWO(1, 900, 7, 29, 1, 7, 1), NULL},
    {"spill", "spill", "units", TWO(1, 900, 5, 10, 1, 5, 1), "shuffle 64"},
    {"shuffle 16", "shuffle 16", "units", ONE(1, 3001, 3, 1), "shuffle 64"},
    {"shuffle 16", "shuffle 16", "units", ONE(1, 3001, 8, 1), "shuffle 64"},
    {"shuffle 16", "shuffle 16", "units", ONE(3, 1001, 2, 1), "shuffle 64"},
    /* The last vector reads up to the end, and would write beyond it. */
    {"shuffle 16", "shuffle 16", "units", TWO(1, 100, 6, 10, 1, 6, 1), "shuffle 64"},
    {"units, staged", "units", "units", ONE(1, 3001, -3, 1), NULL},
    {"units, staged", "units", "units", ONE(3, 1001, 40, 1), NULL},
    {"units", "units", "units", ONE(1, 255, 3, 1), NULL},
    {"gather 1 of 2", "gather 1 of 2", "units", ONE(1, 3001, 2, 1), NULL},
    {"gather 1 of 4", "gather 1 of 4", "units", ONE(1, 3001, 4, 1), NULL},
    {"units, staged", "units", "units", TWO(1, 77, 33, 70, 1, 33, 1), NULL},
    {"units, staged", "units", "units", TWO(1, 77, 100, 256, 1, 100, 1), NULL},
    {"units", "units", "units", TWO(4, 700, 3, 3, 1, 8, 1), NULL},
    {"units", "units", "units", ONE(4, 999, 1, 4), NULL},
    {"units", "units", "units", ONE(2, 999, 1, 3), NULL},
    {"gather 2 of 2", "gather 2 of 2", "units", ONE(2, 1001, 2, 1), NULL},
    {"gather 2", "gather 2", "units", ONE(2, 1001, 3, 1), "shuffle 64"},
    {"gather 2 of 4", "gather 2 of 4", "units", ONE(2, 1001, 4, 1), NULL},
    {"gather 2", "gather 2", "units", ONE(2, 1001, 8, 1), "shuffle 64"},
    {"gather 4 of 2", "gather 4 of 2", "units", ONE(4, 1001, 2, 1), NULL},
    {"gather 4 of 3", "gather 4 of 3", "units", ONE(4, 1001, 3, 1), NULL},
    {"gather 4 of 4", "gather 4 of 4", "units", ONE(4, 1001, 4, 1), NULL},
    {"gather 4", "gather 4", "units", ONE(4, 1001, 8, 1), NULL},
    {"gather 4", "gather 4", "units", ONE(4, 1001, -3, 1), NULL},
    {"gather 8", "gather 8", "units", ONE(8, 1001, 2, 1), "shuffle 64"},
    {"gather 8", "gather 8", "units", ONE(8, 1001, 5, 1), NULL},
    {"transpose 1", "transpose 1", "transpose 1", TWO(1, 301, 333, 333, 1, 1, 301), NULL},
    {"transpose 2", "transpose 2", "transpose 2", TWO(2, 301, 333, 333, 1, 1, 301), NULL},
    {"transpose 4, avx2", "transpose 4, avx2", "transpose 4", TWO(4, 301, 333, 333, 1, 1, 301),
     NULL},
    {"transpose 8, avx2", "transpose 8, avx2", "transpose 8", TWO(8, 157, 133, 140, 1, 1, 157),
     NULL},
    {"transpose 16", "transpose 16", "transpose 16", TWO(16, 67, 75, 75, 1, 1, 70), NULL},
    {"transpose 16",
     "transpose 16",
     "transpose 16",
     {4, 3, {67, 75, 4}, {300, 4, 1}, {4, 268, 1}},
     NULL},
    {"transpose", "transpose", "transpose", TWO(4, 99, 101, 202, 2, 1, 99), NULL},
    {"units", "units", "units", {4, 3, {500, 2, 3}, {6, 3, 1}, {6, 1, 2}}, NULL},
    {"transpose", "transpose", "transpose", TWO(3, 99, 101, 101, 1, 1, 99), NULL},
};

static void check_name(const kernel_row *row, const rs_copy *copy, rs_cpu cpu, bool streams)
{
#if defined(__x86_64__) && !defined(RS_PORTABLE)
    const char *name = streams ? row->streamed : row->cached;
    if (cpu == RS_CPU_PORTABLE)
        name = streams ? NULL : row->portable;
    if (cpu == RS_CPU_AVX512 && row->wide != NULL)
        name = row->wide;
    if (name != NULL)
        assert_string_equal(rs_copy_kernel_name(copy), name);
#else
    (void)row;
    (void)copy;
    (void)cpu;
    (void)streams;
#endif
}

static void check_kernel(const kernel_row *row, size_t index, rs_cpu cpu, bool streams)
{
    rs_copy_tuning tuning = {.cpu = cpu, .stream_bytes = streams ? 0 : SIZE_MAX};
    const strided *shape = &row->shape;
    rs_copy copy;
    rs_copy_prepare_tuned(&copy, &tuning, shape->element_bytes, shape->ndim, shape->size,
                          shape->source_strides, shape->target_strides);
    check_name(row, &copy, cpu, streams);
    for (uint64_t seed = 1; seed <= 6; seed++) {
        draw_state draw;
        draw_seed(&draw, 1000 * index + seed);
        check_shape(&draw, seed, shape, &tuning);
    }
}

static void test_copy__kernels(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof kernel_rows / sizeof kernel_rows[0]; i++)
        for (rs_cpu cpu = RS_CPU_PORTABLE; cpu <= rs_cpu_detect(); cpu++)
            for (int streams = 0; streams < 2; streams++)
                check_kernel(&kernel_rows[i], i, cpu, streams != 0);
}

/* Every unit up to a cache line, at steps that are near and far, dense in the target: the last
 * units, for which no vector fits, with those before them. Rows that follow one another in the
 * target and rows that do not. */
static void check_unit(int32_t unit, rs_cpu cpu, bool streams)
{
    static const int64_t parts[] = {1, 2, 3, 4, 5, 8, 13, 40};
    rs_copy_tuning tuning = {.cpu = cpu, .stream_bytes = streams ? 0 : SIZE_MAX};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        draw_state draw;
        uint64_t seed = (uint64_t)unit * 100 + i;
        draw_seed(&draw, seed);
        int64_t columns = 300 / unit + draw_between(&draw, 1, 600 / unit + 5);
        if (i % 3 == 2)
            columns += 9000 / unit;
        int64_t gap = draw_chance(&draw, 50) ? 0 : draw_below(&draw, 70);
        int64_t step = parts[i] * unit + draw_below(&draw, 2) * draw_below(&draw, unit);
        strided shape = {.element_bytes = 1, .ndim = 3};
        int64_t sizes[] = {3, columns, unit};
        int64_t from[] = {columns * step + 7, step, 1}, to[] = {columns * unit + gap, unit, 1};
        memcpy(shape.size, sizes, sizeof sizes);
        memcpy(shape.source_strides, from, sizeof from);
        memcpy(shape.target_strides, to, sizeof to);
        check_shape(&draw, seed, &shape, &tuning);
    }
}

static void test_copy__every_unit(void **state)
{
    (void)state;
    for (int32_t unit = 1; unit <= 64; unit++)
        for (rs_cpu cpu = RS_CPU_PORTABLE; cpu <= rs_cpu_detect(); cpu++)
            for (int streams = 0; streams < 2; streams++)
                check_unit(unit, cpu, streams != 0);
}

/* All phases of interleaved elements taken apart together. */
static void test_copy__together(void **state)
{
    (void)state;
    enum { COUNT = 30011 };
    uint32_t *source = malloc(PARTS_MAX * COUNT * sizeof *source);
    uint32_t *target = malloc(PARTS_MAX * COUNT * sizeof *target);
    assert_non_null(source);
    assert_non_null(target);
    for (uint32_t i = 0; i < PARTS_MAX * COUNT; i++)
        source[i] = i;
    rs_copy copy, other;
    rs_copy_tuning tuning = {.cpu = rs_cpu_detect(), .stream_bytes = 0};
    rs_copy_prepare_tuned(&copy, &tuning, 4, 1, (int64_t[]){COUNT}, (int64_t[]){PARTS_MAX},
                          (int64_t[]){1});
    /* One of them with fewer iterations than the others have turns. */
    rs_copy_prepare_tuned(&other, &tuning, 4, 1, (int64_t[]){5}, (int64_t[]){PARTS_MAX},
                          (int64_t[]){1});
    const rs_copy *copies[PARTS_MAX] = {&copy, &copy, &other, &copy};
    const void *sources[PARTS_MAX];
    void *targets[PARTS_MAX];
    for (size_t i = 0; i < PARTS_MAX; i++) {
        sources[i] = source + i;
        targets[i] = target + i * COUNT;
    }
    memset(target, 0xff, PARTS_MAX * COUNT * sizeof *target);
    rs_copy_run_together(PARTS_MAX, copies, sources, targets);
    for (uint32_t i = 0; i < PARTS_MAX; i++)
        for (uint32_t k = 0; k < COUNT; k++)
            assert_int_equal(target[i * COUNT + k],
                             i == 2 && k >= 5 ? UINT32_MAX : PARTS_MAX * k + i);
    rs_copy_run_together(0, NULL, NULL, NULL);
    free(source);
    free(target);
}

/* How copies that share a memory in turns may differ from one another. */
enum {
    ALIKE,
    ONE_IS_SHORTER,
    ONE_IS_MISSING,
    ONE_MORE,
    ONE_HAS_SHORTER_ROWS, /* which still follow one another */
    SHORT_ROWS,
    ONE_IS_SHIFTED,
    DIFFERENCES
};

/* The strides of copy k and where it begins in the interleaved memory and in its own. */
typedef struct strand {
    int64_t size[3], mixed_strides[3], own_strides[3];
    size_t mixed_at, own_at;
} strand;

enum { STRAND_ROWS = 3, STRANDS_MAX = 17 };

static strand make_strand(int32_t parts, int32_t unit, size_t shift, int difference, int32_t k)
{
    /* More than streaming collects at a time, or about as much as it takes at least. */
    int64_t length = difference == SHORT_ROWS ? 1 + 800 / unit : 13 + 4500 / unit;
    int64_t line = length * unit, row = parts * line + 1;
    strand made = {
        .size = {STRAND_ROWS, length - (k == 0 && difference == ONE_IS_SHORTER), unit},
        .mixed_strides = {row, (int64_t)parts * unit, 1},
        .own_strides = {line, unit, 1},
        .mixed_at = shift + (size_t)((k + 1) % parts * unit),
        .own_at = shift + (size_t)(k * STRAND_ROWS * line),
    };
    if (k == 0 && difference == ONE_IS_SHIFTED)
        made.mixed_at++;
    if (k == 1 && difference == ONE_HAS_SHORTER_ROWS) {
        made.size[1]--;
        made.own_strides[0] -= unit;
    }
    if (k == parts) { /* one byte behind the units of each row */
        made.size[1] = made.size[2] = made.own_strides[0] = 1;
        made.mixed_at = shift + (size_t)(row - 1);
    }
    return made;
}

/* Copies that fill one target in turns, or that take one source apart: in any order, of any width,
 * at any alignment. One may be shorter or missing, or there is a last unit that is not whole; one
 * that reads may begin within a unit of another. */
static void check_strands(bool apart, int32_t parts, int32_t unit, size_t shift, int difference,
                          const rs_copy_tuning *tuning)
{
    strand last = make_strand(parts, unit, shift, difference, parts);
    size_t bytes = last.mixed_at + (STRAND_ROWS - 1) * (size_t)last.mixed_strides[0] + 1;
    unsigned char *source = malloc(bytes), *target = malloc(bytes), *wanted = malloc(bytes);
    assert_non_null(source);
    assert_non_null(target);
    assert_non_null(wanted);
    for (size_t i = 0; i < bytes; i++)
        source[i] = (unsigned char)(i * 31 + i / 251);
    memset(target, 0xa5, bytes);
    memset(wanted, 0xa5, bytes);
    rs_copy copy[STRANDS_MAX];
    const rs_copy *copies[STRANDS_MAX];
    const void *from[STRANDS_MAX];
    void *to[STRANDS_MAX];
    int32_t count = difference == ONE_MORE ? parts + 1 : parts;
    int32_t first = difference == ONE_IS_MISSING ? 1 : 0;
    for (int32_t k = 0; k < count; k++) {
        strand one = make_strand(parts, unit, shift, difference, k);
        const int64_t *read = apart ? one.mixed_strides : one.own_strides;
        const int64_t *write = apart ? one.own_strides : one.mixed_strides;
        size_t target_at = apart ? one.own_at : one.mixed_at;
        from[k] = source + (apart ? one.mixed_at : one.own_at);
        to[k] = target + target_at;
        rs_copy_prepare_tuned(&copy[k], tuning, 1, 3, one.size, read, write);
        copies[k] = &copy[k];
        if (k >= first)
            rs_copy_reference(1, 3, one.size, read, write, from[k], wanted + target_at);
    }
    rs_copy_run_together(count - first, copies + first, from + first, to + first);
    assert_memory_equal(target, wanted, bytes);
    free(source);
    free(target);
    free(wanted);
}

static void check_all_strands(bool apart)
{
    static const int32_t parts[] = {2, 3, 4, 8, 16};
    static const int32_t units[] = {1,  2,  3,  4,  5,  7,  8,  9,   12, 15,
                                    16, 17, 31, 48, 63, 64, 65, 200, 511};
    for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++) {
        for (size_t u = 0; u < sizeof units / sizeof units[0]; u++) {
            for (int way = 0; way < 2 * ((int)rs_cpu_detect() + 1); way++) {
                rs_copy_tuning tuning = {.cpu = (rs_cpu)(way / 2),
                                         .stream_bytes = way % 2 != 0 ? 0 : SIZE_MAX};
                size_t shift = (p + u + (size_t)way) % 3;
                for (int difference = 0; difference < DIFFERENCES; difference++)
                    if (apart || difference != ONE_IS_SHIFTED)
                        check_strands(apart, parts[p], units[u], shift, difference, &tuning);
            }
        }
    }
}

static void test_copy__woven(void **state)
{
    (void)state;
    check_all_strands(false);
}

static void test_copy__unwoven(void **state)
{
    (void)state;
    check_all_strands(true);
}

#if RS_X86
typedef void stream_fn(rs_cpu cpu, int64_t rows, int64_t bytes, const unsigned char *source,
                       int64_t source_step, unsigned char *target, int64_t target_step);

/* Rows of a length, with gaps or without, at any place of a line. */
static void check_streaming(stream_fn *run, rs_cpu cpu, int64_t rows, int64_t bytes,
                            int64_t source_gap, int64_t target_gap)
{
    size_t shift = (size_t)(bytes % 5) * 16;
    int64_t source_step = bytes + source_gap, target_step = bytes + target_gap;
    size_t source_bytes = (size_t)((rows - 1) * source_step + bytes) + shift;
    size_t target_bytes = (size_t)(rows * target_step) + shift;
    unsigned char *source = malloc(source_bytes), *target = malloc(target_bytes);
    assert_non_null(source);
    assert_non_null(target);
    for (size_t i = 0; i < source_bytes; i++)
        source[i] = (unsigned char)(i * 31 + i / 251);
    memset(target, 0xa5, target_bytes);
    run(cpu, rows, bytes, source + shift, source_step, target + shift, target_step);
    rs_copy_fence();
    for (int64_t row = 0; row < rows; row++) {
        const unsigned char *at = target + shift + row * target_step;
        assert_memory_equal(at, source + shift + row * source_step, (size_t)bytes);
        for (int64_t i = bytes; i < target_step; i++)
            assert_int_equal(at[i], 0xa5);
    }
    free(source);
    free(target);
}

static void check_all_streaming(void)
{
    static stream_fn *const ways[] = {rs_stream_by_pages, rs_stream_in_order, rs_stream_rows};
    static const int64_t lengths[] = {64, 448, 512, 600, 2048, 4088, 8191, 8192, 32768, 70001};
    for (int cpu = 0; cpu <= (int)rs_cpu_detect(); cpu++)
        for (size_t w = 0; w < sizeof ways / sizeof ways[0]; w++)
            for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++)
                for (int gaps = 0; gaps < 4; gaps++)
                    check_streaming(ways[w], (rs_cpu)cpu, lengths[l] < 4096 ? 67 : 7, lengths[l],
                                    gaps % 2 * 192, gaps / 2 * 83);
    enum { MIB = 1 << 20 };
    check_streaming(rs_stream_rows, rs_cpu_detect(), 5 * MIB / 1000, 1000, 24, 0);
    check_streaming(rs_stream_rows, rs_cpu_detect(), 5 * MIB / 8192 + 3, 8192, 64, 1);
    check_streaming(rs_stream_rows, rs_cpu_detect(), 2, 5 * MIB / 2 + 17, 0, 3);
    check_streaming(rs_stream_rows, rs_cpu_detect(), 1, 4 * MIB, 0, 0);
}
#else
static void check_all_streaming(void)
{
}
#endif

/* Both ways to stream rows, and parts of them in turns. */
static void test_copy__streaming(void **state)
{
    (void)state;
    check_all_streaming();
}

static void test_copy__pack_and_unpack(void **state)
{
    (void)state;
    int64_t size[] = {3, 4, 5}, strides[] = {1, 15, 3};
    uint16_t array[60], packed[60], back[60] = {0};
    for (uint16_t i = 0; i < 60; i++)
        array[i] = i;
    rs_copy pack, unpack;
    rs_pack_prepare(&pack, 2, 3, size, strides);
    rs_unpack_prepare(&unpack, 2, 3, size, strides);
    rs_copy_run(&pack, array, packed);
    for (int i = 0; i < 60; i++)
        assert_int_equal(packed[i], i / 20 + i / 5 % 4 * 15 + i % 5 * 3);
    rs_copy_run(&unpack, packed, back);
    assert_memory_equal(array, back, sizeof array);
}

static void test_copy__numbers(void **state)
{
    (void)state;
    static const struct {
        strided shape;
        int64_t outer_count, source_run, target_run;
        size_t bytes;
    } rows[] = {
        {{4, 0, {0}, {0}, {0}}, 1, 4, 4, 4},
        {{4, 1, {0}, {1}, {1}}, 0, 0, 0, 0},
        {{4, 2, {7, 0}, {1, 7}, {1, 7}}, 0, 0, 0, 0},
        {ONE(4, 10, 1, 1), 10, 40, 40, 40},
        {ONE(4, 10, 4, 1), 10, 4, 40, 40},
        {TWO(4, 6, 10, 10, 1, 10, 1), 60, 240, 240, 240},
        {TWO(4, 10, 6, 1, 10, 1, 10), 60, 240, 240, 240},
        {TWO(4, 6, 1000, 2000, 1, 1000, 1), 6, 4000, 24000, 24000},
        {TWO(4, 6, 10, 10, 1, 1, 6), 6, 240, 240, 240},
        {{2, 3, {5, 1, 8}, {16, 3, 1}, {8, 99, 1}}, 5, 16, 80, 80},
        /* More than 2^32 bytes and 2^31 elements. */
        {TWO(8, INT64_C(1) << 33, 4, 8, 1, 4, 1), INT64_C(1) << 33, 32, INT64_C(1) << 38,
         (size_t)1 << 38},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        const strided *shape = &rows[i].shape;
        rs_copy copy;
        rs_copy_prepare(&copy, shape->element_bytes, shape->ndim, shape->size,
                        shape->source_strides, shape->target_strides);
        assert_int_equal(rs_copy_outer_count(&copy), rows[i].outer_count);
        assert_int_equal(rs_copy_source_run(&copy), rows[i].source_run);
        assert_int_equal(rs_copy_target_run(&copy), rows[i].target_run);
        assert_int_equal(rs_copy_bytes(&copy), rows[i].bytes);
        if (rows[i].bytes == 0) {
            assert_string_equal(rs_copy_kernel_name(&copy), "none");
            rs_copy_run(&copy, NULL, NULL);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy__kernels),    cmocka_unit_test(test_copy__random_shapes),
        cmocka_unit_test(test_copy__every_unit), cmocka_unit_test(test_copy__together),
        cmocka_unit_test(test_copy__woven),      cmocka_unit_test(test_copy__unwoven),
        cmocka_unit_test(test_copy__streaming),  cmocka_unit_test(test_copy__pack_and_unpack),
        cmocka_unit_test(test_copy__numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
