# SPDX-License-Identifier: Apache-2.0
"""Maps that reshard.importmap prints, with a stand-in for transformers (standin/): a conversion by the map has to give what the registry's own
operations make of the arrays, and the way back the arrays themselves."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import support

support.need("numpy")

import numpy

import reshard

STANDIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "standin")
sys.path.insert(0, STANDIN)
from transformers.conversion_mapping import get_checkpoint_conversion_mapping


def by_numbers(name):
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in name.split(".")]


def load(model_type, arrays, config):
    """What loading makes of arrays, by the registry's own operations."""
    transforms = get_checkpoint_conversion_mapping(model_type) + get_checkpoint_conversion_mapping("legacy")
    made, groups = {}, {}
    for name in sorted(arrays, key=by_numbers):
        key, matched, used = name, None, None
        for transform in transforms:
            if not hasattr(transform, "operations"):
                key, _ = transform.rename_source_key(key)
        for transform in transforms:
            if hasattr(transform, "operations") and matched is None:
                key, matched = transform.rename_source_key(key)
                used = transform
        if matched is None:
            made[key] = arrays[name]
        else:
            groups.setdefault(key, (used, {}))[1].setdefault(matched, []).append(arrays[name])
    for key, (transform, values) in groups.items():
        for operation in transform.operations:
            values = operation.convert(values, transform.source_patterns, transform.target_patterns, config)
        if len(values) == 1:
            values = {transform.target_patterns[0]: next(iter(values.values()))}
        front, _, back = key.partition(transform.target_patterns[0])
        made.update({front + part + back: value for part, value in values.items()})
    return made


class TestImportMap(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-importmap-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.random = numpy.random.default_rng(7)

    def at(self, name):
        return os.path.join(self.folder, name)

    def array(self, *shape):
        return self.random.standard_normal(shape).astype(numpy.float32)

    def write(self, arrays, config=None):
        support.write_safetensors(self.at("model.safetensors"), arrays)
        with open(self.at("config.json"), "w", encoding="utf-8") as file:
            json.dump(config or {}, file)

    def run_module(self, *arguments, path=STANDIN):
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([support.PACKAGE, path])}
        return subprocess.run([sys.executable, "-B", "-m", "reshard.importmap", *arguments], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, check=False, universal_newlines=True)

    def check(self, model_type, arrays, config=None, more=()):
        """The map's text, once conversions by it have been compared."""
        self.write(arrays, config)
        done = self.run_module(model_type, self.at("model.safetensors") if config is None else self.folder, *more)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        with open(self.at("it.map"), "w", encoding="utf-8") as file:
            file.write(done.stdout)
        for name in ["made", "back"]:
            shutil.rmtree(self.at(name), ignore_errors=True)
        try:
            reshard.convert(self.at("model.safetensors"), self.at("made"), map=self.at("it.map"), as_="transformers", verify=True)
            reshard.convert(self.at("made"), self.at("back"), map=self.at("it.map"), as_="files", verify=True)
        except reshard.Error as error:
            self.fail(f"{error}\n{done.stdout}")
        self.compare(self.at("made"), load(model_type, arrays, config or {}), done.stdout)
        self.compare(self.at("back"), arrays, done.stdout)
        return done.stdout

    def compare(self, path, wanted, text):
        with reshard.open(path) as found:
            self.assertEqual(sorted(found), sorted(wanted), text)
            for name, array in wanted.items():
                self.assertEqual(tuple(found[name].shape), array.shape, name)
                self.assertTrue(numpy.array_equal(found[name][...], array), f"{name}\n{text}")

    def test_experts(self):
        arrays = {"model.embed.weight": self.array(9, 4)}
        for n in range(12):
            arrays[f"model.layers.{n}.block_sparse_moe.gate.weight"] = self.array(11, 4)
            for e in range(11):
                for part, shape in [("w1", (6, 4)), ("w3", (6, 4)), ("w2", (4, 6))]:
                    arrays[f"model.layers.{n}.block_sparse_moe.experts.{e}.{part}.weight"] = self.array(*shape)
        text = self.check("experts", arrays)
        self.assertEqual(text.splitlines()[1:], [
            "map files transformers types experts",
            "model.layers.{n}.block_sparse_moe.experts.{e}.w1.weight [a b], model.layers.{n}.block_sparse_moe.experts.{e}.w3.weight [a b] = "
            "model.layers.{n}.mlp.experts.gate_up_proj [e (a + a) b]",
            "model.layers.{n}.block_sparse_moe.experts.{e}.w2.weight [a b] = model.layers.{n}.mlp.experts.down_proj [e b a]",
            "model.layers.{n}.block_sparse_moe.gate.weight = model.layers.{n}.mlp.gate.weight", "* = *"])

    def test_one_expert(self):
        """A list of one is still a list; and the parts of a sum may differ in length."""
        self.check("experts", {f"m.3.block_sparse_moe.experts.0.{part}.weight": self.array(*shape)
                               for part, shape in [("w1", (6, 4)), ("w3", (5, 4)), ("w2", (4, 6))]})

    def test_fused(self):
        arrays = {}
        for n in range(3):
            arrays[f"h.{n}.attn.qkv.weight"] = self.array(12, 5)
            arrays[f"h.{n}.mlp.w13"] = self.array(3, 8, 5)
            arrays[f"h.{n}.mlp.both"] = self.array(6)
            arrays[f"h.{n}.mlp.halves"] = self.array(6, 2)
            arrays[f"h.{n}.bank.weight"] = self.array(4, 3, 2)
            arrays[f"h.{n}.turned.weight"] = self.array(4, 3)
            arrays[f"h.{n}.pair.a"], arrays[f"h.{n}.pair.b"] = self.array(4, 3), self.array(5, 3)
            arrays[f"h.{n}.LayerNorm.gamma"] = self.array(4)
        text = self.check("fused", arrays)
        self.assertIn("h.{n}.mlp.w13 [a (b c) d] = h.{n}.mlp.{c:gate,up} [a b d]\n", text)
        self.assertIn("h.{n}.bank.weight [a e b] = h.{n}.bank.{e}.weight [a b]\n", text)
        self.assertIn("h.{n}.LayerNorm.gamma = h.{n}.LayerNorm.weight\n", text)

    def test_rope(self):
        config = {"num_attention_heads": 2, "vision_config": {"num_attention_heads": 3}}
        arrays = {f"vision_tower.{n}.wqkv.{kind}": self.array(36, *rest) for n in range(2) for kind, rest in [("weight", (5,)), ("bias", ())]}
        arrays.update({f"text.{n}.attn.query": self.array(8, 5) for n in range(2)})
        self.check("rope", arrays, config)

    def test_prefix_and_hostile_names(self):
        self.check("prefixed", {"a": self.array(2), "b c=[#": self.array(3), "map": self.array(1), "{n}": self.array(4), "x.1.y": self.array(2)})

    def test_some_layers(self):
        """A renaming of one layer does not speak for the others."""
        text = self.check("some", {f"layers.{n}.x": self.array(n + 1) for n in range(3)})
        self.assertIn("layers.1.x = layers.1.y\n", text)

    def test_doubtful(self):
        self.write({"down": self.array(4, 4)})
        done = self.run_module("doubtful", self.folder)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("give --transposed yes or no", done.stderr)
        for answer in ["yes", "no"]:
            self.check("doubtful", {"down": self.array(4, 4)}, {"transposed": answer == "yes"}, ["--transposed", answer])

    def test_refusals(self):
        self.write({"x": self.array(2), "l.a": self.array(2), "l.b": self.array(2), "m.0.block_sparse_moe.experts.0.w1.weight": self.array(2, 2)})
        for model_type, words in [("odd", "an operation that is not known here: Unheard"), ("clash", "l.a and l.b both become l.c"),
                                  ("nobody", "transformers 5.0-standin has no conversions for model_type 'nobody'"),
                                  ("experts", "no tensor matches 'block_sparse_moe.experts.*.w3.weight'")]:
            done = self.run_module(model_type, self.folder)
            self.assertEqual((done.returncode, done.stdout), (1, ""), model_type)
            self.assertIn(words, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)
        done = self.run_module("odd", self.at("nothing"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("nothing", done.stderr)
        done = self.run_module("odd", self.folder, path=self.folder)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("install transformers 5 or later", done.stderr)


if __name__ == "__main__":
    support.main()
