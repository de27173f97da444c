/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fingerprint_code.c - the two polynomials, the constants derived from them, and the plain
 * arithmetic, against which the fast one is tested.
 *
 * The polynomials are x^64 + low. To find `low`, start with the first 64 binary digits of pi, and
 * of e, after the point, and count up to the first number that makes the polynomial primitive.
 * Primitive means that the powers of x repeat only after 2^64 - 1 steps, so no two places in a
 * tensor have the same weight.
 */
#include "checkpoint/engine/fingerprint_code.h"
#include "base/context.h"

#include <string.h>

static const uint64_t lows[RS_MODULI] = {0x243f6a8885a30907u, 0xb7e151628aed2a9fu};

/* ---- plain arithmetic ------------------------------------------------------------------------ */

static uint64_t times_x(const rs_modulus *modulus, uint64_t a)
{
    return (a << 1) ^ (a >> 63 ? modulus->low : 0);
}

static uint64_t divide_by_x(const rs_modulus *modulus, uint64_t a, int times)
{
    for (int i = 0; i < times; i++)
        a = (a >> 1) ^ (a & 1 ? modulus->inverse : 0);
    return a;
}

static uint64_t multiply_one(const rs_modulus *modulus, uint64_t a, uint64_t b)
{
    uint64_t product = 0;
    for (; b != 0; b >>= 1) {
        product ^= b & 1 ? a : 0;
        a = times_x(modulus, a);
    }
    return product;
}

void rs_multiply_by_bits(const rs_fingerprint_code *code, const uint64_t a[RS_MODULI],
                         const uint64_t b[RS_MODULI], uint64_t out[RS_MODULI])
{
    for (int m = 0; m < RS_MODULI; m++)
        out[m] = multiply_one(&code->moduli[m], a[m], b[m]);
}

/* The first `count` bytes, at most 8, as a little-endian number. */
static uint64_t load_word(const unsigned char *bytes, size_t count)
{
    uint64_t word = 0;
    for (size_t i = 0; i < count; i++)
        word |= (uint64_t)bytes[i] << (8 * i);
    return word;
}

static uint64_t back_one_word(const rs_modulus *modulus, uint64_t a)
{
    uint64_t result = 0;
    for (int k = 0; k < 8; k++)
        result ^= modulus->back_8[k][(a >> (8 * k)) & 0xff];
    return result;
}

uint64_t rs_remainder_by_tables(const rs_fingerprint_code *code, const unsigned char *bytes,
                                size_t count, uint64_t out[RS_MODULI])
{
    uint64_t remainders[RS_MODULI] = {0};
    uint64_t shift = 0;
    for (size_t at = 0; at < count; at += 8) {
        uint64_t word = load_word(bytes + at, count - at < 8 ? count - at : 8);
        shift = at;
        for (int m = 0; m < RS_MODULI; m++)
            remainders[m] = back_one_word(&code->moduli[m], remainders[m]) ^ word;
    }
    memcpy(out, remainders, sizeof remainders);
    return shift;
}

/* ---- constants ------------------------------------------------------------------------------- */

static uint64_t find_quotient(const rs_modulus *modulus)
{
    uint64_t rest = modulus->low, quotient = 0;
    for (int i = 0; i < 64; i++) {
        quotient = (quotient << 1) | (rest >> 63);
        rest = times_x(modulus, rest);
    }
    return quotient;
}

static void fill_powers(rs_modulus *modulus)
{
    uint64_t base = (uint64_t)1 << 8;
    for (int k = 0; k < 16; k++) {
        modulus->powers[k][0] = 1;
        for (int d = 1; d < 16; d++)
            modulus->powers[k][d] = multiply_one(modulus, modulus->powers[k][d - 1], base);
        base = multiply_one(modulus, modulus->powers[k][15], base);
    }
}

static void fill_back_8(rs_modulus *modulus)
{
    for (int k = 0; k < 8; k++) {
        modulus->back_8[k][0] = 0;
        for (int bit = 0; bit < 8; bit++) {
            uint64_t value = divide_by_x(modulus, 1, 64 - 8 * k - bit);
            for (int b = 0; b < 1 << bit; b++)
                modulus->back_8[k][b + (1 << bit)] = modulus->back_8[k][b] ^ value;
        }
    }
}

static void fill_back(const rs_modulus *modulus, int bytes, uint64_t out[2])
{
    out[0] = divide_by_x(modulus, 1, 8 * bytes);
    out[1] = divide_by_x(modulus, 1, 8 * bytes - 64);
}

static void fill_modulus(rs_modulus *modulus, uint64_t low)
{
    modulus->low = low;
    modulus->inverse = (low >> 1) | (uint64_t)1 << 63;
    modulus->quotient = find_quotient(modulus);
    fill_back(modulus, 16, modulus->back_16);
    fill_back(modulus, 32, modulus->back_32);
    fill_back(modulus, 64, modulus->back_64);
    fill_back(modulus, 128, modulus->back_128);
    fill_powers(modulus);
    fill_back_8(modulus);
}

reshard_status rs_fingerprint_code_create(reshard_context *context, rs_fingerprint_code **out_code)
{
    rs_fingerprint_code *code = rs_allocate(context, sizeof *code);
    if (code == NULL)
        return rs_allocation_status();
    code->context = context;
    code->remainder = rs_remainder_by_tables;
    code->multiply = rs_multiply_by_bits;
    code->blocks_at_once = 1;
    for (int m = 0; m < RS_MODULI; m++)
        fill_modulus(&code->moduli[m], lows[m]);
    rs_fingerprint_use_carryless(code);
    *out_code = code;
    return RESHARD_OK;
}

void rs_fingerprint_code_destroy(rs_fingerprint_code *code)
{
    if (code != NULL)
        rs_release(code->context, code);
}
