# SPDX-License-Identifier: Apache-2.0
"""The digest as docs/digest.md defines it, in obvious ways. Slow: for tests."""

POLYNOMIALS = [1 << 64 | 0x243F6A8885A30907, 1 << 64 | 0xB7E151628AED2A9F]


def remainder(number, polynomial):
    """The remainder of a polynomial over GF(2); bit i of a number is the coefficient of x^i."""
    while number.bit_length() > 64:
        number ^= polynomial << number.bit_length() - 65
    return number


def multiply(a, b, polynomial):
    product = 0
    for bit in range(b.bit_length()):
        if b >> bit & 1:
            product ^= a << bit
    return remainder(product, polynomial)


def power(base, exponent, polynomial):
    result = 1
    while exponent:
        if exponent & 1:
            result = multiply(result, base, polynomial)
        base = multiply(base, base, polynomial)
        exponent >>= 1
    return result


def shifted(data, place, polynomial):
    """The remainder of bytes that lie at a place."""
    here = remainder(int.from_bytes(data, "little"), polynomial)
    return multiply(here, power(256, place, polynomial), polynomial)


def fold(data, polynomial):
    """The remainder of bytes, by Horner's rule from the last byte to the first."""
    table = [remainder(top << 64, polynomial) for top in range(256)]
    result = 0
    for byte in reversed(data):
        result = (result << 8 & 2**64 - 1 | byte) ^ table[result >> 56]
    return result


def remainders(data):
    return "".join(f"{fold(data, polynomial):016x}" for polynomial in POLYNOMIALS)


def tensor_digest(dtype, shape, data):
    """dtype as safetensors writes it or in lower case; data is the whole tensor, row-major."""
    sizes = "x".join(map(str, shape)) or "scalar"
    return remainders(f"{dtype.lower()} {sizes}\n".encode() + data)


def checkpoint_digest(digests):
    """digests: {name as bytes: digest}."""
    text = b"".join(b"%s %d %s\n" % (digests[name].encode(), len(name), name)
                    for name in sorted(digests))
    return tensor_digest("u8", [len(text)], text)
