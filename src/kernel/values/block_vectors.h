/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_vectors.h - decoders of quantised blocks for processors with AVX2, and the numbers that
 * they share with the obvious ones of block_types.c. Every bit is what those give.
 */
#ifndef RS_KERNEL_VALUES_BLOCK_VECTORS_H
#define RS_KERNEL_VALUES_BLOCK_VECTORS_H

#include "kernel/values/block_types.h"
#include "kernel/values/float.h"

/* Twice the values of the 4-bit float e2m1. As whole numbers, so that code 8 is +0. */
static const int8_t rs_e2m1_doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
/* The steps of IQ4_NL and IQ4_XS, which are not even. */
static const int8_t rs_iq4_steps[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};

/* 2^(code - 128), also where that is subnormal. 255 is a number here, not NaN. */
static inline float rs_half_of_e8m0(uint8_t code)
{
    return rs_f32_make(code < 2 ? UINT32_C(0x00200000) << code : (uint32_t)(code - 1) << 23);
}

/* Half the value of an e4m3 without a sign. Both NaNs are treated as ggml does: 0x7f is 0, and 0xff
 * continues the numbers, to 480. */
static inline float rs_half_of_ue4m3(uint8_t code)
{
    int exponent = code >> 3 & 15, fraction = code & 7;
    if (code == 0 || code == 0x7f)
        return 0;
    if (exponent == 0)
        return (float)fraction * 0x1p-10f;
    return rs_f32_make((uint32_t)(exponent + 119) << 23 | (uint32_t)fraction << 20);
}

rs_block_decode_fn rs_q4_0_avx2, rs_q4_1_avx2, rs_q5_0_avx2, rs_q5_1_avx2, rs_q8_0_avx2;
rs_block_decode_fn rs_q2_k_avx2, rs_q3_k_avx2, rs_q4_k_avx2, rs_q5_k_avx2, rs_q6_k_avx2;
rs_block_decode_fn rs_iq4_nl_avx2, rs_iq4_xs_avx2, rs_mxfp4_avx2, rs_nvfp4_avx2;

#endif
