# SPDX-License-Identifier: Apache-2.0
"""Nothing gets lost without a word: what is left out of a model, cut off it or copied along is said, or refused."""
import contextlib
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import dcp_files
import files
import support
import torch_files
from convert_case import CONFIG, SEED, ConvertTest, llama, tensor

INDEX = "model.safetensors.index.json"


class SilentTest(ConvertTest):
    def setUp(self):
        super().setUp()
        self.rnd = random.Random(SEED)

    def parts(self, folder, *numbers, of=4):
        """Files that count themselves, with a tensor each."""
        model = {}
        for i in numbers:
            model[f"t{i}"] = tensor(self.rnd, "U8", 8)
            files.write(self.at(f"{folder}/model-{i:05d}-of-{of:05d}.safetensors"), {f"t{i}": model[f"t{i}"]})
        return model

    def index(self, folder, weight_map):
        with open(self.at(f"{folder}/{INDEX}"), "w", encoding="utf-8") as file:
            json.dump({"metadata": {}, "weight_map": weight_map}, file)

    def notes(self, source, target, *options):
        return self.convert(source, target, *options)["notes"]


class Options(SilentTest):
    def test_what_has_no_effect_is_said(self):
        self.write_hf("source", llama(self.rnd), CONFIG)
        rules = self.write_text("r", "* S(0, unit=$u?1)@x uneven\n")
        idle = 'set "towes" has no effect: no rule asks for it'
        self.assertIn(idle, self.notes("source", "a", "--to", "tp=2", "--set", "towes=1"))
        self.assertIn(idle, self.notes("source", "b", "--set", "towes=1"))
        self.assertEqual(len(self.notes("source", "c", "--to", "x=2", "--rules", rules, "--set", "u=2")), 1)
        self.fails("source", "x", "--to", "tp=2", "--set", "u=1", "--set", "u=2", words='set "u=2": the key is set twice')
        self.assertIn("the largest size of a file has no effect on the format rank-files",
                      self.notes("source", "d", "--to", "tp=2", "--format", "rank-files", "--max-shard-size", "1M"))
        self.assertEqual(len(self.notes("source", "e", "--max-shard-size", "1M")), 1)
        self.fails("source", "x", "--from-rules", "llama", words="--from-rules is for plain rank files; add their mesh", code=2)
        self.fails("source", "x", "--trace-events", "10", words="--trace-events is for a trace", code=2)

    def test_an_index_is_not_weights(self):
        torch_files.write(self.at("bin/pytorch_model-00001-of-00001.bin"), {"a": torch_files.tensor(tensor(self.rnd, "F32", 2))})
        self.write_text("bin/pytorch_model.bin.index.json",
                        json.dumps({"metadata": {}, "weight_map": {"a": "pytorch_model-00001-of-00001.bin"}}))
        self.assertEqual(self.notes("bin", "hf"), [])

    def test_a_part_that_only_some_names_begin_with(self):
        """`model` is the model of a nested source. In a flat one, --only model parts it from its head, and says so."""
        rnd = random.Random(SEED)
        model = {"model.norm.weight": tensor(rnd, "F32", 4), "lm_head.weight": tensor(rnd, "F32", 3, 4), "vision.w": tensor(rnd, "F32", 2)}
        writer = dcp_files.Writer(dcp_files.Torch(), self.at("flat"))
        for name, array in model.items():
            writer.add(name, array, 1)
        writer.close()
        torch_files.write(self.at("nested.pt"), {"model": {"norm.weight": torch_files.tensor(model["model.norm.weight"])}, "optimizer": {"w": torch_files.tensor(model["vision.w"])}})
        for number, (source, part, warns) in enumerate((("flat", "model", True), ("flat", "vision", False), ("nested.pt", "model", False))):
            done = support.run("convert", self.at(source), self.at(f"out{number}"), "--only", part, "--quiet")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr, 'reshard: warning: "lm_head.weight" and others stay behind, and names lose "model.": it is not a part of the source in which '
                             'its model is, but what some names begin with; without "only", all are taken\n' if warns else "")
        self.assertEqual(sorted(files.read_hf(self.at("out0"))), ["norm.weight"])

    def test_a_file_in_the_way(self):
        self.write_hf("source", {"a": tensor(self.rnd, "U8", 2)})
        self.write_text("out.partial", "")
        for options in [[], ["--resume"]]:
            self.fails("source", "out", *options, words="out.partial: is not a folder that a conversion left; remove it")


class Files(SilentTest):
    def test_numbered_files_are_complete(self):
        self.parts("gap", 1, 2, 4)
        self.fails("gap", "x", words="model-00003-of-00004.safetensors is missing")
        self.check_fails(["inspect", self.at("gap")], 1, "model-00003-of-00004.safetensors")
        self.parts("last", 1, 2, 3)
        self.fails("last", "x", words="model-00004-of-00004")
        self.parts("zero", 0, 1, 3, of=4)
        self.fails("zero", "x", words="model-00002-of-00004")
        whole = self.parts("whole", 1, 2, 3, 4)
        self.convert("whole", "out")
        self.assertEqual(files.read_hf(self.at("out")), whole)
        # A single file of a set is taken alone, with a note.
        found = self.read_json("inspect", self.at("gap/model-00001-of-00004.safetensors"))
        self.assertIn("one of 4 files by its name; the others are ignored", found["notes"][0])

    def test_texts_with_a_mark_in_front(self):
        """Editors of Windows put a mark of UTF-8 in front, which is no part of the first name."""
        model = {name: tensor(self.rnd, "F32", 4, 4) for name in ("a", "b")}
        self.write_hf("source", model)
        rules = self.write_text("marked.rules", "\ufeffa S(0)@tp\r\n* R\r\n")
        self.assertEqual(self.convert("source", "ranks", "--to", "tp=2", "--format", "rank-files", "--rules", rules)["rules"], f"rules of {rules}")
        self.assertEqual(files.read_rank(self.at("ranks/rank-00000-of-00002.safetensors"))[0]["a"][1], (2, 4))
        marked = self.write_text("marked.map", "\ufeffa drop =\r\n* = *\r\n")
        self.assertIn('the map drops 1 tensor ("a")', self.notes("source", "dropped", "--map", marked, "--as", "right"))
        self.assertEqual(files.read_hf(self.at("dropped")), {"b": model["b"]})
        words = "the line begins with a mark of UTF-8 (U+FEFF); remove it"  # of files that were joined
        joined = self.write_text("joined.rules", "\ufeffb R\n\ufeffa S(0)@tp\n* R\n")
        self.fails("source", "joined", "--to", "tp=2", "--rules", joined, words=words)
        words = "the line has a mark of UTF-8 (U+FEFF), which nobody sees; remove it"
        for text in ("\ufeff\ufeffa drop =\n* = *\n", "* = *\n{\ufeffa,b} drop =\n"):
            self.fails("source", "joined", "--map", self.write_text("joined.map", text), "--as", "right", words=words)

    def test_a_key_twice(self):
        """Programs in Python, which load the model, take the last of equal keys."""
        model = {"model.layers.0.self_attn.q_proj.weight": tensor(self.rnd, "F32", 32, 32)}
        self.write_hf("source", model)
        text = '{"model_type": "gpt2", "hidden_size": 32, "head_dim": 8, "num_key_value_heads": 4, "num_attention_heads": 3, "model_type": "llama", "num_attention_heads": %d}'
        self.write_text("source/config.json", text % 4)
        self.assertEqual(self.convert("source", "out", "--to", "tp=4")["warnings"], [])
        self.write_text("source/config.json", text % 2)
        done = support.run("convert", self.at("source"), self.at("warned"), "--to", "tp=2")
        self.assertIn("config.json says that its dimension 0 is 16 ($query_rows", done.stderr)

    def test_safetensors_beside_other_formats(self):
        """A distributed checkpoint is read, and the model beside it left out with a note, whichever format looked at it first."""
        model = {"a": tensor(self.rnd, "F32", 4, 4), "b": tensor(self.rnd, "F32", 3)}
        other = {"q": tensor(self.rnd, "F32", 2)}
        dcp_files.write(self.at("dcp"), model, 2)
        files.write(self.at("dcp/model.safetensors"), other)
        self.assertEqual(self.read_json("inspect", self.at("dcp"))["format"], "dcp")
        self.assertEqual(self.notes("dcp", "out"), ['left out: 1 file of weights that is not read ("model.safetensors")'])
        self.assertEqual(files.read_hf(self.at("out")), model)
        # More files than the distributed checkpoint has.
        for number in range(9):
            files.write(self.at(f"dcp/extra-{number}.safetensors"), {f"q{number}": other["q"]})
        self.assertIn('left out: 10 files of weights that are not read ("extra-0.safetensors" and others)', self.notes("dcp", "more"))
        self.assertEqual(files.read_hf(self.at("more")), model)

    def torch_parts(self, folder, *numbers, of=2):
        """PyTorch's files that count themselves, with a tensor each."""
        model = {f"t{i}": tensor(self.rnd, "U8", 8) for i in numbers}
        for i in numbers:
            torch_files.write(self.at(f"{folder}/pytorch_model-{i:05d}-of-{of:05d}.bin"), {f"t{i}": torch_files.tensor(model[f"t{i}"])})
        return model

    def test_numbered_files_of_pytorch_are_complete(self):
        self.torch_parts("gap", 2)
        self.fails("gap", "x", words="pytorch_model-00001-of-00002.bin is missing: by their names there are 2 files, and 1 are here")
        self.check_fails(["inspect", self.at("gap")], 1, "pytorch_model-00001-of-00002.bin is missing")
        model = self.torch_parts("whole", 1, 2)
        one = "pytorch_model-00001-of-00002.bin"
        self.assertEqual(self.notes("whole/" + one, "one"), [f"{one} is one of 2 files by its name; the others are ignored"])
        # All of them, but without the index: which names the tensors have is said.
        self.assertEqual(self.notes("whole", "out"), [f"{one} and others are parts of one model by their names, but no index says so: "
                                                      "names of tensors begin with those of their files"])
        self.assertEqual(files.read_hf(self.at("out")), {f"pytorch_model-{i:05d}-of-00002.t{i}": model[f"t{i}"] for i in (1, 2)})
        # Files that count themselves in another way are as they were.
        for i in range(2):
            torch_files.write(self.at(f"states/rng_state_{i}.pth"), {"t": torch_files.tensor(model["t1"])})
        self.assertEqual(self.notes("states", "other"), [])

    def test_unlisted_of_pytorch(self):
        model = self.torch_parts("source", 1, 2)
        extra, first = tensor(self.rnd, "U8", 5), "pytorch_model-00001-of-00002.bin"
        torch_files.write(self.at("source/" + first), {"t1": torch_files.tensor(model["t1"]), "extra": torch_files.tensor(extra)})
        self.write_text("source/pytorch_model.bin.index.json", json.dumps({"weight_map": {"t1": first}}))
        self.assertIn('left out: 1 tensor that the index does not name ("extra")', self.notes("source", "skip"))
        self.assertEqual(files.read_hf(self.at("skip")), {"t1": model["t1"]})
        self.fails("source", "x", "--unlisted", "refuse", words='1 file of PyTorch that is not the model\'s: "pytorch_model-00002-of-00002.bin"')
        self.convert("source", "take", "--unlisted", "take")
        self.assertEqual(files.read_hf(self.at("take")), {**model, "extra": extra})
        os.unlink(self.at("source/pytorch_model-00002-of-00002.bin"))
        self.fails("source", "x", "--unlisted", "refuse", words='1 tensor that the index does not name: "extra"')
        self.write_text("source/pytorch_model.bin.index.json", json.dumps({"weight_map": {"t1": first, "extra": first}}))
        self.convert("source", "all", "--unlisted", "refuse")
        # A second copy that the index places elsewhere is left out, taken or not.
        self.torch_parts("twice", 1)
        torch_files.write(self.at("twice/pytorch_model-00002-of-00002.bin"), {name: torch_files.tensor(extra) for name in ("t1", "t2")})
        self.write_text("twice/pytorch_model.bin.index.json", json.dumps({"weight_map": {"t1": first, "t2": first.replace("1", "2", 1)}}))
        for how in ("skip", "take"):
            self.assertEqual(self.notes("twice", "twice-" + how, "--unlisted", how), ['left out: 1 tensor that the index places in another file ("t1")'])
        self.fails("twice", "x", "--unlisted", "refuse", words='1 tensor that the index places in another file: "t1"')
        # Without an index.
        torch_files.write(self.at("single/pytorch_model.bin"), {"t": torch_files.tensor(extra)})
        self.convert("single", "single-out", "--unlisted", "refuse")
        torch_files.write(self.at("single/adapter_model.bin"), {"t": torch_files.tensor(extra)})
        self.fails("single", "x", "--unlisted", "refuse", words='1 file of PyTorch that is not the model\'s: "adapter_model.bin"')

    def test_an_index_that_leaves_something_out(self):
        model = self.parts("source", 1, 2)
        extra = tensor(self.rnd, "U8", 5)
        files.write(self.at("source/model-00001-of-00004.safetensors"), {"t1": model["t1"], "extra": extra})
        self.index("source", {"t1": "model-00001-of-00004.safetensors"})
        self.assertEqual(self.notes("source", "skip"), [
            'left out: 1 file that the index does not list ("model-00002-of-00004.safetensors")',
            'left out: 1 tensor that the index does not name ("extra")'])
        self.assertEqual(files.read_hf(self.at("skip")), {"t1": model["t1"]})
        self.assertIn("note: left out: 1 tensor", self.read_text("convert", self.at("source"), self.at("text")))
        self.fails("source", "x", "--unlisted", "refuse", words='1 file that the index does not list: "model-00002-of-00004')
        self.convert("source", "take", "--unlisted", "take")
        self.assertEqual(files.read_hf(self.at("take")), {**model, "extra": extra})
        self.assertEqual(self.read_json("digest", self.at("source"), "--unlisted", "take"), self.read_json("digest", self.at("take")))
        self.assertEqual(self.read_json("digest", self.at("source")), self.read_json("digest", self.at("skip")))
        self.assertEqual([len(self.read_json("inspect", self.at("source"), *options)["tensors"]) for options in
                          [[], ["--unlisted", "take"]]], [1, 3])
        self.check_fails(["inspect", self.at("source"), "--unlisted", "refuse"], 1, "1 file that the index does not list")
        self.assertTrue(self.read_json("verify", self.at("source"), self.at("take"), "--unlisted", "take")["same"])
        self.fails("source", "x", "--unlisted", "all", words='skip, take or refuse')
        os.unlink(self.at("source/model-00002-of-00004.safetensors"))
        self.fails("source", "x", "--unlisted", "refuse", words='1 tensor that the index does not name: "extra"')

    def test_notes_of_the_source_and_of_the_conversion(self):
        files.write(self.at("source/a.safetensors"), {"a": tensor(self.rnd, "F32", 4), "b": tensor(self.rnd, "F32", 4)})
        self.index("source", {"a": "a.safetensors"})
        self.write_text("source/more.txt", "more")
        wanted = ['left out: 1 tensor that the index does not name ("b")', 'copied along: 1 file ("more.txt")']
        self.assertEqual(self.notes("source", "out"), wanted)
        text = self.read_text("convert", self.at("source"), self.at("text"))
        self.assertEqual([line for line in text.splitlines() if line.startswith("note: ")], ["note: " + note for note in wanted])

    def test_a_second_copy_that_the_index_does_not_mean(self):
        one, two = tensor(self.rnd, "U8", 3), tensor(self.rnd, "U8", 3)
        files.write(self.at("source/model-00001-of-00002.safetensors"), {"a": one})
        files.write(self.at("source/model-00002-of-00002.safetensors"), {"a": two, "b": two})
        self.index("source", {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors"})
        for name, options in [("skip", []), ("take", ["--unlisted", "take"])]:
            self.assertEqual(self.notes("source", name, *options),
                             ['left out: 1 tensor that the index places in another file ("a")'])
            self.assertEqual(files.read_hf(self.at(name)), {"a": one, "b": two})

    def test_two_models_in_a_folder(self):
        """consolidated.safetensors is the same model under other names, model.fp16 the same in another dtype."""
        model = {"model.norm.weight": tensor(self.rnd, "F32", 4)}
        files.write(self.at("source/model.safetensors"), model)
        files.write(self.at("source/consolidated.safetensors"), {"norm.weight": model["model.norm.weight"]})
        files.write(self.at("source/model.fp16.safetensors"), model)
        self.assertEqual(self.notes("source", "out"),
                         ['left out: 2 files with other names than the model\'s ("consolidated.safetensors" and others)'])
        self.assertEqual(files.read_hf(self.at("out")), model)
        self.fails("source", "x", "--unlisted", "refuse", words='2 files with other names than the model\'s: "consolidated')
        # Beside an index, too.
        os.rename(self.at("source/model.safetensors"), self.at("source/model-00001-of-00001.safetensors"))
        self.index("source", {"model.norm.weight": "model-00001-of-00001.safetensors"})
        self.convert("source", "take", "--unlisted", "take")
        self.assertEqual(files.read_hf(self.at("take")), model)
        # Files whose names nobody knows are one model together, as before.
        parts = {"a": tensor(self.rnd, "U8", 2), "b": tensor(self.rnd, "U8", 2)}
        for name, value in parts.items():
            files.write(self.at(f"parts/{name}.safetensors"), {name: value})
        self.convert("parts", "parts-out")
        self.assertEqual(files.read_hf(self.at("parts-out")), parts)

    def test_side_files_are_mentioned(self):
        self.write_hf("source", {"a": tensor(self.rnd, "U8", 2)}, CONFIG)
        self.write_text("source/tokenizer.json", "{}")
        self.write_text("source/pytorch_model.bin", "weights")
        os.mkdir(self.at("source/original"))
        os.mkfifo(self.at("source/pipe"))
        self.assertEqual(self.notes("source", "out"), [
            'copied along: 2 files ("config.json" and others)', 'left out: 1 file of weights that is not read ("pytorch_model.bin")',
            'left out: 1 folder ("original")', 'left out: 1 thing that is neither file nor folder ("pipe")'])
        self.assertEqual(sorted(os.listdir(self.at("out"))), ["config.json", "model.safetensors", "tokenizer.json"])

    def test_names_cannot_control_a_terminal(self):
        files.write(self.at("source/model-00001-of-00001.safetensors"), {"a": tensor(self.rnd, "U8", 2), "\x1b[2J\n": tensor(self.rnd, "U8", 2)})
        self.index("source", {"a": "model-00001-of-00001.safetensors"})
        self.assertNotIn("\x1b", self.notes("source", "out")[0])
        self.assertNotIn("\x1b", self.read_text("convert", self.at("source"), self.at("text")))

    def test_what_rules_drop_is_said(self):
        config = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "vocab_size": 4}
        model = {"wte.weight": tensor(self.rnd, "F32", 4, 8), "h.0.attn.bias": tensor(self.rnd, "U8", 1, 1, 4, 4),
                 "h.0.attn.masked_bias": tensor(self.rnd, "F32")}
        self.write_hf("source", model, config)
        found = [note for note in self.notes("source", "out", "--to", "tp=2") if "leave out" in note]
        self.assertEqual(len(found), 1)
        self.assertRegex(found[0], r'rules \(gpt2\) leave out 2 tensors \(line \d+: "h.0.attn.bias" and others\)')
        self.assertEqual(set(files.read_dcp(self.at("out"))), {"wte.weight"})

    def test_tied_words_are_on_the_last_stage(self):
        """Where the output head is the embedding of words, the last stage needs it too: only there, and only then."""
        number = {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 2, "intermediate_size": 8,
                  "vocab_size": 16}
        # model_type, embedding, layers, what else a head has (its bias), the head itself
        for kind, words, layers, bias, head in [
                ("bert", "bert.embeddings.word_embeddings.weight", "bert.encoder.layer.{}.output.dense.bias", "cls.predictions.bias",
                 "cls.predictions.decoder.weight"),
                ("distilbert", "distilbert.embeddings.word_embeddings.weight", "distilbert.transformer.layer.{}.ffn.lin2.bias",
                 "vocab_projector.bias", "vocab_projector.weight"),
                ("modernbert", "model.embeddings.tok_embeddings.weight", "model.layers.{}.mlp_norm.weight", "decoder.bias", "decoder.weight"),
                ("internlm2", "model.tok_embeddings.weight", "model.layers.{}.ffn_norm.weight", None, "output.weight")]:
            for has_bias, has_head in [(True, False), (True, True), (False, False)]:
                with self.subTest(kind=kind, bias=has_bias, head=has_head):
                    names = {words: (16, 8), **{layers.format(i): (8,) for i in range(2)}}
                    names.update({bias: (16,)} if bias and has_bias else {})
                    names.update({head: (16, 8)} if has_head else {})
                    source, out = f"{kind}{has_bias}{has_head}", f"out {kind}{has_bias}{has_head}"
                    files.write(self.at(f"{source}/model.safetensors"), {name: tensor(self.rnd, "F32", *shape) for name, shape in names.items()})
                    with open(self.at(f"{source}/config.json"), "w", encoding="utf-8") as file:
                        json.dump({"model_type": kind, **number}, file)
                    self.convert(source, out, "--to", "pp=2", "--format", "rank-files")
                    holders = [rank for rank in range(2) if words in self.names_of_rank(out, rank)]
                    # An encoder without anything of a head has none to be tied.
                    tied = not has_head and (bias is None or has_bias)
                    self.assertEqual(holders, [0, 1] if tied else [0])

    def names_of_rank(self, folder, rank):
        """From the header of the file, by the format's definition."""
        name, = [name for name in os.listdir(self.at(folder)) if name.endswith(".safetensors") and f"{rank:05d}-of" in name]
        with open(self.at(f"{folder}/{name}"), "rb") as file:
            return json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))

    def test_ranks_that_get_nothing_are_told(self):
        """More stages than layers, more ranks than experts (each a tensor, or all in one), and rows that do not go round."""
        layers = llama(self.rnd)
        single = {**layers, **{f"model.layers.{i}.mlp.experts.{e}.{name}.weight": tensor(self.rnd, "F32", *shape)
                               for i in range(2) for e in range(3) for name, shape in [("up_proj", (16, 32)), ("down_proj", (32, 16))]}}
        stacked = {**layers, "model.layers.0.mlp.experts.gate_up_proj": tensor(self.rnd, "F32", 3, 24, 32), "model.layers.0.mlp.experts.down_proj": tensor(self.rnd, "F32", 3, 32, 12)}
        experts = {**CONFIG, "model_type": "qwen3_moe", "num_local_experts": 3}
        dealt = "layers or experts dealt to {1}: {0}; {2} of its coordinates get{3} none"
        empty = "{} of the coordinates of {} hold{} no part of any tensor that is cut over it"
        for number, (model, config, mesh, wanted) in enumerate([
                (layers, CONFIG, "pp=2", []), (layers, CONFIG, "pp=3", [dealt.format(2, "pp=3", 1, "s")]), (layers, CONFIG, "pp=5,tp=2", [dealt.format(2, "pp=5", 3, "")]),
                (single, experts, "ep=3", []), (single, experts, "ep=4", [dealt.format(3, "ep=4", 1, "s")]),
                (single, experts, "pp=3,ep=5", [dealt.format(3, "ep=5", 2, ""), dealt.format(2, "pp=3", 1, "s")]),
                (stacked, experts, "ep=3,tp=2", []), (stacked, experts, "ep=4,tp=2", [empty.format(1, "ep=4", "s")]), (stacked, experts, "ep=8", [empty.format(5, "ep=8", "")]),
                ({"a": tensor(self.rnd, "F32", 5, 2), "b": tensor(self.rnd, "F32", 1), "none": ("F32", (0, 9), b"")}, None, "dp=2,fsdp=4", [empty.format(1, "fsdp=4", "s")]),
                ({"none": ("F32", (0, 9), b"")}, None, "fsdp=4", [])]):
            self.write_hf(f"m{number}", model, config)
            for form in ("dcp", "rank-files"):
                found = self.notes(f"m{number}", f"{form}{number}", "--to", mesh, "--format", form)
                self.assertEqual(sorted(note for note in found if "coordinates" in note), sorted(wanted), (number, mesh, form))
        self.assertIn(empty.format(5, "ep=8", "") + "\n", self.read_text("convert", self.at("m8"), self.at("text"), "--to", "ep=8"))


class Links(SilentTest):
    def check_link(self, make):
        self.write_hf("blob", {"a": tensor(self.rnd, "F32", 4096)})
        self.convert("blob", "blobs")
        os.makedirs(self.at("hub/snapshots/abc"))
        blob = self.at("blobs/model.safetensors")
        os.symlink(make(blob), self.at("hub/snapshots/abc/model.safetensors"))
        self.convert("hub/snapshots/abc", "out", "--link", "--verify")
        path = self.at("out/model.safetensors")
        self.assertFalse(os.path.islink(path))
        self.assertTrue(os.path.samefile(path, blob))
        self.assertEqual(files.read_hf(self.at("out")), files.read_hf(self.at("blobs")))

    def test_relative(self):
        self.check_link(lambda blob: "../../../blobs/model.safetensors")

    def test_absolute(self):
        self.check_link(lambda blob: blob)


class Habits(SilentTest):
    def setUp(self):
        super().setUp()
        self.model = llama(self.rnd)
        self.write_hf("flat", self.model, CONFIG)
        self.convert("flat", "blobs", "--max-shard-size", "20K")

    def test_hub_root_snapshot_index_and_file(self):
        root = self.at("models--org--name")
        os.makedirs(f"{root}/snapshots/0123")
        os.makedirs(f"{root}/snapshots/9999")
        os.makedirs(f"{root}/refs")
        os.rename(self.at("blobs"), f"{root}/blobs")
        for name in os.listdir(f"{root}/blobs"):
            os.symlink(f"../../blobs/{name}", f"{root}/snapshots/0123/{name}")
        with open(f"{root}/refs/main", "w", encoding="utf-8") as file:
            file.write("0123")
        for number, source in enumerate([root, f"{root}/", f"{root}/snapshots/0123", f"{root}/snapshots/0123/{INDEX}"]):
            out = self.at(f"out{number}")
            self.read_json("convert", source, out)
            self.assertEqual(files.read_hf(out), self.model)
            with open(f"{out}/config.json", encoding="utf-8") as file:
                self.assertEqual(json.load(file), CONFIG)

    def test_hub_reference_stays_in_its_folder(self):
        """Only the first part of what refs/main says is a name."""
        root = self.at("models--org--name")
        self.write_hf("outside", {"w": tensor(self.rnd, "F32", 2)})
        os.makedirs(f"{root}/snapshots")
        os.makedirs(f"{root}/refs")
        os.rename(self.at("blobs"), f"{root}/snapshots/0123")
        for number, words in enumerate(["0123/../../../outside", "0123\n", "0123/"]):
            with open(f"{root}/refs/main", "w", encoding="utf-8") as file:
                file.write(words)
            self.read_json("convert", root, self.at(f"out{number}"))
            self.assertEqual(files.read_hf(self.at(f"out{number}")), self.model)

    def test_one_file_brings_what_belongs_to_it(self):
        self.convert("flat/model.safetensors", "out")
        self.assertEqual(sorted(os.listdir(self.at("out"))), ["config.json", "model.safetensors"])
        self.write_hf("lone", self.model)
        self.write_text("lone/diary.txt", "private")
        self.convert("lone/model.safetensors", "out2")  # no config.json: not a model's folder
        self.assertEqual(os.listdir(self.at("out2")), ["model.safetensors"])

    def test_order_and_last_line(self):
        text = self.read_text("convert", self.at("flat"), self.at("out"), "--to", "tp=2", "--verify").splitlines()
        self.assertIn("rules of the family llama", text[0])
        self.assertRegex(text[-2], r"^verified: [0-9.]+ [KM]?i?B read back and equal to the converted source$")
        self.assertRegex(text[-1], r"^done in ")
        report = self.convert("flat", "out2", "--verify")
        self.assertEqual(report["bytes_verified"], sum(len(v) for _, _, v in self.model.values()))
        self.assertEqual(self.convert("flat", "out3")["bytes_verified"], 0)

    def test_numbers_that_python_writes(self):
        with open(self.at("flat/config.json"), "w", encoding="utf-8") as file:
            json.dump({**CONFIG, "a": float("inf"), "b": [float("nan"), -float("inf")], "c": {"d": float("nan")}}, file)
        self.convert("flat", "out", "--to", "tp=2")
        self.assertEqual(files.read_dcp(self.at("out")), self.model)
        for text in ["Infinit", "nan", "+Infinity", "-NaN"]:
            self.write_text("flat/config.json", f'{{"model_type": "llama", "x": {text}}}')
            self.fails("flat", "x", "--to", "tp=2", words="config.json")

    def test_names_and_metadata_stay(self):
        metadata = {"format": "pt", "lora_rank": "8", "aliases": "{}"}
        for stem in ["adapter_model", "diffusion_pytorch_model", "diffusion_pytorch_model.fp16", "model.bf16", "consolidated"]:
            files.write(self.at(f"{stem}/{stem}.safetensors"), self.model, metadata)
            self.convert(stem, f"{stem}-1")
            found, said, _ = files.read(self.at(f"{stem}-1/{stem}.safetensors"))
            self.assertEqual((found, said), (self.model, metadata))
            self.convert(stem, f"{stem}-2", "--max-shard-size", "50K")
            base, _, variant = stem.partition(".")
            names = os.listdir(self.at(f"{stem}-2"))
            self.assertIn(f"{base}.safetensors.index{'.' if variant else ''}{variant}.json", names)
            self.assertEqual({name.split("-0")[0] for name in names if name.endswith(".safetensors")}, {stem})
            self.convert(f"{stem}-2", f"{stem}-3", "--to", "fsdp=2")
            self.convert(f"{stem}-3", f"{stem}-4", "--to", "fsdp=2", "--format", "rank-files")
            self.convert(f"{stem}-4", f"{stem}-5")
            self.check_same(f"{stem}-1", f"{stem}-5")
        files.write(self.at("other/weights.safetensors"), self.model, {"x": "y"})
        self.convert("other", "other-1")
        self.assertEqual(files.read(self.at("other-1/model.safetensors"))[1], {"x": "y", "format": "pt"})

    def test_metadata_that_differs_is_said(self):
        files.write(self.at("two/model-00001-of-00002.safetensors"), {"a": tensor(self.rnd, "U8", 1)}, {"k": "1", "same": "s"})
        files.write(self.at("two/model-00002-of-00002.safetensors"), {"b": tensor(self.rnd, "U8", 1)}, {"k": "2", "same": "s"})
        self.assertEqual(self.notes("two", "out"), ["values of the metadata that differ between files: 1; the first file's are kept"])
        self.assertEqual(files.read(self.at("out/model.safetensors"))[1], {"k": "1", "same": "s", "format": "pt"})


def rewrite_layout(path, change):
    """Changes what a rank file says of its split."""
    tensors, metadata, _ = files.read(path)
    layout = json.loads(metadata["RESHARD_LAYOUT"])
    change(layout)
    files.write(path, tensors, {**metadata, "RESHARD_LAYOUT": json.dumps(layout, separators=(",", ":"))})


def change_tensors(layout, change):
    """Changes {name: what is said of the tensor}; each becomes a group of its own."""
    tensors = json.loads(json.dumps(files.told_tensors(layout)))
    change(tensors)
    layout["groups"] = [{**said, "names": [name]} for name, said in tensors.items()]


class RankFiles(SilentTest):
    def setUp(self):
        super().setUp()
        self.model = llama(self.rnd)
        self.write_hf("source", self.model, CONFIG)
        self.convert("source", "ranks", "--to", "tp=4", "--format", "rank-files")
        self.paths = [self.at(f"ranks/rank-{rank:05d}-of-00004.safetensors") for rank in range(4)]

    def test_they_describe_themselves(self):
        os.unlink(self.at("ranks/config.json"))  # neither rules nor a config is needed
        for rank, path in enumerate(self.paths):
            _, metadata, _ = files.read(path)
            layout = json.loads(metadata["RESHARD_LAYOUT"])
            self.assertEqual((layout["version"], layout["rank"], layout["mesh"]), (2, rank, "tp=4"))
            told = files.told_tensors(layout)
            self.assertEqual(set(told), set(self.model))
            self.assertEqual(told["lm_head.weight"], {"shape": [100, 32], "cuts": "S(0)", "padded": [128, 32]})
            self.assertEqual(told["model.layers.0.mlp.down_proj.weight"]["shape"], [32, 96])
        self.convert("ranks", "hf", "--verify")
        self.assertEqual(files.read_hf(self.at("hf")), self.model)
        self.convert("ranks", "again", "--from", "tp=4", "--to", "fsdp=3")
        self.assertEqual(files.read_dcp(self.at("again")), self.model)
        for i, path in enumerate(self.paths):  # the name of a file tells nothing
            os.rename(path, self.at(f"ranks/{'dcba'[i]}.safetensors"))
        self.convert("ranks", "renamed")
        self.check_same("hf", "renamed")

    def test_groups_of_one_tensor(self):
        for path in self.paths:
            rewrite_layout(path, lambda layout: change_tensors(layout, lambda tensors: None))
        self.convert("ranks", "hf", "--verify")
        self.assertEqual(files.read_hf(self.at("hf")), self.model)

    def test_names_with_numbers_are_ranges(self):
        """Layers 0..11 but 5 and 07, which is no number; two numbers; texts that look like patterns."""
        names = [f"layers.{i}.{kind}.weight" for i in [*range(5), *range(6, 12)] for kind in "ab"] + ["layers.07.a.weight"]
        names += [f"h.{i}.experts.{k}.w" for i in range(3) for k in range(4) if (i, k) != (2, 3)] + ["{0..3}", 'q"u\\o*te.1.x', "3", "layers.1x"]
        model = {name: tensor(self.rnd, "F32", 4, 2 if name.startswith("h") else 1) for name in names}
        rules = self.write_text("n.rules", "h.* S(0)@tp\n* R\n")
        self.write_hf("numbers", model)
        self.convert("numbers", "cut", "--to", "tp=2", "--format", "rank-files", "--rules", rules)
        _, layout = files.read_rank(self.at("cut/rank-00000-of-00002.safetensors"))
        self.assertEqual({name: (said["shape"], said["cuts"]) for name, said in layout["tensors"].items()},
                         {name: ([4, 2], "S(0)") if name.startswith("h") else ([4, 1], "R") for name in names})
        listed = [name for group in layout["groups"] for name in group["names"]]
        self.assertIn(["layers.", [6, 11], ".a.weight"], listed)
        self.assertIn(["h.", [0, 1], ".experts.", [0, 3], ".w"], listed)
        self.assertIn(["h.2.experts.", [0, 2], ".w"], listed)
        self.assertEqual(len(listed), 11)
        self.convert("cut", "back")
        self.assertEqual(files.read_hf(self.at("back")), model)

    def test_lies_about_groups_are_found(self):
        huge = ["model.layers.", [0, 10**15], ".x.", [0, 10**15], ".y"]
        for number, (change, words) in enumerate([
                (lambda layout: layout["groups"][0].update(names=[huge]), "names more tensors than the files hold"),
                (lambda layout: layout["groups"][0].update(names=[["a", [0, 200], "b"]]), "names more tensors than the files hold"),
                (lambda layout: layout["groups"][0].update(names=[["a", [3, 1], "b"]]), "expected a range of numbers"),
                (lambda layout: layout["groups"][0].update(names=[["a", [3], "b"]]), "a whole number"),
                (lambda layout: layout["groups"][0].update(names=[["a", "b"]]), "texts and ranges in turn"),
                (lambda layout: layout["groups"][0].update(names=[["a", [0, 1]]]), "texts and ranges in turn"),
                (lambda layout: layout["groups"][0].update(names=[[]]), "texts and ranges in turn"),
                (lambda layout: layout["groups"][0].update(names=[7]), "a name, or a list of texts and ranges"),
                (lambda layout: layout["groups"][0].update(names="all"), "names is not a list"),
                (lambda layout: layout["groups"][0].pop("names"), "the group has no names"),
                (lambda layout: layout["groups"][0].pop("cuts"), "has no shape or cuts"),
                (lambda layout: layout["groups"].pop(), "the files do not say how it is split"),
                (lambda layout: layout["groups"].append({"shape": [4], "cuts": "R", "names": ["none"]}), 'tensor "none"'),
                (lambda layout: layout["groups"].append({"shape": [4], "cuts": "R", "names": ["lm_head.weight"]}), 'lm_head.weight'),
                (lambda layout: layout.update(groups={}), "groups is not a list"),
                (lambda layout: layout.pop("groups"), "groups are missing")]):
            with self.subTest(words=words, number=number):
                os.makedirs(self.at(f"lie{number}"))
                for path in self.paths:
                    copy = self.at(f"lie{number}/{os.path.basename(path)}")
                    with open(path, "rb") as old, open(copy, "wb") as new:
                        new.write(old.read())
                    rewrite_layout(copy, change)
                self.fails(f"lie{number}", "x", words=words)

    def test_also_what_a_rank_does_not_hold(self):
        self.convert("source", "stages", "--to", "pp=2,tp=2", "--format", "rank-files")
        tensors, layout = files.read_rank(self.at("stages/rank-00000-of-00004.safetensors"))
        self.assertNotIn("lm_head.weight", tensors)
        self.assertEqual(set(layout["tensors"]), set(self.model))
        self.convert("stages", "hf")
        self.assertEqual(files.read_hf(self.at("hf")), self.model)

    def test_what_disagrees_is_refused(self):
        self.fails("ranks", "x", "--from", "fsdp=4", words="split over tp=4, not over fsdp=4")
        self.fails("ranks", "x", "--from", "tp=2", words="split over tp=4, not over tp=2")
        self.convert("source", "other", "--to", "tp=4", "--format", "rank-files", "--exclude", "lm_head.weight")
        with open(self.paths[2], "rb") as file:
            third = file.read()
        os.unlink(self.paths[2])
        self.fails("ranks", "x", words="holds 3 files of the 4 ranks of tp=4; the file of rank 2 is missing")
        os.link(self.at("other/rank-00002-of-00004.safetensors"), self.paths[2])
        self.fails("ranks", "x", words="were written by different conversions")
        os.unlink(self.paths[2])
        for name, change, words in [
                ("version", lambda layout: layout.update(version=3), "version 3, and this release reads version 2"),
                ("version", lambda layout: layout.pop("version"), "has no version"),
                ("rank", lambda layout: layout.update(rank=1), "both belong to rank 1"),
                ("rank", lambda layout: layout.update(rank=9), "belongs to rank 9, which tp=4 does not have"),
                ("rank", lambda layout: layout.update(rank=2**63), "which tp=4 does not have"),
                ("mesh", lambda layout: layout.update(mesh="tp=2000000000"), "do not agree on how tensors are split"),
                ("tensors", lambda layout: layout["groups"].pop(), "do not agree on how tensors are split")]:
            with self.subTest(name=name, words=words):
                with open(self.paths[2], "wb") as file:
                    file.write(third)
                rewrite_layout(self.paths[2], change)
                self.fails("ranks", "x", words=words)
        tensors, metadata, _ = files.read(self.paths[2])
        files.write(self.paths[2], tensors, {"format": "pt"})
        self.fails("ranks", "x", words="rank-00002-of-00004.safetensors: does not say how it was split")

    def test_lies_in_all_files_are_found(self):
        for name, change, words in [
                ("shape", lambda t: t["model.norm.weight"].update(shape=[64]), "model.norm.weight"),
                ("cuts", lambda t: t["lm_head.weight"].update(cuts="S(1)"), "lm_head.weight"),
                ("cuts", lambda t: t["lm_head.weight"].update(cuts="S(7)"), "lm_head.weight"),
                ("text", lambda t: t["lm_head.weight"].update(cuts="nonsense"), "lm_head.weight"),
                ("padded", lambda t: t["lm_head.weight"].update(padded=[64, 32]), "padded shape"),
                ("padded", lambda t: t["lm_head.weight"].update(padded=[128]), "padded shape"),
                ("more", lambda t: t.update(none={"shape": [4], "cuts": "R"}), 'tensor "none": the files say that it is there'),
                ("less", lambda t: t.pop("lm_head.weight"), 'tensor "lm_head.weight": the files do not say how it is split'),
                ("huge", lambda t: t["lm_head.weight"].update(shape=[2**62, 2**62], padded=[2**62, 2**62]), "lm_head.weight"),
                ("deep", lambda t: t["lm_head.weight"].update(shape=[1] * 40, padded=[1] * 40), "lm_head.weight")]:
            with self.subTest(name=name):
                os.makedirs(self.at(name), exist_ok=True)
                for path in self.paths:
                    copy = self.at(f"{name}/{os.path.basename(path)}")
                    with open(path, "rb") as old, open(copy, "wb") as new:
                        new.write(old.read())
                    rewrite_layout(copy, lambda layout: change_tensors(layout, change))
                self.fails(name, "x", words=words)


class Padding(SilentTest):
    def setUp(self):
        super().setUp()
        self.model = {"model.embed_tokens.weight": tensor(self.rnd, "F32", 100, 4)}
        self.rules = self.write_text("p.rules", "* S(0)@tp pad(0, 64, $vocab_size)\n")
        self.write_hf("source", self.model)
        self.convert("source", "told", "--to", "tp=2", "--format", "rank-files", "--rules", self.rules)
        files.strip_rank_files(self.at("told"), self.at("ranks"))
        self.options = ["--from", "tp=2", "--rules", self.rules]

    def fill(self, row, value):
        path = self.at("ranks/rank-00001-of-00002.safetensors")
        tensors, _, _ = files.read(path)
        dtype, shape, values = tensors["model.embed_tokens.weight"]
        values = bytearray(values)
        values[(row - 64) * 16 + 15] = value
        files.write(path, {"model.embed_tokens.weight": (dtype, shape, bytes(values))})

    def test_zero_padding_is_taken_off(self):
        self.convert("ranks", "out", *self.options, "--set", "vocab_size=100")
        self.assertEqual(files.read_hf(self.at("out")), self.model)

    def test_rows_that_are_not_zero_are_not_cut_off(self):
        self.fails("ranks", "x", *self.options, "--set", "vocab_size=70", words="beyond its size of 70 in dimension 0 is not zero")
        self.fill(127, 1)  # the last byte of all
        self.fails("ranks", "x", *self.options, "--set", "vocab_size=100", words="rank-00001-of-00002.safetensors holds beyond its size of 100")
        self.check_fails(["digest", self.at("ranks"), *self.options, "--set", "vocab_size=100"], 1, "is not zero")
        notes = self.convert("ranks", "out", *self.options, "--set", "vocab_size=100", "--padding", "any")["notes"]
        self.assertIn('padding that is not zero is cut off: 28 rows of 1 tensor ("model.embed_tokens.weight")', notes)
        self.assertEqual(files.read_hf(self.at("out")), self.model)
        padded = [*self.options, "--set", "vocab_size=100", "--padding", "any"]
        self.assertEqual(self.read_json("digest", self.at("ranks"), *padded), self.read_json("digest", self.at("out")))
        self.assertTrue(self.read_json("verify", self.at("ranks"), self.at("out"), *padded)["same"])
        self.fails("ranks", "x", *self.options, "--padding", "some", words='padding "some"')

    def test_padding_that_is_added_is_said(self):
        padded = 'padded: 1 tensor by 28 rows or columns of zeros, as pad() in the rules says ("model.embed_tokens.weight")'
        for form in ["rank-files", "torch"]:
            options = ["--to", "tp=2", "--format", form, "--rules", self.rules]
            self.assertIn(padded, self.notes("source", form, *options))
            self.assertNotIn(padded, self.notes("source", "no " + form, "--no-pad", *options))
        # A distributed checkpoint holds none.
        self.assertNotIn(padded, self.notes("source", "dcp", "--to", "tp=2", "--rules", self.rules))
        shapes = [files.read_rank(self.at(f"no rank-files/rank-0000{rank}-of-00002.safetensors"))[0]["model.embed_tokens.weight"][1] for rank in range(2)]
        self.assertEqual(shapes, [(50, 4), (50, 4)])
        self.convert("no rank-files", "back")
        self.assertEqual(files.read_hf(self.at("back")), self.model)

    def test_a_size_that_is_not_known_is_said(self):
        notes = self.convert("ranks", "out", *self.options)["notes"]
        self.assertIn('the true size of 1 tensor is not known: padding stays, if there is some ("model.embed_tokens.weight")', notes)
        self.assertEqual(files.read_hf(self.at("out"))["model.embed_tokens.weight"][1], (128, 4))

    def test_files_that_say_it_need_no_size(self):
        """A config.json whose vocab_size is not the number of rows does not cut any off."""
        self.write_text("told/config.json", json.dumps({"vocab_size": 70}))
        self.convert("told", "out")
        self.assertEqual(files.read_hf(self.at("out")), self.model)
        # Padding that was written to is refused here, too.
        path = self.at("told/rank-00001-of-00002.safetensors")
        with open(path, "r+b") as file:
            begin = 8 + struct.unpack("<Q", file.read(8))[0]
            file.seek(begin + 63 * 16)
            file.write(b"x")
        self.fails("told", "x", words="beyond its size of 100 in dimension 0 is not zero")


class WrongFrom(SilentTest):
    """Plain rank files do not say how they were cut. A wrong --from makes a model of other shapes than config.json describes, or joins
    what was replicated."""
    def setUp(self):
        super().setUp()
        self.model = llama(self.rnd)
        self.write_hf("source", self.model, CONFIG)
        for mesh in ["tp=4", "fsdp=4", "tp=2,fsdp=2"]:
            self.convert("source", "told " + mesh, "--to", mesh, "--format", "rank-files")
            files.strip_rank_files(self.at("told " + mesh), self.at(mesh))
            with open(self.at(mesh + "/config.json"), "w", encoding="utf-8") as file:
                json.dump(CONFIG, file)

    def test_the_right_one_is_compared_without_a_word(self):
        for mesh in ["tp=4", "fsdp=4", "tp=2,fsdp=2"]:
            notes = self.notes(mesh, "out " + mesh, "--from", mesh)
            self.assertFalse([note for note in notes if "compared" in note or "warning" in note], notes)
            self.assertEqual(files.read_hf(self.at("out " + mesh)), self.model)

    def test_shapes_that_config_json_contradicts(self):
        for source, mesh, words in [
                ("tp=4", "fsdp=4", 'joined over fsdp=4, tensor "model.layers.0.input_layernorm.weight" is 128, but config.json says that its '
                                   "dimension 0 is 32 ($hidden_size, llama:"),
                ("fsdp=4", "tp=4", 'model.'), ("tp=2,fsdp=2", "fsdp=4", 'tensor "model.'), ("tp=2,fsdp=2", "tp=4", "model."),
                ("tp=4", "dp=4", 'but config.json says that its dimension 0 is at least 100 ($vocab_size')]:
            with self.subTest(source=source, mesh=mesh):
                self.fails(source, "x", "--from", mesh, "--verify", words=words)
                for command in ["inspect", "digest", "verify"]:
                    self.check_fails([command, self.at(source), "--from", mesh], 1)
        self.fails("tp=4", "x", "--from", "fsdp=4", words="of 19 tensors that config.json describes do not fit; correct the mesh, its rules or the number (--from MESH")
        # The user's own rules are held to config.json, too.
        rules = self.write_text("own.rules", "* S(0)@tp\n")
        self.fails("tp=4", "x", "--from", "tp=4", "--rules", rules, words="do not fit")
        # A model that is meant to differ.
        self.fails("tp=4", "x", "--from", "tp=4", "--set", "intermediate_size=95", words="is 32x96, but config.json says that its dimension 1 is 95")

    def test_other_families(self):
        """Weights of GPT-2 are [in, out]; its sizes have other names."""
        config = {"model_type": "gpt2", "n_embd": 16, "n_head": 4, "n_layer": 1, "vocab_size": 64}
        shapes = {"wte.weight": (64, 16), "wpe.weight": (32, 16), "h.0.attn.c_attn.weight": (16, 48), "h.0.attn.c_attn.bias": (48,),
                  "h.0.attn.c_proj.weight": (16, 16), "h.0.attn.c_proj.bias": (16,), "h.0.mlp.c_fc.weight": (16, 64), "h.0.ln_1.weight": (16,)}
        model = {name: tensor(self.rnd, "F32", *shape) for name, shape in shapes.items()}
        self.write_hf("gpt", model, config)
        self.convert("gpt", "gpt told", "--to", "tp=2", "--format", "rank-files")
        files.strip_rank_files(self.at("gpt told"), self.at("gpt ranks"))
        self.write_text("gpt ranks/config.json", json.dumps(config))
        self.convert("gpt ranks", "gpt out", "--from", "tp=2")
        self.assertEqual(files.read_hf(self.at("gpt out")), model)
        self.fails("gpt ranks", "x", "--from", "fsdp=2", words="($hidden_size, gpt2:")

    def test_without_config_json(self):
        os.unlink(self.at("tp=4/config.json"))
        note = "shapes were not compared with config.json, which is missing or does not describe these tensors"
        os.unlink(self.at("fsdp=4/config.json"))
        self.assertIn(note, self.notes("fsdp=4", "fsdp", "--from", "fsdp=4"))
        self.assertEqual(files.read_hf(self.at("fsdp")), self.model)
        # What is set is compared.
        options = ["--from", "tp=4", "--set", "head_dim=8", "--set", "num_key_value_heads=2"]
        self.assertNotIn(note, self.notes("tp=4", "right", *options))
        self.fails("fsdp=4", "x", "--from", "fsdp=4", "--set", "hidden_size=16", words="do not fit")
        # What is the same on all ranks would be joined: said on standard error, whatever is printed.
        for options in [[], ["--quiet"], ["--json"]]:
            done = support.run("convert", self.at("tp=4"), self.at("wrong" + "".join(options)), "--from", "fsdp=4", *options)
            self.assertEqual(done.returncode, 0)
            self.assertRegex(done.stderr, r"\Areshard: warning: 3 tensors are joined over fsdp=4, but every rank holds the same "
                                          r'\("model.layers.0.input_layernorm.weight" and others\): they may be replicated[^\n]*\n\Z')
        self.assertIn("warning: 3 tensors are joined", support.run("inspect", self.at("tp=4"), "--from", "fsdp=4").stderr)

    def test_equal_values_are_no_doubt(self):
        """Norms of ones and biases of zeros are the same on all ranks, however they are cut."""
        ones = ("F32", (64,), struct.pack("<f", 1) * 64)
        self.write_hf("new", {"norm": ones, "bias": ("F32", (64,), bytes(256)), "w": tensor(self.rnd, "F32", 64)})
        self.convert("new", "new told", "--to", "fsdp=4", "--format", "rank-files")
        files.strip_rank_files(self.at("new told"), self.at("new ranks"))
        self.convert("new ranks", "new out", "--from", "fsdp=4")  # nothing on standard error

    def test_whole_models_are_compared(self):
        self.write_hf("odd", self.model, {**CONFIG, "hidden_size": 64})
        done = support.run("convert", self.at("odd"), self.at("out"), "--quiet")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r'\Areshard: warning: tensor "lm_head.weight" is 100x32, but config.json says that its dimension 1 is 64 '
                                      r"\(\$hidden_size, llama:\d+\); \d+ of 19 tensors that config.json describes do not fit\n\Z")
        self.assertEqual(self.notes("odd", "set", "--set", "hidden_size=32"), ['copied along: 1 file ("config.json")'])

    def test_gated_queries_have_twice_the_rows(self):
        """Qwen3-Next has a gate behind each head of its queries, in the bias too: no size is wrong, and heads stay whole."""
        config = {"model_type": "qwen3_next", "hidden_size": 8, "num_attention_heads": 2, "num_key_value_heads": 2, "head_dim": 4,
                  "num_hidden_layers": 1, "attention_bias": True}
        at = "model.layers.0.self_attn.q_proj."
        self.write_hf("gated", {at + "weight": tensor(self.rnd, "F32", 16, 8), at + "bias": tensor(self.rnd, "F32", 16)}, config)
        done = support.run("convert", self.at("gated"), self.at("out"), "--to", "tp=2", "--format", "rank-files", "--quiet")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        layout = files.read_rank(self.at("out/rank-00000-of-00002.safetensors"))[1]
        self.assertEqual({name: said["cuts"] for name, said in layout["tensors"].items()}, dict.fromkeys((at + "weight", at + "bias"), "S(0, unit=8)"))


class Meanwhile(SilentTest):
    """What other programs do to source and output while a conversion is at work."""
    PLACE = support.pick_memory(200 << 20)

    def setUp(self):
        super().setUp()
        self.rules = self.write_text("r.rules", "* S(1)@tp\n")
        self.write_hf("source", {f"t{i}": tensor(self.rnd, "F32", 700, 1000) for i in range(8)})

    def interfere(self, action):
        """Stops a conversion when some blocks are on record and others not, lets `action` happen, and goes on; what it says at its end."""
        for _ in range(50):
            running = subprocess.Popen([support.COMMAND, "convert", self.at("source"), self.at("out"), "--to", "tp=4", "--rules", self.rules, "--format",
                                        "rank-files", "--journal-bytes", "512K", "--max-memory", "2M", "--threads", "2", "--quiet"],
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            recorded = b""
            while b"\ndone " not in recorded and running.poll() is None:
                try:
                    with open(self.at("out.partial/.reshard-journal"), "rb") as file:
                        recorded = file.read()
                except FileNotFoundError:
                    pass
            running.send_signal(signal.SIGSTOP)
            stopped = os.path.exists(self.at("out.partial/.reshard-journal"))
            with contextlib.suppress(FileNotFoundError):
                with open(self.at("out.partial/.reshard-journal"), "rb") as file:
                    stopped = b"blocks done" not in file.read()
            if stopped:
                action()
            running.send_signal(signal.SIGCONT)
            _, errors = running.communicate(timeout=200)
            if stopped:
                return running.returncode, errors.decode()
            shutil.rmtree(self.at("out"), ignore_errors=True)
        return self.fail("no conversion could be stopped in time")

    def test_a_source_that_is_rewritten_in_place(self):
        """With its modification time put back, as rsync --inplace and tar do."""
        path = self.at("source/model.safetensors")

        def rewrite():
            before = os.stat(path)
            with open(path, "r+b") as file:
                file.seek(-4096, os.SEEK_END)
                file.write(bytes(4096))
            os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
        code, errors = self.interfere(rewrite)
        self.assertEqual(code, 1, errors)
        self.assertIn("model.safetensors: changed during the conversion", errors)
        self.assertFalse(os.path.exists(self.at("out")))

    def test_an_output_that_is_truncated(self):
        for number, (action, words) in enumerate([
                (lambda path: os.truncate(path, 4096), "the output is wrong"),  # and grows again, with zeros in between
                (lambda path: (os.unlink(path), self.write_text("out.partial/" + os.path.basename(path), "theirs")), "another program changed it while it was being written")]):
            with self.subTest(number=number):
                code, errors = self.interfere(lambda: action(self.at("out.partial/rank-00001-of-00004.safetensors")))
                self.assertEqual(code, 1, errors)
                self.assertRegex(errors, words + "|another program changed it")
                self.assertFalse(os.path.exists(self.at("out")))
                shutil.rmtree(self.at("out.partial"))

    def test_nothing_else_is_no_reason(self):
        self.assertEqual(self.interfere(lambda: os.utime(self.at("source"))), (0, ""))


class Unfinished(SilentTest):
    """Files of a folder that is being written have their full sizes, and zeros where nothing was written yet."""
    PLACE = support.pick_memory(200 << 20)
    HEAD = "reshard conversion 3\n" + "0" * 32 + " 4096\nrun 0123456789abcdef\n"

    def check_refused(self, path, words="is unfinished"):
        whole = self.at("whole")
        for arguments in [["verify", path], ["verify", whole, path], ["verify", path, whole], ["digest", path],
                          ["convert", path, self.at("x")], ["plan", path, "--to", "fsdp=2"]]:
            self.check_fails(arguments, 1, words)
            self.assertFalse(os.path.exists(self.at("x")) or os.path.exists(self.at("x.partial")))
        # --resume would not continue this one.
        self.assertNotIn("--resume continues it", support.run("convert", path, self.at("x")).stderr)

    def test_an_interrupted_conversion_is_no_source(self):
        rules = self.write_text("r.rules", "* S(0)@tp\n")
        self.write_hf("source", {f"t{i}": tensor(self.rnd, "F32", 700, 1000) for i in range(8)})
        options = ["--to", "tp=4", "--rules", rules, "--journal-bytes", "512K", "--max-memory", "2M", "--threads", "2"]
        self.convert("source", "whole", *options)
        self.kill_after_a_record("convert", self.at("source"), self.at("out"), *options, target=self.at("out"))
        for name in ["out.partial", "renamed"]:
            if name == "renamed":
                os.rename(self.at("out.partial"), self.at(name))
            self.check_refused(self.at(name))
            found = self.read_json("inspect", self.at(name))
            self.assertRegex(found["notes"][0], r"^unfinished: the journal in .*" + name)
            self.assertIn("unfinished", self.read_text("inspect", self.at(name)))
        os.rename(self.at("renamed"), self.at("out.partial"))
        self.convert("source", "out", "--resume", *options)
        self.assertTrue(self.read_json("verify", self.at("whole"), self.at("out"))["same"])

    def test_one_file_of_it_is_no_source(self):
        self.write_hf("whole", {"a": tensor(self.rnd, "F32", 8)})
        self.write_hf("out.partial", {"a": tensor(self.rnd, "F32", 8)})
        self.write_text("out.partial/.reshard-journal", self.HEAD)
        self.check_refused(self.at("out.partial/model.safetensors"))
        self.assertIn("unfinished", self.read_json("inspect", self.at("out.partial/model.safetensors"))["notes"][0])

    def test_a_journal_has_to_name_all_blocks(self):
        self.write_hf("whole", {"a": tensor(self.rnd, "F32", 8)})
        self.write_hf("out", {"a": tensor(self.rnd, "F32", 8)})
        for lines in ["", "finished\n", "done 0 2\nfinished\n", "done 0 2\nblocks done 3\nfinished\n", "done 0 2\nfinished\nblocks done 2\n",
                      "done 0 2\nblocks done 2\n", "done 0 2\nblocks done 2\nfinished"]:
            with self.subTest(lines=lines):
                self.write_text("out/.reshard-journal", self.HEAD + lines)
                self.check_refused(self.at("out"))
        for text in ["", "theirs\n", "reshard conversion 2\n" + "0" * 32 + " 4096\nfinished\n"]:
            self.write_text("out/.reshard-journal", text)
            self.check_refused(self.at("out"), "has a journal that this release of reshard did not write")
            self.assertIn("unfinished", self.read_json("inspect", self.at("out"))["notes"][0])
        # Only the removal of the journal is missing.
        self.write_text("out/.reshard-journal", self.HEAD + "done 0 2\nblocks done 2\nfinished\n")
        self.assertEqual(self.read_json("inspect", self.at("out"))["notes"], [])
        self.convert("out", "again")
        self.assertEqual(files.read_hf(self.at("again")), files.read_hf(self.at("out")))

    def test_resuming_does_not_believe_it_either(self):
        """A journal of the right conversion that calls itself finished and names one block too few, or none of so many."""
        model = {f"t{i}": tensor(self.rnd, "F32", 700, 1000) for i in range(8)}
        rules = self.write_text("r.rules", "* S(0)@tp\n")
        self.write_hf("source", model)
        options = ["--to", "tp=4", "--rules", rules, "--journal-bytes", "512K", "--max-memory", "2M", "--threads", "2"]
        self.kill_after_a_record("convert", self.at("source"), self.at("out"), *options, target=self.at("out"))
        with open(self.at("out.partial/.reshard-journal"), encoding="utf-8") as file:
            journal = file.read()
        # The last record names one block less, as the run may have been killed when all were recorded.
        head, first, count = re.fullmatch(r"(.*\n)done (\d+) (\d+)\n", journal, re.DOTALL).groups()
        fewer = f"{head}done {first} {int(count) - 1}\n"
        done = sum(int(line.split()[2]) for line in fewer.splitlines() if line.startswith("done"))
        self.write_text("out.partial/.reshard-journal", f"{fewer}blocks done {done}\nfinished\n")
        self.fails("source", "out", "--resume", *options, words="its journal says that it is finished, but not that block")
        self.write_text("out.partial/.reshard-journal", journal + "finished\n")
        self.convert("source", "out", "--resume", *options)
        self.assertEqual(files.read_dcp(self.at("out")), model)


if __name__ == "__main__":
    support.main()
