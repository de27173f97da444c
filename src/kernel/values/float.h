/* SPDX-License-Identifier: Apache-2.0 */
/*
 * float.h - conversions between the floating types, one value at a time, on their bits. These
 * define what casts do; the vector code in cast_runs.c gives the same bits.
 *
 * Values are rounded once, to nearest, ties to even: f64 goes to narrower types directly, not
 * through f32. A NaN keeps its sign and the upper bits of its payload and becomes quiet.
 *
 * The 8-bit types are those of PyTorch. e4m3 (the "fn" form) has no infinity: after 448 comes the
 * one NaN of each sign, which values that are too large become. Of e5m2's NaNs, only the last one
 * is ever produced.
 */
#ifndef RS_KERNEL_VALUES_FLOAT_H
#define RS_KERNEL_VALUES_FLOAT_H

#include <stdint.h>
#include <string.h>

static inline uint32_t rs_f32_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float rs_f32_make(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline uint64_t rs_f64_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double rs_f64_make(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float rs_bf16_to_f32(uint16_t bits)
{
    uint32_t quiet = (bits & 0x7fff) > 0x7f80 ? 0x40 : 0;
    return rs_f32_make((uint32_t)(bits | quiet) << 16);
}

static inline float rs_f16_to_f32(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t exponent = bits >> 10 & 0x1f, fraction = bits & 0x3ff;
    if (exponent == 0x1f)
        return rs_f32_make(sign | 0x7f800000 | fraction << 13 | (fraction != 0 ? 0x400000 : 0));
    if (exponent != 0)
        return rs_f32_make(sign | (exponent + 112) << 23 | fraction << 13);
    /* Subnormal: a multiple of 2^-24, which f32 represents exactly. */
    return rs_f32_make(sign | rs_f32_bits((float)fraction * 0x1p-24f));
}

/* x / 2^shift, rounded to nearest, ties to even. shift is 1 .. 63. */
static inline uint64_t rs_shift_to_nearest(uint64_t x, int shift)
{
    uint64_t quotient = x >> shift, rest = x & ((UINT64_C(1) << shift) - 1);
    uint64_t half = UINT64_C(1) << (shift - 1);
    return quotient + (rest > half || (rest == half && (quotient & 1) != 0));
}

/*
 * Converts any f64 to a type with this many bits of exponent and fraction, at most 16 with the
 * sign, and returns its bits. A carry out of the fraction goes into the exponent by itself, up to
 * infinity.
 */
static inline uint16_t rs_f64_narrow(double value, int exponent_bits, int fraction_bits)
{
    uint64_t bits = rs_f64_bits(value), fraction = bits & ((UINT64_C(1) << 52) - 1);
    uint16_t sign = (uint16_t)(bits >> 63 << (exponent_bits + fraction_bits));
    int exponent = (int)(bits >> 52 & 0x7ff), top = (1 << exponent_bits) - 1;
    int drop = 52 - fraction_bits, biased = exponent - 1023 + (top >> 1);
    uint16_t infinite = (uint16_t)(sign | top << fraction_bits);
    if (exponent == 0x7ff && fraction != 0)
        return (uint16_t)(infinite | 1 << (fraction_bits - 1) | (int)(fraction >> drop));
    if (biased >= top)
        return infinite;
    if (biased > 0)
        return (uint16_t)(sign +
                          (uint16_t)rs_shift_to_nearest((uint64_t)biased << 52 | fraction, drop));
    /* Subnormal in the target. Values far below half of its least value become zero. */
    int shift = drop + 1 - biased;
    if (exponent == 0 || shift > 60)
        return sign;
    return (uint16_t)(sign | (uint16_t)rs_shift_to_nearest(UINT64_C(1) << 52 | fraction, shift));
}

static inline uint16_t rs_f64_to_f16(double value)
{
    return rs_f64_narrow(value, 5, 10);
}

static inline uint16_t rs_f64_to_bf16(double value)
{
    return rs_f64_narrow(value, 8, 7);
}

static inline uint16_t rs_f32_to_bf16(float value)
{
    uint32_t bits = rs_f32_bits(value);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x40);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float rs_f8_e5m2_to_f32(uint8_t bits)
{
    return rs_f16_to_f32((uint16_t)(bits << 8));
}

static inline float rs_f8_e4m3_to_f32(uint8_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x80) << 24, exponent = bits >> 3 & 0xf, fraction = bits & 7;
    if ((bits & 0x7f) == 0x7f)
        return rs_f32_make(sign | 0x7ff00000);
    if (exponent != 0)
        return rs_f32_make(sign | (exponent + 120) << 23 | fraction << 20);
    return rs_f32_make(sign | rs_f32_bits((float)fraction * 0x1p-9f));
}

static inline uint8_t rs_f64_to_f8_e5m2(double value)
{
    uint8_t bits = (uint8_t)rs_f64_narrow(value, 5, 2);
    return value != value ? (uint8_t)(bits | 0x7f) : bits;
}

/* A type with one more exponent bit represents 2^-8 times the value with the same code, and has
 * room for values that are too large, which become NaN. */
static inline uint8_t rs_f64_to_f8_e4m3(double value)
{
    uint16_t bits = rs_f64_narrow(value * 0x1p-8, 5, 3), magnitude = bits & 0xff;
    return (uint8_t)((bits >> 8) << 7 | (magnitude > 0x7f ? 0x7f : magnitude));
}

/* Converting f32 to f64 first is exact, and NaNs keep their upper bits. */
static inline uint8_t rs_f32_to_f8_e5m2(float value)
{
    return rs_f64_to_f8_e5m2((double)value);
}

static inline uint8_t rs_f32_to_f8_e4m3(float value)
{
    return rs_f64_to_f8_e4m3((double)value);
}

static inline uint16_t rs_f32_to_f16(float value)
{
    return rs_f64_to_f16((double)value);
}

#endif
