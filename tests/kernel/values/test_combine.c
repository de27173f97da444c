/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_combine.c - reductions of all types against the obvious way: integers through 128 bits and
 * cut to their width, floating types one by one, with NaN, infinity and both zeros among them.
 */
#include "kernel/values/combine.h"

#include "kernel/values/cast.h"
#include "tests/support/check.h"
#include "tests/support/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define COUNT 1500
#define BYTES_MAX 8

static const reshard_dtype integers[] = {RESHARD_I8,  RESHARD_U8,  RESHARD_I16, RESHARD_U16,
                                         RESHARD_I32, RESHARD_U32, RESHARD_I64, RESHARD_U64};
static const reshard_dtype floats[] = {RESHARD_F16, RESHARD_BF16, RESHARD_F32, RESHARD_F64};
static const reshard_reduction reductions[] = {RESHARD_SUM, RESHARD_AVG, RESHARD_PROD,
                                               RESHARD_MIN, RESHARD_MAX, RESHARD_BAND,
                                               RESHARD_BOR, RESHARD_BXOR};

typedef __int128 wide;

static bool is_signed(reshard_dtype dtype)
{
    return dtype == RESHARD_I8 || dtype == RESHARD_I16 || dtype == RESHARD_I32 ||
           dtype == RESHARD_I64;
}

static wide read_integer(reshard_dtype dtype, const unsigned char *source)
{
    int bits = reshard_dtype_bits(dtype);
    uint64_t value = 0;
    memcpy(&value, source, (size_t)bits / 8); /* little-endian, as all of these machines are */
    bool negative = is_signed(dtype) && (value >> (bits - 1) & 1) != 0;
    return negative ? (wide)value - ((wide)1 << bits) : (wide)value;
}

static void write_integer(reshard_dtype dtype, unsigned char *target, unsigned __int128 value)
{
    uint64_t low = (uint64_t)value;
    memcpy(target, &low, (size_t)reshard_dtype_bits(dtype) / 8);
}

static void combine_integer(reshard_reduction reduction, reshard_dtype dtype, unsigned char *target,
                            const unsigned char *source)
{
    wide a = read_integer(dtype, target), b = read_integer(dtype, source);
    wide least = a < b ? a : b, most = a < b ? b : a;
    unsigned __int128 product = (unsigned __int128)a * (unsigned __int128)b;
    unsigned __int128 result = (unsigned __int128)(a + b);
    if (reduction == RESHARD_PROD)
        result = product;
    else if (reduction == RESHARD_MIN || reduction == RESHARD_MAX)
        result = (unsigned __int128)(reduction == RESHARD_MIN ? least : most);
    else if (reduction == RESHARD_BAND)
        result = (unsigned __int128)(a & b);
    else if (reduction == RESHARD_BOR)
        result = (unsigned __int128)(a | b);
    else if (reduction == RESHARD_BXOR)
        result = (unsigned __int128)(a ^ b);
    write_integer(dtype, target, result);
}

/* In f32 for the 16-bit types and f32, in f64 for f64; then rounded. */
static void combine_float(reshard_reduction reduction, reshard_dtype dtype, unsigned char *target,
                          const unsigned char *source)
{
    double a, b;
    rs_cast_reference(dtype, RESHARD_F64, target, &a);
    rs_cast_reference(dtype, RESHARD_F64, source, &b);
    double result;
    if (reduction == RESHARD_MIN || reduction == RESHARD_MAX) {
        bool first = reduction == RESHARD_MIN ? a < b : a > b;
        result = a != a ? a : b != b ? b : first ? a : b;
    } else if (dtype == RESHARD_F64) {
        result = reduction == RESHARD_PROD ? a * b : a + b;
    } else {
        float x = (float)a, y = (float)b;
        result = (double)(reduction == RESHARD_PROD ? x * y : x + y);
    }
    rs_cast_reference(RESHARD_F64, dtype, &result, target);
}

/* Small whole numbers, special values, any bits. */
static void draw_elements(draw_state *draw, reshard_dtype dtype, unsigned char *elements)
{
    static const double special[] = {0.0, -0.0,  1e308 * 10, -1e308 * 10, 1,
                                     -1,  65504, 6e-8,       3.3e38};
    size_t bytes = (size_t)reshard_dtype_bits(dtype) / 8;
    bool is_float = false;
    for (size_t i = 0; i < 4; i++)
        is_float = is_float || floats[i] == dtype;
    for (size_t i = 0; i < COUNT; i++) {
        double value = draw_chance(draw, 30) ? special[draw_below(draw, 9)]
                                             : (double)draw_between(draw, -300, 300) / 8;
        uint64_t bits = draw_bits(draw);
        if (is_float && draw_chance(draw, 70))
            rs_cast_reference(RESHARD_F64, dtype, &value, elements + i * bytes);
        else
            memcpy(elements + i * bytes, &bits, bytes);
    }
}

/* Equal bits; any NaN for a NaN of a sum or product, whose payload the processor chooses. */
static bool is_same(reshard_dtype dtype, const unsigned char *a, const unsigned char *b)
{
    size_t bytes = (size_t)reshard_dtype_bits(dtype) / 8;
    if (memcmp(a, b, bytes) == 0)
        return true;
    double x = 0, y = 0;
    for (size_t i = 0; i < 4; i++) {
        if (floats[i] == dtype) {
            rs_cast_reference(dtype, RESHARD_F64, a, &x);
            rs_cast_reference(dtype, RESHARD_F64, b, &y);
        }
    }
    return x != x && y != y;
}

static void check_same(reshard_reduction reduction, reshard_dtype dtype, uint64_t seed,
                       const unsigned char *found, const unsigned char *wanted)
{
    size_t bytes = (size_t)reshard_dtype_bits(dtype) / 8;
    for (size_t i = 0; i < COUNT; i++) {
        if (is_same(dtype, found + i * bytes, wanted + i * bytes))
            continue;
        printf("seed %" PRIu64 ": %s of %s, element %zu\n", seed, reshard_reduction_name(reduction),
               reshard_dtype_name(dtype), i);
        assert_memory_equal(found + i * bytes, wanted + i * bytes, bytes);
    }
}

typedef void combine_one(reshard_reduction reduction, reshard_dtype dtype, unsigned char *target,
                         const unsigned char *source);

static void check_combine(reshard_reduction reduction, reshard_dtype dtype, combine_one *one,
                          uint64_t seed)
{
    /* One byte off, as nothing promises alignment. */
    static unsigned char source[COUNT * BYTES_MAX + 1], target[COUNT * BYTES_MAX + 1];
    static unsigned char wanted[COUNT * BYTES_MAX];
    size_t bytes = (size_t)reshard_dtype_bits(dtype) / 8;
    draw_state draw;
    draw_seed(&draw, seed);
    draw_elements(&draw, dtype, source + 1);
    draw_elements(&draw, dtype, target + 1);
    memcpy(wanted, target + 1, sizeof wanted);
    assert_true(rs_combine_supports(reduction, dtype));
    rs_combine(reduction, dtype, target + 1, source + 1, COUNT);
    for (size_t i = 0; i < COUNT; i++)
        one(reduction, dtype, wanted + i * bytes, source + 1 + i * bytes);
    check_same(reduction, dtype, seed, target + 1, wanted);
}

static void test_combine__integers(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 8; i++)
        for (uint64_t k = 0; k < 8; k++)
            check_combine(reductions[k], integers[i], combine_integer, 10 * i + k);
}

static void test_combine__floats(void **state)
{
    (void)state;
    for (uint64_t i = 0; i < 4; i++)
        for (uint64_t k = 0; k < 5; k++)
            check_combine(reductions[k], floats[i], combine_float, 10 * i + k);
}

static void test_combine__complex(void **state)
{
    (void)state;
    const float source[] = {1, 2, 3, -4, 0.5f, 0};
    const float start[] = {5, 6, -7, 8, 9, 10};
    float target[6];
    memcpy(target, start, sizeof target);
    rs_combine(RESHARD_SUM, RESHARD_C64, target, source, 3);
    assert_memory_equal(target, ((float[]){6, 8, -4, 4, 9.5f, 10}), sizeof target);
    memcpy(target, start, sizeof target);
    rs_combine(RESHARD_PROD, RESHARD_C64, target, source, 3);
    assert_memory_equal(target, ((float[]){-7, 16, 11, 52, 4.5f, 5}), sizeof target);
    memcpy(target, start, sizeof target);
    rs_scale(RESHARD_C64, target, 3, 2);
    assert_memory_equal(target, ((float[]){2.5f, 3, -3.5f, 4, 4.5f, 5}), sizeof target);
    const double long_source[] = {1, 2, 3, -4, 0.5, 0}, long_start[] = {5, 6, -7, 8, 9, 10};
    double longer[6];
    memcpy(longer, long_start, sizeof longer);
    rs_combine(RESHARD_SUM, RESHARD_C128, longer, long_source, 3);
    assert_memory_equal(longer, ((double[]){6, 8, -4, 4, 9.5, 10}), sizeof longer);
    memcpy(longer, long_start, sizeof longer);
    rs_combine(RESHARD_PROD, RESHARD_C128, longer, long_source, 3);
    assert_memory_equal(longer, ((double[]){-7, 16, 11, 52, 4.5, 5}), sizeof longer);
    memcpy(longer, long_start, sizeof longer);
    rs_scale(RESHARD_C128, longer, 3, 2);
    assert_memory_equal(longer, ((double[]){2.5, 3, -3.5, 4, 4.5, 5}), sizeof longer);
    assert_false(rs_combine_supports(RESHARD_MIN, RESHARD_C64));
    assert_false(rs_combine_supports(RESHARD_MAX, RESHARD_C128));
    assert_false(rs_combine_supports(RESHARD_SUM, RESHARD_F8_E4M3));
    assert_false(rs_combine_supports((reshard_reduction)99, RESHARD_F32));
    assert_false(rs_combine_supports(RESHARD_SUM, (reshard_dtype)99));
}

/* All pairs of false, true as 1 and true as 2. */
static void test_combine__bool(void **state)
{
    (void)state;
    static const struct {
        reshard_reduction reduction;
        unsigned char wanted[9];
    } rows[] = {
        {RESHARD_SUM, {0, 1, 1, 1, 1, 1, 1, 1, 1}},  {RESHARD_MAX, {0, 1, 1, 1, 1, 1, 1, 1, 1}},
        {RESHARD_BOR, {0, 1, 1, 1, 1, 1, 1, 1, 1}},  {RESHARD_PROD, {0, 0, 0, 0, 1, 1, 0, 1, 1}},
        {RESHARD_MIN, {0, 0, 0, 0, 1, 1, 0, 1, 1}},  {RESHARD_BAND, {0, 0, 0, 0, 1, 1, 0, 1, 1}},
        {RESHARD_BXOR, {0, 1, 1, 1, 0, 0, 1, 0, 0}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        unsigned char target[] = {0, 0, 0, 1, 1, 1, 2, 2, 2};
        const unsigned char source[] = {0, 1, 2, 0, 1, 2, 0, 1, 2};
        rs_combine(rows[i].reduction, RESHARD_BOOL, target, source, 9);
        assert_memory_equal(target, rows[i].wanted, sizeof target);
    }
    assert_false(rs_combine_supports(RESHARD_AVG, RESHARD_BOOL));
    assert_false(rs_combine_supports(RESHARD_BAND, RESHARD_F32));
    assert_false(rs_combine_supports(RESHARD_BXOR, RESHARD_C64));
}

static void check_scale(reshard_dtype dtype, int32_t divisor, bool is_integer, uint64_t seed)
{
    static unsigned char target[COUNT * BYTES_MAX], wanted[COUNT * BYTES_MAX];
    size_t bytes = (size_t)reshard_dtype_bits(dtype) / 8;
    draw_state draw;
    draw_seed(&draw, seed);
    draw_elements(&draw, dtype, target);
    memcpy(wanted, target, sizeof wanted);
    for (size_t i = 0; i < COUNT; i++) {
        unsigned char *element = wanted + i * bytes;
        if (is_integer) {
            /* Towards zero is what C's division does. */
            wide quotient = read_integer(dtype, element) / divisor;
            write_integer(dtype, element, (unsigned __int128)quotient);
            continue;
        }
        double value;
        rs_cast_reference(dtype, RESHARD_F64, element, &value);
        value = dtype == RESHARD_F64 ? value / divisor : (double)((float)value / (float)divisor);
        rs_cast_reference(RESHARD_F64, dtype, &value, element);
    }
    rs_scale(dtype, target, COUNT, divisor);
    check_same(RESHARD_AVG, dtype, seed, target, wanted);
}

static void test_combine__scale(void **state)
{
    (void)state;
    static const int32_t divisors[] = {1, 2, 3, 7, 1000, 100000, INT32_MAX};
    for (uint64_t k = 0; k < 7; k++) {
        for (uint64_t i = 0; i < 8; i++)
            check_scale(integers[i], divisors[k], true, 10 * i + k);
        for (uint64_t i = 0; i < 4; i++)
            check_scale(floats[i], divisors[k], false, 10 * i + k);
    }
}

/* The widest elements, in lines that are longer than the buffers for what is not dense. */
static void test_combine__strided_complex(void **state)
{
    (void)state;
    enum { LENGTH = 1500, STEP = 3 };
    static double source[LENGTH * STEP * 2], target[LENGTH * STEP * 2], wanted[LENGTH * STEP * 2];
    for (int32_t i = 0; i < LENGTH * STEP * 2; i++) {
        source[i] = 3 * i;
        target[i] = wanted[i] = -i;
    }
    for (int32_t i = 0; i < LENGTH * 2; i++) {
        double *place = &wanted[i / 2 * STEP * 2 + i % 2];
        *place = (*place + source[i / 2 * STEP * 2 + i % 2]) / 2;
    }
    rs_combining sum, scale;
    int64_t length = LENGTH, step = STEP;
    rs_combine_prepare(&sum, RESHARD_AVG, RESHARD_C128, 1, &length, &step, &step);
    rs_scale_prepare(&scale, RESHARD_C128, 2, 1, &length, &step);
    rs_combine_run(&sum, source, target);
    rs_combine_run(&scale, NULL, target);
    assert_memory_equal(target, wanted, sizeof target);
}

static void test_combine__strided(void **state)
{
    (void)state;
    static const int64_t size[] = {4, 30, 33};
    static const int64_t strides[][3] = {{990, 33, 1}, {1, 4, 120}, {2400, 70, 2}, {1200, -35, 1}};
    enum { ROOM = 14000, MIDDLE = 2000 };
    static int32_t source[ROOM], target[ROOM], wanted[ROOM];
    for (int32_t i = 0; i < ROOM; i++)
        source[i] = 3 * i;
    for (size_t way = 0; way < 16; way++) {
        const int64_t *in = strides[way % 4], *out = strides[way / 4];
        for (int32_t i = 0; i < ROOM; i++)
            target[i] = wanted[i] = -i;
        for (int64_t k = 0; k < size[0] * size[1] * size[2]; k++) {
            int64_t x = k / (30 * 33), y = k / 33 % 30, z = k % 33;
            int32_t *place = &wanted[MIDDLE + x * out[0] + y * out[1] + z * out[2]];
            *place = (*place + source[MIDDLE + x * in[0] + y * in[1] + z * in[2]]) / 3;
        }
        rs_combining sum, scale;
        rs_combine_prepare(&sum, RESHARD_AVG, RESHARD_I32, 3, size, in, out);
        rs_scale_prepare(&scale, RESHARD_I32, 3, 3, size, out);
        int64_t count = rs_combine_outer_count(&sum), cut = count / 2;
        rs_combine_run_part(&sum, source + MIDDLE, target + MIDDLE, 0, cut);
        rs_combine_run_part(&sum, source + MIDDLE, target + MIDDLE, cut, count - cut);
        rs_combine_run(&scale, NULL, target + MIDDLE);
        assert_memory_equal(target, wanted, sizeof target);
    }
    rs_combining empty;
    rs_combine_prepare(&empty, RESHARD_SUM, RESHARD_I32, 1, (int64_t[]){0}, (int64_t[]){1},
                       (int64_t[]){1});
    rs_combine_run(&empty, NULL, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_combine__integers), cmocka_unit_test(test_combine__floats),
        cmocka_unit_test(test_combine__complex),  cmocka_unit_test(test_combine__scale),
        cmocka_unit_test(test_combine__strided),  cmocka_unit_test(test_combine__strided_complex),
        cmocka_unit_test(test_combine__bool),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
