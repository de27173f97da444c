# SPDX-License-Identifier: Apache-2.0
"""GGUF files after the example of another one. What they should be is put together here, byte by byte: the key-values, names
and order of the example, and numbers that are rounded and quantised element by element. `make test-llama` compares these with
ggml's own functions, and loads such files."""
import json
import math
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import gguf_files as gguf
import support
import test_gguf_names as names

WIDE = 64  # of rows: two blocks of Q8_0


def q8_0(numbers):
    """ggml's quantiser: the scale and its reciprocal in f32, codes rounded half away from zero, the scale stored as f16."""
    def encode(block):
        d = gguf.f32(max(abs(x) for x in block) / 127)
        factor = gguf.f32(1 / d) if d else 0.0
        codes = [gguf.f32(x * factor) for x in block]
        return struct.pack("<e32b", d, *(int(math.copysign(math.floor(abs(q) + 0.5), q)) for q in codes))
    return b"".join(encode(numbers[at:at + 32]) for at in range(0, len(numbers), 32))


def pack(type_name, numbers):
    if type_name == "Q8_0":
        return q8_0(numbers)
    if type_name == "BF16":
        return b"".join(struct.pack("<H", (bits + 0x7fff + (bits >> 16 & 1)) >> 16)
                        for bits in struct.unpack(f"<{len(numbers)}I", struct.pack(f"<{len(numbers)}f", *numbers)))
    return struct.pack(f"<{len(numbers)}{ {'F32': 'f', 'F16': 'e'}[type_name]}", *numbers)


def mpi_environment():
    """What mpirun needs here; or None, where it cannot be run."""
    library = os.path.join(os.path.dirname(os.path.abspath(support.COMMAND)), "libreshard_mpi.so")
    if shutil.which("mpirun") is None or not os.path.exists(library) or os.path.basename(os.path.dirname(library)) in ("asan", "tsan"):
        return None
    return {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1",
            "OMPI_MCA_hwloc_base_binding_policy": "none"}


class GgufWriteTest(support.CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.random = random.Random(11)

    def at(self, name):
        return f"{self.folder}/{name}"

    def read(self, name):
        with open(self.at(name), "rb") as file:
            return file.read()

    def write_hf(self, tensors, config, name="hf"):
        """tensors: name: (shape, numbers), as f32."""
        files.write(self.at(f"{name}/model.safetensors"), {n: ("F32", s, pack("F32", x)) for n, (s, x) in tensors.items()})
        with open(self.at(f"{name}/config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)

    def numbers(self, count):
        """f32 of usual sizes, with a zero, equal ones and a block of zeros now and then."""
        out = []
        while len(out) < count:
            size = self.random.choice([0.0, 1e-6, 0.02, 1.0, 100.0])
            out += [gguf.f32(self.random.gauss(0, size)) for _ in range(32)]
        return out[:count]

    def qwen2(self, layers=1):
        """A model of qwen2 with rows of 64: (name in hf, name in gguf, shape), and its numbers."""
        rows = [("model.embed_tokens.weight", "token_embd.weight", [10, WIDE]), ("model.norm.weight", "output_norm.weight", [WIDE]),
                ("lm_head.weight", "output.weight", [10, WIDE])]
        for n in range(layers):
            here, there = f"model.layers.{n}.", f"blk.{n}."
            rows += [(here + "input_layernorm.weight", there + "attn_norm.weight", [WIDE]),
                     (here + "post_attention_layernorm.weight", there + "ffn_norm.weight", [WIDE])]
            for p, q in (("q", "q"), ("k", "k"), ("v", "v")):
                rows += [(f"{here}self_attn.{p}_proj.weight", f"{there}attn_{q}.weight", [WIDE, WIDE]),
                         (f"{here}self_attn.{p}_proj.bias", f"{there}attn_{q}.bias", [WIDE])]
            rows += [(here + "self_attn.o_proj.weight", there + "attn_output.weight", [WIDE, WIDE])]
            rows += [(f"{here}mlp.{p}_proj.weight", f"{there}ffn_{p}.weight", [WIDE, WIDE]) for p in ("gate", "up", "down")]
        return {hf: (other, shape, self.numbers(math.prod(shape))) for hf, other, shape in rows}

    VALUES = [("general.architecture", gguf.TEXT, "qwen2"), ("general.file_type", gguf.U32, 1), ("tokenizer.ggml.tokens", (gguf.LIST, gguf.TEXT), ["a", "", "ü"]),
              ("qwen2.block_count", gguf.U32, 1), ("qwen2.attention.head_count", gguf.U32, 4), ("a.flag", gguf.BOOL, True)]
    CONFIG = {"model_type": "qwen2", "num_hidden_layers": 1, "hidden_size": WIDE, "num_attention_heads": 4, "tie_word_embeddings": False}

    def base(self, model, type_of, name="base.gguf", values=None, **options):
        """A file to follow: other numbers, and tensors in an order of its own."""
        order = [(other, shape) for other, shape, _ in model.values()]
        random.Random(3).shuffle(order)
        tensors = [(other, type_of(other, shape), shape, bytes(gguf.size_of(type_of(other, shape), shape))) for other, shape in order]
        gguf.write(self.at(name), self.VALUES if values is None else values, tensors, **options)
        return tensors

    def expected(self, model, base, type_of, file_type, **options):
        by_name = {other: numbers for other, _, numbers in model.values()}
        values = [(key, kind, file_type if key == "general.file_type" else content) for key, kind, content in self.VALUES]
        return gguf.make(values, [(name, type_of(name, shape), shape, pack(type_of(name, shape), by_name[name])) for name, _, shape, _ in base], **options)

    def convert(self, *more, source="hf", target="out.gguf", base="base.gguf"):
        return self.read_text("convert", self.at(source), self.at(target), "--as", "gguf", "--like", self.at(base), *more)

    @staticmethod
    def typed(matrix):
        return lambda name, shape: matrix if len(shape) > 1 else "F32"

    def test_every_architecture(self):
        """Every tensor of every map, element by element."""
        for architecture, build, more, model_type in names.MODELS:
            with self.subTest(model_type):
                model = names.Model()
                more = {**more, **(build(model) or {})}
                keys = {"block_count": names.LAYERS, "embedding_length": names.HIDDEN, "attention.head_count": names.HEADS,
                        "attention.head_count_kv": names.GROUPS, "attention.key_length": names.HEAD, "feed_forward_length": names.WIDE, **more}
                values = [("general.architecture", gguf.TEXT, architecture)] + [(f"{architecture}.{key}", gguf.U32, n) for key, n in keys.items()]
                order = sorted(model.gguf, key=lambda name: name[::-1])
                wanted = [(n, "F32", model.gguf[n][0], model.bytes(model.gguf[n])) for n in order]
                gguf.write(self.at("whole.gguf"), values, wanted)
                gguf.write(self.at("base.gguf"), values, [(n, t, s, d if n.startswith("rope_") else bytes(len(d))) for n, t, s, d in wanted])
                for name in ("made", "hf"):
                    shutil.rmtree(self.at(name), ignore_errors=True)
                if os.path.exists(self.at("out.gguf")):
                    os.unlink(self.at("out.gguf"))
                self.read_text("convert", self.at("whole.gguf"), self.at("made"), "--as", "hf")  # for its config.json
                with open(self.at("made/config.json"), encoding="utf-8") as file:
                    self.write_hf(model.hf, json.load(file))
                said = self.convert("--verify")
                self.assertEqual(self.read("out.gguf"), self.read("whole.gguf"))
                self.assertEqual("rotary embeddings" in said, any(n.startswith("rope_") for n in order))
                self.assertEqual(os.listdir(self.folder).count("out.gguf.partial"), 0)

    def test_plans(self):
        """A tensor that is the example's own has no source, in a table, in JSON and on a page."""
        model = names.Model()
        names.llama(model)
        values = [("general.architecture", gguf.TEXT, "llama"), ("llama.block_count", gguf.U32, names.LAYERS), ("llama.attention.head_count", gguf.U32, names.HEADS),
                  ("llama.attention.head_count_kv", gguf.U32, names.GROUPS), ("llama.attention.key_length", gguf.U32, names.HEAD)]
        gguf.write(self.at("base.gguf"), values, [(n, "F32", s, model.bytes((s, x))) for n, (s, x) in model.gguf.items()])
        self.read_text("convert", self.at("base.gguf"), self.at("hf"), "--as", "hf")
        arguments = [self.at("hf"), "--as", "gguf", "--like", self.at("base.gguf")]
        table = self.read_text("plan", *arguments, "--tensors")
        self.assertRegex(table, r"rope_freqs.weight +f32 +2 +whole +2 +- +the file that is followed +all +-")
        found = {one["name"]: one for one in self.read_json("plan", *arguments, "--tensors")["tensor_list"]}
        self.assertNotIn("sources", found["rope_freqs.weight"])
        self.assertEqual(found["output.weight"]["sources"], ["lm_head.weight"])
        self.read_text("convert", arguments[0], self.at("out.gguf"), *arguments[1:], "--dry-run", "--html", self.at("page.html"))
        self.assertIn(b"rope_freqs.weight", self.read("page.html"))

    def test_sums_are_made_in_f32(self):
        """A norm of Gemma in bf16, plus one: no bit is lost."""
        model = names.Model()
        names.gemma(model, False)
        values = [("general.architecture", gguf.TEXT, "gemma2"), ("gemma2.block_count", gguf.U32, names.LAYERS)]
        gguf.write(self.at("base.gguf"), values, [(n, "F32", s, bytes(4 * len(x))) for n, (s, x) in model.gguf.items()])
        fine = {n: (s, [1.0 / 512] * len(x) if "norm" in n else x) for n, (s, x) in model.hf.items()}
        self.write_hf(fine, {"model_type": "gemma2", "num_hidden_layers": names.LAYERS})
        files.write(self.at("hf/model.safetensors"), {n: ("BF16", s, pack("BF16", x)) for n, (s, x) in fine.items()})
        self.convert()
        self.assertEqual(self.read("out.gguf").count(struct.pack("<f", 1 + 1 / 512)), sum(len(x) for n, (s, x) in fine.items() if "norm" in n))

    def test_multipliers(self):
        """Granite has the tensors of Llama, and computes something else: neither follows the other, nor other multipliers."""
        model = names.Model()
        keys = names.granite(model)
        fixed = {"block_count": names.LAYERS, "attention.head_count": names.HEADS, "attention.head_count_kv": names.GROUPS, "attention.key_length": names.HEAD}
        config = {"num_hidden_layers": names.LAYERS, "num_attention_heads": names.HEADS, "num_key_value_heads": names.GROUPS, "head_dim": names.HEAD,
                  "attention_multiplier": 2.0, "embedding_multiplier": 12, "residual_multiplier": 3, "logits_scaling": 8, "tie_word_embeddings": True}
        for architecture, model_type, change, words in (("granite", "granite", {}, None), ("granite", "granite", {"logit_scale": 4}, "logits_scaling is 4"),
                                                        ("granite", "granite", {"attention.scale": 1}, "attention_multiplier is 1"),
                                                        ("granite", "llama", {}, "follow a file of the same type"),
                                                        ("llama", "granite", {}, "follow a file of the same type")):
            values = [("general.architecture", gguf.TEXT, architecture)]
            values += [(f"{architecture}.{key}", gguf.U32, number) for key, number in {**fixed, **keys, **change}.items()]
            gguf.write(self.at("base.gguf"), values, [(n, "F32", s, model.bytes((s, x))) for n, (s, x) in model.gguf.items()])
            self.write_hf(model.hf, {**config, "model_type": model_type})
            if words is None:
                self.convert("--verify")
                self.assertEqual(self.read("out.gguf"), self.read("base.gguf"))
                os.unlink(self.at("out.gguf"))
            else:
                self.check_fails(["convert", self.at("hf"), self.at("out.gguf"), "--as", "gguf", "--like", self.at("base.gguf")], 1, words)

    def test_types(self):
        model = self.qwen2()
        self.write_hf({n: (shape, x) for n, (_, shape, x) in model.items()}, self.CONFIG)
        for alignment in (32, 64):
            base = self.base(model, self.typed("F16"), alignment=alignment)
            for dtype, name, number in (("f32", "F32", 0), ("f16", "F16", 1), ("bf16", "BF16", 32), ("q8_0", "Q8_0", 7), (None, "F16", 1)):
                with self.subTest(f"{alignment} {dtype}"):
                    self.convert("--verify", *(["--dtype", dtype] if dtype else []))
                    self.assertEqual(self.read("out.gguf"), self.expected(model, base, self.typed(name), number, alignment=alignment))
                    os.unlink(self.at("out.gguf"))

    def test_routers_and_biases_stay_f32(self):
        model = {"a": ("blk.0.ffn_gate_inp.weight", [3, WIDE], self.numbers(3 * WIDE)), "b": ("blk.0.ffn_gate_exps.bias", [3, WIDE], self.numbers(3 * WIDE)),
                 "c": ("blk.0.attn_norm.weight", [WIDE], self.numbers(WIDE)), "d": ("token_embd.weight", [2, WIDE], self.numbers(2 * WIDE))}
        base = self.base(model, lambda name, shape: "F32", values=[("general.architecture", gguf.TEXT, "none")])
        self.write_hf({other: (shape, x) for other, shape, x in model.values()}, {})
        self.read_text("convert", self.at("hf"), self.at("out.gguf"), "--format", "gguf", "--like", self.at("base.gguf"), "--dtype", "q8_0")
        tensors = self.read_json("inspect", self.at("out.gguf"), "--all")["tensors"]
        self.assertEqual({one["name"]: one.get("stored_as", one["dtype"]) for one in tensors},
                         {other: "Q8_0" if key == "d" else "F32" for key, (other, _, _) in model.items()})
        self.assertEqual(len(base), 4)

    def test_sources_of_several_files(self):
        """Blocks are made of pieces that lie in several files, and by several ranks."""
        model = self.qwen2()
        self.write_hf({n: (shape, x) for n, (_, shape, x) in model.items()}, self.CONFIG)
        base = self.base(model, self.typed("Q8_0"))
        wanted = self.expected(model, base, self.typed("Q8_0"), 1)
        self.read_text("convert", self.at("hf"), self.at("cut"), "--to", "tp=4")
        self.convert("--verify", source="cut")
        self.assertEqual(self.read("out.gguf"), wanted)
        environment = mpi_environment()
        if environment is not None:
            done = subprocess.run(["mpirun", "-n", "3", support.COMMAND, "convert", self.at("hf"), self.at("ranks.gguf"),
                                   "--as", "gguf", "--like", self.at("base.gguf"), "--verify"], capture_output=True, text=True, check=False, env=environment)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(self.read("ranks.gguf"), wanted)

    def test_blocks_stay_as_they_are(self):
        """A GGUF file after the example of another: types that are not written are copied where both have them."""
        tensors = [("token_embd.weight", "Q4_K", [2, 256], gguf.random_blocks(self.random, "Q4_K", 2)),
                   ("blk.0.ffn_down.weight", "Q8_0", [2, 256], gguf.random_blocks(self.random, "Q8_0", 16)),
                   ("blk.0.attn_norm.weight", "F32", [256], pack("F32", self.numbers(256)))]
        gguf.write(self.at("model.gguf"), self.VALUES, tensors)
        base = [tensors[1][:3] + (bytes(len(tensors[1][3])),), tensors[0][:3] + (bytes(288),), tensors[2][:3] + (bytes(1024),)]
        gguf.write(self.at("base.gguf"), self.VALUES, base)
        said = self.convert("--verify", source="model.gguf")
        self.assertIn("2 quantised tensors stay as they are", said)
        self.assertEqual(self.read("out.gguf"), gguf.make(self.VALUES, [tensors[1], tensors[0], tensors[2]]))
        self.convert("--dtype", "q8_0", source="model.gguf", target="q8.gguf")
        again = ("token_embd.weight", "Q8_0", [2, 256], q8_0(gguf.decode("Q4_K", tensors[0][3])))
        values = [(k, kind, 7 if k == "general.file_type" else v) for k, kind, v in self.VALUES]
        self.assertEqual(self.read("q8.gguf"), gguf.make(values, [tensors[1], again, tensors[2]]))

    def test_killed_and_resumed(self):
        model = self.qwen2()
        big = [64, 8192]
        model["model.embed_tokens.weight"] = ("token_embd.weight", big, self.numbers(math.prod(big)))
        model["lm_head.weight"] = ("output.weight", big, self.numbers(math.prod(big)))
        self.write_hf({n: (shape, x) for n, (_, shape, x) in model.items()}, self.CONFIG)
        base = self.base(model, self.typed("Q8_0"))
        arguments = ["convert", self.at("hf"), self.at("out.gguf"), "--as", "gguf", "--like", self.at("base.gguf"), "--max-memory", "1M", "--threads", "1",
                     "--journal-bytes", "1"]
        self.kill_after_a_record(*arguments, target=self.at("out.gguf"))
        self.assertFalse(os.path.exists(self.at("out.gguf")))
        self.check_fails(arguments, 1, "--resume continues it")
        self.read_text(*arguments, "--resume")
        self.assertFalse(os.path.exists(self.at("out.gguf.partial")))
        self.assertEqual(self.read("out.gguf"), self.expected(model, base, self.typed("Q8_0"), 1))

    def test_refusals(self):
        model = self.qwen2()
        tensors = {n: (shape, x) for n, (_, shape, x) in model.items()}
        self.write_hf(tensors, self.CONFIG)
        self.base(model, self.typed("F16"))
        out = [self.at("hf"), self.at("out.gguf"), "--as", "gguf"]
        like = ["--like", self.at("base.gguf")]
        self.check_fails(["convert", *out], 1, "needs a file of the same model to follow")
        self.check_fails(["convert", *out], 1, "(--like BASE.gguf)")
        self.check_fails(["convert", *out, "--like", self.at("hf")], 1, "the file to follow must have the format gguf")
        self.check_fails(["convert", *out, *like, "--to", "tp=2"], 1, "cannot be split over tp=2")
        self.check_fails(["convert", *out, *like, "--dtype", "f64"], 1, "f32, f16, bf16 or q8_0")
        self.check_fails(["convert", *out, *like, "--dtype", "model.*=q8_0"], 1, "a single dtype for all tensors")
        self.check_fails(["convert", *out, *like, "--exclude", "lm_head.weight"], 1, "1 of its tensors would be missing: output.weight")
        with open(self.at("out.gguf"), "w", encoding="utf-8"):
            pass
        self.check_fails(["convert", *out, *like], 1, "exists already")
        os.unlink(self.at("out.gguf"))
        one = {**model, "x": ("blk.9.x.weight", [WIDE], [])}
        self.base(one, self.typed("F16"))
        self.check_fails(["convert", *out, *like], 1, "1 of its tensors would be missing: blk.9.x.weight")
        few = {n: one for n, one in model.items() if "norm" not in n}
        self.base(few, self.typed("F16"))
        self.check_fails(["convert", *out, *like], 1, "blk.0.attn_norm.weight, blk.0.ffn_norm.weight, output_norm.weight")
        other = {**model, "lm_head.weight": ("output.weight", [12, WIDE], [])}
        self.base(other, self.typed("F16"))
        self.check_fails(["convert", *out, *like], 1, 'tensor "output.weight" is 12x64 there, and 10x64 in the model')
        self.base(model, self.typed("Q4_0"))
        self.check_fails(["convert", *out, *like], 1, "is Q4_0 in")
        self.check_fails(["convert", *out, *like], 1, "(--dtype q8_0)")
        llama = [("general.architecture", gguf.TEXT, "llama"), *self.VALUES[1:]]
        self.base(model, self.typed("F16"), values=llama)
        self.check_fails(["convert", *out, *like], 1, 'holds a model of type "llama", but "qwen2" would be written')
        self.base(model, self.typed("F16"), alignment=16)
        self.check_fails(["convert", *out, *like], 1, "its alignment is 16")
        self.assertFalse(os.path.exists(self.at("out.gguf")))

    def test_numbers_that_contradict_the_configuration(self):
        """Other heads, or other angles: the tensors have the same shapes, and a program that loads them computes something else."""
        model = self.qwen2()
        tensors = {n: (shape, x) for n, (_, shape, x) in model.items()}
        config = {**self.CONFIG, "num_key_value_heads": 4, "rope_theta": 10000, "rms_norm_eps": 1e-5, "max_position_embeddings": 64}
        right = {"attention.head_count_kv": (gguf.U32, 4), "rope.freq_base": (gguf.F32, 10000.0), "attention.layer_norm_rms_epsilon": (gguf.F32, 1e-5),
                 "context_length": (gguf.U32, 64)}
        cases = [({}, None), ({"context_length": (gguf.U32, 1 << 20)}, None),
                 ({"attention.head_count_kv": (gguf.U32, 2)}, "num_key_value_heads is 2, but by config.json of the model that is to be written it is 4"),
                 ({"rope.freq_base": (gguf.F32, 500000.0)}, "rope_theta is 500000"), ({"attention.layer_norm_rms_epsilon": (gguf.F32, 1e-6)}, "rms_norm_eps is 1e-06")]
        self.write_hf(tensors, config)
        for change, words in cases:
            more = [(f"qwen2.{key}", kind, content) for key, (kind, content) in {**right, **change}.items()]
            self.base(model, self.typed("F16"), values=self.VALUES + more)
            if words is None:
                self.convert()
                os.unlink(self.at("out.gguf"))
            else:
                self.check_fails(["convert", self.at("hf"), self.at("out.gguf"), "--as", "gguf", "--like", self.at("base.gguf")], 1, words)
        self.write_hf(tensors, {**config, "num_attention_heads": 8})
        self.check_fails(["convert", self.at("hf"), self.at("out.gguf"), "--as", "gguf", "--like", self.at("base.gguf")], 1, "num_attention_heads is 4, but")
        self.write_hf(tensors, {**config, "model_type": "llama"})
        self.check_fails(["convert", self.at("hf"), self.at("out.gguf"), "--as", "gguf", "--like", self.at("base.gguf")], 1, "follow a file of the same type")
        # The other way round: a config.json for what a GGUF file holds.
        for other, words in (({"num_attention_heads": 8}, "its files say that num_attention_heads is 4, but config.json that it is 8"),
                             ({"model_type": "llama"}, 'its files say that the model is of type "qwen2", but config.json that it is "llama"')):
            self.write_hf(tensors, {**config, **other})
            self.check_fails(["convert", self.at("base.gguf"), self.at("back"), "--as", "hf", "--config", self.at("hf")], 1, words)
        # What orders no rows is warned about: the file may be the wrong one.
        self.write_hf(tensors, config)
        done = support.run("convert", self.at("base.gguf"), self.at("warned"), "--as", "hf", "--config", self.at("hf"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("warning: its files say that rms_norm_eps is 1e-06, but config.json that it is 1e-05;", done.stderr)
        self.write_hf(tensors, {**config, "rms_norm_eps": 1e-6})
        self.read_text("convert", self.at("base.gguf"), self.at("back"), "--as", "hf", "--config", self.at("hf"))

    def test_numbers_that_q8_0_cannot_hold(self):
        model = self.qwen2()
        self.base(model, self.typed("Q8_0"))
        for wrong, words in ((math.nan, "element [3, 40] is nan"), (math.inf, "element [3, 40] is inf"), (-8.4e6, "element [3, 40] is -8.4e+06")):
            tensors = {n: (shape, list(x)) for n, (_, shape, x) in model.items()}
            tensors["lm_head.weight"][1][3 * WIDE + 40] = wrong
            self.write_hf(tensors, self.CONFIG)
            self.check_fails(["convert", self.at("hf"), self.at("out.gguf"), "--as", "gguf", "--like", self.at("base.gguf")], 1, words)
            self.assertFalse(os.path.exists(self.at("out.gguf")))
            shutil.rmtree(self.at("out.gguf.partial"))
        odd = {"a": ("output.weight", [2, 33], self.numbers(66))}
        self.base(odd, lambda name, shape: "F16", values=[("general.architecture", gguf.TEXT, "none")])
        self.write_hf({"output.weight": ([2, 33], odd["a"][2])}, {}, "odd")
        self.check_fails(["convert", self.at("odd"), self.at("out.gguf"), "--format", "gguf", "--like", self.at("base.gguf"), "--dtype", "q8_0"], 1,
                         "its rows have 33 elements, which is not a multiple of the 32")

    def test_tied_heads(self):
        """An example with a head, and a model without: the head is a copy of the embedding. The other way round it is left out."""
        model = self.qwen2()
        tensors = {n: (shape, x) for n, (_, shape, x) in model.items() if n != "lm_head.weight"}
        self.write_hf(tensors, {**self.CONFIG, "tie_word_embeddings": True})
        base = self.base(model, self.typed("F16"))
        self.assertIn("the head is tied", self.convert())
        tied = {**model, "lm_head.weight": ("output.weight", [10, WIDE], model["model.embed_tokens.weight"][2])}
        self.assertEqual(self.read("out.gguf"), self.expected(tied, base, self.typed("F16"), 1))
        os.unlink(self.at("out.gguf"))
        self.write_hf(tensors, self.CONFIG)
        self.check_fails(["convert", self.at("hf"), self.at("out.gguf"), "--as", "gguf", "--like", self.at("base.gguf")], 1, "would be missing: output.weight")
        without = {n: one for n, one in model.items() if n != "lm_head.weight"}
        base = self.base(without, self.typed("F16"))
        self.write_hf({n: (shape, x) for n, (_, shape, x) in tied.items()}, {**self.CONFIG, "tie_word_embeddings": True})
        self.assertIn('"output.weight" is left out', self.convert())
        self.assertEqual(self.read("out.gguf"), self.expected(without, base, self.typed("F16"), 1))

    def test_heads_that_are_said_to_be_tied(self):
        """A head that differs from the embedding is neither lost nor replaced by it because of a word in config.json."""
        model = self.qwen2()
        os.makedirs(self.at("hf"), exist_ok=True)
        self.write_hf({n: (shape, x) for n, (_, shape, x) in model.items()}, {**self.CONFIG, "tie_word_embeddings": True})
        without = {n: one for n, one in model.items() if n != "lm_head.weight"}
        for one in (model, without):
            base = self.base(one, self.typed("F16"))
            self.check_fails(["convert", self.at("hf"), self.at("out.gguf"), "--as", "gguf", "--like", self.at("base.gguf")], 1,
                             'does not equal "token_embd.weight", though config.json says that the head is tied')
            self.assertFalse(os.path.exists(self.at("out.gguf")))
        base = self.base(model, self.typed("F16"))
        self.convert("--set", "tie_word_embeddings=0")
        self.assertEqual(self.read("out.gguf"), self.expected(model, base, self.typed("F16"), 1))

    def test_parts_to_follow(self):
        """The example is in parts: keys about these are left out."""
        model = self.qwen2()
        self.write_hf({n: (shape, x) for n, (_, shape, x) in model.items()}, self.CONFIG)
        base = self.base(model, self.typed("F16"))
        for part, some in enumerate((base[:5], base[5:])):
            values = [("split.no", gguf.U16, part), *(self.VALUES if part == 0 else []), ("split.count", gguf.U16, 2), ("split.tensors.count", gguf.I32, len(base))]
            gguf.write(self.at(f"parts-0000{part + 1}-of-00002.gguf"), values, some)
        self.convert(base="parts-00002-of-00002.gguf")
        self.assertEqual(self.read("out.gguf"), self.expected(model, base, self.typed("F16"), 1))

    def test_written_in_parts(self):
        model = self.qwen2()
        self.write_hf({n: (shape, x) for n, (_, shape, x) in model.items()}, self.CONFIG)
        for alignment in (32, 64):
            base = self.base(model, self.typed("Q8_0"), alignment=alignment)
            whole = self.expected(model, base, self.typed("Q8_0"), 1, alignment=alignment)
            self.convert("--verify", "--max-shard-size", "10K", target="parts")
            by_name = {other: numbers for other, _, numbers in model.values()}
            parts, room = [], 0
            for name, type_name, shape, data in base:
                size = len(gguf.pad(data, alignment))
                if not parts or room + size > 10 << 10:
                    parts.append([])
                    room = 0
                room += size
                parts[-1].append((name, type_name, shape, pack(type_name, by_name[name])))
            self.assertGreater(len(parts), 2)
            self.assertEqual(sorted(os.listdir(self.at("parts"))), [f"model-{i + 1:05}-of-{len(parts):05}.gguf" for i in range(len(parts))])
            aligned = [("general.alignment", gguf.U32, alignment)] if alignment != 32 else []
            for i, part in enumerate(parts):
                values = (self.VALUES + aligned if i == 0 else aligned) + [("split.no", gguf.U16, i), ("split.count", gguf.U16, len(parts)),
                                                                           ("split.tensors.count", gguf.I32, len(base))]
                wanted = gguf.make(values, part, alignment=32) if alignment == 32 else self.with_alignment(values, part, alignment)
                self.assertEqual(self.read(f"parts/model-{i + 1:05}-of-{len(parts):05}.gguf"), wanted)
            self.convert("--max-shard-size", "1G")
            self.assertEqual(self.read("out.gguf"), whole)
            self.read_text("verify", self.at("parts"), self.at("out.gguf"))
            shutil.rmtree(self.at("parts"))
            os.unlink(self.at("out.gguf"))

    @staticmethod
    def with_alignment(values, tensors, alignment):
        """gguf_files.make puts the key last; here it has its place already."""
        head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)) + b"".join(gguf.value(*one) for one in values)
        data = b""
        for name, type_name, shape, content in tensors:
            head += gguf.tensor_info(name, gguf.TYPES[type_name][0], shape, len(data))
            data = gguf.pad(data + content, alignment)
        return gguf.pad(head, alignment) + data

    def test_many_key_values(self):
        """More than is copied: refused, without reading it."""
        count = 256 << 20
        head = b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + gguf.text("x") + struct.pack("<IIQ", gguf.LIST, gguf.U8, count)
        with open(self.at("base.gguf"), "wb") as file:
            file.write(head)
            file.seek(count, 1)
            file.write(gguf.tensor_info("output.weight", 0, [4], 0))
            file.write(bytes(64))
        self.write_hf({"output.weight": ([4], [0.0] * 4)}, {})
        self.check_fails(["convert", self.at("hf"), self.at("out.gguf"), "--format", "gguf", "--like", self.at("base.gguf")], 1, "its key-values take 268435481 bytes")

    def test_what_exists(self):
        """A dry run leaves nothing; a file that is there stays as it is."""
        model = self.qwen2()
        self.write_hf({n: (shape, x) for n, (_, shape, x) in model.items()}, self.CONFIG)
        self.base(model, self.typed("Q8_0"))
        arguments = ["convert", self.at("hf"), self.at("out.gguf"), "--as", "gguf", "--like", self.at("base.gguf")]
        plan = self.read_json(*arguments, "--dry-run")
        self.assertEqual(plan["format"], "gguf")
        self.assertFalse(os.path.exists(self.at("out.gguf")))
        self.convert()
        whole = self.read("out.gguf")
        self.check_fails(arguments, 1, "exists already")
        self.check_fails([*arguments, "--resume"], 1, "exists already")
        self.assertEqual(self.read("out.gguf"), whole)


if __name__ == "__main__":
    support.main()
