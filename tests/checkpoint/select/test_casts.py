# SPDX-License-Identifier: Apache-2.0
"""Casts of whole models: what is quantised stays as it is, config.json follows, and values that overflow are counted."""
import json
import os
import random
import resource
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import support
from convert_case import CONFIG, SEED, ConvertTest, tensor


def floats(*values):
    return ("F32", (len(values),), struct.pack(f"<{len(values)}f", *values))


class Casts(ConvertTest):
    def setUp(self):
        super().setUp()
        self.rnd = random.Random(SEED)

    def dtypes(self, name):
        return {key: value[0] for key, value in files.read_hf(self.at(name)).items()}

    def test_quantised_tensors_and_their_scales_stay(self):
        """fp8 with block scales, GPTQ, bitsandbytes; a logit_scale of a plain module is no such scale."""
        model = {"l.q.weight": tensor(self.rnd, "F8_E4M3", 4, 4), "l.q.weight_scale_inv": floats(1, 2), "l.q.bias": floats(1, 2),
                 "l.q.input_scale": floats(3), "g.qweight": tensor(self.rnd, "I32", 4), "g.qzeros": tensor(self.rnd, "I32", 1),
                 "g.scales": floats(1), "g.g_idx": tensor(self.rnd, "I32", 4), "g.bias": floats(1), "b.weight": tensor(self.rnd, "U8", 4), "b.weight.absmax": floats(1),
                 "b.SCB": floats(1), "clip.logit_scale": floats(1), "clip.weight": floats(1), "ids": tensor(self.rnd, "I64", 3),
                 "a.k_scale": floats(1), "a.k.weight": tensor(self.rnd, "F8_E5M2", 1)}
        self.write_hf("source", model, {**CONFIG, "quantization_config": {"quant_method": "x", "dtype": "x"}})
        report = self.convert("source", "out", "--dtype", "bf16", "--verify")
        cast = {"l.q.bias", "g.bias", "clip.logit_scale", "clip.weight"}
        self.assertEqual({name for name, dtype in self.dtypes("out").items() if dtype == "BF16"}, cast)
        found = files.read_hf(self.at("out"))
        self.assertEqual({name: value for name, value in found.items() if name not in cast},
                         {name: value for name, value in model.items() if name not in cast})
        self.assertIn('not cast: 12 quantised tensors, with what belongs to them ("a.k.weight" and others); a pattern that names them casts them',
                      report["notes"])
        # By name they are cast.
        self.convert("source", "named", "--dtype", "*scale*=bf16", "--dtype", "l.q.weight=f32")
        self.assertEqual({name for name, dtype in self.dtypes("named").items() if dtype == "BF16"},
                         {"l.q.weight_scale_inv", "l.q.input_scale", "g.scales", "clip.logit_scale", "a.k_scale"})
        self.assertEqual(self.dtypes("named")["l.q.weight"], "F32")

    def test_config_names_the_dtype(self):
        text = ('{\n  "torch_dtype": "float32", "x": [1.50, Infinity],\n "text_config": {"dtype": "float32", "deep_config": {"dtype": "f"}},'
                ' "quantization_config": {"dtype": "float8"}, "dtype": null, "other": {"torch_dtype": "float32"} }\n')
        self.write_hf("source", {"a": floats(1)})
        self.write_text("source/config.json", text)
        for name, dtype, torch in [("a", "bf16", "bfloat16"), ("b", "torch.float16", "float16"), ("c", "double", "float64")]:
            report = self.convert("source", name, "--dtype", dtype)
            self.assertTrue(any(f"config.json: the dtype becomes {torch}" == note for note in report["notes"]), report["notes"])
            with open(self.at(f"{name}/config.json"), encoding="utf-8") as file:
                self.assertEqual(file.read(), text.replace('"torch_dtype": "float32", "x"', f'"torch_dtype": "{torch}", "x"')
                                 .replace('{"dtype": "float32"', f'{{"dtype": "{torch}"'))
        report = self.convert("source", "d", "--dtype", "fp8_e4m3")
        self.assertIn("config.json keeps its dtype, though most weights become f8_e4m3", report["notes"])
        self.convert("source", "e", "--dtype", "float32")
        # A pattern counts if it casts most of the bytes.
        self.write_hf("two", {"a": floats(1), "b": floats(1, 2, 3, 4)})
        self.write_text("two/config.json", text)
        self.convert("two", "f", "--dtype", "a=bf16")
        for name in ["d", "e", "f"]:
            with open(self.at(f"{name}/config.json"), encoding="utf-8") as file:
                self.assertEqual(file.read(), text)
        self.convert("two", "h", "--dtype", "b=bf16")
        with open(self.at("h/config.json"), encoding="utf-8") as file:
            self.assertIn('"torch_dtype": "bfloat16"', file.read())
        self.write_text("source/config.json", '{"torch_dtype": "float32"')
        self.assertIn("config.json is copied as it is", " ".join(self.convert("source", "g", "--dtype", "bf16")["notes"]))

    def test_names_of_dtypes(self):
        self.write_hf("source", {"a": floats(1, 2)})
        for number, (name, dtype) in enumerate([("bfloat16", "BF16"), ("torch.float16", "F16"), ("half", "F16"), ("float64", "F64"),
                                                ("fp8_e4m3", "F8_E4M3"), ("torch.float8_e5m2", "F8_E5M2"), ("F16", "F16")]):
            self.convert("source", f"out{number}", "--dtype", name)
            self.assertEqual(self.dtypes(f"out{number}"), {"a": dtype})
        self.fails("source", "x", "--dtype", "torch.", words="is not known", code=2)
        self.fails("source", "x", "--dtype", "bflaot16", words='did you mean "bfloat16"?', code=2)
        self.fails("source", "x", "--dtype", "int8", words="casts are between f16, bf16, f32, f64, f8_e4m3 and f8_e5m2")

    def test_patterns_that_never_count(self):
        """The first pattern that matches counts, so one that comes too late would do nothing."""
        self.write_hf("late", {"a.norm": tensor(self.rnd, "F32", 4), "a.w": tensor(self.rnd, "F32", 4)})
        for options in [["--dtype", "bf16", "--dtype", "*.norm=f16"], ["--dtype", "bf16", "--dtype", "f16"],
                        ["--dtype", "a.*=bf16", "--dtype", "*.w=f16"], ["--rename", "*=x.{1}", "--rename", "a.w=b"]]:
            with self.subTest(options):
                option = options[0].strip("-")
                self.fails("late", "x", *options, words=f'{option} "{options[-1]}" has no effect: every tensor that it '
                           f"matches is matched by an earlier {option}")
        # The cast of everything is for the rest, even if there is none.
        self.convert("late", "rest", "--dtype", "*.norm=f16", "--dtype", "*.w=f16", "--dtype", "bf16")
        self.convert("late", "first", "--dtype", "*.norm=f16", "--dtype", "bf16", "--rename", "a.w=b", "--rename", "*=x.{1}")
        self.assertEqual({name: dtype for name, (dtype, _, _) in files.read_hf(self.at("first")).items()},
                         {"b": "BF16", "x.a.norm": "F16"})

    def test_overflows_are_counted(self):
        inf = float("inf")
        values = [1.0, 65504.0, 65519.0, 65520.0, -70000.0, 3.4e38, inf, -inf, float("nan"), 0.0, 1e-40]
        self.write_hf("source", {"a": floats(*values), "b": floats(*([70000.0] * 1001)), "c": floats(1, 2)})
        for name, dtype, wanted in [("f16", "f16", 3 + 1001), ("bf16", "bf16", 1), ("f64", "f64", 0), ("f8", "f8_e4m3", 5 + 1001),
                                    ("f8_e5m2", "f8_e5m2", 5 + 1001)]:
            report = self.convert("source", name, "--dtype", dtype)
            self.assertEqual(report["values_overflowed"], wanted, dtype)
        self.assertIn("overflow: 1004 values are finite in the source but not in the output\n",
                      self.read_text("convert", self.at("source"), self.at("text"), "--dtype", "f16"))
        # Each value once, however many ranks hold it.
        for name, options in [("ranks", ["--to", "dp=4"]), ("checked", ["--to", "dp=4", "--verify"]), ("fsdp", ["--to", "fsdp=3", "--verify"])]:
            rules = "fsdp" if name == "fsdp" else "replicate"
            report = self.convert("source", name, "--dtype", "f16", "--rules", rules, "--format", "rank-files", *options)
            self.assertEqual(report["values_overflowed"], 1004, name)
        self.write_hf("high", {"a": floats(3.4e38, 3.3895e38, 1)})
        self.assertEqual(self.convert("high", "high-bf16", "--dtype", "bf16")["values_overflowed"], 1)

    def test_overflows_of_earlier_runs(self):
        """What an earlier run did is counted while it is verified; else it is said that it is not."""
        self.write_hf("source", {"a": floats(*([70000.0] * 2000))})
        options = ["--dtype", "f16", "--resume"]
        stopped = support.run("convert", self.at("source"), self.at("out"), *options,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000)))
        self.assertEqual(stopped.returncode, 1)
        with open(self.at("out.partial/.reshard-journal"), "rb") as file:
            journal = file.read()
        self.assertEqual(self.convert("source", "out", *options)["values_overflowed"], 2000)
        for verify, wanted in [([], "3.9 KiB were already done by an earlier run, and values that overflowed there are not counted\n"),
                               (["--verify"], "3.9 KiB were already done by an earlier run\noverflow: 2000 values are finite in the source but not in the output\n")]:
            self.leave_journal("source", "out", journal, *options)
            self.assertIn(wanted, self.read_text("convert", self.at("source"), self.at("out"), *options, *verify))


if __name__ == "__main__":
    support.main()
