#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the library's digests with those of fingerprint.py: test_fingerprint.py PROGRAM.

PROGRAM is tests/checkpoint/engine/fingerprint_lines.c. Also proves that the two polynomials are primitive.
"""
import os
import random
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
import fingerprint

SIZES = [0, 1, 2, 7, 8, 9, 15, 16, 17, 31, 48, 63, 64, 65, 127, 128, 129, 200, 255, 256, 1000, 4096]
PRIMES = [3, 5, 17, 257, 641, 65537, 6700417]  # of 2^64 - 1


def check_primitive():
    """x has the order 2^64 - 1, which it has modulo no polynomial of degree 64 that has factors."""
    order = 2**64 - 1
    for polynomial in fingerprint.POLYNOMIALS:
        assert fingerprint.power(2, order, polynomial) == 1
        assert all(fingerprint.power(2, order // prime, polynomial) != 1 for prime in PRIMES)


def make_cases(numbers):
    """[(line for the program, expected answer)]"""
    cases = []
    for size in SIZES:
        data = numbers.randbytes(size)
        text = data.hex() or "-"
        cases.append((f"tensor U8 {size} {text}", fingerprint.tensor_digest("U8", [size], data)))
        place = numbers.randrange(2**numbers.randrange(1, 62))
        wanted = "".join(f"{fingerprint.shifted(data, place, polynomial):016x}"
                         for polynomial in fingerprint.POLYNOMIALS)
        cases.append((f"run {place} {text}", wanted))
    for dtype, shape, size in [("F32", [2, 3, 5], 120), ("BF16", [0, 4], 0), ("F64", [], 8),
                               ("F4", [3, 2], 3), ("F6_E2M3", [4], 3), ("BOOL", [1, 1, 1], 1)]:
        data = numbers.randbytes(size)
        sizes = "x".join(map(str, shape)) or "scalar"
        cases.append((f"tensor {dtype} {sizes} {data.hex() or '-'}",
                      fingerprint.tensor_digest(dtype, shape, data)))
    digests = {b"a.b": "0" * 32, b"a": "f" * 32, b"ab": "1234567890abcdef" * 2}
    line = " ".join(f"{name.decode()} {digests[name]}" for name in sorted(digests))
    cases.append((f"checkpoint {line}", fingerprint.checkpoint_digest(digests)))
    return cases


def check_page():
    """The definition in docs/digest.md is the one that is tested here."""
    page = os.path.join(HERE, "..", "..", "..", "docs", "digest.md")
    with open(page, encoding="utf-8") as file:
        code = re.search(r"^```python\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL).group(1)
    names = {}
    exec(code, names)  # pylint: disable=exec-used
    for case in [("F32", [2, 3], bytes(range(24))), ("BF16", [], b"ab")]:
        assert names["tensor_digest"](*case) == fingerprint.tensor_digest(*case)


def main():
    check_primitive()
    check_page()
    numbers = random.Random(int(os.environ.get("RESHARD_TEST_SEED", "1"), 0))
    cases = make_cases(numbers)
    lines = "".join(line + "\n" for line, _ in cases)
    for way in ["fast", "plain"]:
        done = subprocess.run([sys.argv[1], way], input=lines, capture_output=True, text=True,
                              check=True)
        answers = done.stdout.splitlines()
        assert len(answers) == len(cases), (len(answers), done.stderr)
        for (line, wanted), found in zip(cases, answers):
            assert found == wanted, f"{way}: {line[:60]}: {found}, expected {wanted}"
    print(f"{len(cases)} digests agree, in two ways each")


if __name__ == "__main__":
    main()
