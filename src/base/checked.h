/* SPDX-License-Identifier: Apache-2.0 */
/* checked.h - integer arithmetic that reports overflow. Every product of sizes goes through these
 * functions. */
#ifndef RS_BASE_CHECKED_H
#define RS_BASE_CHECKED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Return false on overflow; *out must not be used then. */
static inline bool rs_multiply(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool rs_add(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* Saturating versions for estimates: non-negative arguments only, INT64_MAX if the result does not
 * fit. */
static inline int64_t rs_multiply_up(int64_t a, int64_t b)
{
    int64_t product;
    return rs_multiply(a, b, &product) ? product : INT64_MAX;
}

static inline int64_t rs_add_up(int64_t a, int64_t b)
{
    int64_t sum;
    return rs_add(a, b, &sum) ? sum : INT64_MAX;
}

/* sum + a * b, or UINT64_MAX if that does not fit. */
static inline uint64_t rs_add_product_up(uint64_t sum, uint64_t a, uint64_t b)
{
    uint64_t product;
    if (__builtin_mul_overflow(a, b, &product) || __builtin_add_overflow(sum, product, &sum))
        return UINT64_MAX;
    return sum;
}

static inline bool rs_multiply_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool rs_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

/* ceil(n / k) for n >= 0, k >= 1, without overflow. */
static inline int64_t rs_divide_up(int64_t n, int64_t k)
{
    return n / k + (n % k != 0);
}

/* floor(a * b / c) for a, b >= 0 and c >= 1. The product may overflow, the quotient must not. */
static inline int64_t rs_multiply_divide(int64_t a, int64_t b, int64_t c)
{
    return (int64_t)((unsigned __int128)(uint64_t)a * (uint64_t)b / (uint64_t)c);
}

/* For non-negative numbers. If one of them is 0, the result is the other. */
static inline int64_t rs_greatest_common_divisor(int64_t a, int64_t b)
{
    while (b != 0) {
        int64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

static inline int64_t rs_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t rs_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
