# SPDX-License-Identifier: Apache-2.0
"""New names on the way: --rename, and name() and drop of rules, in every format."""
import os
import random
import resource
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import support
from convert_case import CONFIG, SEED, ConvertTest, llama, tensor


def prefixed(model, prefix):
    return {prefix + name: value for name, value in model.items()}


class Rename(ConvertTest):
    def setUp(self):
        super().setUp()
        self.model = llama(random.Random(SEED))
        self.write_hf("plain", self.model, CONFIG)
        # As accelerate writes FSDP models: everything below "model."
        self.write_hf("deep", prefixed(self.model, "model."), CONFIG)

    def test_every_format_equals_that_of_a_source_with_these_names(self):
        """Names decide the order and the places of tensors; the new ones do, whatever the old ones were."""
        for i, options in enumerate([["--max-shard-size", "20K"], ["--to", "tp=4"], ["--to", "pp=2,tp=2", "--format", "rank-files"],
                                     ["--to", "fsdp=3", "--dtype", "bf16"]]):
            with self.subTest(options=options):
                self.convert("plain", f"plain{i}", *options)
                self.convert("deep", f"deep{i}", *options, "--rename", "model.*={1}", "--verify")
                if "rank-files" in options:  # the id of the conversion differs, as the sources do
                    for name in os.listdir(self.at(f"plain{i}")):
                        if name.endswith(".safetensors"):
                            self.assertEqual(files.read_rank(self.at(f"plain{i}/{name}")), files.read_rank(self.at(f"deep{i}/{name}")))
                else:
                    self.check_same(f"plain{i}", f"deep{i}")

    def test_wildcards_and_order(self):
        self.convert("plain", "out", "--rename", "model.layers.{0..0}.*=first.{2}", "--rename",
                     "*.layers.{0..}.{self_attn,mlp}.*={2}/{1}/{3}\\{{4}", "--rename", "lm_head.weight=h=\\=")
        wanted = {}
        for name, value in self.model.items():
            parts = name.split(".")
            if name.startswith("model.layers.0."):
                name = "first." + ".".join(parts[3:])
            elif name.startswith("model.layers.") and parts[3] != "input_layernorm":
                name = f"{parts[2]}/model/{parts[3]}{{{'.'.join(parts[4:])}"
            wanted["h==" if name == "lm_head.weight" else name] = value
        self.assertEqual(files.read_hf(self.at("out")), wanted)

    def test_other_patterns_see_the_names_of_the_source(self):
        self.convert("plain", "out", "--rename", "*norm*=norm{2}.{1}", "--include", "*norm*", "--dtype", "model.norm.*=bf16",
                     "--exclude", "*.1.*")
        found = files.read_hf(self.at("out"))
        self.assertEqual({name: value[0] for name, value in found.items()},
                         {"norm.weight.model.": "BF16", "norm.weight.model.layers.0.input_layer": "F32"})

    def test_names_that_cannot_be(self):
        self.write_hf("bytes", {"\u00e9.w": tensor(random.Random(SEED), "U8", 4)})
        for source, rename, words in [
                ("plain", "model.layers.{0..}.*=layer.{2}", 'two tensors would have the name "layer.input_layernorm.weight"; rename one of them'),
                ("plain", "lm_head.weight=model.norm.weight", 'two tensors would have the name "model.norm.weight"; rename one of them'),
                ("plain", "transformer.*={1}", 'rename "transformer.*={1}" matches no tensor'),
                ("plain", "lm_head.weight", 'rename "lm_head.weight": expected GLOB=NAME'),
                ("plain", "lm_head.weight=", "expected GLOB=NAME"), ("plain", "=x", "expected GLOB=NAME"),
                ("plain", "{a=x", 'rename "{a=x"'), ("plain", "*={2}", "one of 1 wildcards"), ("plain", "*={x", "wildcards and }"),
                ("plain", "lm_head.*=__metadata__", '"__metadata__"'), ("bytes", "??*={2}{3}", "not UTF-8")]:
            with self.subTest(rename=rename):
                self.fails(source, "out", "--rename", rename, words=words)
                self.fails(source, "out", "--rename", rename, "--to", "fsdp=2", words=words)

    def test_resume_with_other_names_is_refused(self):
        command = [support.COMMAND, "convert", self.at("plain"), self.at("out"), "--rename", "*=a.{1}"]
        limit = 8192  # the journal fits, the model does not
        done = subprocess.run(command, capture_output=True, check=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.assertEqual((done.returncode, os.path.exists(self.at("out.partial"))), (1, True), done.stderr)
        self.fails("plain", "out", "--rename", "*=b.{1}", "--resume", words="have changed")
        self.convert("plain", "out", "--rename", "*=a.{1}", "--resume", "--verify")
        self.assertEqual(files.read_hf(self.at("out")), prefixed(self.model, "a."))


class Rules(ConvertTest):
    RULES = "old.{w,b}.*  S(0)@tp name(new.{2}.{1})\n*.gone drop\nkeep.* R\n"

    def setUp(self):
        super().setUp()
        rnd = random.Random(SEED)
        self.rules = self.write_text("names.rules", self.RULES)
        self.old = {f"old.{kind}.{i}": tensor(rnd, "I16", 6, 4) for kind in "wb" for i in range(4)}
        self.kept = {"keep.me": tensor(rnd, "F32", 3), "keep.f4": tensor(rnd, "F4", 2, 4)}
        self.write_hf("source", {**self.old, **self.kept, "be.gone": tensor(rnd, "U8", 9)})
        self.wanted = {**{f"new.{name[6:]}.{name[4]}": value for name, value in self.old.items()}, **self.kept}

    def test_whole_tensors_get_names_of_rules(self):
        for options in [["--format", "hf"], ["--to", "1"], ["--to", "tp=1"], ["--to", "tp=3"]]:
            with self.subTest(options=options):
                self.convert("source", "out", "--rules", self.rules, "--verify", *options)
                read = files.read_dcp if options[-1] == "tp=3" else files.read_hf
                self.assertEqual(read(self.at("out")), self.wanted)
                subprocess.run(["rm", "-r", self.at("out")], check=True)

    def test_padding_and_keys_are_not_asked_for_whole_tensors(self):
        rules = self.write_text("pad.rules", "old.* S(0, unit=$none)@tp pad(0, $nothing) name(x.{1})\n* R\n")
        self.convert("source", "out", "--rules", rules)
        self.assertIn("x.w.1", files.read_hf(self.at("out")))

    def test_a_name_that_no_rule_matches(self):
        rules = self.write_text("few.rules", "old.* R\n")
        self.fails("source", "out", "--rules", rules, words='few.rules matches 3 of 11 tensors: be.gone 9; keep.f4 2x4; keep.me 3')

    def test_rules_of_both_sides_rename_once(self):
        """One set of rules reads rank files, writes others, and gives each tensor its new name once."""
        cuts = self.write_text("cuts.rules", "old.* S(0)@tp\n* R\n")
        self.convert("source", "ranks", "--to", "tp=3", "--format", "rank-files", "--rules", cuts)
        self.convert("ranks", "hf", "--from", "tp=3", "--rules", self.rules, "--verify")
        self.assertEqual(files.read_hf(self.at("hf")), self.wanted)
        self.convert("ranks", "tp2", "--from", "tp=3", "--to", "tp=2", "--rules", self.rules, "--verify")
        self.assertEqual(files.read_dcp(self.at("tp2")), self.wanted)
        # Rules of the source alone, and of the target alone.
        self.convert("ranks", "hf2", "--from", "tp=3", "--from-rules", self.rules)
        self.check_same("hf", "hf2")
        self.convert("ranks", "hf3", "--from", "tp=3", "--from-rules", cuts, "--rules", self.rules)
        self.check_same("hf", "hf3")

    def test_rename_comes_before_rules(self):
        self.convert("source", "out", "--rename", "old.w.*=old.b.x{1}", "--rules", self.rules)
        self.assertIn("new.x3.b", files.read_hf(self.at("out")))
        self.fails("source", "out2", "--rename", "old.w.*=other.{1}", "--rules", self.rules, words='matches 4 of 11 tensors: other.{0..3} x4 6x4')


if __name__ == "__main__":
    support.main()
