# SPDX-License-Identifier: Apache-2.0
"""How far apart two checkpoints are: `reshard verify --stats` and `--tolerance`, and reshard.compare, held against NumPy."""
import json
import math
import os
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "checkpoint", "support")]
import support  # noqa: E402

support.need("numpy")

import files  # noqa: E402
import numpy  # noqa: E402
import reshard  # noqa: E402

COMMAND = os.path.join(support.BUILD, "reshard")

SEED = int(os.environ.get("RESHARD_TEST_SEED", "1"), 0)
KINDS = {"F16": "<f2", "F32": "<f4", "F64": "<f8", "I8": "<i1", "I16": "<i2", "I32": "<i4", "I64": "<i8", "U8": "<u1",
         "U16": "<u2", "U32": "<u4", "U64": "<u8", "BOOL": "<u1", "C64": "<c8"}


def to_bf16(values):
    """The bytes, rounded to nearest even."""
    words = values.astype("<f4").view("<u4").astype(numpy.uint64)
    return ((words + 0x7FFF + (words >> 16 & 1)) >> 16).astype("<u2")


def numbers_of(dtype, data):
    """The numbers as long doubles, which hold every 64-bit integer."""
    if dtype == "BF16":
        return (numpy.frombuffer(data, "<u2").astype(numpy.uint32) << 16).view("<f4").astype(numpy.longdouble)
    if dtype == "F8_E5M2":
        return (numpy.frombuffer(data, "<u1").astype("<u2") << 8).view("<f2").astype(numpy.longdouble)
    values = numpy.frombuffer(data, KINDS[dtype])
    return (values.view("<f4") if dtype == "C64" else values).astype(numpy.longdouble)


def expect(dtype_a, data_a, dtype_b, data_b):
    a, b = numbers_of(dtype_a, data_a), numbers_of(dtype_b, data_b)
    finite = numpy.isfinite(a) & numpy.isfinite(b)
    equal = (a == b) | (numpy.isnan(a) & numpy.isnan(b))
    if dtype_a == dtype_b:
        bits = [numpy.frombuffer(data, "u1").reshape(len(a), -1) for data in (data_a, data_b)]
        differing = int((bits[0] != bits[1]).any(axis=1).sum())
    else:
        differing = int((~equal).sum())
    found = {"numbers": len(a), "differing": differing, "nan": [int(numpy.isnan(a).sum()), int(numpy.isnan(b).sum())],
             "infinite": [int(numpy.isinf(a).sum()), int(numpy.isinf(b).sum())], "unlike": int((~finite & ~equal).sum())}
    a, b = a[finite], b[finite]
    lengths = [math.sqrt((side * side).sum()) for side in (a, b)]
    found["max_abs"] = float(abs(a - b).max()) if len(a) else None
    found["mean_abs"] = float(abs(a - b).mean()) if len(a) else None
    found["relative_l2"] = math.sqrt(((a - b) ** 2).sum()) / lengths[0] if lengths[0] else None
    found["cosine"] = float((a * b).sum()) / (lengths[0] * lengths[1]) if all(lengths) else None
    return found


class DistanceTest(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="reshard-test-")
        self.addCleanup(holder.cleanup)
        self.folder = holder.name
        self.random = numpy.random.default_rng(SEED)

    def at(self, name):
        return os.path.join(self.folder, name)

    def verify(self, a, b, *options):
        return subprocess.run([COMMAND, "verify", self.at(a), self.at(b), *options], capture_output=True, text=True,
                              check=False)

    def stats(self, a, b, *options):
        done = self.verify(a, b, "--json", *options)
        self.assertIn(done.returncode, (0, 1), done.stderr)
        return {row["tensor"]: row for row in json.loads(done.stdout)["stats"]}, done.returncode

    def check(self, row, wanted, about):
        for key, value in wanted.items():
            if isinstance(value, float):
                self.assertTrue(math.isclose(row[key], value, rel_tol=1e-11, abs_tol=1e-300), (about, key, row[key], value))
            else:
                self.assertEqual(row[key], value, (about, key))

    def make_pair(self, dtype, shape):
        """Two tensors that differ in places: noise for floats, other numbers for integers."""
        count = files.volume(shape)
        if dtype in ("F16", "F32", "F64", "BF16", "F8_E5M2", "C64"):
            count *= 2 if dtype == "C64" else 1
            a = self.random.normal(size=count)
            b = numpy.where(self.random.random(count) < 0.3, a + self.random.normal(size=count) * 0.01, a)
            pack = {"BF16": lambda x: to_bf16(x).tobytes(),
                    "F8_E5M2": lambda x: (x.astype("<f2").view("<u2") >> 8).astype("<u1").tobytes(),
                    "C64": lambda x: x.astype("<f4").tobytes()}.get(dtype, lambda x: x.astype(KINDS[dtype]).tobytes())
            return pack(a), pack(b)
        kind = numpy.dtype(KINDS[dtype])
        top = numpy.iinfo(kind)
        a = self.random.integers(0 if dtype == "BOOL" else top.min, 1 if dtype == "BOOL" else top.max, count, kind, endpoint=True)
        b = a.copy()
        places = self.random.integers(0, count, max(1, count // 9))
        b[places] = 1 - b[places] if dtype == "BOOL" else self.random.integers(top.min, top.max, len(places), kind, endpoint=True)
        return a.tobytes(), b.tobytes()

    def test_every_dtype_as_numpy_has_it(self):
        shapes = {"small": (7,), "deep": (5, 70, 130), "wide": (300, 1000), "one": ()}
        a, b = {}, {}
        for dtype in (*KINDS, "BF16", "F8_E5M2"):
            for word, shape in shapes.items():
                pair = self.make_pair(dtype, shape)
                a["%s.%s" % (word, dtype)], b["%s.%s" % (word, dtype)] = ((dtype, shape, data) for data in pair)
        files.write(self.at("a.safetensors"), a)
        files.write_dcp(self.at("b"), b, 3, {name: 1 for name in a if name[:4] in ("deep", "wide")}, shapes=True)
        wanted = {name: expect(a[name][0], a[name][2], b[name][0], b[name][2]) for name in a if a[name][2] != b[name][2]}
        self.assertGreater(len(wanted), 40)
        found, code = self.stats("a.safetensors", "b", "--stats", "--threads", "3")
        self.assertEqual((code, sorted(found)), (1, sorted(wanted)))
        for name, row in wanted.items():
            self.check(found[name], row, name)
        # Threads add in another order, and it does not show.
        self.assertEqual(found, self.stats("a.safetensors", "b", "--stats", "--threads", "1")[0])
        for one in reshard.compare(self.at("a.safetensors"), self.at("b"), stats=True).differences:
            row = {key: list(value) if isinstance(value, tuple) else value for key, value in one.distance._asdict().items()}
            row = {key: None if isinstance(value, float) and math.isnan(value) else value for key, value in row.items()}
            self.check(row, wanted[one.name], one.name)

    def test_other_dtypes_are_measured(self):
        """A cast, compared with what it was made from: by its error, or cast again by --dtype, when nothing differs."""
        values = self.random.normal(size=600000)
        model = {"w": ("F32", (600, 1000), values.astype("<f4").tobytes()),
                 "n": ("I32", (9,), numpy.arange(9, dtype="<i4").tobytes())}
        cast = {"w": ("BF16", (600, 1000), to_bf16(values).tobytes()), "n": ("I64", (9,), numpy.arange(9, dtype="<i8").tobytes())}
        files.write(self.at("a.safetensors"), model)
        files.write(self.at("b.safetensors"), cast)
        found, code = self.stats("a.safetensors", "b.safetensors", "--stats")
        self.assertEqual((code, sorted(found)), (1, ["n", "w"]))
        self.check(found["w"], expect("F32", model["w"][2], "BF16", cast["w"][2]), "w")
        self.check(found["n"], {"numbers": 9, "differing": 0, "max_abs": 0.0, "relative_l2": 0.0, "cosine": 1.0}, "n")
        done = self.verify("a.safetensors", "b.safetensors", "--stats")
        self.assertRegex(done.stdout, r"\nw +f32, bf16 +\d+ of 600000 +0\.0\d+ ")
        found, code = self.stats("a.safetensors", "b.safetensors", "--stats", "--dtype", "bf16")
        self.assertEqual((code, sorted(found)), (1, ["n"]))

    def test_tolerance(self):
        a = numpy.array([1.0, 2.0, 3.0, 4.0], "<f4")
        b = numpy.array([1.0, 2.0, 3.5, 4.0], "<f4")
        same = numpy.arange(4, dtype="<f4")
        files.write(self.at("a.safetensors"), {"w": ("F32", (4,), a.tobytes()), "x": ("F32", (4,), same.tobytes())})
        files.write(self.at("b.safetensors"), {"w": ("F32", (4,), b.tobytes()), "x": ("F16", (4,), same.astype("<f2").tobytes())})
        distance = 0.5 / math.sqrt(30)
        for options, code in ((["0.5"], 0), (["0.4999"], 1), (["l2=%r" % (distance * 1.001)], 0), (["l2=%r" % (distance * 0.999)], 1),
                              (["0.5", "l2=%r" % (distance * 0.999)], 1), (["0.6", "l2=1"], 0)):
            given = [text for option in options for text in ("--tolerance", option)]
            done = self.verify("a.safetensors", "b.safetensors", *given)
            self.assertEqual(done.returncode, code, (options, done.stdout, done.stderr))
            count = "2 tensors differ" if code == 0 else "1 tensor differs"
            self.assertIn("%s within the tolerance (%s), 1 of them in another dtype\n" % (count, ", ".join(options)), done.stdout)
            self.assertEqual("the same tensors, within the tolerance\n" in done.stdout, code == 0)
            document = json.loads(self.verify("a.safetensors", "b.safetensors", "--json", *given).stdout)
            self.assertEqual((document["same"], document["within"]), (code == 0, ["w", "x"] if code == 0 else ["x"]))
            self.assertEqual((document["bytes_differ"], document["dtype"]), ([] if code == 0 else ["w"], []))
        paths = (self.at("a.safetensors"), self.at("b.safetensors"))
        self.assertEqual([one.name for one in reshard.verify(*paths, tolerance=0.5).within], ["w", "x"])
        with self.assertRaises(reshard.Check):
            reshard.verify(*paths, tolerance=0.25)
        with self.assertRaises(reshard.Error):
            reshard.compare(*paths, tolerance=-1.0)
        self.assertEqual(len(reshard.compare(*paths, stats=True).within), 0)

    def test_nan_and_infinity_never_pass_alone(self):
        """NaNs and infinities that both have are equal; one that only one has is beyond every tolerance."""
        nan, inf = math.nan, math.inf
        rows = {"both": ([1, nan, inf, -inf, 2], [1, nan, inf, -inf, 2.5], True), "nan": ([1, 2], [1, nan], False),
                "inf": ([1, 2], [1, inf], False), "signs": ([1, inf], [1, -inf], False), "swapped": ([nan, 1], [1, nan], False),
                "zeros": ([0.0, 0], [-0.0, 0], True), "only": ([nan, nan], [nan, inf], False), "from zero": ([0, 0], [0, 1], True)}
        sides = [{name: ("F32", (len(row[side]),), numpy.array(row[side], "<f4").tobytes()) for name, row in rows.items()}
                 for side in (0, 1)]
        files.write(self.at("a.safetensors"), sides[0])
        files.write(self.at("b.safetensors"), sides[1])
        found, code = self.stats("a.safetensors", "b.safetensors", "--tolerance", "1000")
        self.assertEqual((code, sorted(found)), (1, sorted(rows)))
        for name, row in rows.items():
            self.check(found[name], expect("F32", sides[0][name][2], "F32", sides[1][name][2]), name)
            self.assertEqual(found[name]["within"], row[2], name)
        self.assertIsNone(found["from zero"]["relative_l2"])
        document, _ = self.stats("a.safetensors", "b.safetensors", "--tolerance", "l2=1000")
        self.assertEqual((document["from zero"]["within"], document["zeros"]["within"]), (False, True))
        text = self.verify("a.safetensors", "b.safetensors", "--stats").stdout
        self.assertIn("NaN: 1 in A, 1 in B; infinite: 2 in A, 2 in B; 0 not equal", text)
        self.assertRegex(text, r"\nonly +bytes +1 of 2 +- +- +- +-\n +NaN: 2 in A, 1 in B; infinite: 0 in A, 1 in B; 1 not equal\n")

    def test_what_has_no_numbers(self):
        """Other shapes and dtypes without numbers are not measured, and pass no tolerance. Empty tensors have no distance."""
        files.write(self.at("a.safetensors"), {"e": ("F8_E8M0", (4,), b"\1\2\3\4"), "s": ("F32", (2,), bytes(8)),
                                               "c": ("C64", (1,), bytes(8)), "none": ("F32", (0, 3), b""),
                                               "f4": ("F4", (4,), b"\1\2"), "gone": ("U8", (1,), b"\1")})
        files.write(self.at("b.safetensors"), {"e": ("F8_E8M0", (4,), b"\1\2\3\5"), "s": ("F32", (1, 2), bytes(8)),
                                               "c": ("F64", (1,), bytes(8)), "none": ("BF16", (0, 3), b""), "f4": ("F4", (4,), b"\1\3")})
        found, code = self.stats("a.safetensors", "b.safetensors", "--tolerance", "1e9")
        self.assertEqual((code, sorted(found)), (1, ["none"]))
        self.check(found["none"], {"numbers": 0, "max_abs": None, "mean_abs": None, "within": True}, "none")
        text = self.verify("a.safetensors", "b.safetensors", "--stats").stdout
        self.assertRegex(text, r"\ne +bytes +not measured\n")
        self.assertRegex(text, r"\ngone +only in A\n")

    def test_usage(self):
        files.write(self.at("a.safetensors"), {"w": ("F32", (1,), bytes(4))})
        for options, said in ((["--tolerance", "0"], "expected a number above 0"), (["--tolerance", "nan"], "expected a number"),
                              (["--tolerance", "1e-3x"], "expected a number"), (["--tolerance", "l2="], "expected a number"),
                              (["--tolerance", "1", "--tolerance", "2"], "given twice"),
                              (["--stats", "--digest"], "--digest cannot tell how far")):
            done = self.verify("a.safetensors", "a.safetensors", *options)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn(said, done.stderr)
        for option in (["--stats"], ["--tolerance", "1"]):
            done = subprocess.run([COMMAND, "verify", self.at("a.safetensors"), *option], capture_output=True, text=True,
                                  check=False)
            self.assertIn("is for a second checkpoint", done.stderr)


if __name__ == "__main__":
    support.main()
