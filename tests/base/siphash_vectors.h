/* SPDX-License-Identifier: Apache-2.0 */
/* Made by siphash_vectors.py: the digests of words i * 0x9e3779b97f4a7c15, i = 1, 2, ... */
#include <stdint.h>

static const struct {
    int count;
    uint64_t digest[2];
} siphash_vectors[] = {
    {0, {UINT64_C(0x7de0a38047d74950), UINT64_C(0xf4f2ced447ab0242)}},
    {1, {UINT64_C(0x3131a18319feb300), UINT64_C(0xa3abbd50151ee432)}},
    {2, {UINT64_C(0xcc405ca4c9aa9ca2), UINT64_C(0x424a545aced1268b)}},
    {3, {UINT64_C(0x35611eadf4561d74), UINT64_C(0x98d68d107294614c)}},
    {4, {UINT64_C(0xc3b4fc37f3cd17db), UINT64_C(0x1a50ffb2894214dc)}},
    {7, {UINT64_C(0x3bf609663a280664), UINT64_C(0x6f373290a97b2314)}},
    {8, {UINT64_C(0xa6205eacef9c621b), UINT64_C(0x1e545b33804c3b2e)}},
    {31, {UINT64_C(0x906572c74a5679a6), UINT64_C(0x2210caecc92d0190)}},
    {32, {UINT64_C(0xca5efabe95312c8f), UINT64_C(0x280e4758a8b855da)}},
    {33, {UINT64_C(0x8a869f8e7df55dc1), UINT64_C(0xe1a8d975463916b7)}},
    {64, {UINT64_C(0x4d3b7a451767d669), UINT64_C(0xab9f2b812e5be246)}},
    {100, {UINT64_C(0xe5654215946d1fc9), UINT64_C(0x8bb7095aecd4e301)}},
};
