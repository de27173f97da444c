# SPDX-License-Identifier: Apache-2.0
"""`reshard verify A B`, which compares bytes, and `reshard digest --sha256`: on checkpoints made by hand, against values and
hashes that Python finds."""
import hashlib
import json
import os
import random
import re
import resource
import struct
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files  # noqa: E402
import fingerprint  # noqa: E402
import torch_files  # noqa: E402
from support import CommandTest, main, run  # noqa: E402

SEED = int(os.environ.get("RESHARD_TEST_SEED", "1"), 0)
SCALE = float(os.environ.get("RESHARD_TEST_SCALE", "1"))
NASTY = "a\x1b[31m\nb\u009bc\u202egpj.\u2066d\u200be\u2028f\U000e0041"
AS_PATTERN = r"a\x1b[31m\x0ab\xc2\x9bc\xe2\x80\xaegpj.\xe2\x81\xa6d\xe2\x80\x8be\xe2\x80\xa8f\xf3\xa0\x81\x81"  # by bytes, as rules read them
SHOWN = r"a\x1b[31m\x0ab\u009bc\u202egpj.\u2066d\u200be\u2028f\U000e0041"


def random_model(numbers, shapes):
    return {name: (dtype, shape, numbers.randbytes(files.size_of(dtype, shape)))
            for name, (dtype, shape) in shapes.items()}


def floats(numbers, count):
    return struct.pack(f"<{count}f", *(numbers.uniform(-3, 3) for _ in range(count)))


def to_bf16(data):
    """Rounds to nearest, ties to even."""
    words = struct.unpack(f"<{len(data) // 4}I", data)
    return struct.pack(f"<{len(words)}H", *((word + 0x7FFF + (word >> 16 & 1)) >> 16 for word in words))


def place_of(number, shape):
    index = []
    for extent in reversed(shape):
        index.insert(0, number % extent)
        number //= extent
    return index


class VerifyTest(CommandTest):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="reshard-test-")
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.numbers = random.Random(SEED)

    def at(self, name):
        return os.path.join(self.folder, name)

    def write_rules(self, text):
        with open(self.at("some.rules"), "w", encoding="utf-8") as file:
            file.write(text)
        return self.at("some.rules")

    def compare(self, a, b, *options):
        """What --json tells, and the exit status."""
        done = run("verify", self.at(a), self.at(b), "--json", *options)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        self.assertNotEqual(done.stdout, "", done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual(found["same"], done.returncode == 0)
        if done.returncode:
            self.assertRegex(done.stderr, r"\Areshard: .* do not hold the same tensors: \d+ differs?\n\Z")
        return found

    # ---- the first element that differs --------------------------------------------------------

    def test_first_element(self):
        """Of random changes in random splits, the first in row-major order is named, whatever thread finds it."""
        shapes = {"rows": ("U8", (700, 900)), "deep": ("I16", (5, 70, 130)), "line": ("U64", (9000,)), "one": ("I8", ())}
        model = random_model(self.numbers, shapes)
        files.write(self.at("a.safetensors"), model)
        for case in range(max(4, int(20 * SCALE))):
            changed, wanted = dict(model), {}
            for name in self.numbers.sample(sorted(model), self.numbers.randint(1, 4)):
                dtype, shape, values = model[name]
                width, count = files.BITS[dtype] // 8, files.volume(shape)
                values = bytearray(values)
                places = [self.numbers.randrange(count) for _ in range(self.numbers.choice([1, 2, 50]))]
                for place in places:
                    values[place * width + self.numbers.randrange(width)] ^= 1 << self.numbers.randrange(8)
                first = next((i for i in sorted(places) if values[i * width:(i + 1) * width]
                              != model[name][2][i * width:(i + 1) * width]), None)
                if first is None:
                    continue
                both = [str(int.from_bytes(data[first * width:(first + 1) * width], "little", signed=dtype[0] == "I"))
                        for data in (model[name][2], values)]
                wanted[name] = {"tensor": name, "element": place_of(first, shape), "a": both[0], "b": both[1]}
                changed[name] = (dtype, shape, bytes(values))
            dims = {"rows": case % 2, "deep": case % 3, "line": 0}
            files.write_dcp(self.at(f"b{case}"), changed, self.numbers.randint(1, 5), dims, shapes=True)
            threads = ["--threads", str(self.numbers.randint(1, 5))]
            found = self.compare("a.safetensors", f"b{case}", *threads)
            self.assertEqual(found["elements"], [wanted[name] for name in sorted(wanted)], case)
            self.assertEqual(found["bytes_differ"], sorted(wanted))
            back = self.compare(f"b{case}", "a.safetensors", *threads)
            self.assertEqual([(row["tensor"], row["element"]) for row in back["elements"]],
                             [(name, wanted[name]["element"]) for name in sorted(wanted)])

    def test_values_are_shown(self):
        half = struct.Struct("<e")
        rows = [("F32", struct.pack("<f", 0.5), struct.pack("<f", -1.25), "0.5", "-1.25"),
                ("F64", struct.pack("<d", 0.1), struct.pack("<d", 1e300), "0.10000000000000001", "1.0000000000000001e+300"),
                ("F16", half.pack(2.5), half.pack(-8), "2.5", "-8"),
                ("BF16", b"\x80\x3f", b"\x00\xc0", "1", "-2"),
                ("F32", struct.pack("<f", 0.0), struct.pack("<f", -0.0), "0", "-0"),
                ("F32", b"\x00\x00\xc0\x7f", b"\x01\x00\xc0\x7f", "0x7fc00000", "0x7fc00001"),
                ("I64", struct.pack("<q", -2**63), struct.pack("<q", 7), str(-2**63), "7"),
                ("U64", b"\xff" * 8, b"\x01" + bytes(7), str(2**64 - 1), "1"), ("I8", b"\x80", b"\x7f", "-128", "127"),
                ("BOOL", b"\x01", b"\x00", "true", "false"), ("BOOL", b"\x01", b"\x05", "true", "0x05"),
                ("F8_E4M3", b"\x38", b"\xff", "0x38", "0xff"),
                ("C64", struct.pack("<ff", 1, 2), struct.pack("<ff", 1, 3), "0x400000003f800000", "0x404000003f800000")]
        for number, (dtype, a, b, text_a, text_b) in enumerate(rows):
            zeros = bytes(len(a) * 4)
            files.write(self.at(f"a{number}.safetensors"), {"t": (dtype, (2, 3), zeros + a + bytes(len(a)))})
            files.write(self.at(f"b{number}.safetensors"), {"t": (dtype, (2, 3), zeros + b + bytes(len(a)))})
            found = self.compare(f"a{number}.safetensors", f"b{number}.safetensors")
            self.assertEqual(found["elements"], [{"tensor": "t", "element": [1, 1], "a": text_a, "b": text_b}], dtype)
        # What cannot be cut is compared byte by byte.
        for name, last in [("a", 0x21), ("b", 0x2F)]:
            files.write(self.at(f"{name}.safetensors"), {"t": ("F4", (2, 4), bytes([1, 2, 3, last]))})
        done = run("verify", self.at("a.safetensors"), self.at("b.safetensors"))
        self.assertRegex(done.stdout, r"\nt +bytes +f4 2x4 +f4 2x4 +\[3\]: 0x21 and 0x2f\n")

    def test_what_a_digest_cannot_see(self):
        """A multiple of both polynomials does not change the digest: bytes tell, digests do not, SHA-256 does."""
        product = 0
        for bit in range(65):
            if fingerprint.POLYNOMIALS[0] >> bit & 1:
                product ^= fingerprint.POLYNOMIALS[1] << bit
        data = self.numbers.randbytes(200)
        forged = (int.from_bytes(data, "little") ^ product << 8 * 60).to_bytes(200, "little")
        for name, values in [("a", data), ("b", forged)]:
            files.write(self.at(f"{name}.safetensors"), {"t": ("U8", (20, 10), values)})
        self.assertTrue(self.compare("a.safetensors", "b.safetensors", "--digest")["same"])
        found = self.compare("a.safetensors", "b.safetensors")
        self.assertEqual(found["elements"][0]["element"], [6, 0])
        hashes = [self.read_json("digest", self.at(f"{name}.safetensors"), "--sha256") for name in "ab"]
        self.assertNotEqual(hashes[0]["checkpoint"], hashes[1]["checkpoint"])

    # ---- conversions ---------------------------------------------------------------------------

    def make_source(self):
        model = {f"model.layers.{i}.w": ("F32", (24, 36), floats(self.numbers, 24 * 36)) for i in range(3)}
        model["model.norm"] = ("F32", (36,), floats(self.numbers, 36))
        model["model.rotary"] = ("F32", (6,), floats(self.numbers, 6))
        model["counts"] = ("I32", (3, 3), self.numbers.randbytes(36))
        files.write(self.at("source/model.safetensors"), model)
        return model

    def flip_last_byte(self, folder):
        """Changes one byte of a tensor in the checkpoint's last file; gives it back when called again."""
        name = sorted(name for name in os.listdir(self.at(folder)) if name.endswith(".safetensors"))[-1]
        with open(self.at(f"{folder}/{name}"), "r+b") as file:
            file.seek(-1, os.SEEK_END)
            byte = file.read(1)[0]
            file.seek(-1, os.SEEK_END)
            file.write(bytes([byte ^ 1]))

    def test_every_conversion_can_be_verified(self):
        """By the options that it was made with; one byte more or less and it is not the same."""
        self.make_source()
        rules = self.write_rules("*.rotary drop\nmodel.layers.{0..}.w S(0)@tp name(blocks.{1}.w)\nmodel.norm R name(n)\n"
                                 "* S(-1)@tp\n")
        plain = self.at("plain.rules")
        with open(plain, "w", encoding="utf-8") as file:
            file.write("*.norm R\n*.rotary R\n* S(0)@tp\n")
        after = self.at("after.rules")
        with open(after, "w", encoding="utf-8") as file:
            file.write("blocks.* S(0)@tp\nn R\n* S(-1)@tp\n")
        cases = [(["--dtype", "bf16"], [], []), (["--dtype", "*.norm=f64", "--dtype", "f16"], [], []),
                 (["--rename", "model.*={1}"], [], []), (["--include", "model.*", "--exclude", "*.norm"], [], []),
                 (["--rules", rules], ["--to", "tp=3"], []), (["--rules", rules], [], []),
                 (["--rules", plain], ["--to", "tp=3", "--format", "rank-files"], ["--from-b", "tp=3"]),
                 (["--rules", rules, "--dtype", "bf16"], ["--to", "tp=3", "--format", "rank-files"],
                  ["--from-b", "tp=3", "--rules-b", after]),
                 (["--rename", "model.*=m.{1}", "--dtype", "m*.w=f16", "--exclude", "counts"], ["--to", "x=5", "--rules",
                  plain.replace("plain", "x")], [])]
        with open(self.at("x.rules"), "w", encoding="utf-8") as file:
            file.write("*.w S(1)@x\n* R\n")
        for number, (shared, converting, verifying) in enumerate(cases):
            out = f"out{number}"
            self.read_text("convert", self.at("source"), self.at(out), *shared, *converting, "--quiet", "--no-sync")
            with self.subTest(shared=shared, converting=converting):
                found = self.compare("source", out, *shared, *verifying)
                self.assertTrue(found["same"], found)
                self.flip_last_byte(out)
                if verifying:  # the last tensor of a rank's file is a copy
                    self.check_fails(["verify", self.at("source"), self.at(out), *shared, *verifying], 1, "copies that differ")
                else:
                    found = self.compare("source", out, *shared)
                    self.assertEqual(len(found["elements"]), 1, found)
                self.flip_last_byte(out)
                self.assertTrue(self.compare("source", out, *shared, *verifying)["same"])
                if not verifying and shared[0] != "--include":
                    self.assertFalse(self.compare("source", out)["same"])

    def test_casts_are_compared_by_value(self):
        """Against a cast that is done here, ties included."""
        data = floats(self.numbers, 500) + struct.pack("<4I", 0x3F808000, 0x3F818000, 0x7F7FFFFF, 0x00000001)
        files.write(self.at("a.safetensors"), {"t": ("F32", (504,), data)})
        files.write(self.at("b.safetensors"), {"t": ("BF16", (504,), to_bf16(data))})
        self.assertTrue(self.compare("a.safetensors", "b.safetensors", "--dtype", "bf16")["same"])
        cut = b"".join(data[i + 2:i + 4] for i in range(0, len(data), 4))  # truncated, not rounded
        files.write(self.at("b.safetensors"), {"t": ("BF16", (504,), cut)})
        found = self.compare("a.safetensors", "b.safetensors", "--dtype", "bf16")
        wanted = next(i for i in range(504) if cut[2 * i:2 * i + 2] != to_bf16(data)[2 * i:2 * i + 2])
        self.assertEqual(found["elements"][0]["element"], [wanted])
        self.assertEqual(self.compare("a.safetensors", "b.safetensors")["dtype"], ["t"])
        self.check_fails(["verify", self.at("a.safetensors"), self.at("b.safetensors"), "--dtype", "bf16", "--digest"], 1,
                         "compare bytes")

    def test_copies_that_differ_late(self):
        """The first element that differs is told wherever it is in a large tensor."""
        rules = self.write_rules("* R\n")
        data = self.numbers.randbytes(900 * 1000)
        files.write(self.at("wide/model.safetensors"), {"t": ("U8", (900, 1000), data)})
        self.read_text("convert", self.at("wide"), self.at("replicas"), "--to", "dp=2", "--format", "rank-files", "--rules", rules)
        name = sorted(name for name in os.listdir(self.at("replicas")) if name.endswith(".safetensors"))[-1]
        for place in (899999, 524288 + 7, 262144, 262143):
            with open(self.at(f"replicas/{name}"), "r+b") as file:
                file.seek(place - len(data), os.SEEK_END)
                file.write(bytes([data[place] ^ 1]))
            self.check_fails(["verify", self.at("replicas")], 1, f"first at element [{place // 1000}, {place % 1000}]")

    def test_shapes_that_begin_alike(self):
        """And hold as many elements."""
        data = floats(self.numbers, 6)
        shapes = [(6,), (6, 1), (6, 1, 1), (1, 6), (2, 3), (2, 3, 1), (3, 2)]
        for i, shape in enumerate(shapes):
            files.write(self.at(f"{i}.safetensors"), {"t": ("F32", shape, data)})
        for i in range(len(shapes)):
            for k in range(len(shapes)):
                found = self.compare(f"{i}.safetensors", f"{k}.safetensors")
                self.assertEqual((found["same"], found["shape"]), (i == k, [] if i == k else ["t"]), (shapes[i], shapes[k]))

    def test_dropped(self):
        model = self.make_source()
        files.write(self.at("less/model.safetensors"), {name: model[name] for name in model if name != "counts"})
        self.assertEqual(self.compare("source", "less")["only_in_a"], ["counts"])
        found = self.compare("source", "less", "--ignore-dropped")
        self.assertEqual((found["same"], found["dropped"], found["tensors_compared"]), (True, 1, len(model) - 1))
        self.assertEqual(self.compare("less", "source", "--ignore-dropped")["only_in_b"], ["counts"])
        # Nothing in common is no success.
        files.write(self.at("none/model.safetensors"), {})
        self.check_fails(["verify", self.at("source"), self.at("none"), "--ignore-dropped"], 1, "would be compared")

    def test_copies_within_one(self):
        """A tensor on two ranks, one of which has another value: neither side is whole."""
        values = self.numbers.randbytes(48)
        for folder, other in [("good", values), ("bad", values[:-1] + bytes([values[-1] ^ 1]))]:
            files.write(self.at(f"{folder}/model-0.safetensors"), {"t": ("U8", (6, 8), values)})
            files.write(self.at(f"{folder}/model-1.safetensors"), {"t": ("U8", (6, 8), other)})
        files.write(self.at("whole.safetensors"), {"t": ("U8", (6, 8), values)})
        rules = self.write_rules("* R\n")
        options = ["--from-b", "dp=2", "--rules", rules]
        self.assertTrue(self.compare("whole.safetensors", "good", *options)["same"])
        for extra in ([], ["--digest"]):
            self.check_fails(["verify", self.at("whole.safetensors"), self.at("bad"), *options, *extra], 1,
                             "hold copies that differ, first at element [5, 7]")

    def test_usage(self):
        files.write(self.at("a.safetensors"), {"t": ("U8", (1,), b"x")})
        for option in (["--rename", "a=b"], ["--dtype", "bf16"], ["--ignore-dropped"], ["--digest"], ["--rules-b", "llama"]):
            self.check_fails(["verify", self.at("a.safetensors"), *option], 2, option[0])
        self.check_fails(["verify", self.at("a.safetensors"), self.at("a.safetensors"), "--rename", "zz=b"], 1, "matches no tensor")

    # ---- hashes --------------------------------------------------------------------------------

    def wanted_hashes(self, model):
        lines = sorted(f"{json.dumps(name)} {dtype} {'x'.join(map(str, shape)) or 'scalar'} "
                       f"{hashlib.sha256(values).hexdigest()}\n" for name, (dtype, shape, values) in model.items())
        return "".join(lines), hashlib.sha256("".join(lines).encode()).hexdigest()

    def test_values_are_counted(self):
        """Tensors are compared; that values are not is said, so that nobody takes it for granted."""
        weights = torch_files.tensor(("F32", (2,), floats(self.numbers, 2)))
        for name, more in (("a", {"epoch": 3, "lr": 0.5}), ("b", {"epoch": 4}), ("none", {})):
            torch_files.write(self.at(name + ".pt"), {"w": weights, **more})
        for a, b, counts in (("a", "b", "2 in A, 1 in B"), ("none", "b", "0 in A, 1 in B"), ("none", "none", None)):
            arguments = ["verify", self.at(a + ".pt"), self.at(b + ".pt")]
            notes = [f"values such as steps are not compared: {counts}"] if counts else []
            self.assertEqual(self.read_json(*arguments)["notes"], notes)
            self.assertEqual([line for line in self.read_text(*arguments).splitlines() if line.startswith("values")], notes)

    def test_sha256(self):
        """Of every dtype, of odd names, of tensors larger than what is read at once, in several splits."""
        shapes = {f"dtype.{dtype}": (dtype, (4, 6)) for dtype in files.BITS}
        shapes |= {"scalar": ("F32", ()), "empty": ("F64", (3, 0, 2)), "": ("U8", (1,)), "dims": ("BF16", (1, 2) * 6),
                   "nul\0 \u00e9\n\"\\\t\x7f\U0001f600": ("U8", (5,)), NASTY: ("U8", (2,)), "long": ("F32", (900, 1111))}
        model = random_model(self.numbers, shapes)
        files.write(self.at("model.safetensors"), model)
        lines, total = self.wanted_hashes(model)
        for threads in ("1", "3"):
            text = self.read_text("digest", self.at("model.safetensors"), "--sha256", "--threads", threads)
            self.assertEqual(text[:len(lines)], lines)
            self.assertRegex(text[len(lines):], rf"\A{total}  all {len(model)} tensors, [^\n]*\n\Z")
        found = self.read_json("digest", self.at("model.safetensors"), "--sha256")
        self.assertEqual(found["checkpoint"], total)
        self.assertEqual(found["tensors"], {name: hashlib.sha256(values).hexdigest()
                                            for name, (_, _, values) in model.items()})
        for number, dims in enumerate([{"long": 0}, {"long": 1, "dtype.F16": 0}, {"dtype.F64": 1}]):
            files.write_dcp(self.at(f"dcp{number}"), model, 3, dims, shapes=True)
            self.assertEqual(self.read_json("digest", self.at(f"dcp{number}"), "--sha256")["checkpoint"], total)

    def test_the_page_computes_the_same(self):
        """The lines of Python in docs/digest.md, run as they stand."""
        with open(os.path.join(HERE, "..", "..", "..", "docs", "digest.md"), encoding="utf-8") as file:
            programs = re.findall(r"^```python\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
        program = next(text for text in programs if "hashlib" in text)
        self.assertLessEqual(len(program.splitlines()), 14)
        model = self.make_source()
        model["odd \"\n\u00e9"] = ("U8", (2,), b"ab")
        model["scalar"] = ("F64", (), bytes(8))
        names = sorted(model)
        files.write(self.at("two/a.safetensors"), {name: model[name] for name in names[:3]})
        files.write(self.at("two/b.safetensors"), {name: model[name] for name in names[3:]})
        with open(self.at("page.py"), "w", encoding="utf-8") as file:
            file.write(program)
        with os.popen(f"{sys.executable} {self.at('page.py')} {self.at('two')}") as pipe:
            printed = pipe.read().split()
        self.assertEqual(printed, [self.read_json("digest", self.at("two"), "--sha256")["checkpoint"]])

    # ---- what all commands share ---------------------------------------------------------------

    def test_more_files_than_the_soft_limit(self):
        """All commands that open a checkpoint raise it."""
        for i in range(40):
            files.write(self.at(f"many/{i:02}.safetensors"), {f"t{i}": ("U8", (2,), bytes([i, 1]))})
        def lower():
            resource.setrlimit(resource.RLIMIT_NOFILE, (20, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
        for arguments in (["inspect"], ["digest"], ["digest", "--sha256"], ["verify"], ["verify", self.at("many")],
                          ["plan", "--tensors"], ["rules", "--for"]):
            self.read_text(*arguments, self.at("many"), preexec_fn=lower)

    def test_what_is_cut_short_says_so(self):
        """Long names and shapes of many dims end in dots where a table leaves the rest out."""
        for name, value in [("a", b"x"), ("b", b"y")]:
            files.write(self.at(f"{name}.safetensors"), {"n" * 300: ("U8", (1,), value), "d": ("U8", (1,) * 300, value)})
        for code, *arguments in [(0, "inspect", self.at("a.safetensors")), (0, "plan", self.at("a.safetensors"), "--tensors"),
                                 (1, "verify", self.at("a.safetensors"), self.at("b.safetensors"))]:
            done = run(*arguments)
            self.assertEqual(done.returncode, code, done.stderr)
            self.assertRegex(done.stdout, r"(?m)^ *n{150,300}\.\.\.(  |$)")
            self.assertRegex(done.stdout, r"(?m)^ *d .*(1x){80,299}[1x]?\.\.\.( |$)")

    def test_names_cannot_speak_to_the_terminal(self):
        """Controls, directions, invisible marks and newlines in names are escaped in all that is printed."""
        files.write(self.at("a.safetensors"), {NASTY: ("U8", (2,), b"ab"), "x": ("U8", (1,), b"x")})
        files.write(self.at("b.safetensors"), {NASTY: ("U8", (2,), b"ac"), "x": ("U8", (1,), b"x")})
        with open(self.at("c.safetensors"), "wb") as file:
            file.write(files.frame({NASTY: {"dtype": "U8", "shape": [3], "data_offsets": [0, 2]}}, b"ab"))
        # The same name in a folder's name, and in two files of one folder.
        files.write(os.path.join(self.at(NASTY), "1.safetensors"), {NASTY: ("U8", (1,), b"x")})
        files.write(os.path.join(self.at(NASTY), "2.safetensors"), {NASTY: ("U8", (1,), b"x")})
        for code, *arguments in [(0, "inspect", self.at("a.safetensors")), (0, "digest", self.at("a.safetensors")),
                                 (0, "inspect", self.at("a.safetensors"), "--draw", NASTY), (0, "plan", self.at("a.safetensors"), "--tensors"),
                                 (1, "plan", self.at("a.safetensors"), "--to", "tp=2", "--rules", "llama"), (0, "rules", "--for", self.at("a.safetensors")),
                                 (1, "verify", self.at("a.safetensors"), self.at("b.safetensors")),
                                 (1, "inspect", self.at("c.safetensors")), (1, "inspect", self.at(NASTY)),
                                 (0, "verify", os.path.join(self.at(NASTY), "1.safetensors")),
                                 (1, "convert", self.at("a.safetensors"), self.at("out"), "--rename", "x=" + NASTY),
                                 (2, "layout", NASTY, "--shape", "4"), (2, NASTY)]:
            done = run(*arguments)
            self.assertEqual(done.returncode, code, (arguments, done.stderr))
            text = done.stdout + done.stderr
            if arguments[0] != "layout":  # which shows what can be part of a spec, and question marks
                self.assertIn(AS_PATTERN if "llama" in arguments or "rules" in arguments else SHOWN, text, arguments)
            for mark in set(NASTY) - set("a[31m\nbcgpj.def"):
                self.assertNotIn(mark, text, arguments)
            self.assertNotIn("\nb", text, arguments)
        text = self.read_text("inspect", self.at("a.safetensors"), "--json")
        self.assertTrue(text.isascii())
        self.assertEqual([tensor["name"] for tensor in json.loads(text)["tensors"]], [NASTY, "x"])
        self.read_text("inspect", self.at("a.safetensors"), "--draw", NASTY, "--svg", self.at("a.svg"))
        self.read_text("plan", self.at("a.safetensors"), "--to", "fsdp=2", "--html", self.at("a.html"))
        for name in ("a.svg", "a.html"):
            with open(self.at(name), encoding="utf-8") as file:
                text = file.read()
            self.assertEqual([mark for mark in set(NASTY) - set("a[31m\nbcgpj.def") if mark in text], [], name)


if __name__ == "__main__":
    main()
