# SPDX-License-Identifier: Apache-2.0
"""safetensors files written and read by hand, for tests: nothing here shares code with the library.

A model is {name: (dtype, shape, bytes)} with row-major bytes.
"""
import itertools
import json
import os
import struct

BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8, "F8_E8M0": 8,
        "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16, "I32": 32, "U32": 32,
        "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64}


def volume(shape):
    product = 1
    for extent in shape:
        product *= extent
    return product


def size_of(dtype, shape):
    bits = volume(shape) * BITS[dtype]
    assert bits % 8 == 0
    return bits // 8


def frame(header, data=b""):
    """A file of a header (an object, or bytes as they are) and data."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def pack(tensors, metadata=None, pad=0):
    """The bytes of a file of tensors, in the order given."""
    header = {} if metadata is None else {"__metadata__": metadata}
    data = b""
    for name, (dtype, shape, values) in tensors.items():
        assert len(values) == size_of(dtype, shape), name
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    return frame(text + b" " * pad, data)


def write(path, tensors, metadata=None, pad=0):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(pack(tensors, metadata, pad))


def read(path):
    """(tensors, metadata, byte where the data begin)"""
    with open(path, "rb") as file:
        whole = file.read()
    length = struct.unpack("<Q", whole[:8])[0]
    header = json.loads(whole[8:8 + length])
    metadata = header.pop("__metadata__", {})
    data = whole[8 + length:]
    ranges = sorted(entry["data_offsets"] for entry in header.values())
    at = 0
    for begin, end in ranges:
        assert begin == at, f"{path}: a hole or an overlap at {at}"
        at = end
    assert at == len(data), f"{path}: {at} bytes described, {len(data)} there"
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        assert end - begin == size_of(entry["dtype"], entry["shape"]), f"{path}: {name}"
        tensors[name] = (entry["dtype"], tuple(entry["shape"]), data[begin:end])
    return tensors, metadata, 8 + length


def read_rank(path):
    """(tensors, what the file says of the split, but for the id of the conversion)"""
    tensors, metadata, _ = read(path)
    layout = json.loads(metadata["RESHARD_LAYOUT"])
    del layout["conversion"]
    layout["tensors"] = told_tensors(layout)
    return tensors, layout


def told_tensors(layout):
    """What RESHARD_LAYOUT says of each tensor, by name."""
    found = {}
    for group in layout["groups"]:
        said = {key: value for key, value in group.items() if key != "names"}
        for name in group["names"]:
            parts = [[name]] if isinstance(name, str) else [
                [part] if isinstance(part, str) else range(part[0], part[1] + 1) for part in name]
            for chosen in itertools.product(*parts):
                name = "".join(map(str, chosen))
                assert name not in found, name
                found[name] = said
    return found


def strip_rank_files(folder, target, flat=False):
    """Rank files as strangers write them: without a word on how they are split. flat: with tensors that are cut flat, whose
    shapes cannot be found then. Returns the names of those that were left out."""
    gone = set()
    for name in os.listdir(folder):
        if name.endswith(".safetensors"):
            tensors, layout = read_rank(f"{folder}/{name}")
            gone.update(key for key, said in layout["tensors"].items() if not flat and "flat" in said["cuts"])
            write(f"{target}/{name}", {key: array for key, array in tensors.items() if key not in gone}, {"format": "pt"})
    return gone


def strides(shape):
    steps = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        steps[d] = steps[d + 1] * shape[d + 1]
    return steps


def rows(offset, size, shape):
    """(place in the box, place in the tensor, elements) of each innermost line of a box."""
    steps = strides(shape)
    if not size:
        return [(0, 0, 1)]
    lines, here = [], 0
    def walk(d, at):
        nonlocal here
        if d == len(size) - 1:
            lines.append((here, at + offset[d], size[d]))
            here += size[d]
            return
        for i in range(size[d]):
            walk(d + 1, at + (offset[d] + i) * steps[d])
    walk(0, 0)
    return lines


def cut(tensor, offset, size):
    """The bytes of a box of a tensor."""
    dtype, shape, values = tensor
    width = BITS[dtype] // 8
    return b"".join(values[at * width:(at + n) * width] for _, at, n in rows(offset, size, shape))


def paste(target, dtype, shape, offset, size, values):
    """Writes a box into a bytearray that holds the whole tensor."""
    width = BITS[dtype] // 8
    for here, at, n in rows(offset, size, shape):
        target[at * width:(at + n) * width] = values[here * width:(here + n) * width]


def chunk(n, k, i):
    """PyTorch's chunk i of k: offset and size."""
    step = -(-n // k)
    begin = min(i * step, n)
    return begin, min(begin + step, n) - begin


def write_dcp(folder, model, ranks, dims, shapes=False):
    """As torch.distributed.checkpoint's hf_storage writes: tensor `name` cut along dims[name] (None: whole on
    rank 0)."""
    for rank in range(ranks):
        tensors, info, full = {}, {}, {}
        for name, (dtype, shape, values) in model.items():
            d = dims.get(name)
            if d is None:
                if rank == 0:
                    tensors[name] = (dtype, shape, values)
                    info[name] = {"saved_offsets": [0] * len(shape)}
                continue
            offset, size = [0] * len(shape), list(shape)
            offset[d], size[d] = chunk(shape[d], ranks, rank)
            if size[d] == 0:
                continue
            tensors[name] = (dtype, tuple(size), cut((dtype, shape, values), offset, size))
            info[name] = {"saved_offsets": offset}
            full[name] = list(shape)
        if tensors:
            metadata = {"DCP_SHARDING_INFO": json.dumps(info), "DCP_VERSION": "1.0", "format": "pt"}
            if shapes:
                metadata["RESHARD_SHAPES"] = json.dumps(full)
            write(f"{folder}/shard-{rank + 1:05d}-model-00001-of-00001.safetensors", tensors, metadata)


def read_dcp(folder):
    """The whole model, every element exactly once."""
    found, seen = {}, {}
    for file in sorted(os.listdir(folder)):
        if not file.endswith(".safetensors"):
            continue
        tensors, metadata, _ = read(f"{folder}/{file}")
        info = json.loads(metadata.get("DCP_SHARDING_INFO", "{}"))
        full = json.loads(metadata.get("RESHARD_SHAPES", "{}"))
        for key, (dtype, size, values) in tensors.items():
            entry = info.get(key, {"saved_offsets": [0] * len(size)})
            name = entry.get("logical_fqn", key)
            shape = tuple(full.get(key, size))
            if name not in found:
                found[name] = (dtype, shape, bytearray(size_of(dtype, shape)))
                seen[name] = 0
            assert found[name][:2] == (dtype, shape), (name, found[name][:2], dtype, shape)
            if BITS[dtype] % 8:
                found[name] = (dtype, shape, values)
            else:
                paste(found[name][2], dtype, shape, entry["saved_offsets"], size, values)
            seen[name] += len(values)
    for name, (dtype, shape, values) in found.items():
        assert seen[name] == len(values), f"{name}: {seen[name]} of {len(values)} bytes"
    return {name: (dtype, shape, bytes(values)) for name, (dtype, shape, values) in found.items()}


def read_hf(folder):
    index = f"{folder}/model.safetensors.index.json"
    if not os.path.exists(index):
        return read(f"{folder}/model.safetensors")[0]
    with open(index, encoding="utf-8") as file:
        weight_map = json.load(file)["weight_map"]
    parts = {name: read(f"{folder}/{name}")[0] for name in set(weight_map.values())}
    return {name: parts[file][name] for name, file in weight_map.items()}
