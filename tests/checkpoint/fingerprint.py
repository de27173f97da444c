# SPDX-License-Identifier: Apache-2.0
"""The digest as docs/digest.md defines it, in the most obvious way. Slow: for tests."""

POLYNOMIALS = [1 << 64 | 0x243F6A8885A30907, 1 << 64 | 0xB7E151628AED2A9F]


def remainder(number, polynomial):
    """The remainder of a polynomial over GF(2); bit i of a number is the coefficient of x^i."""
    while number.bit_length() > 64:
        number ^= polynomial << number.bit_length() - 65
    return number


def remainders(data):
    number = int.from_bytes(data, "little")
    return "".join(f"{remainder(number, polynomial):016x}" for polynomial in POLYNOMIALS)


def tensor_digest(dtype, shape, data):
    """dtype as safetensors writes it or in lower case; data is the whole tensor, row-major."""
    sizes = "x".join(map(str, shape)) or "scalar"
    return remainders(f"{dtype.lower()} {sizes}\n".encode() + data)


def checkpoint_digest(digests):
    """digests: {name as bytes: digest}."""
    text = b"".join(b"%s %d %s\n" % (digests[name].encode(), len(name), name)
                    for name in sorted(digests))
    return tensor_digest("u8", [len(text)], text)
