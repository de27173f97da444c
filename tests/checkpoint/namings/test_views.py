# SPDX-License-Identifier: Apache-2.0
"""Checkpoints seen under another naming without a conversion: `reshard verify A B` across namings, `reshard digest --as`, and
quantised weights that are dequantised before a map sees them. What maps make is built here element by element."""
import hashlib
import json
import os
import random
import re
import struct
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [HERE, os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import engine_models as engines
import files
import models
import support
from naming_case import NamingTest
from models import D, HEADS, KV


def rotate(value, heads):
    """hf's rows of queries and keys in Meta's order."""
    dtype, (rows, columns), _ = value
    half = rows // heads // 2
    return models.build(dtype, (rows, columns), lambda r, c: (value, (r // (2 * half) * 2 * half + r % 2 * half + r % (2 * half) // 2, c)))


def flip(value, index):
    """The tensor with one bit of one element changed."""
    dtype, shape, bytes_ = value
    at = 0
    for k, extent in zip(index, shape):
        at = at * extent + k
    changed = bytearray(bytes_)
    changed[at * files.BITS[dtype] // 8] ^= 1
    return (dtype, shape, bytes(changed))


class ViewTest(NamingTest):
    def verify(self, a, b, *options, code=0):
        done = support.run("verify", self.at(a), self.at(b), "--json", *options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return json.loads(done.stdout.splitlines()[0])

    def refuse(self, *arguments, words):
        done = support.run(*arguments)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertRegex(done.stderr.splitlines()[-1], words)

    def engine(self, model, name, tp=2, change=None):
        """A folder as vLLM writes it: padded, without metadata."""
        for rank in range(tp):
            tensors = model.engine(rank, tp, 1, 28)
            if change is not None:
                change(rank, tensors)
            files.write(self.at(f"{name}/model-rank-{rank}-part-0.safetensors"), tensors)
        self.write_text(name + "/config.json", json.dumps(model.config))


class Verify(ViewTest):
    def meta(self, hf):
        """Meta's names of a small Llama, element by element."""
        made = {}
        names = {"self_attn.v_proj": "attention.wv", "self_attn.o_proj": "attention.wo", "mlp.gate_proj": "feed_forward.w1",
                 "mlp.down_proj": "feed_forward.w2", "mlp.up_proj": "feed_forward.w3", "input_layernorm": "attention_norm",
                 "post_attention_layernorm": "ffn_norm", "self_attn.q_proj": "attention.wq", "self_attn.k_proj": "attention.wk"}
        for name, value in hf.items():
            found = re.match(r"model\.layers\.(\d+)\.(.*)\.weight$", name)
            if found is None:
                made[{"model.embed_tokens.weight": "tok_embeddings.weight", "model.norm.weight": "norm.weight", "lm_head.weight": "output.weight"}[name]] = value
                continue
            heads = {"self_attn.q_proj": HEADS, "self_attn.k_proj": KV}.get(found[2])
            made[f"layers.{found[1]}.{names[found[2]]}.weight"] = value if heads is None else rotate(value, heads)
        return made

    def write_meta(self, name, tensors):
        files.write(self.at(name + "/consolidated.safetensors"), tensors)
        self.write_text(name + "/params.json", json.dumps({"dim": models.H, "n_layers": 2, "n_heads": HEADS, "n_kv_heads": KV,
                                                           "vocab_size": models.V, "norm_eps": 1e-5, "multiple_of": 4}))

    def test_permuted_rows(self):
        """One element on either side, in rows that the map permutes: found, and named on both sides."""
        model = models.llama(self.rnd)
        self.write_model("hf", model)
        self.write_meta("meta", self.meta(model.tensors))
        told = self.verify("hf", "meta")
        self.assertEqual((told["same"], told["tensors_compared"]), (True, len(model.tensors)))
        self.assertRegex(told["notes"][0], "^names: hf; compared as meta by map hf-meta")
        self.assertTrue(self.verify("meta", "hf", "--config", self.at("hf"))["same"])
        name, made, row, column = "model.layers.1.self_attn.q_proj.weight", "layers.1.attention.wq.weight", 9, 5
        changed = dict(model.tensors)
        changed[name] = flip(changed[name], (row, column))
        there = self.meta(changed)[made][2]
        first = next(i for i, (x, y) in enumerate(zip(there, self.meta(model.tensors)[made][2])) if x != y) // 2
        self.write_hf("changed", changed, model.config)
        told = self.verify("changed", "meta", code=1)
        (one,) = told["elements"]
        self.assertEqual((one["tensor"], one["element"]), (made, [first // models.H, first % models.H]))
        self.assertEqual((one["tensor_a"], one["element_a"]), (name, [row, column]))
        # The other side, seen the same way round.
        self.write_meta("meta2", self.meta(changed))
        (one,) = self.verify("hf", "meta2", code=1)["elements"]
        self.assertEqual((one["tensor"], one["tensor_a"], one["element_a"]), (made, name, [row, column]))
        shown = support.run("verify", self.at("hf"), self.at("meta2"))
        self.assertRegex(shown.stdout, r"in A: model\.layers\.1\.self_attn\.q_proj\.weight \[9, 5\]")
        self.assertIn("compared as meta by map hf-meta", shown.stdout)

    def test_fused_and_padded(self):
        """vLLM's own files, with a padded vocabulary and constants, on two ranks."""
        model = engines.Llama(self.rnd)
        self.write_model("hf", model)
        self.engine(model, "engine")
        for a, b, name in [("hf", "engine", "vllm"), ("engine", "hf", "hf")]:
            told = self.verify(a, b)
            self.assertEqual(told["same"], True)
            self.assertRegex(told["notes"][0], f"compared as {name} by map hf-vllm$")
            self.assertTrue(self.verify(a, b, "--as", name)["same"])
            self.assertTrue(self.verify(a, b, "--digest")["same"])
        key, part = "model.layers.0.self_attn.qkv_proj.weight", "model.layers.0.self_attn.k_proj.weight"
        rows = {x: model.tensors[f"model.layers.0.self_attn.{x}_proj.weight"][1][0] for x in "qkv"}
        columns = model.tensors[part][1][1]

        def change(rank, tensors):
            if rank == 1:  # the second rank's first row of keys
                tensors[key] = flip(tensors[key], (rows["q"] // 2, 7))
        self.engine(model, "other", change=change)
        (one,) = self.verify("hf", "other", code=1)["elements"]
        self.assertEqual((one["tensor"], one["element"]), (key, [rows["q"] + rows["k"] // 2, 7]))
        self.assertEqual((one["tensor_a"], one["element_a"]), (part, [rows["k"] // 2, 7]))
        (one,) = self.verify("other", "hf", code=1)["elements"]
        self.assertEqual((one["tensor"], one["element"], one["tensor_a"]), (part, [rows["k"] // 2, 7], key))
        self.assertLess(7, columns)

    def test_constants(self):
        """A scale that is not 1: a difference where the map makes it, an error where the map leaves it out."""
        model = engines.Llama(self.rnd)
        self.write_model("hf", model)
        key = "model.layers.1.self_attn.attn._v_scale"

        def change(_, tensors):
            tensors[key] = ("F32", (), struct.pack("<f", 0.5))
        self.engine(model, "engine", change=change)
        told = self.verify("hf", "engine", code=1)
        self.assertEqual(told["elements"], [{"tensor": key, "element": [], "a": "1", "b": "0.5"}])
        self.refuse("verify", self.at("engine"), self.at("hf"), words=f'engine: tensor "{key}" is not 1 everywhere, as line \\d+ of the map requires')
        self.refuse("digest", self.at("engine"), "--as", "hf", words=f'"{key}" is not 1 everywhere')

    def test_what_a_map_drops(self):
        """Layers that predict further tokens are not in vLLM's files: said there, and missing on the way back."""
        model = models.deepseek_v3(self.rnd)
        self.write_model("hf", model)
        self.convert("hf", "vllm", "--as", "vllm")
        dropped = [name for name in model.tensors if name.startswith("model.layers.2.")]
        told = self.verify("hf", "vllm")
        self.assertIn(f"the map drops {len(dropped)} tensors", "\n".join(told["notes"]))
        told = self.verify("vllm", "hf", code=1)
        self.assertEqual(sorted(told["only_in_b"]), sorted(dropped))

    def test_options(self):
        """--dtype, --stats and --tolerance act on what the map makes; --include on names of A."""
        model = models.qwen3_moe(self.rnd)
        for name, (dtype, shape, values) in model.tensors.items():  # small numbers
            count = len(values) // 2
            model.tensors[name] = (dtype, shape, b"".join(struct.pack("<f", self.rnd.uniform(-1, 1))[2:] for _ in range(count)))
        self.write_model("hf", model)
        self.convert("hf", "wide", "--as", "hf5", "--dtype", "f32")
        self.assertTrue(self.verify("hf", "wide", "--dtype", "f32")["same"])
        told = self.verify("hf", "wide", code=1)
        self.assertEqual(len(told["dtype"]), len(files.read_hf(self.at("wide"))))
        self.assertTrue(self.verify("hf", "wide", "--tolerance", "1e-9")["same"])
        tensors = files.read_hf(self.at("wide"))
        name = "model.layers.1.mlp.experts.gate_up_proj"
        dtype, shape, values = tensors[name]
        first = struct.unpack("<f", values[:4])[0]
        tensors[name] = (dtype, shape, struct.pack("<f", first + 0.25) + values[4:])
        self.write_hf("moved", tensors, model.config)
        told = self.verify("hf", "moved", "--dtype", "f32", "--stats", code=1)
        (one,) = told["stats"]
        self.assertEqual(one["tensor"], name)
        self.assertAlmostEqual(one["max_abs"], 0.25, 6)
        self.assertTrue(self.verify("hf", "moved", "--dtype", "f32", "--tolerance", "0.3")["same"])
        self.convert("hf", "part", "--as", "hf5", "--include", "*.mlp.*")
        told = self.verify("hf", "part", "--include", "*.mlp.*")
        self.assertTrue(told["same"])
        self.assertEqual(told["left_out"], sum(".mlp." not in name for name in model.tensors))

    def test_a_map_of_ones_own(self):
        model = models.llama(self.rnd)
        self.write_model("hf", model)
        self.write_text("own.map", "map old new\nmodel.layers.{n}.mlp.{gate,up}_proj.weight [f i] = all.{n} [i (f + f)]\n* = *\n")
        self.convert("hf", "new", "--map", self.at("own.map"))
        told = self.verify("hf", "new", "--map", self.at("own.map"))
        self.assertTrue(told["same"])
        self.assertTrue(self.verify("new", "hf", "--map", self.at("own.map"), "--as", "old")["same"])
        self.refuse("verify", self.at("new"), self.at("hf"), "--map", self.at("own.map"), "--as", "new", words=r"no tensor is called model\.layers")
        self.assertFalse(self.verify("hf", "new", code=1)["same"])  # without it, names differ

    def test_no_map_fits(self):
        """Names are compared as they are, and a note says why."""
        model = models.llama(self.rnd)
        self.write_model("hf", model)
        self.engine(engines.Llama(self.rnd), "engine", tp=1)
        tensors = dict(model.tensors)
        del tensors["model.layers.1.mlp.up_proj.weight"]
        self.write_hf("half", tensors, model.config)
        told = self.verify("half", "engine", code=1)
        self.assertRegex(told["notes"][0], "names are compared as they are: no map leads from hf to vllm (.*up_proj)")
        self.assertTrue(told["only_in_a"] and told["only_in_b"])
        self.refuse("verify", self.at("half"), self.at("engine"), "--as", "vllm", words="up_proj")

    def test_one_naming_is_as_before(self):
        model = models.llama(self.rnd)
        self.write_model("hf", model)
        self.convert("hf", "two", "--to", "tp=2")
        self.assertEqual(self.verify("hf", "two")["notes"], [])


class Digest(ViewTest):
    def test_equal_to_what_is_converted(self):
        for i, (model, naming) in enumerate([(engines.Llama(self.rnd, tied=True), "vllm"), (models.qwen3_moe(self.rnd), "hf5"),
                                             (models.deepseek_v3(self.rnd), "vllm"), (models.mixtral(self.rnd), "megatron"),
                                             (models.qwen3(self.rnd), "titan"), (models.deepseek_v3(self.rnd, scales=True), "hf5")]):
            self.write_model(f"hf{i}", model)
            self.convert(f"hf{i}", f"made{i}", "--as", naming)
            for options in ([], ["--sha256"]):
                there = self.read_json("digest", self.at(f"made{i}"), *options)
                seen = self.read_json("digest", self.at(f"hf{i}"), "--as", naming, *options)
                self.assertEqual((seen["tensors"], seen["checkpoint"]), (there["tensors"], there["checkpoint"]), naming)
                self.assertRegex(seen["notes"][0], f"names: hf; seen as {naming} by map")
                back = self.read_json("digest", self.at(f"made{i}"), "--as", "hf", *options)
                if naming not in ("vllm", "megatron", "titan"):
                    self.assertEqual(back["tensors"], self.read_json("digest", self.at(f"hf{i}"), *options)["tensors"])

    def test_sha256_of_a_fused_tensor(self):
        model = models.qwen3_moe(self.rnd)
        self.write_model("hf", model)
        seen = self.read_json("digest", self.at("hf"), "--as", "hf5", "--sha256")["tensors"]
        parts = [model.tensors[f"model.layers.0.mlp.experts.{e}.{x}_proj.weight"][2] for e in range(4) for x in ("gate", "up")]
        self.assertEqual(seen["model.layers.0.mlp.experts.gate_up_proj"], hashlib.sha256(b"".join(parts)).hexdigest())

    def test_words(self):
        self.write_model("hf", models.llama(self.rnd))
        done = support.run("digest", self.at("hf"), "--as", "titan")
        self.assertRegex(done.stdout.splitlines()[-1], "^[0-9a-f]{32}  all ")
        self.assertIn("names: hf; seen as titan by map hf-titan-llama", done.stderr)
        self.refuse("digest", self.at("hf"), "--as", "nobody", words='there is no naming "nobody"')
        self.refuse("digest", self.at("hf"), "--as", "mistral", words="no map between hf and mistral")
        self.refuse("digest", self.at("hf"), "--dequantize", "bf16", words="a view needs a naming or a map")
        self.refuse("digest", self.at("hf"), "--as", "hf", "--dequantize", "bf16", words="no tensor is quantised|has the names of hf already")


E4M3 = [(-1.0 if code & 128 else 1.0) * ((code & 7) / 8 * 2.0 ** -6 if not code & 120 else (1 + (code & 7) / 8) * 2.0 ** ((code >> 3 & 15) - 7))
        for code in range(256)]


def dequantise(model, block):
    """Values of f32 instead of codes and scales of blocks. Products of 4 and 24 bits are exact in a double, so they are rounded
    once."""
    made = {}
    for name, (dtype, shape, values) in model.tensors.items():
        if name.endswith("_scale_inv"):
            continue
        if dtype != "F8_E4M3":
            made[name] = (dtype, shape, values)
            continue
        _, (_, across), scales = model.tensors[name + "_scale_inv"]
        numbers = [E4M3[code] * struct.unpack_from("<f", scales, 4 * (r // block * across + c // block))[0]
                   for r, c, code in ((i // shape[1], i % shape[1], code) for i, code in enumerate(values))]
        made[name] = ("F32", shape, struct.pack(f"<{len(numbers)}f", *numbers))
    return made


class Quantised(ViewTest):
    def model(self, block=4):
        """DeepSeek-V3's small experts in fp8, with numbers that are finite."""
        model = models.deepseek_v3(self.rnd, scales=True)
        for name, (dtype, shape, values) in model.tensors.items():
            if dtype == "F8_E4M3":
                model.tensors[name] = (dtype, shape, bytes(code if code & 127 != 127 else 0 for code in values))
            elif name.endswith("_scale_inv"):
                model.tensors[name] = (dtype, shape, struct.pack(f"<{len(values) // 4}f", *(self.rnd.uniform(0.01, 2) for _ in range(len(values) // 4))))
        return model

    def fuse(self, tensors):
        """hf5's experts, of values."""
        made = {name: value for name, value in tensors.items() if ".mlp.experts." not in name}
        for n in (1, 2):
            at = f"model.layers.{n}.mlp.experts."
            for name, parts in (("gate_up_proj", ("gate", "up")), ("down_proj", ("down",))):
                every = [tensors[f"{at}{e}.{part}_proj.weight"] for e in range(3) for part in parts]
                rows, columns = every[0][1]
                made[at + name] = ("F32", (3, rows * len(parts), columns), b"".join(value[2] for value in every))
        return made

    def test_dequantised_before_the_map(self):
        model = self.model()
        self.write_model("fp8", model)
        wanted = self.fuse(dequantise(model, 4))
        for options in ([], ["--max-memory", "1M", "--threads", "1"]):
            told = self.convert("fp8", "hf5" + str(len(options)), "--as", "hf5", "--dequantize", "f32", "--verify", *options)
            self.check_model(self.read("hf5" + str(len(options))), wanted)
        self.assertIn("dequantised: 18 tensors; 18 of scales", "\n".join(told["notes"]))
        with open(self.at("hf50/config.json")) as file:
            self.assertNotIn("quantization_config", json.load(file))
        self.assertTrue(self.verify("fp8", "hf50", "--as", "hf5", "--dequantize", "f32")["same"])
        self.assertEqual(self.digests("fp8", "--as", "hf5", "--dequantize", "f32"), self.digests("hf50"))
        # Blocks of 4 do not divide this map's 7 rows of q_a_proj, but values have no blocks.
        self.convert("fp8", "vllm", "--as", "vllm", "--dequantize", "f32", "--verify")
        self.assertTrue(self.verify("fp8", "vllm", "--as", "vllm", "--dequantize", "f32")["same"])
        changed = self.read("hf50")
        name = "model.layers.2.mlp.experts.gate_up_proj"
        changed[name] = flip(changed[name], (1, 9, 2))  # the second expert's up, row 1
        self.write_hf("changed", changed, model.config)
        (one,) = self.verify("fp8", "changed", "--as", "hf5", "--dequantize", "f32", code=1)["elements"]
        self.assertEqual((one["tensor"], one["element"]), (name, [1, 9, 2]))
        self.assertEqual((one["tensor_a"], one["element_a"]), ("model.layers.2.mlp.experts.1.up_proj.weight", [1, 2]))

    def test_transposed(self):
        """Axes that are not contiguous in what is computed."""
        model = self.model()
        self.write_model("fp8", model)
        self.convert("fp8", "hf5", "--as", "hf5", "--dequantize", "f32", "--set", "experts_transposed=1")
        found, plain = self.read("hf5"), dequantise(model, 4)
        name = "model.layers.1.mlp.experts.gate_up_proj"
        rows, columns = 8, models.H
        self.assertTrue(found[name] == models.build("F32", (3, columns, 2 * rows), lambda e, c, r: (
            plain[f"model.layers.1.mlp.experts.{e}.{'gate' if r < rows else 'up'}_proj.weight"], (r % rows, c))))

    def test_every_second_row(self):
        """Rows with a step, from blocks of several shapes, by a map of one's own; some boxes are larger than the scratch."""
        rows, columns = 12, 30000
        codes = bytes(code if code & 127 != 127 else 0 for code in self.rnd.randbytes(rows * columns))
        scales = struct.pack("<9f", *(self.rnd.uniform(0.01, 2) for _ in range(9)))
        model = type("Plain", (), {"tensors": {"a.weight": ("F8_E4M3", (rows, columns), codes), "a.weight_scale_inv": ("F32", (3, 3), scales)}})
        config = {"model_type": "x", "quantization_config": {"quant_method": "fp8", "weight_block_size": [4, 10000]}}
        self.write_hf("fp8", model.tensors, config)
        self.write_text("own.map", "let h = 2\na.weight [(a 2 h) i] = b.weight [(a h 2) i]\n")
        self.convert("fp8", "out", "--map", self.at("own.map"), "--dequantize", "f32")
        numbers = []
        for r in range(rows):
            source = r // 4 * 4 + r % 2 * 2 + r % 4 // 2
            numbers += [E4M3[codes[source * columns + c]] * struct.unpack_from("<f", scales, 4 * (source // 4 * 3 + c // 10000))[0] for c in range(columns)]
        self.check_model(self.read("out"), {"b.weight": ("F32", (rows, columns), struct.pack(f"<{len(numbers)}f", *numbers))})

    def test_scales_go_with_their_weights(self):
        """Scales that a map does not know are refused, with the remedy: where no line is for them, and where `* = *` would leave
        them behind."""
        model = models.llama(self.rnd)
        for name, (_, shape, _) in list(model.tensors.items()):
            if name.endswith("_proj.weight"):
                model.add(name, *shape, dtype="F8_E4M3")
                model.add(name + "_scale", dtype="F32")
        self.write_model("dense", model)
        for naming in ("vllm", "titan", "megatron"):
            self.refuse("convert", self.at("dense"), self.at("out"), "--as", naming,
                        words=r"no line matches .*_scale.*The weights are quantised; dequantise them.*\(--dequantize bf16\)")
        for make, part in ((models.mixtral, "w1"), (models.qwen3_moe, "gate_proj")):
            model = make(self.rnd)
            for name, (_, shape, _) in list(model.tensors.items()):
                if ".experts." in name:
                    model.add(name, *shape, dtype="F8_E4M3")
                    model.add(name + "_scale", dtype="F32")
            self.write_model(part, model)
            words = r'the map makes ".*" of the quantised ".*weight", but leaves ".*weight_scale" as it is.*dequantise the weights first \(--dequantize bf16\)'
            self.refuse("convert", self.at(part), self.at("out"), "--as", "hf5", words=words)
            self.refuse("digest", self.at(part), "--as", "hf5", words=words)
            self.assertFalse(os.path.exists(self.at("out")))
            self.convert(part, part + "-out", "--as", "hf5", "--dequantize", "bf16", "--verify")
        # One scale for a whole tensor may stay where it is if only the order of elements changes.
        self.write_hf("one", {"a.weight": ("F8_E4M3", (4, 6), bytes(24)), "a.weight_scale": ("F32", (), bytes(4))}, {"model_type": "x"})
        self.write_text("own.map", "a.weight [i j] = a.weight [j i]\n* = *\n")
        self.convert("one", "turned", "--map", self.at("own.map"), "--as", "right")
        self.write_hf("rows", {"a.weight": ("F8_E4M3", (4, 6), bytes(24)), "a.weight_scale": ("F32", (4, 1), bytes(16))}, {"model_type": "x"})
        self.refuse("convert", self.at("rows"), self.at("out"), "--map", self.at("own.map"), "--as", "right", words="but leaves \"a.weight_scale\" as it is")


if __name__ == "__main__":
    support.main()
