/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fingerprint_code.h - arithmetic modulo the two polynomials of the digest, and two ways to compute
 * the remainder of a run: by tables, which works on any machine, and by carry-less multiply.
 *
 * A 64-bit number is a polynomial: bit i is the coefficient of x^i, in memory as in the registers
 * of a little-endian machine. Both ways go through a run in the order of memory, and divide by a
 * power of x where Horner's rule would multiply: x has an inverse modulo a polynomial with constant
 * term 1. So the result is the run divided by x^(8 * shift), and they return the shift with it.
 */
#ifndef RS_CHECKPOINT_ENGINE_FINGERPRINT_CODE_H
#define RS_CHECKPOINT_ENGINE_FINGERPRINT_CODE_H

#include "checkpoint/engine/fingerprint.h"

#define RS_MODULI 2

typedef struct rs_modulus {
    uint64_t low;            /* the polynomial without x^64 */
    uint64_t inverse;        /* x^-1 */
    uint64_t quotient;       /* floor(x^128 / polynomial), without x^64 */
    uint64_t back_16[2];     /* x^-128 and x^-64, which bring a block back by 16 bytes */
    uint64_t back_32[2];     /* the same for 32 bytes */
    uint64_t back_64[2];     /* for 64 */
    uint64_t back_128[2];    /* for 128 */
    uint64_t powers[16][16]; /* [k][d]: x^(8 * d * 16^k) */
    uint64_t back_8[8][256]; /* [k][b]: byte b at position k of a word, times x^-64 */
} rs_modulus;

/* Sets out[m] to the remainder of the run divided by x^(8 * shift), and returns shift. count >=
 * 1. */
typedef uint64_t (*rs_remainder_fn)(const rs_fingerprint_code *code, const unsigned char *bytes,
                                    size_t count, uint64_t out[RS_MODULI]);
/* out[m] = a[m] * b[m] */
typedef void (*rs_multiply_fn)(const rs_fingerprint_code *code, const uint64_t a[RS_MODULI],
                               const uint64_t b[RS_MODULI], uint64_t out[RS_MODULI]);

struct rs_fingerprint_code {
    reshard_context *context;
    rs_remainder_fn remainder;
    rs_multiply_fn multiply;
    int blocks_at_once; /* that one instruction multiplies: 1, 2 or 4 */
    rs_modulus moduli[RS_MODULI];
};

/* The plain versions, which work everywhere. */
uint64_t rs_remainder_by_tables(const rs_fingerprint_code *code, const unsigned char *bytes,
                                size_t count, uint64_t out[RS_MODULI]);
void rs_multiply_by_bits(const rs_fingerprint_code *code, const uint64_t a[RS_MODULI],
                         const uint64_t b[RS_MODULI], uint64_t out[RS_MODULI]);

/* Sets both functions to the carry-less versions, and blocks_at_once, if this processor supports
 * them. */
void rs_fingerprint_use_carryless(rs_fingerprint_code *code);

#endif
