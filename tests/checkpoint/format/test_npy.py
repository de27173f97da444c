# SPDX-License-Identifier: Apache-2.0
"""NumPy's arrays, written byte by byte and, where this Python has it, by NumPy itself, through conversions."""
import os
import random
import shutil
import struct
import sys
import tempfile
import unittest
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import support

try:
    import numpy
except ImportError:
    numpy = None

DESCRIPTIONS = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "I64": "<i8", "U8": "|u1", "BOOL": "|b1", "C64": "<c8", "U16": "<u2",
                "C128": "<c16"}


def by_columns(dtype, shape, data):
    """Row-major bytes in column-major order."""
    size, result = files.BITS[dtype] // 8, []
    for i in range(files.volume(shape)):
        place, at, rest = [], 0, i
        for extent in shape:
            place.append(rest % extent)
            rest //= extent
        for extent, index in zip(shape, place):
            at = at * extent + index
        result.append(data[at * size:(at + 1) * size])
    return b"".join(result)


def npy(dtype, shape, data, fortran=False):
    text = "{'descr': '%s', 'fortran_order': %s, 'shape': %s, }" % (DESCRIPTIONS[dtype], fortran, tuple(shape))
    text += " " * (-(10 + len(text) + 1) % 64) + "\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text.encode() + (by_columns(dtype, shape, data) if fortran else data)


class NpyTest(support.CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.rnd = random.Random(1)

    def at(self, name):
        return f"{self.folder}/{name}"

    def make_model(self):
        shapes = {"layer.0.w": ("F32", (64, 32)), "layer.0.b": ("F16", (64,)), "params/kernel": ("F64", (5, 3, 7)), "step": ("I64", ()),
                  "none": ("U8", (0, 4)), "mask": ("BOOL", (3, 3)), "z": ("C64", (4, 2)), "ids": ("U16", (300, 200))}
        return {name: (dtype, shape, self.rnd.randbytes(files.size_of(dtype, shape))) for name, (dtype, shape) in shapes.items()}

    def check(self, source, model, *more):
        self.read_text("convert", self.at(source), self.at("out"), "--verify", *more)
        found = files.read(self.at("out/model.safetensors"))[0]
        self.assertEqual({name: tuple(value) for name, value in found.items()}, model)
        shutil.rmtree(self.at("out"))

    def write_npz(self, name, model, method, fortran=False):
        with zipfile.ZipFile(self.at(name), "w", method) as archive:
            for key, value in model.items():
                with archive.open(key + ".npy", "w", force_zip64=True) as member:
                    member.write(npy(*value, fortran))

    def test_archives(self):
        model = self.make_model()
        for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            for fortran in (False, True):
                self.write_npz("a.npz", model, method, fortran)
                self.check("a.npz", model)
                self.check("a.npz", model, "--threads", "3", "--max-memory", "3M")

    def test_complex128(self):
        """Read, but safetensors does not have it."""
        with open(self.at("z.npy"), "wb") as file:
            file.write(npy("C128", (2, 3), self.rnd.randbytes(96)))
        found = self.read_json("inspect", self.at("z.npy"))["tensors"]
        self.assertEqual([(t["dtype"], t["shape"]) for t in found], [("C128", [2, 3])])
        self.check_fails(["convert", self.at("z.npy"), self.at("out")], 1, "c128, which safetensors does not have")

    def test_complex128_differs(self):
        """Both parts of a value are shown."""
        for name, value in [("a", (1, 2)), ("b", (1, 3))]:
            os.mkdir(self.at(name))
            with open(self.at(f"{name}/t.npy"), "wb") as file:
                file.write(npy("C128", (1,), struct.pack("<dd", *value)))
        done = support.run("verify", self.at("a"), self.at("b"))
        self.assertIn("[0]: 0x40000000000000003ff0000000000000 and 0x40080000000000003ff0000000000000", done.stdout)

    def test_folder_of_both(self):
        model = self.make_model()
        os.mkdir(self.at("in"))
        first = dict(list(model.items())[:4])
        self.write_npz("in/first.npz", first, zipfile.ZIP_DEFLATED)
        for name in list(model)[4:]:
            with open(self.at(f"in/{name}.npy"), "wb") as file:
                file.write(npy(*model[name]))
        self.check("in", model)
        with open(self.at("in/step.npy"), "wb") as file:
            file.write(npy(*model["step"]))
        self.check_fails(("inspect", self.at("in")), 1, 'tensor "step" is in step.npy and in step.npy')

    def test_large_deflated_members_are_streamed(self):
        """Blocks of several threads, rows cut in columns, and a bound on memory: 24 MB that deflate well, through 2 MB."""
        line = self.rnd.randbytes(1 << 16)
        model = {f"w{i}": ("U8", (2048, 4096), bytes(line * 128)) for i in range(3)}
        self.write_npz("a.npz", model, zipfile.ZIP_DEFLATED)
        self.check("a.npz", model, "--max-memory", "2M", "--threads", "2")
        self.read_text("convert", self.at("a.npz"), self.at("cut"), "--to", "tp=4", "--rules", self.write_rules("* S(1)@tp"), "--max-memory", "2M")
        self.assertEqual(self.digests(self.at("cut")), self.digests(self.at("a.npz")))

    def write_rules(self, text):
        with open(self.at("r.rules"), "w", encoding="utf-8") as file:
            file.write(text + "\n")
        return self.at("r.rules")

    def digests(self, path):
        return self.read_json("digest", path)["tensors"]

    def test_damaged_archives(self):
        model = self.make_model()
        self.write_npz("a.npz", model, zipfile.ZIP_DEFLATED)
        with open(self.at("a.npz"), "rb") as file:
            good = file.read()
        failed = 0
        for i in range(60):
            data = bytearray(good)
            data[self.rnd.randrange(len(data) - 2000)] ^= 1 << self.rnd.randrange(8)
            with open(self.at("b.npz"), "wb") as file:
                file.write(data)
            done = support.run("convert", self.at("b.npz"), self.at("b"))
            self.assertIn(done.returncode, (0, 1), done)
            if done.returncode == 0:
                self.assertEqual({n: tuple(v) for n, v in files.read(self.at("b/model.safetensors"))[0].items()}, model)
            failed += done.returncode
            for name in ("b", "b.partial"):
                shutil.rmtree(self.at(name), ignore_errors=True)
        self.assertGreater(failed, 50)

    def test_crcs(self):
        """Of arrays that are stored: verify, digest and conversions find any bit that was flipped, in a header too."""
        model = {"a": ("U8", (300000,), self.rnd.randbytes(300000)), "b": ("F32", (3,), bytes(12))}
        self.write_npz("a.npz", model, zipfile.ZIP_STORED)
        self.check("a.npz", model)
        self.read_text("verify", self.at("a.npz"))
        self.assertEqual(self.read_json("convert", self.at("a.npz"), self.at("whole"))["crcs_unchecked"], 0)
        with open(self.at("a.npz"), "rb") as file:
            good = file.read()
        at = good.index(model["a"][2])
        for place in (at - 5, at, at + 299999):
            data = bytearray(good)
            data[place] ^= 64 if place < at else 1
            with open(self.at("b.npz"), "wb") as file:
                file.write(data)
            for command in (["verify", self.at("b.npz")], ["digest", self.at("b.npz")], ["convert", self.at("b.npz"), self.at("b")]):
                self.check_fails(command, 1, "b.npz")
            shutil.rmtree(self.at("b.partial"), ignore_errors=True)

    @unittest.skipIf(numpy is None, "this Python has no numpy")
    def test_of_numpy(self):
        arrays = {"a": numpy.arange(12, dtype="f4").reshape(3, 4), "b": numpy.asfortranarray(numpy.arange(12, dtype="i4").reshape(3, 4)),
                  "c": numpy.array(3.5), "d": numpy.zeros((0, 2), "f2")}
        model = {"a": ("F32", (3, 4), arrays["a"].tobytes()), "b": ("I32", (3, 4), arrays["b"].tobytes("C")),
                 "c": ("F64", (), arrays["c"].tobytes()), "d": ("F16", (0, 2), b"")}
        for save in (numpy.savez, numpy.savez_compressed):
            save(self.at("n.npz"), **arrays)
            self.check("n.npz", model)


if __name__ == "__main__":
    support.main()
