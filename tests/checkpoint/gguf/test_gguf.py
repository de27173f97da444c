# SPDX-License-Identifier: Apache-2.0
"""GGUF files, written byte by byte, through conversions. Values of quantised types are computed here once more, element by
element (gguf_files.py). `make test-llama` compares both with ggml's own functions."""
import os
import random
import shutil
import struct
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import gguf_files as gguf
import support


def floats(numbers):
    return struct.pack(f"<{len(numbers)}f", *numbers)


def to_bf16(data):
    """f32 rounded to nearest, ties to even."""
    out = b""
    for (bits,) in struct.iter_unpack("<I", data):
        out += struct.pack("<H", (bits + 0x7fff + (bits >> 16 & 1)) >> 16)
    return out


class GgufTest(support.CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.random = random.Random(7)

    def at(self, name):
        return f"{self.folder}/{name}"

    def quantised(self, name, type_name, rows, blocks):
        """A tensor of random blocks, as gguf_files.make takes it."""
        return (name, type_name, [rows, blocks * gguf.TYPES[type_name][1]], gguf.random_blocks(self.random, type_name, rows * blocks))

    def model(self):
        """A tensor of each type that is read."""
        tensors = [self.quantised(f"q.{name}", name, 3, 2) for name in gguf.DECODED]
        for name in ("F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64"):
            tensors.append((f"p.{name}", name, [2, 3], self.random.randbytes(gguf.size_of(name, [2, 3]))))
        tensors.append(("scalar", "F32", [], floats([1.5])))
        tensors.append(("empty", "F32", [0, 3], b""))
        tensors.append(("four", "F16", [2, 1, 3, 2], self.random.randbytes(24)))
        self.random.shuffle(tensors)
        return tensors

    def expected(self, tensors, cast=None):
        """What safetensors holds afterwards."""
        out = {}
        for name, type_name, shape, data in tensors:
            if type_name in gguf.DECODED:
                data = floats(gguf.decode(type_name, data))
                out[name] = ("BF16", tuple(shape), to_bf16(data)) if cast else ("F32", tuple(shape), data)
            else:
                out[name] = (type_name, tuple(shape), data)
        return out

    def read(self, name):
        return {key: tuple(value) for key, value in files.read(self.at(f"{name}/model.safetensors"))[0].items()}

    def test_every_type(self):
        tensors = self.model()
        for version, alignment, padded in ((3, 32, True), (2, 32, False), (3, 8, True), (3, 256, False)):
            gguf.write(self.at("m.gguf"), [("general.architecture", gguf.TEXT, "none")], tensors, version=version,
                       alignment=alignment, pad_last=padded)
            for dtype in ("f32", "bf16"):
                with self.subTest(version=version, alignment=alignment, dtype=dtype):
                    self.read_text("convert", self.at("m.gguf"), self.at("out"), "--dequantize", dtype, "--verify")
                    self.assertEqual(self.read("out"), self.expected(tensors, dtype == "bf16"))
                    shutil.rmtree(self.at("out"))

    def test_inspect(self):
        tensors = self.model()
        keys = [("general.architecture", gguf.TEXT, "llama"), ("llama.block_count", gguf.U32, 7), ("x.eps", gguf.F32, 1e-5),
                ("x.list", (gguf.LIST, gguf.TEXT), ["a", "b\n"] * 5), ("x.numbers", (gguf.LIST, gguf.I8), [-1, 2]),
                ("x.flag", gguf.BOOL, True), ("x.wide", gguf.U64, 2 ** 64 - 1), ("x.none", gguf.TEXT, ""), ("x.empty", (gguf.LIST, gguf.U32), [])]
        gguf.write(self.at("m.gguf"), keys, tensors)
        found = self.read_json("inspect", self.at("m.gguf"))
        self.assertEqual(found["format"], "gguf")
        self.assertEqual(found["files"], 1)
        self.assertEqual({t["name"]: (t.get("stored_as", t["dtype"]), t["shape"]) for t in found["tensors"]},
                         {name: (type_name, shape) for name, type_name, shape, _ in tensors})
        self.assertEqual(found["bytes"], sum(len(data) for _, _, _, data in tensors))
        self.assertEqual({v["name"]: v["value"] for v in found["values"]},
                         {"general.architecture": '"llama"', "llama.block_count": "7", "x.eps": "1e-05",
                          "x.list": '["a", "b\\n", "a", "b\\n", "a", "b\\n", .. 10 in all]', "x.numbers": "[-1, 2]", "x.flag": "true",
                          "x.wide": "18446744073709551615", "x.none": '""', "x.empty": "[]"})
        text = self.read_text("inspect", self.at("m.gguf"))
        self.assertIn("Q4_K", text)
        self.assertIn("14 tensors are quantised", text)

    def test_values_in_full(self):
        """Hand-made key-values, as JSON and for people: every type, long lists and texts, and what a stranger might hide in them."""
        nested = ["a", "b\n", "\x1b[2J", "\u202e", "\u65e5\u672c" * 1500, '"\\'] + [str(i) for i in range(200)]
        keys = [("general.architecture", gguf.TEXT, "none"), ("x.u8", gguf.U8, 200), ("x.i8", gguf.I8, -3), ("x.u16", gguf.U16, 65535),
                ("x.i16", gguf.I16, -32768), ("x.i32", gguf.I32, -7), ("x.i64", gguf.I64, -2 ** 63), ("x.u64", gguf.U64, 2 ** 64 - 1),
                ("x.f32", gguf.F32, 0.1), ("x.f64", gguf.F64, 0.1), ("x.flag", gguf.BOOL, False), ("x.empty", (gguf.LIST, gguf.U32), []),
                ("x.texts", (gguf.LIST, gguf.TEXT), nested), ("x.numbers", (gguf.LIST, gguf.I16), list(range(-500, 500))),
                ("x.reals", (gguf.LIST, gguf.F32), [0.5, float("nan"), float("-inf")]), ("x.long", gguf.TEXT, "\u00e9" * 9001 + "end"),
                ("x.bad", gguf.TEXT, b"a\xff\xc3b\x9b"), ("x.\x1b[31m", gguf.TEXT, "red")]
        gguf.write(self.at("m.gguf"), keys, [("t", "F32", [1], floats([1]))])
        values = {v["name"]: v for v in self.read_json("inspect", self.at("m.gguf"), "--values")["values"]}
        types = ["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "str", None, "u64", "i64", "f64"]
        for name, kind, content in keys:
            with self.subTest(name=name):
                is_list = isinstance(kind, tuple)
                self.assertEqual(values[name]["type"], "list of " + types[kind[1]] if is_list else types[kind])
                self.assertEqual(values[name].get("count"), len(content) if is_list else None)
                expected = {"x.reals": [0.5, "nan", "-inf"], "x.bad": "a\ufffd\ufffdb\ufffd"}.get(name, content)
                self.assertEqual(values[name]["full"], expected)
        lines = self.read_text("inspect", self.at("m.gguf"), "--values").split("\n")
        for line in ("  x.u64: u64 = 18446744073709551615", "  x.flag: bool = false", "  x.empty: list of 0 u32 = []",
                     '  x.reals: list of 3 f32 = [0.5, "nan", "-inf"]', '  x.\\x1b[31m: str = "red"'):
            self.assertIn(line, lines)
        numbers = next(line for line in lines if line.startswith("  x.numbers"))
        self.assertIn(f" = [{', '.join(str(i) for i in range(-500, -436))}, .. 1000 in all]", numbers)
        self.assertFalse([c for line in lines for c in line if not " " <= c < "\x7f"], "all of it can be printed")
        found = self.read_json("inspect", self.at("m.gguf"), "--values", "--include", "x.u*")
        self.assertEqual(([v["name"] for v in found["values"]], found["tensors"]), (["x.u8", "x.u16", "x.u64"], []))

    def test_values_that_are_too_long(self):
        """A list and a text of 400 MB, which are holes: what is printed is bounded, as are time and memory."""
        for kind, head in ((gguf.U8, struct.pack("<IIQ", gguf.LIST, gguf.U8, 400 << 20)), (gguf.TEXT, struct.pack("<IQ", gguf.TEXT, 400 << 20))):
            with self.subTest(kind=kind):
                data = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + gguf.text("x") + head
                with open(self.at("m.gguf"), "wb") as file:
                    file.write(data)
                    file.seek(len(data) + (400 << 20))
                    file.write(gguf.tensor_info("t", 0, [1], 0))
                    file.write(b"\0" * (-file.tell() % 32) + floats([1]) + b"\0" * 28)
                value, = self.read_json("inspect", self.at("m.gguf"), "--values")["values"]
                self.assertTrue(value["too_long"])
                self.assertNotIn("full", value)
                text = self.read_text("inspect", self.at("m.gguf"), "--values")
                self.assertLess(len(text), 1000)
                self.assertIn("419430400" if kind == gguf.U8 else "too long", text)

    def test_digests_are_those_of_the_values(self):
        tensors = self.model()
        gguf.write(self.at("m.gguf"), [], tensors)
        self.read_text("convert", self.at("m.gguf"), self.at("out"), "--dequantize", "f32")
        self.assertEqual(self.read_json("digest", self.at("m.gguf"))["tensors"], self.read_json("digest", self.at("out"))["tensors"])
        self.read_text("verify", self.at("m.gguf"), self.at("out"))

    def test_cut_and_small_memory(self):
        """Columns of quantised rows, in blocks that begin and end inside of one. Long rows are read in parts, too."""
        tensors = [self.quantised("a", "Q4_K", 96, 3), self.quantised("b", "Q6_K", 40, 5), self.quantised("c", "Q5_1", 64, 40),
                   self.quantised("d", "NVFP4", 64, 20), self.quantised("e", "Q5_1", 2, 6251)]
        gguf.write(self.at("m.gguf"), [], tensors)
        with open(self.at("r.rules"), "w", encoding="utf-8") as file:
            file.write("* S(1)@tp\n")
        self.read_text("convert", self.at("m.gguf"), self.at("cut"), "--to", "tp=5", "--rules", self.at("r.rules"), "--dequantize", "f32",
                       "--max-memory", "2M", "--threads", "2", "--verify")
        self.read_text("convert", self.at("cut"), self.at("out"))
        self.assertEqual(self.read("out"), self.expected(tensors))

    def test_a_map_renames_permutes_and_stacks(self):
        """In the same step as dequantising."""
        q, experts = self.quantised("blk.0.attn_q.weight", "Q4_K", 8, 1), [self.quantised(f"e.{i}", "Q8_0", 4, 2) for i in range(3)]
        gguf.write(self.at("m.gguf"), [], [q, *experts])
        with open(self.at("m.map"), "w", encoding="utf-8") as file:
            file.write("map there here\nlet h = 2\nblk.{n}.attn_q.weight [(h d 2) i] = q.{n} [(h 2 d) i]\ne.{e} [f i] = stack [e i f]\n")
        self.read_text("convert", self.at("m.gguf"), self.at("out"), "--map", self.at("m.map"), "--dequantize", "f32", "--verify")
        found = self.read("out")
        values = gguf.decode("Q4_K", q[3])
        rows = [values[256 * i:256 * i + 256] for i in range(8)]
        self.assertEqual(found["q.0"], ("F32", (8, 256), floats(sum((rows[4 * h + 2 * d + p] for h in range(2) for p in range(2) for d in range(2)), []))))
        stacked = [gguf.decode("Q8_0", one[3]) for one in experts]
        self.assertEqual(found["stack"], ("F32", (3, 64, 4), floats([one[64 * f + i] for one in stacked for i in range(64) for f in range(4)])))
        self.read_text("convert", self.at("m.gguf"), self.at("narrow"), "--map", self.at("m.map"), "--dequantize", "bf16")
        self.assertEqual(self.read("narrow")["q.0"][2], to_bf16(found["q.0"][2]))

    def test_dequantising_has_to_be_asked_for(self):
        gguf.write(self.at("m.gguf"), [], [self.quantised("a", "Q4_K", 1, 1), ("b", "F32", [2], floats([1, 2]))])
        self.check_fails(["convert", self.at("m.gguf"), self.at("out")], 1, 'tensor "a" is quantised as Q4_K')
        self.assertFalse(os.path.exists(self.at("out")))
        self.read_text("convert", self.at("m.gguf"), self.at("out"), "--exclude", "a")
        self.assertEqual(list(self.read("out")), ["b"])
        self.check_fails(["convert", self.at("m.gguf"), self.at("x"), "--dequantize", "bf16", "--dtype", "a=f32"], 1, "is dequantised to bf16")
        self.read_text("convert", self.at("m.gguf"), self.at("all"), "--dequantize", "bf16", "--dtype", "bf16")
        self.assertEqual([value[0] for value in self.read("all").values()], ["BF16", "BF16"])

    def test_types_that_are_not_decoded(self):
        for name in sorted(set(gguf.TYPES) - set(gguf.DECODED)):
            number, elements, size = gguf.TYPES[name]
            if elements == 1:
                continue
            gguf.write(self.at("m.gguf"), [], [("x", name, [elements], bytes(size)), ("y", "F32", [2], floats([1, 2]))])
            self.check_fails(["convert", self.at("m.gguf"), self.at("out"), "--dequantize", "f32"], 1, f'tensor "x": its type {name} cannot')
            self.assertIn(f"its type {name} cannot", self.read_text("inspect", self.at("m.gguf")))

    def parts(self, tensors, count, **wrong):
        """Writes parts of one model, each with every count-th tensor."""
        for i in range(count):
            keys = {"split.no": (gguf.U16, i), "split.count": (gguf.U16, count), "split.tensors.count": (gguf.I32, len(tensors))}
            keys.update(wrong if i == count - 1 else {})
            gguf.write(self.at(f"parts/m-{i + 1:05}-of-{count:05}.gguf"), [("general.architecture", gguf.TEXT, "none")][:i == 0] +
                       [(key, *value) for key, value in keys.items() if value], tensors[i::count])

    def test_parts(self):
        os.mkdir(self.at("parts"))
        tensors = self.model()
        self.parts(tensors, 3)
        for path in ("parts", "parts/m-00001-of-00003.gguf", "parts/m-00003-of-00003.gguf"):
            self.read_text("convert", self.at(path), self.at("out"), "--dequantize", "f32", "--verify")
            self.assertEqual(self.read("out"), self.expected(tensors))
            shutil.rmtree(self.at("out"))
        self.assertEqual(self.read_json("inspect", self.at("parts"))["files"], 3)

    def test_wrong_parts(self):
        os.mkdir(self.at("parts"))
        tensors = self.model()
        for wrong, words in (({"split.no": (gguf.U16, 0)}, "is part 1 of 3 by its key-values, and 3 of 3 by its name"),
                             ({"split.count": (gguf.U16, 4)}, "is part 3 of 4 by its key-values, and 3 of 3"),
                             ({"split.count": None}, "is part 3 of 1 by its key-values"),
                             ({"split.tensors.count": (gguf.I32, 99)}, "but say that there are 99"),
                             ({"split.no": (gguf.TEXT, "2")}, 'key "split.no" must be a whole number')):
            self.parts(tensors, 3, **wrong)
            self.check_fails(["inspect", self.at("parts")], 1, words)
        self.parts(tensors, 3)
        shutil.copy(self.at("parts/m-00002-of-00003.gguf"), self.at("alone.gguf"))
        self.check_fails(["inspect", self.at("alone.gguf")], 1, "is part 2 of 3 by its key-values; rename it to end in -00002-of-00003.gguf")
        os.rename(self.at("parts/m-00002-of-00003.gguf"), self.at("parts/other.gguf"))
        self.check_fails(["inspect", self.at("parts")], 1, "holds 3 GGUF files that are not parts of one model")
        os.remove(self.at("parts/other.gguf"))
        self.check_fails(["inspect", self.at("parts")], 1, "m-00002-of-00003.gguf is missing")

    def test_too_many_parts(self):
        for name in ("m-00001-of-65536", "m-00000-of-00002", "m-00003-of-00002", "m-00001-of-00000"):
            path = self.at(name + ".gguf")
            gguf.write(path, [], [])
            self.check_fails(["inspect", path], 1, "parts are numbered from 1 to at most 65535")
            os.remove(path)

    def test_which_files(self):
        os.mkdir(self.at("two"))
        for name in ("m-Q4_K.gguf", "m-Q8_0.gguf"):
            gguf.write(self.at(f"two/{name}"), [], [("b", "F32", [2], floats([1, 2]))])
        self.check_fails(["inspect", self.at("two")], 1, "(m-Q4_K.gguf, m-Q8_0.gguf); give one of them")
        self.assertEqual(self.read_json("inspect", self.at("two/m-Q8_0.gguf"))["format"], "gguf")
        shutil.copy(self.at("two/m-Q8_0.gguf"), self.at("sha256-1234"))
        self.assertEqual(self.read_json("inspect", self.at("sha256-1234"))["format"], "gguf")
        os.remove(self.at("two/m-Q4_K.gguf"))
        files.write(self.at("two/model.safetensors"), {"c": ("F32", (1,), floats([3]))})
        self.assertEqual([t["name"] for t in self.read_json("inspect", self.at("two"))["tensors"]], ["c"])

    def test_killed_and_resumed(self):
        tensors = [self.quantised(f"t.{i}", "Q8_0", 64, 64) for i in range(8)]
        gguf.write(self.at("m.gguf"), [], tensors)
        command = ["convert", self.at("m.gguf"), self.at("out"), "--dequantize", "f32", "--max-memory", "2M", "--threads", "1"]
        self.kill_after_a_record(*command, target=self.at("out"))
        self.read_text(*command, "--resume", "--verify")
        self.assertEqual(self.read("out"), self.expected(tensors))


if __name__ == "__main__":
    support.main()
