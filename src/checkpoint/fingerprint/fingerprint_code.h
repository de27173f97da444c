/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fingerprint_code.h - arithmetic modulo the two polynomials of the digest, and the two ways to
 * take the remainder of a run: by tables, which any machine can do, and by carry-less multiply.
 *
 * A number of 64 bits is a polynomial: bit i is the coefficient of x^i, in memory as in registers
 * of a little-endian machine. Both ways go through a run in the order of memory and divide by a
 * power of x where Horner's rule multiplies: x has an inverse modulo a polynomial with constant
 * term 1. So they return the run divided by x^(8 * shift), and tell the shift.
 */
#ifndef RS_CHECKPOINT_FINGERPRINT_FINGERPRINT_CODE_H
#define RS_CHECKPOINT_FINGERPRINT_FINGERPRINT_CODE_H

#include "checkpoint/fingerprint/fingerprint.h"

#include <stdbool.h>

#define RS_MODULI 2

typedef struct rs_modulus {
    uint64_t low;            /* the polynomial without x^64 */
    uint64_t inverse;        /* x^-1 */
    uint64_t quotient;       /* floor(x^128 / polynomial), without x^64 */
    uint64_t back_16[2];     /* x^-128 and x^-64: what brings a block back by 16 bytes */
    uint64_t back_32[2];     /* by 32 bytes, */
    uint64_t back_64[2];     /* by 64, */
    uint64_t back_128[2];    /* and by 128 */
    uint64_t powers[16][16]; /* [k][d]: x^(8 * d * 16^k) */
    uint64_t back_8[8][256]; /* [k][b]: byte b at place k of a word, times x^-64 */
} rs_modulus;

/* Sets out[m] to the remainder of the run divided by x^(8 * shift), and returns shift. count >= 1.
 */
typedef uint64_t (*rs_remainder_fn)(const rs_fingerprint_code *code, const unsigned char *bytes,
                                    size_t count, uint64_t out[RS_MODULI]);
/* out[m] = a[m] * b[m] */
typedef void (*rs_multiply_fn)(const rs_fingerprint_code *code, const uint64_t a[RS_MODULI],
                               const uint64_t b[RS_MODULI], uint64_t out[RS_MODULI]);

struct rs_fingerprint_code {
    reshard_context *context;
    rs_remainder_fn remainder;
    rs_multiply_fn multiply;
    bool wide; /* carry-less multiplies of two blocks at once may be used */
    rs_modulus moduli[RS_MODULI];
};

/* The plain way, which works everywhere. */
uint64_t rs_remainder_by_tables(const rs_fingerprint_code *code, const unsigned char *bytes,
                                size_t count, uint64_t out[RS_MODULI]);
void rs_multiply_by_bits(const rs_fingerprint_code *code, const uint64_t a[RS_MODULI],
                         const uint64_t b[RS_MODULI], uint64_t out[RS_MODULI]);

/* Sets both functions to those by carry-less multiply, and wide, if this processor has it. */
void rs_fingerprint_use_carryless(rs_fingerprint_code *code);

#endif
