/* SPDX-License-Identifier: Apache-2.0 */
/*
 * infinite.c - counts values that are not finite, several at a time in one word. Such a value has
 * all bits of its exponent set (in e4m3, all bits but the sign). Adding the lowest of these bits to
 * them then carries into the place of the sign; for finite values it does not.
 */
#include "kernel/values/infinite.h"

#include "base/dtype.h"

#include <string.h>

typedef struct exponent_bits {
    uint64_t all, last, above;
} exponent_bits;

static exponent_bits find_bits(reshard_dtype dtype)
{
    switch (dtype) {
    case RESHARD_F16:
        return (exponent_bits){0x7c007c007c007c00, 0x0400040004000400, 0x8000800080008000};
    case RESHARD_BF16:
        return (exponent_bits){0x7f807f807f807f80, 0x0080008000800080, 0x8000800080008000};
    case RESHARD_F32:
        return (exponent_bits){0x7f8000007f800000, 0x0080000000800000, 0x8000000080000000};
    case RESHARD_F64:
        return (exponent_bits){0x7ff0000000000000, 0x0010000000000000, 0x8000000000000000};
    case RESHARD_F8_E4M3:
        return (exponent_bits){0x7f7f7f7f7f7f7f7f, 0x0101010101010101, 0x8080808080808080};
    default:
        assert(dtype == RESHARD_F8_E5M2);
        return (exponent_bits){0x7c7c7c7c7c7c7c7c, 0x0404040404040404, 0x8080808080808080};
    }
}

/* Loads the word at a byte offset; bytes beyond the end are zero. */
static uint64_t load(const unsigned char *bytes, size_t at, size_t count)
{
    uint64_t word = 0;
    memcpy(&word, bytes + at, count - at < sizeof word ? count - at : sizeof word);
    return word;
}

int64_t rs_count_infinite(reshard_dtype dtype, const void *values, int64_t count)
{
    exponent_bits bits = find_bits(dtype);
    const unsigned char *bytes = values;
    size_t byte_count = (size_t)count * rs_element_bytes(dtype);
    size_t whole = byte_count / sizeof(uint64_t) * sizeof(uint64_t);
    uint64_t any = 0;
    int64_t found = 0;
    for (size_t i = 0; i < whole; i += sizeof(uint64_t)) {
        uint64_t word;
        memcpy(&word, bytes + i, sizeof word);
        any |= (word & bits.all) + bits.last;
    }
    if (whole < byte_count)
        any |= (load(bytes, whole, byte_count) & bits.all) + bits.last;
    if ((any & bits.above) == 0)
        return 0;
    for (size_t i = 0; i < byte_count; i += sizeof(uint64_t))
        found += __builtin_popcountll(((load(bytes, i, byte_count) & bits.all) + bits.last) &
                                      bits.above);
    return found;
}
