# SPDX-License-Identifier: Apache-2.0
"""Models under GGUF's names become those of Hugging Face: every architecture that has a map, with small tensors of distinct numbers.
Here, what GGUF holds is made from what Hugging Face holds element by element; the command goes the other way by its maps."""
import json
import os
import shutil
import struct
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, "..", "support"), os.path.join(HERE, "..", "..", "cli")]
import files
import gguf_files as gguf
import support

LAYERS, HIDDEN, HEADS, GROUPS, HEAD, WIDE, VOCABULARY, EXPERTS = 2, 8, 4, 2, 4, 6, 10, 3


def count_up():
    number = 0
    while True:
        number += 1
        yield float(number)


class Model:
    """Tensors of Hugging Face, and of GGUF, as (shape, numbers)."""

    def __init__(self):
        self.numbers, self.hf, self.gguf = count_up(), {}, {}

    def new(self, *shape):
        count = 1
        for extent in shape:
            count *= extent
        return list(shape), [next(self.numbers) for _ in range(count)]

    def add(self, name, other, *shape, change=lambda tensor: tensor):
        """A tensor of Hugging Face, and what GGUF has for it."""
        self.hf[name] = self.new(*shape)
        self.gguf[other] = change(self.hf[name])

    def bytes(self, tensor):
        return struct.pack(f"<{len(tensor[1])}f", *tensor[1])


def at(tensor, *place):
    shape, numbers = tensor
    index = 0
    for extent, one in zip(shape, place):
        index = index * extent + one
    return numbers[index]


def alternate(heads):
    """Rows of a head: first halves and second halves take turns."""
    def change(tensor):
        shape, _ = tensor
        columns = shape[1] if len(shape) == 2 else 1
        flat = [shape[0], columns], tensor[1]
        rows = shape[0] // heads
        out = []
        for head in range(heads):
            for i in range(rows):
                source = head * rows + (i % 2) * (rows // 2) + i // 2
                out += [at(flat, source, c) for c in range(columns)]
        return shape, out
    return change


def plus_one(tensor):
    return tensor[0], [number + 1 for number in tensor[1]]


def frame(model, norm=lambda tensor: tensor, head=True):
    model.add("model.embed_tokens.weight", "token_embd.weight", VOCABULARY, HIDDEN)
    model.add("model.norm.weight", "output_norm.weight", HIDDEN, change=norm)
    if head:
        model.add("lm_head.weight", "output.weight", VOCABULARY, HIDDEN)


def attention(model, n, rotary=None, biases=(), norms=False, norm=lambda tensor: tensor):
    here, there = f"model.layers.{n}.self_attn.", f"blk.{n}.attn_"
    for p, q, rows, heads in (("q_proj", "q", HEADS * HEAD, HEADS), ("k_proj", "k", GROUPS * HEAD, GROUPS), ("v_proj", "v", GROUPS * HEAD, None)):
        change = rotary(heads) if rotary and heads else lambda tensor: tensor
        model.add(f"{here}{p}.weight", f"{there}{q}.weight", rows, HIDDEN, change=change)
        if q in biases:
            model.add(f"{here}{p}.bias", f"{there}{q}.bias", rows, change=change)
    model.add(f"{here}o_proj.weight", f"{there}output.weight", HIDDEN, HEADS * HEAD)
    if "o" in biases:
        model.add(f"{here}o_proj.bias", f"{there}output.bias", HIDDEN)
    if norms:
        for p in "qk":
            model.add(f"{here}{p}_norm.weight", f"{there}{p}_norm.weight", HEAD, change=norm)


def block_norms(model, n, second="ffn_norm"):
    model.add(f"model.layers.{n}.input_layernorm.weight", f"blk.{n}.attn_norm.weight", HIDDEN)
    model.add(f"model.layers.{n}.post_attention_layernorm.weight", f"blk.{n}.{second}.weight", HIDDEN)


def feed_forward(model, here, there):
    for p, shape in (("gate", (WIDE, HIDDEN)), ("up", (WIDE, HIDDEN)), ("down", (HIDDEN, WIDE))):
        model.add(here % p, there % p, *shape)


def experts(model, here, there, words=("gate", "up", "down")):
    """One tensor for each expert, and one for all of them."""
    for p, word, shape in zip(("gate", "up", "down"), words, ((WIDE, HIDDEN), (WIDE, HIDDEN), (HIDDEN, WIDE))):
        stacked = []
        for e in range(EXPERTS):
            name = here % (e, word)
            model.hf[name] = model.new(*shape)
            stacked += model.hf[name][1]
        model.gguf[there % p] = [EXPERTS, *shape], stacked


def llama(model):
    frame(model)
    for n in range(LAYERS):
        block_norms(model, n)
        attention(model, n, alternate, "qkvo")
        feed_forward(model, f"model.layers.{n}.mlp.%s_proj.weight", f"blk.{n}.ffn_%s.weight")
    model.gguf["rope_freqs.weight"] = model.new(HEAD // 2)


def granite(model):
    """A Llama with a tied head and four multipliers, which are key-values. In real files they are fractions."""
    frame(model, head=False)
    for n in range(LAYERS):
        block_norms(model, n)
        attention(model, n, alternate)
        feed_forward(model, f"model.layers.{n}.mlp.%s_proj.weight", f"blk.{n}.ffn_%s.weight")
    return {"attention.scale": 2, "embedding_scale": 12, "residual_scale": 3, "logit_scale": 8}


def mixtral(model):
    frame(model)
    for n in range(LAYERS):
        block_norms(model, n)
        attention(model, n, alternate)
        model.add(f"model.layers.{n}.block_sparse_moe.gate.weight", f"blk.{n}.ffn_gate_inp.weight", EXPERTS, HIDDEN)
        experts(model, f"model.layers.{n}.block_sparse_moe.experts.%d.%s.weight", f"blk.{n}.ffn_%s_exps.weight", ("w1", "w3", "w2"))


def qwen2(model):
    frame(model, head=False)
    for n in range(LAYERS):
        block_norms(model, n)
        attention(model, n, biases="qkv")
        feed_forward(model, f"model.layers.{n}.mlp.%s_proj.weight", f"blk.{n}.ffn_%s.weight")


def qwen3(model):
    frame(model)
    for n in range(LAYERS):
        block_norms(model, n)
        attention(model, n, norms=True)
        feed_forward(model, f"model.layers.{n}.mlp.%s_proj.weight", f"blk.{n}.ffn_%s.weight")


def qwen_experts(model, n):
    block_norms(model, n)
    model.add(f"model.layers.{n}.mlp.gate.weight", f"blk.{n}.ffn_gate_inp.weight", EXPERTS, HIDDEN)
    experts(model, f"model.layers.{n}.mlp.experts.%d.%s_proj.weight", f"blk.{n}.ffn_%s_exps.weight")


def qwen3moe(model):
    frame(model)
    for n in range(LAYERS):
        attention(model, n, norms=True)
        qwen_experts(model, n)


def qwen2moe(model):
    frame(model)
    for n in range(LAYERS):
        attention(model, n, biases="qkv")
        qwen_experts(model, n)
        feed_forward(model, f"model.layers.{n}.mlp.shared_expert.%s_proj.weight", f"blk.{n}.ffn_%s_shexp.weight")
        model.add(f"model.layers.{n}.mlp.shared_expert_gate.weight", f"blk.{n}.ffn_gate_inp_shexp.weight", 1, HIDDEN,
                  change=lambda tensor: ([HIDDEN], tensor[1]))


def phi3(model):
    frame(model)
    for n in range(LAYERS):
        block_norms(model, n)
        model.add(f"model.layers.{n}.self_attn.qkv_proj.weight", f"blk.{n}.attn_qkv.weight", (HEADS + 2 * GROUPS) * HEAD, HIDDEN)
        model.add(f"model.layers.{n}.self_attn.o_proj.weight", f"blk.{n}.attn_output.weight", HIDDEN, HEADS * HEAD)
        model.add(f"model.layers.{n}.mlp.gate_up_proj.weight", f"blk.{n}.ffn_up.weight", 2 * WIDE, HIDDEN)
        model.add(f"model.layers.{n}.mlp.down_proj.weight", f"blk.{n}.ffn_down.weight", HIDDEN, WIDE)
    for length in ("long", "short"):
        model.gguf[f"rope_factors_{length}.weight"] = model.new(HEAD // 2)


def gemma(model, norms):
    frame(model, plus_one, head=False)
    for n in range(LAYERS):
        for name, other in (("input", "attn_norm"), ("post_attention", "post_attention_norm"), ("pre_feedforward", "ffn_norm"),
                            ("post_feedforward", "post_ffw_norm")):
            model.add(f"model.layers.{n}.{name}_layernorm.weight", f"blk.{n}.{other}.weight", HIDDEN, change=plus_one)
        attention(model, n, norms=norms, norm=plus_one)
        feed_forward(model, f"model.layers.{n}.mlp.%s_proj.weight", f"blk.{n}.ffn_%s.weight")


def gpt_oss(model):
    frame(model)
    for n in range(LAYERS):
        block_norms(model, n, "post_attention_norm")
        attention(model, n, biases="qkvo")
        here, there = f"model.layers.{n}.", f"blk.{n}."
        model.add(here + "self_attn.sinks", there + "attn_sinks.weight", HEADS)
        model.add(here + "mlp.router.weight", there + "ffn_gate_inp.weight", EXPERTS, HIDDEN)
        model.add(here + "mlp.router.bias", there + "ffn_gate_inp.bias", EXPERTS)
        both = model.hf[here + "mlp.experts.gate_up_proj"] = model.new(EXPERTS, HIDDEN, 2 * WIDE)
        bias = model.hf[here + "mlp.experts.gate_up_proj_bias"] = model.new(EXPERTS, 2 * WIDE)
        for k, word in enumerate(("gate", "up")):
            model.gguf[there + f"ffn_{word}_exps.weight"] = [EXPERTS, WIDE, HIDDEN], [
                at(both, e, i, 2 * f + k) for e in range(EXPERTS) for f in range(WIDE) for i in range(HIDDEN)]
            model.gguf[there + f"ffn_{word}_exps.bias"] = [EXPERTS, WIDE], [at(bias, e, 2 * f + k) for e in range(EXPERTS) for f in range(WIDE)]
        model.add(here + "mlp.experts.down_proj", there + "ffn_down_exps.weight", EXPERTS, WIDE, HIDDEN, change=lambda down: (
            [EXPERTS, HIDDEN, WIDE], [at(down, e, f, i) for e in range(EXPERTS) for i in range(HIDDEN) for f in range(WIDE)]))
        model.add(here + "mlp.experts.down_proj_bias", there + "ffn_down_exps.bias", EXPERTS, HIDDEN)


def deepseek2(model):
    nope, rope, value, rank = 3, 2, 5, 7
    frame(model)
    for n in range(LAYERS):
        block_norms(model, n)
        here, there = f"model.layers.{n}.", f"blk.{n}."
        for name, other, *shape in (("q_a_proj", "q_a", 6, HIDDEN), ("q_a_layernorm", "q_a_norm", 6), ("q_b_proj", "q_b", HEADS * (nope + rope), 6),
                                    ("kv_a_proj_with_mqa", "kv_a_mqa", rank + rope, HIDDEN), ("kv_a_layernorm", "kv_a_norm", rank),
                                    ("o_proj", "output", HIDDEN, HEADS * value)):
            model.add(f"{here}self_attn.{name}.weight", f"{there}attn_{other}.weight", *shape)
        kv = model.hf[here + "self_attn.kv_b_proj.weight"] = model.new(HEADS * (nope + value), rank)
        model.gguf[there + "attn_k_b.weight"] = [HEADS, rank, nope], [
            at(kv, h * (nope + value) + k, c) for h in range(HEADS) for c in range(rank) for k in range(nope)]
        model.gguf[there + "attn_v_b.weight"] = [HEADS, value, rank], [
            at(kv, h * (nope + value) + nope + v, c) for h in range(HEADS) for v in range(value) for c in range(rank)]
        if n == 0:
            feed_forward(model, here + "mlp.%s_proj.weight", there + "ffn_%s.weight")
            continue
        model.add(here + "mlp.gate.weight", there + "ffn_gate_inp.weight", EXPERTS, HIDDEN)
        experts(model, here + "mlp.experts.%d.%s_proj.weight", there + "ffn_%s_exps.weight")
        feed_forward(model, here + "mlp.shared_experts.%s_proj.weight", there + "ffn_%s_shexp.weight")
    return {"attention.key_length_mla": nope + rope, "rope.dimension_count": rope, "attention.value_length_mla": value,
            "attention.kv_lora_rank": rank, "attention.q_lora_rank": 6}


# architecture: how it is made, more key-values, its type in Hugging Face
MODELS = [("llama", llama, {}, "llama"), ("llama", mixtral, {"expert_count": EXPERTS}, "mixtral"), ("granite", granite, {}, "granite"), ("qwen2", qwen2, {}, "qwen2"),
          ("qwen3", qwen3, {}, "qwen3"), ("qwen3moe", qwen3moe, {"expert_count": EXPERTS}, "qwen3_moe"),
          ("qwen2moe", qwen2moe, {"expert_count": EXPERTS}, "qwen2_moe"), ("phi3", phi3, {}, "phi3"),
          ("gemma2", lambda model: gemma(model, False), {}, "gemma2"), ("gemma3", lambda model: gemma(model, True), {}, "gemma3_text"),
          ("gpt-oss", gpt_oss, {"expert_count": EXPERTS}, "gpt_oss"), ("deepseek2", deepseek2, {"expert_count": EXPERTS}, "deepseek_v2")]


class GgufNamesTest(support.CommandTest):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="reshard-test-")
        self.addCleanup(shutil.rmtree, self.folder)

    def make(self, architecture, build, more):
        model = Model()
        more = {**more, **(build(model) or {})}
        keys = {"block_count": LAYERS, "embedding_length": HIDDEN, "attention.head_count": HEADS, "attention.head_count_kv": GROUPS, "attention.key_length": HEAD,
                "feed_forward_length": WIDE, "context_length": 64, **more}
        values = [("general.architecture", gguf.TEXT, architecture), (f"{architecture}.attention.layer_norm_rms_epsilon", gguf.F32, 1e-6)]
        values += [(f"{architecture}.{key}", gguf.U32, number) for key, number in keys.items()]
        gguf.write(f"{self.folder}/m.gguf", values, [(name, "F32", shape, model.bytes((shape, numbers)))
                                                     for name, (shape, numbers) in model.gguf.items()])
        return model

    def test_every_architecture(self):
        for architecture, build, more, model_type in MODELS:
            with self.subTest(model_type):
                shutil.rmtree(f"{self.folder}/out", ignore_errors=True)
                model = self.make(architecture, build, more)
                said = self.read_text("convert", f"{self.folder}/m.gguf", f"{self.folder}/out", "--as", "hf", "--verify")
                self.assertIn("the tokenizer is not converted", said)
                found = files.read(f"{self.folder}/out/model.safetensors")[0]
                self.assertEqual(sorted(found), sorted(model.hf))
                for name, tensor in model.hf.items():
                    self.assertEqual(tuple(found[name]), ("F32", tuple(tensor[0]), model.bytes(tensor)), name)
                with open(f"{self.folder}/out/config.json", encoding="utf-8") as file:
                    config = json.load(file)
                self.assertEqual((config["model_type"], config["hidden_size"], config["num_hidden_layers"], config["vocab_size"],
                                  config["torch_dtype"], config["tie_word_embeddings"], config["rms_norm_eps"]),
                                 (model_type, HIDDEN, LAYERS, VOCABULARY, "float32", "lm_head.weight" not in model.hf, 1e-6))

    def test_multipliers(self):
        """Granite's go into config.json under Hugging Face's names."""
        self.make("granite", granite, {})
        self.read_text("convert", f"{self.folder}/m.gguf", f"{self.folder}/out", "--as", "hf")
        with open(f"{self.folder}/out/config.json", encoding="utf-8") as file:
            config = json.load(file)
        self.assertEqual([config[f"{name}_multiplier"] for name in ("attention", "embedding", "residual")] + [config["logits_scaling"]], [2, 12, 3, 8])

    def test_cut_over_a_mesh(self):
        """The rules of the model's family find their numbers in the key-values."""
        model = self.make("qwen3", qwen3, {})
        self.read_text("convert", f"{self.folder}/m.gguf", f"{self.folder}/cut", "--as", "hf", "--to", "tp=2")
        self.read_text("convert", f"{self.folder}/cut", f"{self.folder}/out")
        found = files.read(f"{self.folder}/out/model.safetensors")[0]
        self.assertEqual({name: bytes(value[2]) for name, value in found.items()}, {name: model.bytes(t) for name, t in model.hf.items()})

    def test_own_config_counts(self):
        """A config.json beside the file is used, and goes along."""
        self.make("qwen2", qwen2, {})
        config = {"model_type": "qwen2", "num_hidden_layers": LAYERS, "mine": True}
        with open(f"{self.folder}/config.json", "w", encoding="utf-8") as file:
            json.dump(config, file)
        self.read_text("convert", f"{self.folder}/m.gguf", f"{self.folder}/out", "--as", "hf")
        with open(f"{self.folder}/out/config.json", encoding="utf-8") as file:
            self.assertEqual(json.load(file), config)

    def test_what_cannot_be_named(self):
        gguf.write(f"{self.folder}/m.gguf", [("general.architecture", gguf.TEXT, "mamba")], [("blk.0.attn_norm.weight", "F32", [1], bytes(4))])
        self.check_fails(["convert", f"{self.folder}/m.gguf", f"{self.folder}/out", "--as", "hf"], 1, "no config.json names a model_type")
        model = self.make("qwen2", qwen2, {})
        extra = [(name, "F32", shape, model.bytes((shape, numbers))) for name, (shape, numbers) in model.gguf.items()]
        gguf.write(f"{self.folder}/m.gguf", [("general.architecture", gguf.TEXT, "qwen2"), ("qwen2.block_count", gguf.U32, LAYERS)],
                   extra + [("blk.0.attn_q.scale", "F32", [1], bytes(4))])
        self.check_fails(["convert", f"{self.folder}/m.gguf", f"{self.folder}/out", "--as", "hf"], 1, "blk.0.attn_q.scale")

    def test_scaled_rotary_embeddings_are_said(self):
        self.make("llama", llama, {})
        self.assertIn("add rope_scaling", self.read_text("inspect", f"{self.folder}/m.gguf"))


if __name__ == "__main__":
    support.main()
