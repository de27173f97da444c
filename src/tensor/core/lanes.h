/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lanes.h - arithmetic on eight floats at a time, with vector types that every compiler turns into
 * SIMD instructions. Functions take pointers, because 32-byte vectors are passed differently with
 * and without AVX. All of them are inlined.
 *
 * A loop over lanes is written as an inlined function that two others call, one compiled with
 * RS_LANES_AVX2 and one without. rs_cpu_detect (kernel/copy/copy.h) tells which one to use.
 */
#ifndef RS_TENSOR_CORE_LANES_H
#define RS_TENSOR_CORE_LANES_H

#include <stdint.h>
#include <string.h>

enum { RS_LANES = 8 };
typedef float rs_lanes __attribute__((vector_size(32)));
typedef int32_t rs_lane_bits __attribute__((vector_size(32)));

#define RS_LANES_INLINE static inline __attribute__((always_inline))
#if defined(__x86_64__)
#define RS_LANES_AVX2 __attribute__((target("avx2,fma")))
#else
#define RS_LANES_AVX2
#endif

/* Loads `count` floats, at most RS_LANES. The remaining lanes are 0. */
RS_LANES_INLINE void rs_lanes_load(rs_lanes *x, const float *from, int64_t count)
{
    *x = (rs_lanes){0};
    memcpy(x, from, (size_t)(count < RS_LANES ? count : RS_LANES) * sizeof *from);
}

RS_LANES_INLINE void rs_lanes_store(const rs_lanes *x, float *to, int64_t count)
{
    memcpy(to, x, (size_t)(count < RS_LANES ? count : RS_LANES) * sizeof *to);
}

/* Takes x in lanes where the mask has all bits set, and y where it has none. */
RS_LANES_INLINE void rs_lanes_choose(const rs_lane_bits *mask, const rs_lanes *x, const rs_lanes *y,
                                     rs_lanes *out)
{
    *out = (rs_lanes)((*mask & (rs_lane_bits)*x) | (~*mask & (rs_lane_bits)*y));
}

/*
 * exp(x) for x <= 0, with a relative error of 1e-7. Below -87, close to where results stop being
 * normal numbers, it gives 0. With x = n ln 2 + r and |r| <= ln(2)/2, 2^n goes into the exponent,
 * and exp(r) is the polynomial with the smallest maximum relative error.
 */
RS_LANES_INLINE void rs_lanes_exp(const rs_lanes *x, rs_lanes *out)
{
    const float to_integer = 12582912.0F; /* 1.5 * 2^23: adding it rounds to an integer */
    const rs_lanes zero = {0}, least = zero - 87.0F;
    const rs_lane_bits tiny = *x < least;
    rs_lanes clamped;
    rs_lanes_choose(&tiny, &least, x, &clamped);
    rs_lanes shifted = clamped * 1.44269504F + to_integer;
    rs_lanes n = shifted - to_integer;
    rs_lanes r = clamped - n * 0.693359375F;
    r = r - n * -2.12194440e-4F;
    rs_lanes p = r * 1.381455907e-3F + 8.368735638e-3F;
    p = p * r + 4.166838988e-2F;
    p = p * r + 1.666652048e-1F;
    p = p * r + 4.999999344e-1F;
    p = p * r * r + r + 1.0F;
    rs_lane_bits power = ((rs_lane_bits)shifted << 23) + 0x3f800000;
    rs_lanes made = p * (rs_lanes)power;
    rs_lanes_choose(&tiny, &zero, &made, out);
}

#endif
