/* SPDX-License-Identifier: Apache-2.0 */
/*
 * test_cast_f8.c - casts to and from f8_e4m3 and f8_e5m2, as PyTorch has them. The 256 values of
 * each type are made from their definition, and what a value rounds to is found by looking through
 * them. Every 8-bit and 16-bit value is tried, and in f32 and f64 every value of the types, every
 * point half way between two, and their neighbours.
 */
#include "kernel/values/cast.h"
#include "tests/support/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define CODES 256
#define HALVES 65536

typedef struct form {
    reshard_dtype dtype;
    int fraction_bits, bias;
    uint8_t beyond; /* the first code that is no finite value */
    uint8_t nan;    /* the one that NaNs become */
} form;

static const form forms[] = {{RESHARD_F8_E4M3, 3, 7, 0x7f, 0x7f},
                             {RESHARD_F8_E5M2, 2, 15, 0x7c, 0x7f}};

/* Of a code without sign, as if there were neither NaNs nor infinities. */
static double value_of(const form *of, int code)
{
    int exponent = code >> of->fraction_bits, fraction = code & ((1 << of->fraction_bits) - 1);
    if (exponent == 0)
        return ldexp(fraction, 1 - of->bias - of->fraction_bits);
    return ldexp(fraction + (1 << of->fraction_bits), exponent - of->bias - of->fraction_bits);
}

/* The code of the nearest value, of two the even one. What would be the next value if there were
 * one, and all beyond it, is `beyond`. */
static uint8_t find_nearest(const form *of, double value)
{
    uint8_t sign = signbit(value) ? 0x80 : 0;
    double magnitude = fabs(value);
    int best = 0;
    if (value != value)
        return sign | of->nan;
    for (int code = 1; code <= of->beyond && value_of(of, code - 1) < magnitude; code++) {
        double below = magnitude - value_of(of, code - 1), above = value_of(of, code) - magnitude;
        best = above < below || (above == below && code % 2 == 0) ? code : code - 1;
    }
    if (magnitude >= value_of(of, of->beyond))
        best = of->beyond;
    return (uint8_t)(sign | best);
}

static void cast_run(rs_cpu cpu, reshard_dtype source_dtype, reshard_dtype target_dtype,
                     int64_t count, const void *source, void *target)
{
    rs_cast cast;
    rs_cast_prepare_for(&cast, cpu, source_dtype, target_dtype, 1, &count, (int64_t[]){1},
                        (int64_t[]){1});
    rs_cast_run(&cast, source, target);
}

static void check_all_codes(rs_cpu cpu, const form *of)
{
    uint8_t codes[CODES], back[CODES];
    float singles[CODES];
    double doubles[CODES];
    for (int i = 0; i < CODES; i++)
        codes[i] = (uint8_t)i;
    cast_run(cpu, of->dtype, RESHARD_F32, CODES, codes, singles);
    cast_run(cpu, of->dtype, RESHARD_F64, CODES, codes, doubles);
    for (int i = 0; i < CODES; i++) {
        bool is_infinite = of->dtype == RESHARD_F8_E5M2 && (i & 0x7f) == 0x7c;
        bool is_nan = !is_infinite && (i & 0x7f) >= of->beyond;
        double wanted = is_infinite ? INFINITY : value_of(of, i & 0x7f);
        wanted = (i & 0x80) != 0 ? -wanted : wanted;
        assert_int_equal(signbit(singles[i]) != 0, i >= 0x80);
        if (is_nan)
            assert_true(isnan(singles[i]) && isnan(doubles[i]));
        else
            assert_true((double)singles[i] == wanted && doubles[i] == wanted);
    }
    cast_run(cpu, RESHARD_F32, of->dtype, CODES, singles, back);
    for (int i = 0; i < CODES; i++)
        assert_int_equal(back[i], isnan(singles[i]) ? (i & 0x80) | of->nan : i);
}

/* As PyTorch's own conversion gives them. */
static void test_f8__nan_bits(void **state)
{
    (void)state;
    static const uint8_t codes[] = {0x7f, 0xff, 0x7d, 0x7c};
    uint32_t bits[4];
    cast_run(rs_cpu_detect(), RESHARD_F8_E4M3, RESHARD_F32, 2, codes, bits);
    assert_int_equal(bits[0], 0x7ff00000);
    assert_int_equal(bits[1], 0xfff00000);
    cast_run(rs_cpu_detect(), RESHARD_F8_E5M2, RESHARD_F32, 4, codes, bits);
    assert_int_equal(bits[0], 0x7fe00000);
    assert_int_equal(bits[1], 0xffe00000);
    assert_int_equal(bits[2], 0x7fe00000);
    assert_int_equal(bits[3], 0x7f800000);
}

static void test_f8__all_codes(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        check_all_codes(RS_CPU_PORTABLE, &forms[i]);
        check_all_codes(rs_cpu_detect(), &forms[i]);
    }
}

static void check_from(rs_cpu cpu, const form *of, reshard_dtype dtype, int64_t count,
                       const void *source)
{
    static double values[HALVES];
    static uint8_t codes[HALVES];
    cast_run(RS_CPU_PORTABLE, dtype, RESHARD_F64, count, source, values);
    cast_run(cpu, dtype, of->dtype, count, source, codes);
    for (int64_t i = 0; i < count; i++) {
        uint8_t wanted = find_nearest(of, values[i]);
        if (codes[i] != wanted)
            printf("%s to %s: %a became %02x, not %02x\n", reshard_dtype_name(dtype),
                   reshard_dtype_name(of->dtype), values[i], codes[i], wanted);
        assert_int_equal(codes[i], wanted);
    }
}

static void test_f8__from_all_halves(void **state)
{
    (void)state;
    static uint16_t halves[HALVES];
    for (uint32_t i = 0; i < HALVES; i++)
        halves[i] = (uint16_t)i;
    for (size_t i = 0; i < 2; i++) {
        check_from(RS_CPU_PORTABLE, &forms[i], RESHARD_F16, HALVES, halves);
        check_from(RS_CPU_PORTABLE, &forms[i], RESHARD_BF16, HALVES, halves);
        check_from(rs_cpu_detect(), &forms[i], RESHARD_F16, HALVES, halves);
        check_from(rs_cpu_detect(), &forms[i], RESHARD_BF16, HALVES, halves);
    }
}

/* Each value of the type and each middle between two, with `reach` neighbours of each on both
 * sides, of both signs; and what is far away. */
static int64_t list_bounds(const form *of, bool is_single, double *out_values)
{
    static const double far[] = {0.0,     0x1p-149, 0x1p-140, 0x1.fp-127, 0x1p-126, 1e-30,
                                 1e30,    3.4e38,   479.99,   480,        480.01,   65535.9,
                                 65536.1, 131072,   INFINITY, NAN};
    int64_t count = 0;
    for (int code = 0; code < of->beyond; code++) {
        double value = value_of(of, code), middle = (value + value_of(of, code + 1)) / 2;
        for (int step = -2; step <= 2; step++) {
            double near[2] = {value, middle};
            for (int k = 0; k < 2; k++) {
                for (int i = 0; i < (step < 0 ? -step : step); i++)
                    near[k] = is_single ? (double)nextafterf((float)near[k], step < 0 ? -1 : 1e9f)
                                        : nextafter(near[k], step < 0 ? -1 : 1e9);
                out_values[count++] = near[k];
                out_values[count++] = -near[k];
            }
        }
    }
    for (size_t i = 0; i < sizeof far / sizeof *far; i++) {
        out_values[count++] = far[i];
        out_values[count++] = -far[i];
    }
    return count;
}

static void test_f8__from_all_bounds(void **state)
{
    (void)state;
    static double doubles[4096];
    static float singles[4096];
    for (size_t i = 0; i < 2; i++) {
        int64_t count = list_bounds(&forms[i], true, doubles);
        for (int64_t k = 0; k < count; k++)
            singles[k] = (float)doubles[k];
        check_from(RS_CPU_PORTABLE, &forms[i], RESHARD_F32, count, singles);
        check_from(rs_cpu_detect(), &forms[i], RESHARD_F32, count, singles);
        count = list_bounds(&forms[i], false, doubles);
        check_from(RS_CPU_PORTABLE, &forms[i], RESHARD_F64, count, doubles);
        check_from(rs_cpu_detect(), &forms[i], RESHARD_F64, count, doubles);
    }
}

/* NaNs with any payload, quiet and signalling. */
static void test_f8__from_nans(void **state)
{
    (void)state;
    static uint32_t bits[64];
    for (uint32_t i = 0; i < 64; i++)
        bits[i] = 0x7f800000 | (i & 1) << 31 | 1u << (i / 2 % 23) | (i > 46 ? 0x400000 : 0);
    for (size_t i = 0; i < 2; i++) {
        check_from(RS_CPU_PORTABLE, &forms[i], RESHARD_F32, 64, bits);
        check_from(rs_cpu_detect(), &forms[i], RESHARD_F32, 64, bits);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_f8__all_codes),       cmocka_unit_test(test_f8__nan_bits),
        cmocka_unit_test(test_f8__from_all_halves), cmocka_unit_test(test_f8__from_all_bounds),
        cmocka_unit_test(test_f8__from_nans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
