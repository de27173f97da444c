/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cast.c - casts between f16, bf16, f32 and f64; test_cast_f8.c has what 8 bits are. What a
 * value is and how it is rounded is worked out here by arithmetic on doubles, not on bits as in the
 * library. All 16-bit values are tried, and the points half way between them with their neighbours,
 * where rounding twice would show.
 */
#include "kernel/values/cast.h"
#include "tests/support/check.h"
#include "tests/support/random.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HALF_COUNT 65536
#define RANDOM_COUNT 40000

typedef struct format {
    reshard_dtype dtype;
    int exponent_bits, fraction_bits;
} format;

static const format f16 = {RESHARD_F16, 5, 10}, bf16 = {RESHARD_BF16, 8, 7};
static const reshard_dtype dtypes[] = {RESHARD_F16, RESHARD_BF16,    RESHARD_F32,
                                       RESHARD_F64, RESHARD_F8_E4M3, RESHARD_F8_E5M2};
#define DTYPE_COUNT (sizeof dtypes / sizeof *dtypes)

static double make_power(int n)
{
    double power = 1;
    for (; n > 0; n--)
        power *= 2;
    for (; n < 0; n++)
        power /= 2;
    return power;
}

static bool is_nan_half(format kind, uint32_t bits)
{
    uint32_t top = (1u << kind.exponent_bits) - 1;
    return (bits & 0x7fff) > top << kind.fraction_bits;
}

/* The value of 16 bits that are no NaN. */
static double read_half(format kind, uint32_t bits)
{
    int top = (1 << kind.exponent_bits) - 1, bias = top / 2;
    int exponent = (int)(bits >> kind.fraction_bits) & top;
    int fraction = (int)(bits & ((1u << kind.fraction_bits) - 1));
    double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (exponent == top)
        return sign * 1e308 * 10;
    if (exponent == 0)
        return sign * fraction * make_power(1 - bias - kind.fraction_bits);
    return sign * (fraction + make_power(kind.fraction_bits)) *
           make_power(exponent - bias - kind.fraction_bits);
}

/* A whole number near x; the sum is rounded to nearest even by the processor. |x| below 2^51. */
static double round_whole(double x)
{
    volatile double shifted = x + 0x1.8p52;
    return shifted - 0x1.8p52;
}

/* What a value that is no NaN rounds to. */
static uint32_t round_half(format kind, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = (uint32_t)(bits >> 48) & 0x8000;
    int top = (1 << kind.exponent_bits) - 1, bias = top / 2;
    double magnitude = sign != 0 ? -value : value;
    uint32_t infinity = (uint32_t)top << kind.fraction_bits;
    if (magnitude >= make_power(bias + 1))
        return sign | infinity;
    int exponent = 1 - bias;
    for (double next = make_power(exponent + 1); magnitude >= next; next *= 2)
        exponent++;
    /* Units of the last place; from 2^fraction_bits on they count the exponent as well. */
    double units = round_whole(magnitude * make_power(kind.fraction_bits - exponent));
    return sign | ((uint32_t)units + ((uint32_t)(exponent + bias - 1) << kind.fraction_bits));
}

static void cast_run(rs_cpu cpu, reshard_dtype source_dtype, reshard_dtype target_dtype,
                     int64_t count, const void *source, void *target)
{
    rs_cast cast;
    rs_cast_prepare_for(&cast, cpu, source_dtype, target_dtype, 1, &count, (int64_t[]){1},
                        (int64_t[]){1});
    rs_cast_run(&cast, source, target);
}

static void check_widening(rs_cpu cpu, format kind)
{
    static uint16_t halves[HALF_COUNT], back[HALF_COUNT];
    static float singles[HALF_COUNT];
    static double doubles[HALF_COUNT];
    for (uint32_t i = 0; i < HALF_COUNT; i++)
        halves[i] = (uint16_t)i;
    cast_run(cpu, kind.dtype, RESHARD_F32, HALF_COUNT, halves, singles);
    cast_run(cpu, kind.dtype, RESHARD_F64, HALF_COUNT, halves, doubles);
    for (uint32_t i = 0; i < HALF_COUNT; i++) {
        if (is_nan_half(kind, i)) {
            assert_true(singles[i] != singles[i] && doubles[i] != doubles[i]);
        } else {
            double value = read_half(kind, i), single = (double)singles[i];
            assert_memory_equal(&doubles[i], &value, sizeof value);
            assert_memory_equal(&single, &value, sizeof value);
        }
    }
    /* And back, from both: the same bits, but that NaNs are quiet. */
    uint32_t quiet = 1u << (kind.fraction_bits - 1);
    cast_run(cpu, RESHARD_F32, kind.dtype, HALF_COUNT, singles, back);
    for (uint32_t i = 0; i < HALF_COUNT; i++)
        assert_int_equal(back[i], is_nan_half(kind, i) ? i | quiet : i);
    cast_run(cpu, RESHARD_F64, kind.dtype, HALF_COUNT, doubles, back);
    for (uint32_t i = 0; i < HALF_COUNT; i++)
        assert_int_equal(back[i], is_nan_half(kind, i) ? i | quiet : i);
}

static void test_cast__all_halves(void **state)
{
    (void)state;
    check_widening(RS_CPU_PORTABLE, f16);
    check_widening(RS_CPU_PORTABLE, bf16);
    check_widening(rs_cpu_detect(), f16);
    check_widening(rs_cpu_detect(), bf16);
}

static double step_double(double value, int64_t steps)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits += steps;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Half way between neighbours, a little below and above; rounded once, only the middle is a tie. */
static void check_ties(rs_cpu cpu, format kind)
{
    static const int64_t steps[] = {0, 1, -1, 1 << 20, -(1 << 20), 1 << 29, -(1 << 29)};
    static double doubles[HALF_COUNT];
    static float singles[HALF_COUNT];
    static uint16_t from_double[HALF_COUNT], from_single[HALF_COUNT];
    uint32_t infinity = ((1u << kind.exponent_bits) - 1) << kind.fraction_bits;
    for (size_t k = 0; k < sizeof steps / sizeof steps[0]; k++) {
        int64_t count = 0;
        for (uint32_t i = 0; i < infinity; i++) {
            double value = read_half(kind, i);
            /* What would follow the largest one, if infinity did not. */
            double next = i + 1 < infinity ? read_half(kind, i + 1)
                                           : value + (value - read_half(kind, i - 1));
            double middle = step_double((value + next) / 2, steps[k]);
            doubles[count] = middle;
            doubles[count + 1] = -middle;
            count += 2;
        }
        for (int64_t i = 0; i < count; i++)
            singles[i] = (float)doubles[i];
        cast_run(cpu, RESHARD_F64, kind.dtype, count, doubles, from_double);
        cast_run(cpu, RESHARD_F32, kind.dtype, count, singles, from_single);
        for (int64_t i = 0; i < count; i++) {
            assert_int_equal(from_double[i], round_half(kind, doubles[i]));
            assert_int_equal(from_single[i], round_half(kind, (double)singles[i]));
        }
    }
}

static void test_cast__ties(void **state)
{
    (void)state;
    check_ties(RS_CPU_PORTABLE, f16);
    check_ties(RS_CPU_PORTABLE, bf16);
    check_ties(rs_cpu_detect(), f16);
    check_ties(rs_cpu_detect(), bf16);
}

/* Bits of any kind: NaNs, infinities and subnormals of each type are not rare among them. */
static uint64_t draw_value(draw_state *draw, reshard_dtype dtype)
{
    static const uint64_t tops[] = {0x7c00, 0x7f80, 0x7f800000, UINT64_C(0x7ff0000000000000),
                                    0x7f,   0x7c};
    int bits = reshard_dtype_bits(dtype);
    uint64_t value = draw_bits(draw) >> (64 - bits);
    size_t which = 0;
    while (dtypes[which] != dtype)
        which++;
    if (draw_chance(draw, 5))
        return value | tops[which];
    if (draw_chance(draw, 5))
        return draw_chance(draw, 50) ? tops[which] : value & ~tops[which];
    if (bits == 64 && draw_chance(draw, 80)) {
        /* In and around the range of the narrower types. */
        uint64_t exponent = (uint64_t)draw_between(draw, 1023 - 160, 1023 + 140);
        return (value & ~tops[3]) | exponent << 52;
    }
    return value;
}

static void store_value(unsigned char *target, uint64_t value, size_t bytes)
{
    uint16_t two = (uint16_t)value;
    uint32_t four = (uint32_t)value;
    memcpy(target, bytes == 2 ? (void *)&two : bytes == 4 ? (void *)&four : (void *)&value, bytes);
}

/* The bits of the value that this has to become, from its definition. */
static void check_value(reshard_dtype source_dtype, reshard_dtype target_dtype,
                        const unsigned char *source, const unsigned char *target, uint64_t seed)
{
    double value;
    unsigned char wanted[8];
    size_t bytes = (size_t)reshard_dtype_bits(target_dtype) / 8;
    rs_cast_reference(source_dtype, RESHARD_F64, source, &value);
    rs_cast_reference(source_dtype, target_dtype, source, wanted);
    if (memcmp(target, wanted, bytes) != 0)
        printf("seed %" PRIu64 ": %s to %s, value %a\n", seed, reshard_dtype_name(source_dtype),
               reshard_dtype_name(target_dtype), value);
    assert_memory_equal(target, wanted, bytes);
    if (value == value && bytes == 2 && source_dtype != target_dtype) {
        uint16_t half;
        memcpy(&half, target, sizeof half);
        assert_int_equal(half, round_half(target_dtype == RESHARD_F16 ? f16 : bf16, value));
    }
}

static void check_pair(rs_cpu cpu, reshard_dtype source_dtype, reshard_dtype target_dtype,
                       uint64_t seed)
{
    static unsigned char source[RANDOM_COUNT * 8], target[RANDOM_COUNT * 8];
    size_t source_bytes = (size_t)reshard_dtype_bits(source_dtype) / 8;
    size_t target_bytes = (size_t)reshard_dtype_bits(target_dtype) / 8;
    draw_state draw;
    draw_seed(&draw, seed);
    for (size_t i = 0; i < RANDOM_COUNT; i++)
        store_value(source + i * source_bytes, draw_value(&draw, source_dtype), source_bytes);
    cast_run(cpu, source_dtype, target_dtype, RANDOM_COUNT, source, target);
    for (size_t i = 0; i < RANDOM_COUNT; i++)
        check_value(source_dtype, target_dtype, source + i * source_bytes,
                    target + i * target_bytes, seed);
}

static void test_cast__all_pairs(void **state)
{
    (void)state;
    for (size_t i = 0; i < DTYPE_COUNT * DTYPE_COUNT; i++) {
        reshard_dtype from = dtypes[i / DTYPE_COUNT], to = dtypes[i % DTYPE_COUNT];
        assert_true(rs_cast_supports(from, to));
        check_pair(RS_CPU_PORTABLE, from, to, i);
        check_pair(rs_cpu_detect(), from, to, 100 + i);
    }
    assert_true(rs_cast_supports(RESHARD_I32, RESHARD_I32));
    assert_false(rs_cast_supports(RESHARD_I32, RESHARD_F32));
    assert_false(rs_cast_supports(RESHARD_F32, RESHARD_F8_E5M2FNUZ));
    assert_false(rs_cast_supports(RESHARD_F8_E8M0, RESHARD_F32));
    assert_false(rs_cast_supports(RESHARD_F4, RESHARD_F4));
}

/* 3-d, with strides of all kinds on both sides; whole and in parts. */
static void test_cast__strided(void **state)
{
    (void)state;
    static const int64_t size[] = {5, 40, 33};
    static const int64_t strides[][3] = {{1320, 33, 1}, {1, 5, 200}, {3000, 70, 2}, {1500, -35, 1}};
    enum { ROOM = 20000, MIDDLE = 3000 };
    static unsigned char source[ROOM * 8], target[ROOM * 8], wanted[ROOM * 8];
    for (size_t k = 0; k < sizeof source; k++)
        source[k] = (unsigned char)draw_hash(k, 1);
    for (size_t i = 0; i < 16 * DTYPE_COUNT * DTYPE_COUNT; i++) {
        reshard_dtype from = dtypes[i % DTYPE_COUNT], to = dtypes[i / DTYPE_COUNT % DTYPE_COUNT];
        size_t way = i / (DTYPE_COUNT * DTYPE_COUNT);
        const int64_t *in = strides[way % 4], *out = strides[way / 4];
        int64_t in_bytes = reshard_dtype_bits(from) / 8, out_bytes = reshard_dtype_bits(to) / 8;
        memset(target, 0xaa, sizeof target);
        memset(wanted, 0xaa, sizeof wanted);
        for (int64_t k = 0; k < size[0] * size[1] * size[2]; k++) {
            int64_t x = k / (40 * 33), y = k / 33 % 40, z = k % 33;
            rs_cast_reference(from, to,
                              source + (MIDDLE + x * in[0] + y * in[1] + z * in[2]) * in_bytes,
                              wanted + (MIDDLE + x * out[0] + y * out[1] + z * out[2]) * out_bytes);
        }
        rs_cast cast;
        rs_cast_prepare(&cast, from, to, 3, size, in, out);
        int64_t count = rs_cast_outer_count(&cast), cut = count * 2 / 3;
        rs_cast_run_part(&cast, source + MIDDLE * in_bytes, target + MIDDLE * out_bytes, 0, cut);
        rs_cast_run_part(&cast, source + MIDDLE * in_bytes, target + MIDDLE * out_bytes, cut,
                         count - cut);
        assert_memory_equal(target, wanted, sizeof target);
    }
}

/* A type and itself, of every width, dense and not. */
static void test_cast__same_type(void **state)
{
    (void)state;
    static const reshard_dtype same[] = {RESHARD_U8, RESHARD_I16, RESHARD_I32, RESHARD_C64,
                                         RESHARD_C128};
    enum { LENGTH = 700 };
    static unsigned char source[LENGTH * 16 * 2], target[LENGTH * 16 * 2];
    for (size_t k = 0; k < sizeof source; k++)
        source[k] = (unsigned char)draw_hash(k, 2);
    for (size_t i = 0; i < 2 * (sizeof same / sizeof *same); i++) {
        size_t bytes = (size_t)reshard_dtype_bits(same[i / 2]) / 8;
        int64_t length = LENGTH, step = 1 + (int64_t)(i % 2);
        rs_cast cast;
        assert_true(rs_cast_supports(same[i / 2], same[i / 2]));
        rs_cast_prepare(&cast, same[i / 2], same[i / 2], 1, &length, &step, &step);
        memset(target, 0, sizeof target);
        rs_cast_run(&cast, source, target);
        for (size_t k = 0; k < LENGTH; k++) {
            size_t at = k * (size_t)step * bytes;
            assert_memory_equal(target + at, source + at, bytes);
        }
    }
}

static void test_cast__empty(void **state)
{
    (void)state;
    rs_cast cast;
    rs_cast_prepare(&cast, RESHARD_F32, RESHARD_F16, 2, (int64_t[]){3, 0}, (int64_t[]){1, 1},
                    (int64_t[]){1, 1});
    assert_int_equal(rs_cast_outer_count(&cast), 0);
    rs_cast_run(&cast, NULL, NULL);
    float one = 1;
    uint16_t half = 0;
    rs_cast_prepare(&cast, RESHARD_F32, RESHARD_F16, 0, NULL, NULL, NULL);
    rs_cast_run(&cast, &one, &half);
    assert_int_equal(half, 0x3c00);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cast__all_halves), cmocka_unit_test(test_cast__ties),
        cmocka_unit_test(test_cast__all_pairs),  cmocka_unit_test(test_cast__strided),
        cmocka_unit_test(test_cast__same_type),  cmocka_unit_test(test_cast__empty),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
