#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Times how long one rank of `tp=4` takes to load its part of a model of about 2 GB, in three ways: `ck.shard`, the same call in C, and
slices of NumPy's memmap written by hand.

  bench/python_load.py FOLDER [ROUNDS]     the model is made in FOLDER, and stays there

All three read from the page cache into untouched memory: each load runs in a fresh process that has already imported everything. A
round has one load of each kind; the table shows the fastest and the median. The C loader is one call of reshard_checkpoint_read_rank
through ctypes, with the checkpoint open and the layouts made, so it shows what Python adds. Peak memory is the growth of the process.
"""
import ctypes
import functools
import json
import os
import statistics
import subprocess
import sys
import time

import numpy

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "python"))
import reshard  # noqa: E402
from reshard._library import lib  # noqa: E402

TP, LAYERS, HIDDEN, INNER, VOCABULARY = 4, 10, 2048, 5632, 32000
CUTS = {"q_proj": 0, "k_proj": 0, "v_proj": 0, "gate_proj": 0, "up_proj": 0, "o_proj": 1, "down_proj": 1, "embed_tokens": 0, "lm_head": 0}


def list_shapes():
    shapes = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN), "lm_head.weight": (VOCABULARY, HIDDEN), "model.norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        at = f"model.layers.{layer}."
        shapes.update({f"{at}self_attn.{part}_proj.weight": (HIDDEN, HIDDEN) for part in "qkvo"})
        shapes.update({at + "mlp.gate_proj.weight": (INNER, HIDDEN), at + "mlp.up_proj.weight": (INNER, HIDDEN),
                       at + "mlp.down_proj.weight": (HIDDEN, INNER), at + "input_layernorm.weight": (HIDDEN,),
                       at + "post_attention_layernorm.weight": (HIDDEN,)})
    return shapes


def make_model(folder):
    """Writes one safetensors file of f32, byte by byte, and config.json."""
    path, header, at = os.path.join(folder, "model.safetensors"), {}, 0
    for name, shape in list_shapes().items():
        count = 4 * int(numpy.prod(shape))
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [at, at + count]}
        at += count
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        block = numpy.random.default_rng(1).bytes(1 << 22)
        with open(path, "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text)
            for begin in range(0, at, len(block)):
                file.write(block[:min(len(block), at - begin)])
        with open(os.path.join(folder, "config.json"), "w", encoding="ascii") as file:
            json.dump({"model_type": "llama", "num_hidden_layers": LAYERS, "hidden_size": HIDDEN, "num_attention_heads": 16,
                       "num_key_value_heads": 16, "head_dim": HIDDEN // 16, "intermediate_size": INNER, "vocab_size": VOCABULARY}, file)
    return path, header, 8 + len(text)


def load_python(folder, rank):
    with reshard.open(folder) as ck:
        return dict(ck.shard(f"tp={TP}", rank))


def load_numpy(path, header, begin, rank):
    """As a user would write it: map the file, slice, copy."""
    mapped, found = numpy.memmap(path, "u1", "r"), {}
    for name, entry in header.items():
        first, last = entry["data_offsets"]
        whole = mapped[begin + first:begin + last].view("f4").reshape(entry["shape"])
        dim = next((dim for part, dim in CUTS.items() if part in name), None)
        if dim is None:
            found[name] = whole.copy()
        else:
            size = whole.shape[dim] // TP
            found[name] = whole[(slice(None),) * dim + (slice(rank * size, rank * size + size),)].copy()
    return found


class LoadC:
    """Prepares everything except the call and its memory."""

    def __init__(self, folder, rank):
        self.checkpoint, self.rank = reshard.open(folder), rank
        self.held = self.checkpoint.shard(f"tp={TP}", rank)._held
        self.tensors = (reshard._native.reshard_rank_tensor * len(self.held))()
        self.memory = [(ctypes.c_void_p * 1)() for _ in self.held]
        for entry, held, memory in zip(self.tensors, self.held.values(), self.memory):
            entry.tensor, entry.layout = held.source, held.layout._pointer
            entry.shards = ctypes.cast(memory, ctypes.POINTER(ctypes.c_void_p))
        lib.reshard_checkpoint_read_rank  # ctypes looks it up

    def __call__(self):
        found = {name: numpy.empty(held.shards[0].shape, "f4") for name, held in self.held.items()}
        for memory, array in zip(self.memory, found.values()):
            memory[0] = array.ctypes.data
        lib.reshard_checkpoint_read_rank(self.checkpoint._pointer, self.rank, len(found), self.tensors, None)
        return found


def read_status(field):
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field))


def load_once(way, folder):
    """Runs in a process of its own. Prints seconds, bytes, the growth of memory, and a checksum of what was read."""
    path, header, begin = make_model(folder)
    if way == "C loader":
        call = LoadC(folder, 0)
    elif way == "Python":
        call = functools.partial(load_python, folder, 0)
        reshard.library_path()
    else:
        call = functools.partial(load_numpy, path, header, begin, 0)
    before, begun = read_status("VmRSS"), time.perf_counter()
    found = call()
    seconds = time.perf_counter() - begun
    grown = read_status("VmHWM") - before
    # NumPy's mapping is the page cache, but counts as memory of the process all the same.
    check = sum(int(array.ravel()[::4099].view("u4").sum()) for _, array in sorted(found.items()))
    print(seconds, sum(array.nbytes for array in found.values()), grown, check)


def main():
    folder, rounds = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 7
    path, _, _ = make_model(folder)
    ways = ("Python", "C loader", "NumPy memmap")
    times, grown, checks = {way: [] for way in ways}, {}, set()
    for _ in range(rounds):
        for way in ways:
            said = subprocess.check_output([sys.executable, __file__, folder, "--way", way], text=True).split()
            times[way].append(float(said[0]))
            count, grown[way] = int(said[1]), int(said[2])
            checks.add(said[3])
    assert len(checks) == 1, "they have read different things"
    best = {way: min(times[way]) for way in ways}
    print(f"{os.path.getsize(path) / 1e9:.2f} GB, rank 0 of tp={TP}: {count / 1e9:.2f} GB, best and median of {rounds}")
    for way, seconds in best.items():
        middle = statistics.median(times[way])
        print(f"{way:13} {1000 * seconds:7.1f} ms {count / 1e9 / seconds:6.2f} GB/s {count / 1e9 / middle:6.2f}")
    print(f"Python is {best['C loader'] / best['Python']:.2f} of the C loader, {best['NumPy memmap'] / best['Python']:.2f} of NumPy")
    print(f"memory beyond start, as a multiple of the result: {grown['Python'] / count:.2f}")


if "--way" in sys.argv:
    load_once(sys.argv[3], sys.argv[1])
else:
    main()
