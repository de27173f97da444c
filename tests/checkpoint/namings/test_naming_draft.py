# SPDX-License-Identifier: Apache-2.0
"""`reshard rules --for MODEL --as NAMING` drafts a map: one that does what the naming does for models that it knows, and has a line with ??? for
each name that nobody knows, whatever the name is."""
import os
import random
import re
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "rules"), os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import models
import support
from naming_case import NamingTest
from test_draft import HOSTILE, TOO_LONG, is_printable

OPEN = re.compile(r"^(?P<pattern>(?:\\.|[^\\])*?) *= \?\?\?  # x(?P<count>\d+)  (?P<shape>\S+)$")


class MapDrafts(NamingTest):
    def draft(self, source, naming):
        text = self.read_text("rules", "--for", self.at(source), "--as", naming)
        for line in text.split("\n"):
            self.assertTrue(is_printable(line), repr(line))
        return text

    def fill(self, text, fill):
        """The draft with each ??? filled in: fill(pattern) is the line."""
        lines = []
        for line in text.splitlines():
            found = OPEN.match(line)
            lines.append(fill(found["pattern"]) if found else line)
        return self.write_text("draft.map", "\n".join(lines) + "\n")

    def check_known(self, model, naming, *options):
        """A draft for a model of which all is known is a map that does what the naming does."""
        for name in ["model", "by-naming", "by-draft"]:
            shutil.rmtree(self.at(name), ignore_errors=True)
        self.write_model("model", model)
        text = self.draft("model", naming)
        self.assertNotIn("???", text)
        path = self.write_text("draft.map", text)
        self.convert("model", "by-naming", "--as", naming, *options)
        told = self.convert("model", "by-draft", "--map", path, "--as", naming, *options)
        self.assertEqual(told["warnings"], [])
        self.assertEqual(self.digests("by-draft"), self.digests("by-naming"))

    def test_known_models(self):
        def experts(rnd):
            return models.qwen3_moe(rnd, inner=6)

        for make in [models.llama, models.qwen3, models.mixtral, experts, models.deepseek_v3, models.gpt_oss]:
            for naming, options in [("vllm", ["--to", "tp=2"]), ("megatron", []), ("hf5", [])]:
                with self.subTest(model=make.__name__, naming=naming):
                    self.check_known(make(self.rnd), naming, *options)

    def test_type_that_no_map_is_for(self):
        """The map that knows most names is begun with, and the rest is filled in by hand."""
        model = models.llama(self.rnd)
        model.config["model_type"] = "novel"
        for n in range(models.LAYERS):
            model.add(f"model.layers.{n}.self_attn.gate.weight", 4, models.H)
            model.add(f"model.layers.{n}.loops.{n + 3}.scale", 7)
        model.add("model.extra", 3)
        self.write_model("model", model)
        self.fails("model", "out", "--as", "vllm", "--to", "tp=2", words='there is no map between hf and vllm for model_type "novel"')
        text = self.draft("model", "vllm")
        self.assertEqual(text.splitlines()[0],
                         f"# A map from hf to vllm for {len(model.tensors)} tensors, with the lines of hf-vllm for those that it knows")
        self.assertEqual([OPEN.match(line).groups() for line in text.splitlines() if OPEN.match(line)],
                         [("model.extra", "1", "3"), ("model.layers.{i}.loops.{j}.scale", "2", "7"),
                          ("model.layers.{i}.self_attn.gate.weight", "2", f"4x{models.H}")])
        path = self.fill(text, lambda pattern: f"{pattern} = {pattern.replace('self_attn', 'attn')}")
        rules = self.write_text("novel.rules", "model.extra R\nmodel.layers.*.loops.*.scale R\nmodel.layers.*.attn.gate.weight R\nuse vllm\n")
        self.convert("model", "engine", "--map", path, "--as", "vllm", "--to", "tp=2", "--rules", rules, "--verify")
        found = files.read(self.at("engine/model-rank-1-part-0.safetensors"))[0]
        for n in range(models.LAYERS):
            self.assertEqual(found[f"model.layers.{n}.attn.gate.weight"], model.tensors[f"model.layers.{n}.self_attn.gate.weight"])
            self.assertEqual(found[f"model.layers.{n}.loops.{n + 3}.scale"], model.tensors[f"model.layers.{n}.loops.{n + 3}.scale"])
        self.assertIn("model.layers.0.self_attn.qkv_proj.weight", found)
        self.convert("engine", "back", "--from", "tp=2", "--from-rules", rules, "--map", path, "--as", "hf", "--set", f"num_hidden_layers={models.LAYERS}")
        self.check_model(self.read("back"), model.tensors)

    def test_hostile_names(self):
        """Lines stand for the tensors that they were drafted for: dropping these leaves the others. Some names no map can have."""
        model = models.llama(self.rnd)
        known = dict(model.tensors)
        names = random.Random(5).sample(HOSTILE, len(HOSTILE)) + TOO_LONG
        able = [name for name in names if name and len(name.encode()) <= 4000 and is_printable(name)]
        for i, name in enumerate(names):
            model.add(name, i + 1, dtype="U8")
        self.write_model("model", model)
        text = self.draft("model", "sglang")
        self.assertEqual(len(re.findall(r"\?\?\?  # x", text)), len(able))
        self.assertEqual(len(re.findall(r"^# x1  \d+  a name that no map can have", text, re.M)), len(names) - len(able))
        path = self.fill(text, lambda pattern: f"{pattern} drop =")
        rest = {name: model.tensors[name] for name in [*known, *able]}
        self.write_hf("able", rest, model.config)
        told = self.convert("able", "out", "--map", path, "--as", "sglang", "--to", "tp=1")
        self.assertIn(f"the map drops {len(able)} tensors", "\n".join(told["notes"]))
        self.convert("out", "back", "--map", path, "--as", "hf", "--config", self.at("model"))
        self.check_model(self.read("back"), known)

    def test_refusals(self):
        self.write_model("model", models.llama(self.rnd))
        model = self.at("model")
        self.check_fails(["rules", "--for", model, "--as", "nobody"], 1, 'there is no naming "nobody"; give one of ')
        self.check_fails(["rules", "--for", model, "--as", "hf"], 1, "a draft leads from hf to another naming")
        self.check_fails(["rules", "--for", model, "--as", "universal"], 1, "there is no map between hf and universal to")
        self.check_fails(["rules", "--as", "vllm"], 2, "rules: --as")
        self.check_fails(["rules", "llama", "--as", "vllm"], 2, 'rules: --as is for drafts; leave out "llama"')
        self.check_fails(["rules", "--for", model, "--as", "vllm", "--rules", "llama"], 2, "rules: --as drafts a map")
        self.convert("model", "engine", "--as", "vllm")
        self.check_fails(["rules", "--for", self.at("engine"), "--as", "megatron"], 1, "the tensors have the names of vllm")


if __name__ == "__main__":
    support.main()
