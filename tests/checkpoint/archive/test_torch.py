# SPDX-License-Identifier: Apache-2.0
"""Files of a real PyTorch: those that it saves, read by us, and those that we write, loaded by it.

  test_torch.py ZIP-LINES PICKLE-LINES TORCH-FILE
"""
import os
import struct
import subprocess
import sys
import tempfile
import zipfile
import zlib

import symbolic

try:
    import torch
except ImportError:
    print("skipped: this Python has no torch (Debian: python3-torch)")
    sys.exit(77)


def read_pickle(reader, data):
    """Checks our reading of one pickle against Python's, and returns its root and length."""
    symbol = symbolic.Reader(data)
    root = symbol.load()
    seen = subprocess.run([reader], input=struct.pack("<I", len(data)) + data, capture_output=True, check=True)
    assert seen.stdout.decode().strip() == "%s used %d" % (symbolic.line(root, True), symbol.tell()), (data[:200], seen.stdout[:300])
    return root, symbol.tell()


def make_values():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3), torch.nn.Embedding(5, 2))
    optimizer = torch.optim.AdamW(model[:2].parameters())
    model[:2](torch.ones(2, 4)).sum().backward()
    optimizer.step()
    base = torch.arange(12.0).reshape(3, 4)
    return {
        "state": model.state_dict(), "optimizer": {"optimizer": optimizer.state_dict(), "step": 7},
        "views": [base, base.t(), base[1:], base.expand(2, 3, 4), torch.nn.Parameter(base)],
        "dtypes": [torch.zeros(2, dtype=dtype) for dtype in (torch.float16, torch.bfloat16, torch.int8, torch.bool, torch.complex64)],
        "module": model, "plain": {"a": [1, 2.5, None, "x", b"bytes\xff"], "device": torch.device("cpu"), "size": torch.Size([1, 2])},
        "random": torch.get_rng_state(), "empty": torch.empty(0), "many": {"layer.%d" % i: torch.ones(i % 5) for i in range(700)}}


def check_zip(zip_lines, pickle_lines, path):
    with zipfile.ZipFile(path) as file, open(path, "rb") as whole:
        infos, data = file.infolist(), whole.read()
        lines = subprocess.run([zip_lines, path, "0", "-1"], capture_output=True, check=True, text=True).stdout.splitlines()
        assert lines[0] == "%d members" % len(infos), (path, lines[0])
        for info, line in zip(infos, lines[1:]):
            words, content = line.split(" ", 6), file.read(info)
            assert words[0] == info.filename.encode().hex() and words[6] == str(zlib.adler32(content)), (path, line)
            assert int(words[1]) % 64 == 0 and data[int(words[1]):][:len(content)] == content, (path, line)
        read_pickle(pickle_lines, file.read(infos[0]))


def check_legacy(pickle_lines, path):
    """Five pickles in a row, then the storages."""
    with open(path, "rb") as file:
        data = file.read()
    roots, at = [], 0
    for _ in range(5):
        root, used = read_pickle(pickle_lines, data[at:])
        roots.append(root)
        at += used
    assert roots[0] == 0x1950a86a20f9469cfc6c and roots[1] == 1001, roots[:2]


def main():
    zip_lines, pickle_lines, torch_file = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        for name, value in make_values().items():
            path = os.path.join(folder, name + ".pt")
            torch.save(value, path)
            check_zip(zip_lines, pickle_lines, path)
            torch.save(value, path, _use_new_zipfile_serialization=False)
            check_legacy(pickle_lines, path)
        path = os.path.join(folder, "ours.pt")
        subprocess.run([torch_file, path], check=True)
        for how in ({}, {"weights_only": True}):
            loaded = torch.load(path, **how)
            assert list(loaded) == ["weight", "tied"] and loaded["weight"] is loaded["tied"]
            assert torch.equal(loaded["weight"], torch.arange(12.0).reshape(3, 4))
        check_zip(zip_lines, pickle_lines, path)
    print("torch %s: %d values saved and read, one file written and loaded" % (torch.__version__, len(make_values())))


if __name__ == "__main__":
    main()
