# SPDX-License-Identifier: Apache-2.0
"""A distributed checkpoint of many ranks, written as PyTorch 2 writes `.metadata`, but opcode by opcode: a million chunks take seconds
where Python's pickler would first need a million objects. The data files have their sizes and are holes: nothing in them can be read.

Every tensor has ROWS rows a rank. As PyTorch's gathers leave it, names of tensors and offsets are written out for every chunk, and the
name of a file once for each rank.

    dcp_many.py FOLDER RANKS TENSORS
"""
import os
import struct
import sys

ROWS, COLUMNS, ENTRY_BYTES = 4, 32, 2048
METADATA = "torch.distributed.checkpoint.metadata"


class Pickle:
    """Protocol 4. Every method adds opcodes and, as Python does, puts what it made into the memo."""
    def __init__(self):
        self.parts, self.memo, self.known = [b"\x80\x04"], 0, {}

    def add(self, opcodes, memo=0):
        self.parts.append(opcodes)
        self.memo += memo

    def text(self, text):
        data = text.encode()
        self.add((b"\x8c" + bytes([len(data)]) if len(data) < 256 else b"X" + struct.pack("<I", len(data))) + data + b"\x94", 1)

    def get(self, index):
        self.add(get(index))

    def once(self, key, write):
        """Writes a thing the first time, and comes back to it later."""
        if key in self.known:
            self.get(self.known[key])
        else:
            write()
            self.known[key] = self.memo - 1

    def shared(self, text):
        self.once(text, lambda: self.text(text))

    def name(self, module, name):
        def write():
            self.shared(module)
            self.shared(name)
            self.add(b"\x93\x94", 1)
        self.once((module, name), write)

    def integer(self, number):
        self.add(integer(number))

    def size(self, *numbers):
        self.name("torch", "Size")
        self.add(b"".join(map(integer, numbers)) + b"\x86\x94\x85\x94R\x94", 3)

    def begin(self, module, name):
        self.name(module, name)
        self.add(b")\x81\x94}\x94(", 2)

    def end(self):
        self.add(b"ub")


def get(index):
    return b"h" + bytes([index]) if index < 256 else b"j" + struct.pack("<I", index)


def integer(number):
    if number < 256:
        return b"K" + bytes([number])
    if number < 65536:
        return b"M" + struct.pack("<H", number)
    if number < 1 << 31:
        return b"J" + struct.pack("<i", number)
    data = number.to_bytes(number.bit_length() // 8 + 1, "little")
    return b"\x8a" + bytes([len(data)]) + data


def batches(p, count, write, end):
    """Items in batches of 1000, as Python writes those of lists and dicts."""
    for first in range(0, count, 1000):
        p.add(b"(")
        for i in range(first, min(first + 1000, count)):
            write(i)
        p.add(end)


def write_chunk(p, rank):
    p.begin(METADATA, "ChunkStorageMetadata")
    p.shared("offsets")
    p.size(rank * ROWS, 0)
    p.shared("sizes")
    p.size(ROWS, COLUMNS)
    p.end()


def write_tensor(p, name, ranks):
    p.text(name)
    p.begin(METADATA, "TensorStorageMetadata")
    p.shared("properties")
    p.name(METADATA, "TensorProperties")
    p.add(b")\x81\x94(", 1)
    p.name("torch", "float32")
    p.name("torch.serialization", "_get_layout")
    p.shared("torch.strided")
    p.add(b"\x85\x94R\x94\x89", 2)
    p.name(METADATA, "_MEM_FORMAT_ENCODING")
    p.add(b"K\x00\x85\x94R\x94\x89t\x94b", 3)
    p.shared("size")
    p.size(ranks * ROWS, COLUMNS)
    p.shared("chunks")
    p.add(b"]\x94", 1)
    batches(p, ranks, lambda rank: write_chunk(p, rank), b"e")
    p.end()


def write_entry(p, name, rank, i):
    p.begin(METADATA, "MetadataIndex")
    p.shared("fqn")
    p.text(name)
    p.shared("offset")
    p.size(rank * ROWS, 0)
    p.shared("index")
    p.integer(rank)
    p.end()
    p.begin("torch.distributed.checkpoint.filesystem", "_StorageInfo")
    p.shared("relative_path")
    p.shared(f"__{rank}_0.distcp")
    p.shared("offset")
    p.integer(i * ENTRY_BYTES)
    p.shared("length")
    p.integer(ENTRY_BYTES)
    p.end()


def names_of(tensors):
    return [f"model.layers.{i // 3}.mlp.{('gate', 'up', 'down')[i % 3]}_proj.weight" for i in range(tensors)]


def metadata(ranks, tensors):
    p, names = Pickle(), names_of(tensors)
    p.begin(METADATA, "Metadata")
    p.shared("state_dict_metadata")
    p.add(b"}\x94", 1)
    batches(p, tensors, lambda i: write_tensor(p, names[i], ranks), b"u")
    p.shared("planner_data")
    p.add(b"N")
    p.shared("storage_data")
    p.add(b"}\x94", 1)
    batches(p, ranks * tensors, lambda k: write_entry(p, names[k % tensors], k // tensors, k % tensors), b"u")
    p.end()
    p.add(b".")
    return b"".join(p.parts)


def write(folder, ranks, tensors):
    os.makedirs(folder)
    for rank in range(ranks):
        with open(os.path.join(folder, f"__{rank}_0.distcp"), "wb") as file:
            file.truncate(tensors * ENTRY_BYTES)
    with open(os.path.join(folder, ".metadata"), "wb") as file:
        file.write(metadata(ranks, tensors))


if __name__ == "__main__":
    write(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
