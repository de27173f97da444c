# SPDX-License-Identifier: Apache-2.0
"""GGUF against the engine of llama.cpp. `make test-llama` installs it and runs this.

    test_llama.py COMMAND FOLDER-OF-THE-ENGINE
"""
import json
import os
import random
import shutil
import sys
import tempfile

import numpy

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "cli"))
sys.path[:0] = [os.path.join(HERE, "..", "..", "checkpoint", "support"), os.path.join(HERE, "..", "..", "checkpoint", "gguf")]
import engine
import files
import forward
import gguf_files as gguf
import support

engine.FOLDER = sys.argv.pop(2)


class TypesTest(support.CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-")
        self.addCleanup(shutil.rmtree, self.folder)

    def read_values(self, tensors):
        """The tensors of a GGUF file as this library dequantises them to f32."""
        gguf.write(f"{self.folder}/m.gguf", [], tensors)
        self.read_text("convert", f"{self.folder}/m.gguf", f"{self.folder}/out", "--dequantize", "f32", "--quiet")
        found = files.read(f"{self.folder}/out/model.safetensors")[0]
        shutil.rmtree(f"{self.folder}/out")
        return {name: numpy.frombuffer(value[2], "<u4") for name, value in found.items()}

    def compare(self, tensors):
        found = self.read_values(tensors)
        for name, type_name, shape, data in tensors:
            wanted = engine.dequantise(type_name, data, shape[0] * shape[1]).view("<u4")
            differ = numpy.flatnonzero(found[name] != wanted)
            self.assertEqual(differ.size, 0, f"{name}: {differ.size} of {wanted.size} values differ, the first at {differ[:1]}")

    def test_sizes(self):
        for name, (number, elements, size) in gguf.TYPES.items():
            self.assertEqual((engine.base().ggml_blck_size(number), engine.base().ggml_type_size(number)), (elements, size), name)

    def test_any_bits(self):
        """Blocks of random bytes, among them scales that are infinite or no number."""
        rnd = random.Random(1)
        tensors = []
        for name in gguf.DECODED:
            _, elements, size = gguf.TYPES[name]
            tensors.append((name, name, [64, 64 * elements], rnd.randbytes(64 * 64 * size)))
        self.compare(tensors)

    def test_what_ggml_quantises(self):
        values = numpy.random.default_rng(2).standard_normal((32, 2048)).astype("<f4")
        tensors = []
        for name in gguf.DECODED:
            number, elements, size = gguf.TYPES[name]
            tensors.append((name, name, [32, 2048], engine.quantise(number, 2048 // elements * size, values)))
        self.compare(tensors)


class WrittenTypesTest(support.CommandTest):
    """What this library writes has ggml's bytes."""

    def test_bytes(self):
        folder = tempfile.mkdtemp(prefix="reshard-test-")
        self.addCleanup(shutil.rmtree, folder)
        rnd = numpy.random.default_rng(3)
        sizes = 10.0 ** rnd.integers(-9, 4, (512, 64, 1))
        values = (rnd.standard_normal((512, 64, 32)) * sizes).astype("<f4")
        values[::7, ::5] = numpy.rint(values[::7, ::5])  # equal ones, zeros, and halves between codes
        values[::11, ::3] = 0
        values[3, 2, :] = numpy.arange(32) - 15.5
        values[3, 2, 0] = 127
        values = values.reshape(512, 2048)
        files.write(f"{folder}/hf/model.safetensors", {"output.weight": ("F32", [512, 2048], values.tobytes())})
        gguf.write(f"{folder}/base.gguf", [("general.architecture", gguf.TEXT, "none")], [("output.weight", "F32", [512, 2048], bytes(values.nbytes))])
        for dtype, name in (("f16", "F16"), ("bf16", "BF16"), ("q8_0", "Q8_0")):
            out = f"{folder}/{dtype}.gguf"
            self.read_text("convert", f"{folder}/hf", out, "--format", "gguf", "--like", f"{folder}/base.gguf", "--dtype", dtype, "--quiet")
            number, elements, size = gguf.TYPES[name]
            wanted = engine.quantise(number, 2048 // elements * size, values)
            with open(out, "rb") as file:
                self.assertTrue(file.read().endswith(wanted), dtype)


HIDDEN, HEADS, GROUPS, HEAD, WIDE, LAYERS, VOCABULARY, EXPERTS, USED = 64, 4, 2, 16, 96, 2, 50, 4, 2
TOKENS = [3, 17, 41, 8, 25, 0, 49, 12]


class LogitsTest(support.CommandTest):
    """A GGUF file of random weights, made by hand, gives the engine's logits; what this library makes of it under Hugging Face's
    names gives the same ones in a forward pass that knows nothing of GGUF."""

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.random = numpy.random.default_rng(5)

    def new(self, *shape):
        scale = 0.3 if len(shape) == 1 else shape[-1] ** -0.5
        return (len(shape) == 1) + scale * self.random.standard_normal(shape).astype("<f4")

    def make(self, architecture, type_name="F32", biases=False):
        tensors = {"token_embd.weight": self.new(VOCABULARY, HIDDEN), "output_norm.weight": self.new(HIDDEN),
                   "output.weight": self.new(VOCABULARY, HIDDEN)}
        for n in range(LAYERS):
            b = f"blk.{n}."
            shapes = {"attn_norm": (HIDDEN,), "ffn_norm": (HIDDEN,), "attn_q": (HEADS * HEAD, HIDDEN), "attn_k": (GROUPS * HEAD, HIDDEN),
                      "attn_v": (GROUPS * HEAD, HIDDEN), "attn_output": (HIDDEN, HEADS * HEAD)}
            if architecture not in ("llama", "granite"):
                shapes.update({"attn_q_norm": (HEAD,), "attn_k_norm": (HEAD,)})
            if architecture == "qwen3moe":
                shapes.update({"ffn_gate_inp": (EXPERTS, HIDDEN), "ffn_gate_exps": (EXPERTS, WIDE, HIDDEN), "ffn_up_exps": (EXPERTS, WIDE, HIDDEN),
                               "ffn_down_exps": (EXPERTS, HIDDEN, WIDE)})
            else:
                shapes.update({"ffn_gate": (WIDE, HIDDEN), "ffn_up": (WIDE, HIDDEN), "ffn_down": (HIDDEN, WIDE)})
            tensors.update({f"{b}{name}.weight": self.new(*shape) for name, shape in shapes.items()})
            if biases:
                tensors.update({f"{b}attn_{p}.bias": self.new(rows * HEAD) for p, rows in (("q", HEADS), ("k", GROUPS), ("v", GROUPS))})
        a = architecture
        values = [("general.architecture", gguf.TEXT, a), ("tokenizer.ggml.model", gguf.TEXT, "none"), (f"{a}.vocab_size", gguf.U32, VOCABULARY),
                  (f"{a}.attention.layer_norm_rms_epsilon", gguf.F32, 1e-5), (f"{a}.rope.freq_base", gguf.F32, 1e4)]
        values += [(f"{a}.{key}", gguf.U32, number) for key, number in (
            ("context_length", 512), ("embedding_length", HIDDEN), ("block_count", LAYERS), ("feed_forward_length", WIDE),
            ("attention.head_count", HEADS), ("attention.head_count_kv", GROUPS), ("attention.key_length", HEAD),
            ("attention.value_length", HEAD), ("rope.dimension_count", HEAD))]
        if a == "granite":
            values += [(f"{a}.{key}", gguf.F32, number) for key, number in (("attention.scale", 0.03125), ("embedding_scale", 1.5),
                                                                           ("residual_scale", 0.25), ("logit_scale", 8.0))]
        if a == "qwen3moe":
            values += [(f"{a}.{key}", gguf.U32, number) for key, number in (("expert_count", EXPERTS), ("expert_used_count", USED),
                                                                           ("expert_feed_forward_length", WIDE))]
        listed = []
        for name, value in tensors.items():
            if type_name != "F32" and value.ndim > 1 and "gate_inp" not in name:
                number, elements, size = gguf.TYPES[type_name]
                rows = value.reshape(-1, value.shape[-1])
                listed.append((name, type_name, list(value.shape), engine.quantise(number, rows.shape[1] // elements * size, rows)))
            else:
                listed.append((name, "F32", list(value.shape), value.tobytes()))
        gguf.write(f"{self.folder}/m.gguf", values, listed)

    def compare(self, limit, *options):
        shutil.rmtree(f"{self.folder}/out", ignore_errors=True)
        self.read_text("convert", f"{self.folder}/m.gguf", f"{self.folder}/out", "--as", "hf", "--quiet", *options)
        found = files.read(f"{self.folder}/out/model.safetensors")[0]
        with open(f"{self.folder}/out/config.json", encoding="utf-8") as file:
            config = json.load(file)
        weights = {name: numpy.frombuffer(value[2], "<f4").reshape(value[1]) for name, value in found.items()}
        ours = forward.logits(weights, config, TOKENS)
        theirs = engine.logits(f"{self.folder}/m.gguf", TOKENS, VOCABULARY)
        error = numpy.abs(ours - theirs).max() / numpy.abs(theirs).max()
        self.assertLess(error, limit)
        return error

    def test_f32(self):
        for architecture, biases in (("llama", False), ("llama", True), ("granite", False), ("qwen3", False), ("qwen3moe", False)):
            with self.subTest(architecture, biases=biases):
                self.make(architecture, biases=biases)
                print(f"{architecture}: logits within {self.compare(1e-5):.1e} of the largest")

    def write(self, dtype):
        """Writes other numbers after the example of m.gguf. Returns them, and config.json."""
        shutil.rmtree(f"{self.folder}/hf", ignore_errors=True)
        self.read_text("convert", f"{self.folder}/m.gguf", f"{self.folder}/hf", "--as", "hf", "--quiet")
        found = files.read(f"{self.folder}/hf/model.safetensors")[0]
        weights = {name: self.new(*value[1]).astype("<f4") for name, value in found.items()}
        files.write(f"{self.folder}/hf/model.safetensors", {name: ("F32", list(value.shape), value.tobytes()) for name, value in weights.items()})
        if os.path.exists(f"{self.folder}/new.gguf"):
            os.unlink(f"{self.folder}/new.gguf")
        self.read_text("convert", f"{self.folder}/hf", f"{self.folder}/new.gguf", "--as", "gguf", "--like", f"{self.folder}/m.gguf", "--dtype", dtype, "--quiet")
        with open(f"{self.folder}/hf/config.json", encoding="utf-8") as file:
            return weights, json.load(file)

    def check_parts(self, wanted):
        """The same in parts: the very same logits."""
        shutil.rmtree(f"{self.folder}/parts", ignore_errors=True)
        self.read_text("convert", f"{self.folder}/hf", f"{self.folder}/parts", "--as", "gguf", "--like", f"{self.folder}/m.gguf", "--max-shard-size", "100K", "--quiet")
        first = sorted(os.listdir(f"{self.folder}/parts"))[0]
        self.assertNotIn("-of-00001", first)
        numpy.testing.assert_array_equal(engine.logits(f"{self.folder}/parts/{first}", TOKENS, VOCABULARY), wanted)

    @staticmethod
    def distance(weights, config, theirs, rounds=None):
        ours = forward.logits(weights, config, TOKENS, rounds)
        return numpy.abs(ours - theirs).max() / numpy.abs(theirs).max()

    def test_written(self):
        """What is written loads, and gives the logits of the weights that it was made of."""
        for architecture in ("llama", "granite", "qwen3", "qwen3moe"):
            for dtype, limit in (("f32", 1e-5), ("f16", 2e-2), ("bf16", 2e-2)):
                with self.subTest(f"{architecture} {dtype}"):
                    self.make(architecture)
                    weights, config = self.write(dtype)
                    error = self.distance(weights, config, engine.logits(f"{self.folder}/new.gguf", TOKENS, VOCABULARY))
                    if dtype == "f32":
                        self.check_parts(engine.logits(f"{self.folder}/new.gguf", TOKENS, VOCABULARY))
                    print(f"{architecture}, written as {dtype}: logits within {error:.1e} of the largest")
                    self.assertLess(error, limit)

    def test_written_q8_0(self):
        """Weights of Q8_0 make the engine round the other factor of each product, too. A forward pass that does the same gives its
        logits; how far one that does not is away depends on the weights, and is said."""
        for architecture in ("llama", "granite", "qwen3", "qwen3moe"):
            with self.subTest(architecture):
                self.make(architecture)
                weights, config = self.write("q8_0")
                theirs = engine.logits(f"{self.folder}/new.gguf", TOKENS, VOCABULARY)
                rounded = {}
                for name, value in weights.items():
                    rounded[name] = value
                    if value.ndim == 2 and not name.endswith("mlp.gate.weight"):
                        data = engine.quantise(8, value.shape[1] // 32 * 34, value)
                        rounded[name] = engine.dequantise("Q8_0", data, value.size).reshape(value.shape)
                error = self.distance(rounded, config, theirs, forward.in_eight_bits)
                print(f"{architecture}, written as q8_0: logits within {error:.1e} of the largest; without the engine's rounding of activations "
                      f"{self.distance(rounded, config, theirs):.1e}, and with weights that are not rounded either {self.distance(weights, config, theirs):.1e}")
                self.assertLess(error, 1e-5)


if __name__ == "__main__":
    support.main()
