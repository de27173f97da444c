# SPDX-License-Identifier: Apache-2.0
"""GGUF files byte by byte, and what their quantised types mean, element by element. Shares no code with the library: the
container is written with struct, and each value is computed from the definition of its type, rounded to f32 after every
operation."""
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, TEXT, LIST, U64, I64, F64 = range(13)
FORMATS = {U8: "<B", I8: "<b", U16: "<H", I16: "<h", U32: "<I", I32: "<i", F32: "<f", BOOL: "<?", U64: "<Q", I64: "<q", F64: "<d"}
# name: number, elements and bytes of a block
TYPES = {"F32": (0, 1, 4), "F16": (1, 1, 2), "Q4_0": (2, 32, 18), "Q4_1": (3, 32, 20), "Q5_0": (6, 32, 22), "Q5_1": (7, 32, 24),
         "Q8_0": (8, 32, 34), "Q8_1": (9, 32, 36), "Q2_K": (10, 256, 84), "Q3_K": (11, 256, 110), "Q4_K": (12, 256, 144),
         "Q5_K": (13, 256, 176), "Q6_K": (14, 256, 210), "Q8_K": (15, 256, 292), "IQ2_XXS": (16, 256, 66), "IQ2_XS": (17, 256, 74),
         "IQ3_XXS": (18, 256, 98), "IQ1_S": (19, 256, 50), "IQ4_NL": (20, 32, 18), "IQ3_S": (21, 256, 110), "IQ2_S": (22, 256, 82),
         "IQ4_XS": (23, 256, 136), "I8": (24, 1, 1), "I16": (25, 1, 2), "I32": (26, 1, 4), "I64": (27, 1, 8), "F64": (28, 1, 8),
         "IQ1_M": (29, 256, 56), "BF16": (30, 1, 2), "TQ1_0": (34, 256, 54), "TQ2_0": (35, 256, 66), "MXFP4": (39, 32, 17),
         "NVFP4": (40, 64, 36), "Q1_0": (41, 128, 18), "Q2_0": (42, 64, 18)}
DECODED = ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4", "NVFP4"]


def text(value):
    value = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(value)) + value


def item(kind, value):
    return text(value) if kind == TEXT else struct.pack(FORMATS[kind], value)


def value(key, kind, content):
    """A key-value; a kind (LIST, k) is a list of kind k."""
    if isinstance(kind, tuple):
        return text(key) + struct.pack("<IIQ", LIST, kind[1], len(content)) + b"".join(item(kind[1], one) for one in content)
    return text(key) + struct.pack("<I", kind) + item(kind, content)


def size_of(type_name, shape):
    _, elements, size = TYPES[type_name]
    count = 1
    for extent in shape:
        count *= extent
    return count // elements * size


def tensor_info(name, type_number, shape, offset):
    """shape: slowest dimension first; the file has it the other way round."""
    return text(name) + struct.pack("<I", len(shape)) + b"".join(struct.pack("<q", extent) for extent in reversed(shape)) + \
        struct.pack("<IQ", type_number, offset)


def pad(data, alignment):
    return data + b"\0" * (-len(data) % alignment)


def make(values, tensors, version=3, alignment=32, pad_last=True):
    """values: (key, kind, content); tensors: (name, type, shape, bytes)."""
    values = list(values)
    if alignment != 32:
        values.append(("general.alignment", U32, alignment))
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values)) + b"".join(value(*one) for one in values)
    data = b""
    for name, type_name, shape, content in tensors:
        assert len(content) == size_of(type_name, shape), (name, type_name, shape, len(content))
        head += tensor_info(name, TYPES[type_name][0], shape, len(data))
        data = pad(data + content, alignment)
    if not pad_last and tensors and len(tensors[-1][3]) % alignment:
        data = data[:len(data) - (-len(tensors[-1][3]) % alignment)]
    return pad(head, alignment) + data


def write(path, *arguments, **options):
    with open(path, "wb") as file:
        file.write(make(*arguments, **options))


# ---- values of blocks ------------------------------------------------------------------------------------------------


def f32(number):
    """Rounds to f32. Python's floats are f64, in which a product or sum of two f32 is rounded at most once more; a product is
    exact there, and a sum rounded twice differs only where the exact one needs more than 53 bits (not with these numbers)."""
    try:
        return struct.unpack("<f", struct.pack("<f", number))[0]
    except OverflowError:
        return float("inf") if number > 0 else float("-inf")


def half(data):
    return struct.unpack("<e", data)[0]


def low_then_high(data):
    return [byte & 15 for byte in data] + [byte >> 4 for byte in data]


E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]
STEPS = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]


def bits_of(data):
    number = int.from_bytes(data, "little")
    return [number >> i & 1 for i in range(8 * len(data))]


def scales_of_six_bits(q):
    """Eight scales and eight minimums in twelve bytes."""
    scales = [q[j] & 63 for j in range(4)] + [q[j + 4] & 15 | q[j - 4] >> 6 << 4 for j in range(4, 8)]
    minimums = [q[j + 4] & 63 for j in range(4)] + [q[j + 4] >> 4 | q[j] >> 6 << 4 for j in range(4, 8)]
    return scales, minimums


def decode_block(type_name, b):
    if type_name == "Q8_0":
        return [f32(half(b[:2]) * q) for q in struct.unpack("<32b", b[2:])]
    if type_name == "Q4_0":
        return [f32(half(b[:2]) * (n - 8)) for n in low_then_high(b[2:])]
    if type_name == "Q4_1":
        return [f32(f32(half(b[:2]) * n) + half(b[2:4])) for n in low_then_high(b[4:])]
    if type_name == "Q5_0":
        return [f32(half(b[:2]) * ((n | h << 4) - 16)) for n, h in zip(low_then_high(b[6:]), bits_of(b[2:6]))]
    if type_name == "Q5_1":
        return [f32(f32(half(b[:2]) * (n | h << 4)) + half(b[2:4])) for n, h in zip(low_then_high(b[8:]), bits_of(b[4:8]))]
    if type_name == "IQ4_NL":
        return [f32(half(b[:2]) * STEPS[n]) for n in low_then_high(b[2:])]
    if type_name == "MXFP4":
        return [f32(E2M1[n] * 2.0 ** (b[0] - 127)) for n in low_then_high(b[1:])]
    if type_name == "NVFP4":
        out = []
        for run in range(4):
            code = b[run]
            exponent, fraction = code >> 3 & 15, code & 7
            scale = 0.0 if code in (0, 0x7f) else fraction * 2.0 ** -9 if exponent == 0 else (8 + fraction) * 2.0 ** (exponent - 10)
            out += [f32(E2M1[n] * scale) for n in low_then_high(b[4 + 8 * run:12 + 8 * run])]
        return out
    out = [None] * 256
    if type_name == "Q2_K":
        d, least = half(b[80:82]), half(b[82:84])
        for i in range(256):
            scale = b[i // 16]
            code = b[16 + i // 128 * 32 + i % 32] >> (i % 128 // 32 * 2) & 3
            out[i] = f32(f32(f32(d * (scale & 15)) * code) - f32(least * (scale >> 4)))
    elif type_name == "Q3_K":
        d = half(b[108:110])
        for i in range(256):
            k = i // 16
            low = b[96 + k] & 15 if k < 8 else b[96 + k - 8] >> 4
            scale = (low | (b[104 + k % 4] >> (k // 4 * 2) & 3) << 4) - 32
            code = b[32 + i // 128 * 32 + i % 32] >> (i % 128 // 32 * 2) & 3
            code -= 0 if b[i % 32] >> (i // 32) & 1 else 4
            out[i] = f32(f32(d * scale) * code)
    elif type_name in ("Q4_K", "Q5_K"):
        d, least = half(b[:2]), half(b[2:4])
        scales, minimums = scales_of_six_bits(b[4:16])
        codes = b[16:] if type_name == "Q4_K" else b[48:]
        for i in range(256):
            code = codes[i // 64 * 32 + i % 32] >> (i // 32 % 2 * 4) & 15
            if type_name == "Q5_K":
                code |= (b[16 + i % 32] >> (i // 32) & 1) << 4
            out[i] = f32(f32(f32(d * scales[i // 32]) * code) - f32(least * minimums[i // 32]))
    elif type_name == "Q6_K":
        d = half(b[208:210])
        for i in range(256):
            part, l, quarter = i // 128, i % 32, i % 128 // 32
            low = b[64 * part + l + 32 * (quarter % 2)] >> (quarter // 2 * 4) & 15
            code = low | (b[128 + 32 * part + l] >> (2 * quarter) & 3) << 4
            scale = struct.unpack("<b", b[192 + i // 16:193 + i // 16])[0]
            out[i] = f32(f32(d * scale) * (code - 32))
    elif type_name == "IQ4_XS":
        d, high = half(b[:2]), b[2] | b[3] << 8
        for i in range(256):
            run = i // 32
            scale = (b[4 + run // 2] >> (run % 2 * 4) & 15 | (high >> (2 * run) & 3) << 4) - 32
            code = b[8 + 16 * run + i % 16] >> (i % 32 // 16 * 4) & 15
            out[i] = f32(f32(d * scale) * STEPS[code])
    return out


def decode(type_name, data):
    """All values of blocks."""
    size = TYPES[type_name][2]
    return [one for at in range(0, len(data), size) for one in decode_block(type_name, data[at:at + size])]


# where the F16 numbers of a block are
SCALES_AT = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2],
             "Q5_K": [0, 2], "Q6_K": [208], "IQ4_NL": [0], "IQ4_XS": [0], "MXFP4": [], "NVFP4": []}


def random_blocks(random, type_name, count):
    """Random blocks whose scales are finite and of usual size."""
    size = TYPES[type_name][2]
    out = b""
    for _ in range(count):
        block = bytearray(random.randrange(256) for _ in range(size))
        for at in SCALES_AT[type_name]:
            block[at:at + 2] = struct.pack("<e", random.uniform(-0.1, 0.1))
        if type_name == "MXFP4":
            block[0] = random.randrange(100, 140)
        out += bytes(block)
    return out
