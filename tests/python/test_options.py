# SPDX-License-Identifier: Apache-2.0
"""Options: Python has those of the command, under their names, and every figure that the command reports."""
import ctypes
import inspect
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
import warnings
from ctypes import byref, c_void_p

import support

support.need("numpy")

import numpy as np  # noqa: E402

import reshard  # noqa: E402
from reshard import _native, _options  # noqa: E402
from reshard._library import lib  # noqa: E402

COMMAND = os.path.join(support.BUILD, "reshard")
CALLS = {"convert": [reshard.convert], "verify": [reshard.verify, reshard.compare], "digest": [reshard.digest]}
KEYWORDS = {"from": "from_", "as": "as_"}


def ask(*arguments):
    return subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=True).stdout


def help_names(command):
    """The options on the command's page, without those that say what to print."""
    page = ask(command, "--help").split("\nWhat to print\n")[0]
    names = re.findall(r"^  --([a-z0-9-]+)", page, re.MULTILINE)
    return [KEYWORDS.get(name, name.replace("-", "_")) for name in names]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.model = self.place("model.safetensors")
        self.tensors = {"a.w": np.arange(64, dtype="f4").reshape(8, 8), "a.b": np.ones(8, "f4"), "c": np.full((4, 2), 1e39, "f8")}
        support.write_safetensors(self.model, self.tensors)

    def place(self, name):
        return os.path.join(self.folder, name)


class TestNames(Case):
    def test_python__has_every_option_of_the_command(self):
        for command, calls in CALLS.items():
            names = help_names(command)
            self.assertGreater(len(names), 7)
            for call in calls:
                has = inspect.signature(call).parameters
                self.assertEqual([name for name in names if name not in has], [], command)
                self.assertTrue(all(f"\n    {name}: " in call.__doc__ for name in names), command)

    def test_types__know_every_keyword(self):
        for call, hints in [(reshard.convert, _native.ConvertOptions), (reshard.verify, _native.VerifyOptions),
                            (reshard.digest, _native.DigestOptions), (reshard.open, _native.OpeningOptions),
                            (reshard.Conversion, _native.PlanningOptions), (reshard.Conversion.run, _native.RunningOptions)]:
            own = {"self", "source", "target", "path", "a", "b", "checkpoint", "progress", "keep_names", "mmap", "raw", "unreadable",
                   "check_copies"} | ({"trace"} if call is reshard.Conversion else set()) | ({"tolerance_l2"} if call is reshard.verify else set())
            self.assertEqual(set(inspect.signature(call).parameters) - own, set(hints.__annotations__), call)

    def test_every_option__sets_its_field(self):
        samples = {"FLAG": True, "RANK": 3, "SIZE": 4096, "DTYPE": "bf16", "DTYPES": {"x*": "f16"}, "TEXTS": "x*", "PAIRS": {"x": 1}}
        texts = {"DTYPES": b"x*=f16", "TEXTS": b"x*", "PAIRS": b"x=1"}
        tried = 0
        for option in _options.OPTIONS:
            if option.struct not in _options.STRUCTS:
                continue
            command = option.commands.split()[0]
            made = _options.fill(command, option.struct, {option.keyword: samples.get(option.kind, "tp=2")})
            found = getattr(made, option.field)
            if option.kind in texts:
                self.assertEqual((getattr(made, option.field[:-1] + "_count"), found[0]), (1, texts[option.kind]), option)
            else:
                self.assertTrue(found, option)
            tried += 1
        self.assertGreater(tried, 40)

    def test_unknown_keywords__are_refused(self):
        for call, arguments in [(reshard.open, 1), (reshard.convert, 2), (reshard.verify, 2), (reshard.digest, 1)]:
            with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'frob'"):
                call(*[self.model] * arguments, frob=1)
        with self.assertRaisesRegex(TypeError, "unexpected keyword argument 'sync'"):
            reshard.convert(self.model, self.place("never"), sync=False, no_sync=True)

    def test_old_names__warn_and_work(self):
        out = self.place("out")
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            reshard.convert(self.model, out, sync=False, shard_bytes=1, memory_bytes=1 << 20, sets={"k": 1}, exclude="c", dtype="f16")
            reshard.convert(out, self.place("again"), sync=True)
        self.assertEqual([(each.category, os.path.basename(each.filename)) for each in said], [(DeprecationWarning, "test_options.py")] * 5)
        self.assertIn("shard_bytes=: it is called max_shard_size= now", [str(each.message) for each in said])
        self.assertEqual(len([name for name in os.listdir(out) if name.endswith(".safetensors")]), 2)
        ranks = self.place("ranks")
        os.mkdir(ranks)
        for rank in range(2):
            support.write_safetensors(os.path.join(ranks, f"r{rank}.safetensors"), {"w": self.tensors["a.w"][4 * rank:4 * rank + 4]})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, how in [("old", dict(mesh="fsdp=2", mesh_rules="fsdp")), ("new", dict(from_="fsdp=2", from_rules="fsdp"))]:
                reshard.convert(ranks, self.place(name), **how)
                with reshard.open(self.place(name)) as ck:
                    np.testing.assert_array_equal(ck["w"][...], self.tensors["a.w"])


class TestFigures(Case):
    def test_reports__have_every_figure(self):
        for struct, kind, leaves in [(_native.reshard_conversion_report, reshard.ConversionReport, set()),
                                     (_native.reshard_comparison_stats, reshard.Comparison, {"difference_count", "tensors_within", "tensors_within_dtype"})]:  # lists have these lengths
            fields = {name for name, _ in struct._fields_} - {"size"} - leaves
            self.assertEqual(fields - set(kind._fields), set())
        said = json.loads(ask("convert", self.model, self.place("theirs"), "--no-sync", "--verify", "--json", "--dtype", "f32"))
        report = reshard.convert(self.model, self.place("ours"), no_sync=True, verify=True, dtype="f32")
        self.assertEqual(set(said), set(report._fields))
        for name in set(said) - {"seconds", "notes", "warnings"}:
            self.assertEqual(getattr(report, name), said[name], name)
        self.assertEqual(report.values_overflowed, 8)
        self.assertTrue(0 < report.seconds < 60)

    def test_dry_run__writes_nothing(self):
        out = self.place("out")
        report = reshard.convert(self.model, out, dtype="f32", dry_run=True)
        said = json.loads(ask("convert", self.model, out, "--dtype", "f32", "--dry-run", "--json"))
        self.assertEqual((report.bytes_read, report.bytes_written, report.tensors), (said["bytes_read"], said["bytes_written"], 3))
        self.assertEqual(os.listdir(self.folder), ["model.safetensors"])

    def test_trace_events__limit_the_trace(self):
        with self.assertWarnsRegex(UserWarning, "did not fit"):
            reshard.convert(self.model, self.place("out"), trace=self.place("t.json"), trace_events=1, no_sync=True)

    def test_digests__are_hashes_if_asked(self):
        self.assertEqual(reshard.digest(self.model, sha256=True), json.loads(ask("digest", self.model, "--sha256", "--json"))["checkpoint"])

    def test_comparisons__take_conversions(self):
        out = self.place("out")
        how = dict(dtype={"*.w": "bf16"}, rename={"a.*": "{1}"}, exclude="c")
        reshard.convert(self.model, out, no_sync=True, **how)
        found = reshard.verify(self.model, out, **how)
        self.assertEqual((found.tensors_compared, found.tensors_left_out, found.digest_a), (2, 1, ""))
        kinds = [each.kind for each in reshard.compare(self.model, out, rename={"a.*": "{1}"}, digest=True).differences]
        self.assertEqual(sorted(kinds), ["dtype", "only in a"])
        with reshard.open(self.model) as ck, self.assertRaisesRegex(reshard.Invalid, "from_= .* open already"):
            reshard.compare(ck, out, from_="tp=2")

    def test_ranks__compare_every_option_of_a_run(self):
        """Whatever field the struct has or gets: two ranks that differ in it alone do not go on."""
        names = [name for name, _ in _native.reshard_conversion_run_options._fields_ if name != "size"]
        for name in names:
            def body(group, name=name):
                with reshard.open(self.model) as ck:
                    planning = _native.reshard_conversion_options(size=ctypes.sizeof(_native.reshard_conversion_options), group=group._pointer)
                    running = _native.reshard_conversion_run_options(size=ctypes.sizeof(_native.reshard_conversion_run_options))
                    setattr(running, name, 4096 * group.rank)
                    made = c_void_p()
                    lib.reshard_conversion_create(ck._context._pointer, ck._pointer, byref(planning), byref(made))
                    try:
                        lib.reshard_conversion_run(made, self.place("never").encode(), byref(running), None)
                    finally:
                        lib.reshard_conversion_destroy(made)
            with self.subTest(option=name), self.assertRaises(reshard.Mismatch):
                reshard.run(2, body)
        self.assertEqual(os.listdir(self.folder), ["model.safetensors"])


if __name__ == "__main__":
    support.main()
