# SPDX-License-Identifier: Apache-2.0
"""Small models under Hugging Face's names, and what each tensor-parallel rank of vLLM has of them: names, shapes and elements, by
slices of lists. Written from what vLLM's sources do; knows nothing of maps, rules or layouts.

Tensors are (dtype, shape, bytes). H, heads, vocabulary and so on are those of the table that was worked out by hand (TABLE)."""
import struct

import files

H, HEADS, KV, D, INNER, V, LAYERS = 64, 8, 2, 8, 96, 100, 2
PADDED = 128  # the vocabulary, rounded up to 64
EXPERTS, MOE = 8, 16

# by tp: shapes of qkv_proj, o_proj, gate_up_proj, down_proj, embedding and head on every rank; the key-value heads of each rank
TABLE = {1: ((96, 64), (64, 64), (192, 64), (64, 96), (128, 64), [(0, 1)]),
         2: ((48, 64), (64, 32), (96, 64), (64, 48), (64, 64), [(0,), (1,)]),
         4: ((32, 64), (64, 16), (48, 64), (64, 24), (32, 64), [(0,), (0,), (1,), (1,)]),
         8: ((24, 64), (64, 8), (24, 64), (64, 12), (16, 64), [(0,)] * 4 + [(1,)] * 4)}


class Array:
    """Elements in row-major order."""

    def __init__(self, dtype, shape, items):
        self.dtype, self.shape, self.items = dtype, tuple(shape), items
        assert len(items) == files.volume(shape)

    @staticmethod
    def of(value):
        dtype, shape, data = value
        width = files.BITS[dtype] // 8
        return Array(dtype, shape, [data[i:i + width] for i in range(0, len(data), width)])

    def value(self):
        return (self.dtype, self.shape, b"".join(self.items))

    def take(self, dim, indices):
        """The slices with these indices of one dimension, in this order."""
        inner = files.volume(self.shape[dim + 1:])
        step = inner * self.shape[dim]
        items = []
        for begin in range(0, len(self.items), step):
            for i in indices:
                assert 0 <= i < self.shape[dim]
                items += self.items[begin + i * inner:begin + (i + 1) * inner]
        return Array(self.dtype, (*self.shape[:dim], len(indices), *self.shape[dim + 1:]), items)

    def part(self, dim, rank, ranks):
        """One of equal parts of a dimension."""
        size = self.shape[dim] // ranks
        assert size * ranks == self.shape[dim], (self.shape, dim, ranks)
        return self.take(dim, range(rank * size, (rank + 1) * size))

    def swap(self):
        """The last two dimensions exchanged."""
        *front, a, b = self.shape
        items = []
        for begin in range(0, len(self.items), a * b):
            for j in range(b):
                items += self.items[begin + j:begin + a * b:b]
        return Array(self.dtype, (*front, b, a), items)

    def pad(self, rows):
        """With rows of zeros at the end."""
        width = files.BITS[self.dtype] // 8
        inner = files.volume(self.shape[1:])
        return Array(self.dtype, (rows, *self.shape[1:]), self.items + [bytes(width)] * ((rows - self.shape[0]) * inner))

    def zeros(self):
        return Array(self.dtype, self.shape, [bytes(files.BITS[self.dtype] // 8)] * len(self.items))


def join(dim, *arrays):
    first = arrays[0]
    length = sum(a.shape[dim] for a in arrays)
    items = []
    for k in range(files.volume(first.shape[:dim])):
        for a in arrays:
            step = files.volume(a.shape[dim:])
            items += a.items[k * step:(k + 1) * step]
    return Array(first.dtype, (*first.shape[:dim], length, *first.shape[dim + 1:]), items)


def stack(arrays):
    return Array(arrays[0].dtype, (len(arrays), *arrays[0].shape), [x for a in arrays for x in a.items])


def shared_place(name, version):
    """Where a layer of experts holds the shared one."""
    if version >= 24:
        return "experts._shared_experts._layer."
    return name if version >= 20 or version <= 11 else "experts._shared_experts."


ONE = ("F32", (), struct.pack("<f", 1.0))


class Model:
    """Tensors under hf's names, and config.json. `engine` makes what one rank has."""
    prefix, attention, norms = "", "self_attn", False

    def __init__(self, rnd, model_type, kv=KV, tied=False, bias=False, **config):
        self.rnd, self.tensors, self.kv, self.tied, self.bias = rnd, {}, kv, tied, bias
        self.config = {"model_type": model_type, "hidden_size": H, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
                       "num_key_value_heads": kv, "head_dim": D, "vocab_size": V, "tie_word_embeddings": tied,
                       "intermediate_size": INNER, **config}
        self.add(self.prefix + "model.embed_tokens.weight", V, H)
        self.add(self.prefix + "model.norm.weight", H)
        if not tied:
            self.add(self.prefix + "lm_head.weight", V, H)
        for n in range(LAYERS):
            at = self.layer(n)
            self.add(at + "input_layernorm.weight", H)
            self.add(at + "post_attention_layernorm.weight", H)
            self.add_attention(at + "self_attn.")
            self.add_rest(n, at)

    def layer(self, n):
        return f"{self.prefix}model.layers.{n}."

    def add(self, name, *shape, dtype="BF16"):
        self.tensors[name] = (dtype, shape, self.rnd.randbytes(files.size_of(dtype, shape)))

    def add_attention(self, at):
        for name, rows in [("q", HEADS * D), ("k", self.kv * D), ("v", self.kv * D)]:
            self.add(f"{at}{name}_proj.weight", rows, H)
            if self.bias:
                self.add(f"{at}{name}_proj.bias", rows)
        self.add(at + "o_proj.weight", H, HEADS * D)
        if self.norms:
            self.add(at + "q_norm.weight", D)
            self.add(at + "k_norm.weight", D)

    def add_mlp(self, at, rows):
        self.add(at + "gate_proj.weight", rows, H)
        self.add(at + "up_proj.weight", rows, H)
        self.add(at + "down_proj.weight", H, rows)

    def add_rest(self, n, at):
        self.add_mlp(at + "mlp.", INNER)

    # ---- what a rank has ----

    def get(self, name):
        return Array.of(self.tensors[name])

    def heads(self, rank, tp):
        """The key-value heads of a rank: its share, or the one that several ranks have."""
        if tp <= self.kv:
            return list(range(rank * self.kv // tp, (rank + 1) * self.kv // tp))
        return [rank // (tp // self.kv)]

    def turn(self, array):
        """Rows of query or key heads, as the engine orders them."""
        return array

    def qkv(self, at, kind, rank, tp):
        rows = [h * D + i for h in self.heads(rank, tp) for i in range(D)]
        q, k, v = (self.get(f"{at}{x}_proj.{kind}") for x in "qkv")
        return join(0, self.turn(q).part(0, rank, tp), self.turn(k).take(0, rows), v.take(0, rows))

    def gate_up(self, at, rank, tp):
        return join(0, *(self.get(f"{at}{x}_proj.weight").part(0, rank, tp) for x in ("gate", "up")))

    def engine(self, rank, tp, ep=1, version=28):
        """{name: value} of one rank."""
        made = {}
        vocabulary = lambda name: self.get(self.prefix + name).pad(PADDED).part(0, rank, tp)
        if self.tied:
            made[self.prefix + "lm_head.weight"] = vocabulary("model.embed_tokens.weight")
        else:
            made[self.prefix + self.embedding] = vocabulary("model.embed_tokens.weight")
            made[self.prefix + "lm_head.weight"] = vocabulary("lm_head.weight")
        made[self.prefix + "model.norm.weight"] = self.get(self.prefix + "model.norm.weight")
        for n in range(LAYERS):
            at = self.layer(n)
            for name in ("input_layernorm.weight", "post_attention_layernorm.weight"):
                made[at + name] = self.get(at + name)
            self.make_attention(made, at, rank, tp, version)
            self.make_rest(made, n, at, rank, tp, ep, version)
        return {name: array.value() for name, array in made.items()}

    embedding = "model.embed_tokens.weight"

    def make_attention(self, made, at, rank, tp, version):
        source, target = at + "self_attn.", f"{at}{self.attention}."
        for kind in ["weight"] + ["bias"] * self.bias:
            made[f"{target}qkv_proj.{kind}"] = self.qkv(source, kind, rank, tp)
        made[target + "o_proj.weight"] = self.get(source + "o_proj.weight").part(1, rank, tp)
        if source + "o_proj.bias" in self.tensors:
            made[target + "o_proj.bias"] = self.get(source + "o_proj.bias")
        for name in ["q_norm.weight", "k_norm.weight"] * self.norms:
            made[target + name] = self.get(source + name)
        self.make_scales(made, target + "attn.", version)

    def make_scales(self, made, at, version):
        for name in ["_k_scale", "_v_scale", "_q_scale", "_prob_scale"] * (version >= 14):
            made[at + name] = Array.of(ONE)

    def make_mlp(self, made, source, target, rank, tp):
        made[target + "gate_up_proj.weight"] = self.gate_up(source, rank, tp)
        made[target + "down_proj.weight"] = self.get(source + "down_proj.weight").part(1, rank, tp)

    def make_experts(self, made, target, gates, ups, downs, rank, tp, ep):
        """[expert, out, in] from a list of tensors of each kind: whole experts of a rank, or each rank's part of all of them."""
        if ep > 1:
            more, least = len(gates) % ep, len(gates) // ep
            first = rank * least + min(rank, more)
            mine = slice(first, first + least + (rank < more))
            gates, ups, downs, rank, tp = gates[mine], ups[mine], downs[mine], 0, 1
        made[target + "w13_weight"] = stack([join(0, g.part(0, rank, tp), u.part(0, rank, tp)) for g, u in zip(gates, ups)])
        made[target + "w2_weight"] = stack([d.part(1, rank, tp) for d in downs])

    def make_rest(self, made, n, at, rank, tp, ep, version):
        self.make_mlp(made, at + "mlp.", at + "mlp.", rank, tp)

    @staticmethod
    def routed(version):
        return "experts.routed_experts." if version >= 24 else "experts."


class Llama(Model):
    def __init__(self, rnd, **options):
        super().__init__(rnd, "llama", **options)


class Qwen2(Model):
    def __init__(self, rnd, **options):
        super().__init__(rnd, "qwen2", bias=True, **options)


class Qwen3(Model):
    norms = True

    def __init__(self, rnd, **options):
        super().__init__(rnd, "qwen3", **options)


class Mixtral(Model):
    def __init__(self, rnd):
        super().__init__(rnd, "mixtral", num_local_experts=EXPERTS)

    def add_rest(self, n, at):
        at += "block_sparse_moe."
        self.add(at + "gate.weight", EXPERTS, H)
        for e in range(EXPERTS):
            self.add(f"{at}experts.{e}.w1.weight", INNER, H)
            self.add(f"{at}experts.{e}.w2.weight", H, INNER)
            self.add(f"{at}experts.{e}.w3.weight", INNER, H)

    def make_rest(self, made, n, at, rank, tp, ep, version):
        at += "block_sparse_moe."
        made[at + "gate.weight"] = self.get(at + "gate.weight")
        gates, downs, ups = ([self.get(f"{at}experts.{e}.w{k}.weight") for e in range(EXPERTS)] for k in (1, 2, 3))
        self.make_experts(made, at + self.routed(version), gates, ups, downs, rank, tp, ep)


class Qwen3Moe(Model):
    """The layers of `dense` have no experts."""
    norms, shared = True, False

    def __init__(self, rnd, model_type="qwen3_moe", dense=(), experts=EXPERTS, **options):
        self.dense, self.experts = dense, experts
        super().__init__(rnd, model_type, moe_intermediate_size=MOE, num_experts=experts, **options)

    def add_rest(self, n, at):
        if n in self.dense:
            self.add_mlp(at + "mlp.", INNER)
            return
        self.add(at + "mlp.gate.weight", self.experts, H)
        for e in range(self.experts):
            self.add_mlp(f"{at}mlp.experts.{e}.", MOE)
        if self.shared:
            self.add_mlp(at + "mlp.shared_expert.", 3 * MOE)
            self.add(at + "mlp.shared_expert_gate.weight", 1, H)

    def router(self, version):
        if version >= 24:
            return "experts.gate."
        if version >= 21:
            return "experts.runner.gate."
        return "experts._gate." if 17 <= version <= 19 else "gate."

    def make_rest(self, made, n, at, rank, tp, ep, version):
        at += "mlp."
        if n in self.dense:
            self.make_mlp(made, at, at, rank, tp)
            return
        made[f"{at}{self.router(version)}weight"] = self.get(at + "gate.weight")
        gates, ups, downs = ([self.get(f"{at}experts.{e}.{k}_proj.weight") for e in range(self.experts)] for k in ("gate", "up", "down"))
        self.make_experts(made, at + self.routed(version), gates, ups, downs, rank, tp, ep)
        if self.shared:
            place = shared_place("shared_expert.", version)
            self.make_mlp(made, at + "shared_expert.", at + place, rank, tp)
            gate = place + "expert_gate." if version >= 12 else "shared_expert_gate."
            made[f"{at}{gate}weight"] = self.get(at + "shared_expert_gate.weight")


class Qwen2Moe(Qwen3Moe):
    norms, shared = False, True

    def __init__(self, rnd, **options):
        super().__init__(rnd, "qwen2_moe", bias=True, shared_expert_intermediate_size=3 * MOE, **options)

    def router(self, version):
        return "gate."


class DeepSeek(Model):
    """Latent attention; the first layer is dense."""
    Q, L, NOPE, ROPE, W = 24, 16, 8, 4, 6

    def __init__(self, rnd, lora=True, predicts=False, bias_of_router=True):
        self.lora, self.predicts, self.bias_of_router = lora, predicts, bias_of_router
        super().__init__(rnd, "deepseek_v3", kv=HEADS, q_lora_rank=self.Q if lora else None, kv_lora_rank=self.L,
                         qk_nope_head_dim=self.NOPE, qk_rope_head_dim=self.ROPE, v_head_dim=self.W, moe_intermediate_size=MOE,
                         n_routed_experts=EXPERTS, n_shared_experts=2, first_k_dense_replace=1,
                         num_nextn_predict_layers=int(predicts))
        del self.config["head_dim"]
        if predicts:
            at = self.layer(LAYERS)
            self.add(at + "eh_proj.weight", H, 2 * H)
            self.add(at + "mlp.experts.0.gate_proj.weight", MOE, H)

    def add_attention(self, at):
        if self.lora:
            self.add(at + "q_a_proj.weight", self.Q, H)
            self.add(at + "q_a_layernorm.weight", self.Q)
            self.add(at + "q_b_proj.weight", HEADS * (self.NOPE + self.ROPE), self.Q)
        else:
            self.add(at + "q_proj.weight", HEADS * (self.NOPE + self.ROPE), H)
        self.add(at + "kv_a_proj_with_mqa.weight", self.L + self.ROPE, H)
        self.add(at + "kv_a_layernorm.weight", self.L)
        self.add(at + "kv_b_proj.weight", HEADS * (self.NOPE + self.W), self.L)
        self.add(at + "o_proj.weight", H, HEADS * self.W)

    def add_rest(self, n, at):
        if n == 0:
            self.add_mlp(at + "mlp.", INNER)
            return
        self.add(at + "mlp.gate.weight", EXPERTS, H)
        if self.bias_of_router:
            self.add(at + "mlp.gate.e_score_correction_bias", EXPERTS, dtype="F32")
        for e in range(EXPERTS):
            self.add_mlp(f"{at}mlp.experts.{e}.", MOE)
        self.add_mlp(at + "mlp.shared_experts.", 2 * MOE)

    def make_attention(self, made, at, rank, tp, version):
        at += "self_attn."
        get = lambda name: self.get(f"{at}{name}.weight")
        if self.lora:
            made[at + "fused_qkv_a_proj.weight"] = join(0, get("q_a_proj"), get("kv_a_proj_with_mqa"))
            made[at + "mla_attn.q_a_layernorm.weight"] = get("q_a_layernorm")
            made[at + "mla_attn.q_b_proj.weight"] = get("q_b_proj").part(0, rank, tp)
        else:
            made[at + "kv_a_proj_with_mqa.weight"] = get("kv_a_proj_with_mqa")
            made[at + "mla_attn.q_proj.weight"] = get("q_proj").part(0, rank, tp)
        made[at + "kv_a_layernorm.weight"] = get("kv_a_layernorm")
        made[at + "kv_b_proj.weight"] = get("kv_b_proj").part(0, rank, tp)
        made[at + "mla_attn.o_proj.weight"] = get("o_proj").part(1, rank, tp)
        self.make_scales(made, at + "mla_attn.mla_attn.", version)

    def make_rest(self, made, n, at, rank, tp, ep, version):
        at += "mlp."
        if n == 0:
            self.make_mlp(made, at, at, rank, tp)
            return
        router = ("experts.gate." if version >= 24 else "experts.runner.gate." if version >= 21 else "gate." if version == 20
                  else "experts._gate." if version >= 12 else "gate.")
        made[f"{at}{router}weight"] = self.get(at + "gate.weight")
        if self.bias_of_router:
            bias = "experts.e_score_correction_bias" if version <= 11 else router + "e_score_correction_bias"
            made[at + bias] = self.get(at + "gate.e_score_correction_bias")
        gates, ups, downs = ([self.get(f"{at}experts.{e}.{k}_proj.weight") for e in range(EXPERTS)] for k in ("gate", "up", "down"))
        self.make_experts(made, at + self.routed(version), gates, ups, downs, rank, tp, ep)
        self.make_mlp(made, at + "shared_experts.", at + shared_place("shared_experts.", version), rank, tp)


class DeepSeekFp8(DeepSeek):
    """Projections in fp8, with a scale for each block of 8x8. Scales are cut as their weights are, but in blocks."""

    def __init__(self, rnd):
        super().__init__(rnd)
        self.config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [8, 8]}
        self.scales = {}
        for name, (_, shape, _) in list(self.tensors.items()):
            if "_proj" in name:
                self.add(name, *shape, dtype="F8_E4M3")
                self.add(name + "_scale_inv", *(-(-extent // 8) for extent in shape), dtype="F32")
                self.scales[name] = self.tensors[name + "_scale_inv"]

    def engine(self, rank, tp, ep=1, version=28):
        made = super().engine(rank, tp, ep, version)
        whole = self.tensors
        self.tensors = {**whole, **self.scales}
        scales = super().engine(rank, tp, ep, version)
        self.tensors = whole
        for name, value in scales.items():
            if "_proj" in name or name.endswith(("w13_weight", "w2_weight")):
                made[name + "_scale_inv"] = value
        return made


class GptOss(Model):
    """Rows of gate and up alternate, in the engine too. Key-value heads are not copied, so there are as many as ranks."""
    attention, embedding = "attn", "model.embedding.weight"

    def __init__(self, rnd, kv=8):
        super().__init__(rnd, "gpt_oss", kv=kv, bias=True, intermediate_size=MOE, num_local_experts=EXPERTS)

    def add_rest(self, n, at):
        self.add(at + "self_attn.o_proj.bias", H)
        self.add(at + "self_attn.sinks", HEADS)
        self.add(at + "mlp.router.weight", EXPERTS, H)
        self.add(at + "mlp.router.bias", EXPERTS)
        self.add(at + "mlp.experts.gate_up_proj", EXPERTS, H, 2 * MOE)
        self.add(at + "mlp.experts.gate_up_proj_bias", EXPERTS, 2 * MOE)
        self.add(at + "mlp.experts.down_proj", EXPERTS, MOE, H)
        self.add(at + "mlp.experts.down_proj_bias", EXPERTS, H)

    def make_rest(self, made, n, at, rank, tp, ep, version):
        made[at + "attn.sinks"] = self.get(at + "self_attn.sinks").part(0, rank, tp)
        at += "mlp."
        for name in ("router.weight", "router.bias"):
            made[at + name] = self.get(at + name)
        get = lambda name: self.get(f"{at}experts.{name}")
        parts = {"w13_weight": get("gate_up_proj").swap(), "w13_bias": get("gate_up_proj_bias"),
                 "w2_weight": get("down_proj").swap(), "w2_bias": get("down_proj_bias")}
        at += self.routed(version)
        if ep > 1:
            made.update({at + name: array.part(0, rank, ep) for name, array in parts.items()})
            return
        made[at + "w13_weight"] = parts["w13_weight"].part(1, rank, tp)
        made[at + "w13_bias"] = parts["w13_bias"].part(1, rank, tp)
        made[at + "w2_weight"] = parts["w2_weight"].part(2, rank, tp)
        made[at + "w2_bias"] = parts["w2_bias"] if rank == 0 else parts["w2_bias"].zeros()


class Llama4(Model):
    """Pairs of rotary elements are neighbours in hf, halves of a head in the engine. The first layer is dense."""
    prefix = "language_model."

    def __init__(self, rnd):
        super().__init__(rnd, "llama4", intermediate_size=MOE, num_local_experts=EXPERTS)
        keys = [key for key in self.config if key not in ("model_type", "tie_word_embeddings")]
        self.config["text_config"] = {key: self.config.pop(key) for key in keys}

    def turn(self, array):
        return array.take(0, [h * D + 2 * i + p for h in range(array.shape[0] // D) for p in range(2) for i in range(D // 2)])

    def add_rest(self, n, at):
        at += "feed_forward."
        if n == 0:
            self.add_mlp(at, INNER)
            return
        self.add(at + "router.weight", EXPERTS, H)
        self.add(at + "experts.gate_up_proj", EXPERTS, H, 2 * MOE)
        self.add(at + "experts.down_proj", EXPERTS, MOE, H)
        self.add_mlp(at + "shared_expert.", MOE)

    def make_rest(self, made, n, at, rank, tp, ep, version):
        at += "feed_forward."
        if n == 0:
            self.make_mlp(made, at, at, rank, tp)
            return
        made[at + "router.weight"] = self.get(at + "router.weight")
        both, down = self.get(at + "experts.gate_up_proj").swap(), self.get(at + "experts.down_proj").swap()
        slices = lambda array: [Array(array.dtype, array.shape[1:], array.take(0, [e]).items) for e in range(EXPERTS)]
        gates, ups = (slices(both.take(1, range(k * MOE, (k + 1) * MOE))) for k in range(2))
        self.make_experts(made, at + self.routed(version), gates, ups, slices(down), rank, tp, ep)
        self.make_mlp(made, at + "shared_expert.", at + shared_place("shared_expert.", version), rank, tp)
