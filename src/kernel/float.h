/* SPDX-License-Identifier: Apache-2.0 */
/*
 * float.h - conversions between the floating types, one value at a time, on their bits. These are
 * the definition of what casts do; the vector code in cast.c gives the same bits.
 *
 * Rounding is to nearest, ties to even, once: f64 goes to f16 and bf16 directly and not by way of
 * f32. A NaN keeps its sign and the upper bits of its payload and becomes quiet.
 */
#ifndef RS_KERNEL_FLOAT_H
#define RS_KERNEL_FLOAT_H

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
    /* Subnormal: a whole number of 2^-24, which f32 holds exactly. */
    return rs_f32_make(sign | rs_f32_bits((float)fraction * 0x1p-24f));
}

/* x / 2^shift, to nearest, ties to even. shift 1 .. 63. */
static inline uint64_t rs_shift_to_nearest(uint64_t x, int shift)
{
    uint64_t quotient = x >> shift, rest = x & ((UINT64_C(1) << shift) - 1);
    uint64_t half = UINT64_C(1) << (shift - 1);
    return quotient + (rest > half || (rest == half && (quotient & 1) != 0));
}

/*
 * The bits of a finite or infinite or NaN f64 to a 16-bit type with so many bits of exponent and
 * fraction. A carry out of the fraction goes into the exponent by itself, up to infinity.
 */
static inline uint16_t rs_f64_narrow(double value, int exponent_bits, int fraction_bits)
{
    uint64_t bits = rs_f64_bits(value), fraction = bits & ((UINT64_C(1) << 52) - 1);
    uint16_t sign = (uint16_t)(bits >> 48 & 0x8000);
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
    /* Subnormal in the target; what is far below half of its least value is zero. */
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

/* Every f32 is an f64, and NaNs keep their upper bits on the way. */
static inline uint16_t rs_f32_to_f16(float value)
{
    return rs_f64_to_f16((double)value);
}

#endif
