/* SPDX-License-Identifier: Apache-2.0 */
/*
 * digest.h - a 128-bit fingerprint of a sequence of values: SipHash-2-4 with 128 bits of output and
 * a fixed key (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012). Equal inputs give
 * equal digests on every machine, whatever its byte order. Digests reveal ranks that disagree by
 * mistake; they are no defence against somebody who searches for collisions.
 */
#ifndef RS_BASE_DIGEST_H
#define RS_BASE_DIGEST_H

#include "base/export.h"

#include <stddef.h>
#include <stdint.h>

typedef struct rs_digest {
    uint64_t v[4];
    uint64_t count; /* 64-bit words hashed so far */
} rs_digest;

RS_EXPORT void rs_digest_init(rs_digest *digest);
RS_EXPORT void rs_digest_u64(rs_digest *digest, uint64_t value);
RS_EXPORT void rs_digest_i64s(rs_digest *digest, const int64_t *values, int64_t count);
/* The length is hashed too, so that "ab","c" differs from "a","bc". */
RS_EXPORT void rs_digest_bytes(rs_digest *digest, const void *bytes, size_t count);
RS_EXPORT void rs_digest_finish(const rs_digest *digest, uint64_t out_digest[2]);

/* The finalizer of SplitMix64 (Steele, Lea, Flood 2014): every output bit depends on every input
 * bit. */
static inline uint64_t rs_mix(uint64_t x)
{
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* The hash of hash tables. It differs between machines of different byte order, and whoever chooses
 * the bytes can find collisions. An empty key may be NULL. */
uint64_t rs_hash_bytes(const void *bytes, size_t count);

#endif
