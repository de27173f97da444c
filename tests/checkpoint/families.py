# SPDX-License-Identifier: Apache-2.0
"""Published models as names, shapes and how each tensor has to be cut, written by hand from their papers and configurations:
nothing here shares code with the library.

A model is a list of tensors (name, dtype, shape, cut). A cut says what tensor parallelism does:

    whole()               every rank has all of it
    cut(dim, unit)        equal shares, in whole units (heads) where a unit is given
    kv(dim, heads, unit)  the same for that many heads, copied where there are more ranks than heads
    parts(dim, ..)        several tensors behind each other, (length, heads or 0) each, every one cut
    halves(dim)           two of them
    vocabulary()          rows, after zero rows up to a multiple of 64
    blocks(dim, n)        whole blocks of n, of which the last ranks may have fewer

and `experts`, whether dimension 0 is dealt to the ranks of ep besides. Numbers of layers and experts are in the names.
"""
import json
import os
import struct

import files


class Cut:
    def __init__(self, kind, dim=0, unit=1, heads=0, lengths=(), experts=False):
        self.kind, self.dim, self.unit, self.heads, self.lengths, self.experts = kind, dim, unit, heads, lengths, experts

    def stacked(self):
        """The same for all experts in one tensor: a dimension in front, dealt out by ep."""
        return Cut(self.kind, self.dim + 1, self.unit, self.heads, self.lengths, True)


def whole():
    return Cut("whole")


def cut(dim, unit=1):
    return Cut("cut", dim, unit)


def kv(dim, heads, unit):
    return Cut("kv", dim, unit, heads)


def parts(dim, *lengths):
    return Cut("parts", dim, lengths=lengths)


def halves(dim):
    return Cut("halves", dim)


def vocabulary():
    return Cut("vocabulary")


def blocks(dim, n):
    return Cut("blocks", dim, n)


def shares(n, ranks, rank, heads=0):
    """Begin and end of an equal share; with heads, of one of so many, which neighbours have together."""
    pieces = min(heads, ranks) if heads else ranks
    step = -(-n // pieces)
    piece = rank * pieces // ranks
    return min(piece * step, n), min((piece + 1) * step, n)


def fits(how, shape, tp):
    """Whether so many ranks can have it."""
    if how.kind == "cut":
        return how.unit == 1 or (shape[how.dim] % how.unit == 0 and shape[how.dim] // how.unit % tp == 0)
    if how.kind == "kv":
        pieces = min(how.heads, tp)
        return shape[how.dim] // how.unit % pieces == 0 and tp % pieces == 0
    if how.kind == "parts":
        return all(heads % min(heads, tp) == 0 and tp % min(heads, tp) == 0 if heads else length % tp == 0
                   for length, heads in how.lengths)
    return how.kind != "halves" or tp == 1 or shape[how.dim] // 2 % tp == 0


def lines(how, shape, tp, rank):
    """[begin, end) of what the rank has along the dimension that is cut, piece by piece."""
    n = shape[how.dim]
    if how.kind == "parts":
        found, start = [], 0
        for length, heads in how.lengths:
            begin, end = shares(length, tp, rank, heads)
            found.append((start + begin, start + end))
            start += length
        return found
    if how.kind == "halves":
        return [(half * n // 2 + begin, half * n // 2 + end)
                for half in range(2) for begin, end in [shares(n // 2, tp, rank)]]
    if how.kind == "vocabulary":
        return [shares(-(-n // 64) * 64, tp, rank)]
    if how.kind == "blocks":
        begin, end = shares(-(-n // how.unit), tp, rank)
        return [(begin * how.unit, min(end * how.unit, n))]
    return [shares(n, tp, rank, how.heads)]


def pieces(how, shape, tp, rank, ep=1, expert_rank=0):
    """The boxes of a rank, as (offset, size) in the order of their places; neighbours that touch are one."""
    shape = list(shape)
    if how.kind == "vocabulary":
        shape[0] = -(-shape[0] // 64) * 64
    along = [(0, shape[how.dim])] if how.kind == "whole" and shape else lines(how, shape, tp, rank) if shape else [(0, 1)]
    merged = []
    for begin, end in along:
        if merged and merged[-1][1] == begin:
            merged[-1] = (merged[-1][0], end)
        elif end > begin:
            merged.append((begin, end))
    boxes = []
    for begin, end in merged:
        offset, size = [0] * len(shape), list(shape)
        if shape:
            offset[how.dim], size[how.dim] = begin, end - begin
        if how.experts:
            offset[0] = deal_begin(shape[0], ep, expert_rank)
            size[0] = deal_begin(shape[0], ep, expert_rank + 1) - offset[0]
        boxes.append((offset, size))
    return boxes


def deal_begin(n, k, i):
    """Where the items of rank i begin when n are dealt to k, the first n % k getting one more."""
    return i * (n // k) + min(i, n % k)


def dealt_to(item, n, k):
    return next(i for i in range(k) if item < deal_begin(n, k, i + 1))


# ---- parts of models ---------------------------------------------------------------------------


class Model:
    """What a family's function fills in: tensors of the layers asked for."""

    def __init__(self, config):
        self.config, self.tensors, self.linears = config, [], {}

    def add(self, name, shape, how, dtype="BF16"):
        self.tensors.append((name, dtype, tuple(shape), how))

    def linear(self, name, out, inputs, how, bias=False, bias_cut=None):
        """A weight [out, in], which quantised forms replace."""
        self.linears[name] = (out, inputs, how)
        self.add(f"{name}.weight", (out, inputs), how)
        if bias:
            along_rows = how.kind == "whole" or how.dim == 0
            self.add(f"{name}.bias", (out,), bias_cut or (how if along_rows else whole()))

    def norms(self, *names, size, bias=False):
        for name in names:
            self.add(f"{name}.weight", (size,), whole())
            if bias:
                self.add(f"{name}.bias", (size,), whole())

    def attention(self, at, bias=False, out="o_proj", out_bias=False, hidden=None):
        c = self.config
        h, heads = hidden or c["hidden_size"], c["num_attention_heads"]
        groups, d = c.get("num_key_value_heads", heads), c.get("head_dim") or h // heads
        self.linear(f"{at}.q_proj", heads * d, h, cut(0, d), bias)
        self.linear(f"{at}.k_proj", groups * d, h, kv(0, groups, d), bias)
        self.linear(f"{at}.v_proj", groups * d, h, kv(0, groups, d), bias)
        self.linear(f"{at}.{out}", h, heads * d, cut(1, d), out_bias)

    def mlp(self, at, size, hidden=None, gated=True, names=("gate_proj", "up_proj", "down_proj"), bias=False):
        h = hidden or self.config["hidden_size"]
        for name in names[:-1] if gated else names[1:-1]:
            self.linear(f"{at}.{name}", size, h, cut(0), bias)
        self.linear(f"{at}.{names[-1]}", h, size, cut(1), bias)

    def ends(self, at="model", head=True, embed="embed_tokens", norm="norm", head_name="lm_head", bias=False):
        c = self.config
        self.add(f"{at}{'.' if at else ''}{embed}.weight", (c["vocab_size"], c["hidden_size"]), vocabulary())
        self.norms(f"{at}{'.' if at else ''}{norm}", size=c["hidden_size"], bias=bias)
        if head:
            self.add(f"{head_name}.weight", (c["vocab_size"], c["hidden_size"]), vocabulary())


def text_of(config):
    return {**config, **config.get("text_config", {})}


def llama(config, layers, at="model", head=True, bias=False, qk_norm=None, norms=("input_layernorm", "post_attention_layernorm"),
          out_bias=False, fused=False, norm_bias=False, gated=True, more=None):
    """Llama, Mistral, Qwen2 (bias), Qwen3 (qk_norm), Gemma (norms), OLMo2, Phi-3 (fused)."""
    c = text_of(config)
    m = Model(c)
    h, heads = c["hidden_size"], c["num_attention_heads"]
    groups, d = c.get("num_key_value_heads", heads), c.get("head_dim") or h // heads
    for i in layers:
        p = f"{at}.layers.{i}"
        if fused:
            m.linear(f"{p}.self_attn.qkv_proj", (heads + 2 * groups) * d, h,
                     parts(0, (heads * d, 0), (groups * d, groups), (groups * d, groups)))
            m.linear(f"{p}.self_attn.o_proj", h, heads * d, cut(1, d))
            m.linear(f"{p}.mlp.gate_up_proj", 2 * c["intermediate_size"], h, halves(0))
            m.linear(f"{p}.mlp.down_proj", h, c["intermediate_size"], cut(1))
        else:
            m.attention(f"{p}.self_attn", bias, out_bias=out_bias)
            m.mlp(f"{p}.mlp", c["intermediate_size"], gated=gated)
        if qk_norm == "shared":
            m.norms(f"{p}.self_attn.q_norm", f"{p}.self_attn.k_norm", size=d)
        elif qk_norm == "all":
            m.norms(f"{p}.self_attn.q_norm", size=heads * d)
            m.norms(f"{p}.self_attn.k_norm", size=groups * d)
        elif qk_norm == "each":
            m.add(f"{p}.self_attn.q_norm.weight", (heads, d), cut(0))
            m.add(f"{p}.self_attn.k_norm.weight", (groups, d), kv(0, groups, 1))
        m.norms(*[f"{p}.{norm}" for norm in norms], size=h, bias=norm_bias)
        if more:
            more(m, p)
    m.ends(at, head, bias=norm_bias)
    return m


def heads_norms(m, p):
    """StableLM-2-12B: a norm for each head, in a tensor of its own, which stays whole."""
    for which, heads in (("q", m.config["num_attention_heads"]), ("k", m.config["num_key_value_heads"])):
        m.norms(*[f"{p}.self_attn.{which}_layernorm.norms.{i}" for i in range(heads)], size=m.config["hidden_size"] // m.config["num_attention_heads"])


def xielu(m, p):
    for name, shape in (("alpha_p", (1,)), ("alpha_n", (1,)), ("beta", ()), ("eps", ())):
        m.add(f"{p}.mlp.act_fn.{name}", shape, whole())


def baichuan(config, layers):
    m = Model(config)
    h, d = config["hidden_size"], config["hidden_size"] // config["num_attention_heads"]
    for i in layers:
        p = f"model.layers.{i}"
        m.linear(f"{p}.self_attn.W_pack", 3 * h, h, parts(0, (h, 0), (h, 0), (h, 0)))
        m.linear(f"{p}.self_attn.o_proj", h, h, cut(1, d))
        m.mlp(f"{p}.mlp", config["intermediate_size"])
        m.norms(f"{p}.input_layernorm", f"{p}.post_attention_layernorm", size=h)
    m.ends()
    return m


def hunyuan_norms(m, p):
    m.norms(f"{p}.self_attn.query_layernorm", f"{p}.self_attn.key_layernorm", size=m.config["head_dim"])


GEMMA_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


def gemma3(config, layers):
    defaults = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208}
    m = llama({**defaults, **config}, layers, "language_model.model", False, qk_norm="shared", norms=GEMMA_NORMS)
    add_tower(m, "vision_tower.vision_model", 1152, 4304, 2)
    m.add("multi_modal_projector.mm_input_projection_weight", (1152, m.config["hidden_size"]), whole())
    m.norms("multi_modal_projector.mm_soft_emb_norm", size=1152)
    return m


def add_tower(m, at, size, inner, layers):
    """An encoder of images, which stays whole."""
    m.add(f"{at}.embeddings.patch_embedding.weight", (size, 3, 14, 14), whole())
    for i in range(layers):
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            m.add(f"{at}.encoder.layers.{i}.self_attn.{name}.weight", (size, size), whole())
        m.add(f"{at}.encoder.layers.{i}.mlp.fc1.weight", (inner, size), whole())
        m.add(f"{at}.encoder.layers.{i}.mlp.fc2.weight", (size, inner), whole())


def llava(config, layers):
    defaults = {"hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32, "intermediate_size": 11008}
    m = llama({**defaults, **config}, layers, "language_model.model")
    m.tensors[-1] = ("language_model.lm_head.weight",) + m.tensors[-1][1:]
    add_tower(m, "vision_tower.vision_model", 1024, 4096, 2)
    h = m.config["hidden_size"]
    m.add("multi_modal_projector.linear_1.weight", (h, 1024), whole())
    m.add("multi_modal_projector.linear_2.weight", (h, h), whole())
    return m


def qwen_vl(config, layers):
    m = llama(config, layers, bias=True)
    m.add("visual.patch_embed.proj.weight", (1280, 3, 2, 14, 14), whole())
    m.add("visual.blocks.0.attn.qkv.weight", (3840, 1280), whole())
    m.add("visual.merger.mlp.0.weight", (5120, 5120), whole())
    return m


def add_encoder_layers(m, at, size, inner, heads, layers, blocks="layers", attention="self_attn", out="out_proj", mlp="mlp",
                       names=("fc1", "fc2"), bias=True):
    """Layers of a tower, as they are cut when somebody asks for it: CLIP, SigLIP, Pixtral, Llama 4."""
    d = size // heads
    for i in range(layers):
        p = f"{at}.{blocks}.{i}"
        for name in ("q_proj", "k_proj", "v_proj"):
            m.linear(f"{p}.{attention}.{name}", size, size, cut(0, d), bias)
        m.linear(f"{p}.{attention}.{out}", size, size, cut(1, d), bias)
        for name in names[:-1]:
            m.linear(f"{p}.{mlp}{'.' if mlp else ''}{name}", inner, size, cut(0), bias)
        m.linear(f"{p}.{mlp}{'.' if mlp else ''}{names[-1]}", size, inner, cut(1), bias)
        m.norms(f"{p}.layer_norm1", f"{p}.layer_norm2", size=size, bias=bias)


def add_qwen_blocks(m, at, size, inner, heads, names):
    """The same for Qwen-VL, which packs queries, keys and values."""
    d = size // heads
    for i in range(2):
        p = f"{at}.blocks.{i}"
        m.linear(f"{p}.attn.qkv", 3 * size, size, parts(0, *[(size, heads)] * 3), True)
        m.linear(f"{p}.attn.proj", size, size, cut(1, d), True)
        for name in names[:-1]:
            m.linear(f"{p}.mlp.{name}", inner, size, cut(0), True)
        m.linear(f"{p}.mlp.{names[-1]}", size, inner, cut(1), True)
        m.norms(f"{p}.norm1", f"{p}.norm2", size=size)
    m.add(f"{at}.merger.mlp.0.weight", (4 * size, 4 * size), whole())


def clip_tower(m):
    add_encoder_layers(m, "vision_tower.vision_model.encoder", 1024, 4096, 16, 2)
    m.add("vision_tower.vision_model.embeddings.position_embedding.weight", (577, 1024), whole())


def siglip_tower(m):
    add_encoder_layers(m, "vision_tower.vision_model.encoder", 1152, 4304, 16, 2)
    m.add("vision_tower.vision_model.head.attention.out_proj.weight", (1152, 1152), whole())


def pixtral_tower(m):
    add_encoder_layers(m, "vision_tower.transformer", 1024, 4096, 16, 2, attention="attention", out="o_proj", mlp="feed_forward",
                       names=("gate_proj", "up_proj", "down_proj"), bias=False)


def llama4_tower(m):
    add_encoder_layers(m, "vision_model.model", 1408, 5632, 16, 2, out="o_proj")


def audio_tower(m):
    add_encoder_layers(m, "audio_tower", 1280, 5120, 20, 2, mlp="")
    m.add("audio_tower.conv1.weight", (1280, 128, 3), whole())


def mllama(config, layers):
    """Llama 3.2 with images: every fifth layer attends to them."""
    c = text_of(config)
    m = Model(c)
    for i in layers:
        p = f"language_model.model.layers.{i}"
        crosses = i in c["cross_attention_layers"]
        m.attention(f"{p}.{'cross' if crosses else 'self'}_attn")
        m.mlp(f"{p}.mlp", c["intermediate_size"])
        m.norms(f"{p}.input_layernorm", f"{p}.post_attention_layernorm", size=c["hidden_size"])
        if crosses:
            m.norms(f"{p}.cross_attn.q_norm", f"{p}.cross_attn.k_norm", size=c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"])
            m.add(f"{p}.cross_attn_attn_gate", (1,), whole())
            m.add(f"{p}.cross_attn_mlp_gate", (1,), whole())
    m.add("language_model.model.embed_tokens.weight", (c["vocab_size"] + 8, c["hidden_size"]), vocabulary())
    m.norms("language_model.model.norm", size=c["hidden_size"])
    m.add("language_model.lm_head.weight", (c["vocab_size"], c["hidden_size"]), vocabulary())
    m.add("vision_model.transformer.layers.0.self_attn.q_proj.weight", (1280, 1280), whole())
    m.add("multi_modal_projector.weight", (c["hidden_size"], 7680), whole())
    return m


def mistral3(config, layers):
    m = llama(config, layers, "language_model.model")
    m.tensors[-1] = ("language_model.lm_head.weight",) + m.tensors[-1][1:]
    m.add("vision_tower.patch_conv.weight", (1024, 3, 14, 14), whole())
    m.add("multi_modal_projector.linear_1.weight", (m.config["hidden_size"], 1024), whole())
    return m


def qwen3_vl(config, layers):
    m = llama(config, layers, "model.language_model", qk_norm="shared")
    m.add("model.visual.patch_embed.proj.weight", (1152, 3, 2, 16, 16), whole())
    m.add("model.visual.deepstack_merger_list.0.linear_fc1.weight", (4608, 4608), whole())
    return m


def olmo(config, layers):
    """Its norms have no weights."""
    m = llama(config, layers, norms=())
    m.tensors = [tensor for tensor in m.tensors if "norm" not in tensor[0]]
    return m


def phi2(config, layers):
    m = Model(config)
    h = config["hidden_size"]
    for i in layers:
        p = f"model.layers.{i}"
        m.attention(f"{p}.self_attn", True, "dense", True)
        m.mlp(f"{p}.mlp", config["intermediate_size"], gated=False, names=("", "fc1", "fc2"), bias=True)
        m.norms(f"{p}.input_layernorm", size=h, bias=True)
    m.ends(norm="final_layernorm", bias=True)
    m.add("lm_head.bias", (config["vocab_size"],), vocabulary())
    return m


def starcoder2(config, layers):
    m = Model(config)
    for i in layers:
        p = f"model.layers.{i}"
        m.attention(f"{p}.self_attn", True, out_bias=True)
        m.mlp(f"{p}.mlp", config["intermediate_size"], gated=False, names=("", "c_fc", "c_proj"), bias=True)
        m.norms(f"{p}.input_layernorm", f"{p}.post_attention_layernorm", size=config["hidden_size"], bias=True)
    m.ends(head=False, bias=True)
    return m


def glm4(config, layers):
    m = Model(config)
    for i in layers:
        p = f"model.layers.{i}"
        m.attention(f"{p}.self_attn")
        m.linear(f"{p}.mlp.gate_up_proj", 2 * config["intermediate_size"], config["hidden_size"], halves(0))
        m.linear(f"{p}.mlp.down_proj", config["hidden_size"], config["intermediate_size"], cut(1))
        m.norms(f"{p}.input_layernorm", f"{p}.post_self_attn_layernorm", f"{p}.post_mlp_layernorm", size=config["hidden_size"])
    m.ends()
    return m


def minimax(config, layers):
    m = moe(config, [], "block_sparse_moe", ("w1", "w3", "w2"))
    h, heads, d = config["hidden_size"], config["num_attention_heads"], config["head_dim"]
    for i in layers:
        p = f"model.layers.{i}"
        if i % 8 == 7:
            m.attention(f"{p}.self_attn")
        else:
            m.linear(f"{p}.self_attn.qkv_proj", 3 * heads * d, h, cut(0, 3 * d))
            m.linear(f"{p}.self_attn.output_gate", heads * d, h, cut(0, d))
            m.linear(f"{p}.self_attn.out_proj", h, heads * d, cut(1, d))
            m.add(f"{p}.self_attn.norm.weight", (heads * d,), cut(0, d))
        m.add(f"{p}.block_sparse_moe.gate.weight", (config["num_local_experts"], h), whole())
        for e in range(config["num_local_experts"]):
            m.mlp(f"{p}.block_sparse_moe.experts.{e}", config["intermediate_size"], names=("w1", "w3", "w2"))
        m.norms(f"{p}.input_layernorm", f"{p}.post_attention_layernorm", size=h)
    return m


def moe(config, layers, block="mlp", names=("gate_proj", "up_proj", "down_proj"), shared=None, qk_norm=None, at="model", dense=0,
        router_bias=False, attention=None, mtp=(), bias=False, norm_bias=False, router="gate", more=None):
    """Mixtral (w1, w3, w2), Qwen-MoE, OLMoE, GLM-4.5, MiniMax-M2, DeepSeek (attention). mtp: layers after the last."""
    c = text_of(config)
    m = Model(c)
    h, heads = c["hidden_size"], c["num_attention_heads"]
    groups, d = c.get("num_key_value_heads", heads), c.get("head_dim") or h // heads
    experts = c.get("num_local_experts") or c.get("num_experts") or c.get("moe_num_experts") or c["n_routed_experts"]
    inner = c.get("moe_intermediate_size") or c["intermediate_size"]
    for i in list(layers) + list(mtp):
        p = f"{at}.layers.{i}"
        if attention:
            attention(m, f"{p}.self_attn")
        else:
            m.attention(f"{p}.self_attn", bias, out_bias=norm_bias)
        if qk_norm == "shared":
            m.norms(f"{p}.self_attn.q_norm", f"{p}.self_attn.k_norm", size=d)
        elif qk_norm == "all":
            m.norms(f"{p}.self_attn.q_norm", f"{p}.self_attn.k_norm", size=heads * d)
        elif qk_norm == "of all heads":
            m.add(f"{p}.self_attn.q_norm.weight", (heads * d,), cut(0, d))
            m.add(f"{p}.self_attn.k_norm.weight", (groups * d,), kv(0, groups, d))
        m.norms(f"{p}.input_layernorm", f"{p}.post_attention_layernorm", size=h, bias=norm_bias)
        if more:
            more(m, p)
        if i < dense:
            m.mlp(f"{p}.mlp", c["intermediate_size"])
            continue
        for e in range(experts):
            m.mlp(f"{p}.{block}.experts.{e}", inner, names=names)
        m.add(f"{p}.{block}.{router}.weight", (experts, h), whole())
        if router_bias:
            m.add(f"{p}.{router_bias}", (1, experts) if "moe_statics" in router_bias else (experts,), whole(), "F32")
        if shared:
            m.mlp(f"{p}.{block}.{shared[0]}", shared[1] if h > 64 else 32)
            if shared[0] == "shared_expert":
                m.add(f"{p}.{block}.shared_expert_gate.weight", (1, h), whole())
        if i in mtp:
            m.norms(f"{p}.enorm", f"{p}.hnorm", f"{p}.shared_head.norm", size=h)
            m.add(f"{p}.eh_proj.weight", (h, 2 * h), whole())
            m.add(f"{p}.embed_tokens.weight", (c["vocab_size"], h), vocabulary())
            m.add(f"{p}.shared_head.head.weight", (c["vocab_size"], h), vocabulary())
    m.ends(at, bias=norm_bias)
    return m


def arctic(config, layers):
    w = ("w1", "w3", "w2")

    def residual(m, p):
        m.mlp(f"{p}.residual_mlp", config["hidden_size"], names=w)
        m.norms(f"{p}.residual_layernorm", size=config["hidden_size"])
    return moe(config, layers, "block_sparse_moe", w, more=residual)


def latent_attention(m, at):
    c = m.config
    h, heads = c["hidden_size"], c["num_attention_heads"]
    query, latent = c["qk_nope_head_dim"] + c["qk_rope_head_dim"], c["kv_lora_rank"]
    if c.get("q_lora_rank"):
        m.linear(f"{at}.q_a_proj", c["q_lora_rank"], h, whole())
        m.norms(f"{at}.q_a_layernorm", size=c["q_lora_rank"])
        m.linear(f"{at}.q_b_proj", heads * query, c["q_lora_rank"], cut(0, query))
    else:
        m.linear(f"{at}.q_proj", heads * query, h, cut(0, query))
    m.linear(f"{at}.kv_a_proj_with_mqa", latent + c["qk_rope_head_dim"], h, whole())
    m.norms(f"{at}.kv_a_layernorm", size=latent)
    both = c["qk_nope_head_dim"] + c["v_head_dim"]
    m.linear(f"{at}.kv_b_proj", heads * both, latent, cut(0, both))
    m.linear(f"{at}.o_proj", h, heads * c["v_head_dim"], cut(1, c["v_head_dim"]))


def deepseek(config, layers, **options):
    return moe(config, layers, attention=latent_attention, dense=config["first_k_dense_replace"],
               shared=("shared_experts", config["n_shared_experts"] * config["moe_intermediate_size"]), **options)


def stacked(config, layers, at, block, dense_every=0, shared=None, qk_norm=None):
    """Llama 4 and Qwen3-VL-MoE: all experts in one tensor, [expert, in, out]."""
    c = text_of(config)
    m = Model(c)
    h, experts = c["hidden_size"], c.get("num_local_experts") or c["num_experts"]
    inner = c.get("moe_intermediate_size") or c["intermediate_size"]
    for i in layers:
        p = f"{at}.layers.{i}"
        m.attention(f"{p}.self_attn")
        if qk_norm:
            m.norms(f"{p}.self_attn.q_norm", f"{p}.self_attn.k_norm", size=c["head_dim"])
        m.norms(f"{p}.input_layernorm", f"{p}.post_attention_layernorm", size=h)
        m.add(f"{p}.{block}.experts.gate_up_proj", (experts, h, 2 * inner), halves(1).stacked())
        m.add(f"{p}.{block}.experts.down_proj", (experts, inner, h), cut(0).stacked())
        m.add(f"{p}.{block}.{'gate' if block == 'mlp' else 'router'}.weight", (experts, h), whole())
        if shared:
            m.mlp(f"{p}.{block}.{shared}", inner)
    m.ends(at)
    return m


def llama4(config, layers):
    m = stacked(config, layers, "language_model.model", "feed_forward", shared="shared_expert")
    m.tensors[-1] = ("language_model.lm_head.weight",) + m.tensors[-1][1:]
    m.add("vision_model.patch_embedding.linear.weight", (1408, 588), whole())
    m.add("multi_modal_projector.linear_1.weight", (5120, 4096), whole())
    return m


def qwen3_vl_moe(config, layers):
    m = stacked(config, layers, "model.language_model", "mlp", qk_norm=True)
    m.add("model.visual.patch_embed.proj.weight", (1152, 3, 2, 16, 16), whole())
    return m


def gpt_oss(config, layers, packed=True):
    m = Model(config)
    h, inner, experts = config["hidden_size"], config["intermediate_size"], config["num_local_experts"]
    for i in layers:
        p = f"model.layers.{i}"
        m.attention(f"{p}.self_attn", True, out_bias=True)
        m.add(f"{p}.self_attn.sinks", (config["num_attention_heads"],), cut(0))
        m.norms(f"{p}.input_layernorm", f"{p}.post_attention_layernorm", size=h)
        m.add(f"{p}.mlp.router.weight", (experts, h), whole())
        m.add(f"{p}.mlp.router.bias", (experts,), whole())
        e = f"{p}.mlp.experts"
        if packed:  # 32 inputs share a scale; tp deals out such blocks of the inner size, a pair of rows for each
            m.add(f"{e}.gate_up_proj_blocks", (experts, 2 * inner, h // 32, 16), blocks(0, 64).stacked(), "U8")
            m.add(f"{e}.gate_up_proj_scales", (experts, 2 * inner, h // 32), blocks(0, 64).stacked(), "U8")
            m.add(f"{e}.down_proj_blocks", (experts, h, inner // 32, 16), blocks(1, 1).stacked(), "U8")
            m.add(f"{e}.down_proj_scales", (experts, h, inner // 32), blocks(1, 1).stacked(), "U8")
        else:
            m.add(f"{e}.gate_up_proj", (experts, h, 2 * inner), cut(1, 2).stacked())
            m.add(f"{e}.down_proj", (experts, inner, h), cut(0).stacked())
        m.add(f"{e}.gate_up_proj_bias", (experts, 2 * inner), (blocks(0, 64) if packed else cut(0, 2)).stacked())
        m.add(f"{e}.down_proj_bias", (experts, h), Cut("whole", experts=True))
    m.ends()
    return m


def qwen3_next(config, layers, at="model", apart=False):
    """apart: Qwen3.5, which has q, k and v of linear attention in one weight and the others in weights of their own."""
    c = text_of(config)
    m = Model(c)
    h = c["hidden_size"]
    keys, values = c["linear_num_key_heads"], c["linear_num_value_heads"]
    key, value = c["linear_key_head_dim"], c["linear_value_head_dim"]
    for i in layers:
        p = f"{at}.layers.{i}"
        if i % 4 == 3:
            d = c["head_dim"]
            m.linear(f"{p}.self_attn.q_proj", 2 * c["num_attention_heads"] * d, h, cut(0, 2 * d))
            for name in ("k_proj", "v_proj"):
                m.linear(f"{p}.self_attn.{name}", c["num_key_value_heads"] * d, h, kv(0, c["num_key_value_heads"], d))
            m.linear(f"{p}.self_attn.o_proj", h, c["num_attention_heads"] * d, cut(1, d))
            m.norms(f"{p}.self_attn.q_norm", f"{p}.self_attn.k_norm", size=d)
        else:
            per = values // keys
            if apart:
                m.linear(f"{p}.linear_attn.in_proj_qkv", 2 * keys * key + values * value, h,
                         parts(0, (keys * key, 0), (keys * key, 0), (values * value, 0)))
                m.linear(f"{p}.linear_attn.in_proj_z", values * value, h, cut(0, per * value))
                m.add(f"{p}.linear_attn.in_proj_b.weight", (values, h), cut(0, per))
                m.add(f"{p}.linear_attn.in_proj_a.weight", (values, h), cut(0, per))
            else:
                m.linear(f"{p}.linear_attn.in_proj_qkvz", 2 * keys * key + 2 * values * value, h,
                         cut(0, 2 * key + 2 * per * value))
                m.add(f"{p}.linear_attn.in_proj_ba.weight", (2 * values, h), cut(0, 2 * per))
            m.add(f"{p}.linear_attn.conv1d.weight", (2 * keys * key + values * value, 1, 4),
                  parts(0, (keys * key, 0), (keys * key, 0), (values * value, 0)))
            m.add(f"{p}.linear_attn.A_log", (values,), cut(0, per))
            m.add(f"{p}.linear_attn.dt_bias", (values,), cut(0, per))
            m.norms(f"{p}.linear_attn.norm", size=value)
            m.linear(f"{p}.linear_attn.out_proj", h, values * value, cut(1, value))
        if apart:
            m.add(f"{p}.mlp.experts.gate_up_proj", (c["num_experts"], 2 * c["moe_intermediate_size"], h), halves(0).stacked())
            m.add(f"{p}.mlp.experts.down_proj", (c["num_experts"], h, c["moe_intermediate_size"]), cut(1).stacked())
        else:
            for e in range(c["num_experts"]):
                m.mlp(f"{p}.mlp.experts.{e}", c["moe_intermediate_size"])
        m.mlp(f"{p}.mlp.shared_expert", c["shared_expert_intermediate_size"])
        m.add(f"{p}.mlp.shared_expert_gate.weight", (1, h), whole())
        m.add(f"{p}.mlp.gate.weight", (c["num_experts"], h), whole())
        m.norms(f"{p}.input_layernorm", f"{p}.post_attention_layernorm", size=h)
    m.add("mtp.fc.weight", (h, 2 * h), whole())
    m.norms("mtp.norm", "mtp.pre_fc_norm_embedding", size=h)
    m.ends(at)
    return m


def packed_attention(config, layers, *, at, block, attention, qkv, out, up, down, norms, ends, bias=True, mlp="mlp"):
    """GPT-NeoX, Falcon, BLOOM, MPT, ChatGLM: q, k and v in one weight."""
    m = Model(config)
    h = config.get("hidden_size") or config.get("n_embed") or config["d_model"]
    inner = config.get("intermediate_size") or config.get("ffn_hidden_size") or 4 * h
    heads = config.get("num_attention_heads") or config.get("n_head") or config["n_heads"]
    name, rows, how = qkv(h, heads)
    for i in layers:
        p = f"{at}{block}.{i}"
        m.linear(f"{p}.{attention}.{name}", rows, h, how, bias)
        m.linear(f"{p}.{attention}.{out}", h, h, cut(1, h // heads), bias)
        double = up.endswith("*2")
        m.linear(f"{p}.{mlp}.{up.removesuffix('*2')}", inner * (2 if double else 1), h, halves(0) if double else cut(0), bias and not double)
        m.linear(f"{p}.{mlp}.{down}", h, inner, cut(1), bias and not double)
        m.norms(*[f"{p}.{norm}" for norm in norms], size=h, bias=bias)
    for end, how_end in ends:
        rows = config.get("vocab_size") or config["padded_vocab_size"]
        m.add(end, (rows, h) if how_end == "vocabulary" else (h,), vocabulary() if how_end == "vocabulary" else whole())
    return m


def neox(config, layers):
    return packed_attention(config, layers, at="gpt_neox.", block="layers", attention="attention",
                            qkv=lambda h, heads: ("query_key_value", 3 * h, cut(0, 3 * h // heads)), out="dense",
                            up="dense_h_to_4h", down="dense_4h_to_h", norms=("input_layernorm", "post_attention_layernorm"),
                            ends=[("gpt_neox.embed_in.weight", "vocabulary"), ("gpt_neox.final_layer_norm.weight", ""),
                                  ("gpt_neox.final_layer_norm.bias", ""), ("embed_out.weight", "vocabulary")])


def bloom(config, layers):
    return packed_attention(config, layers, at="transformer.", block="h", attention="self_attention",
                            qkv=lambda h, heads: ("query_key_value", 3 * h, cut(0, 3 * h // heads)), out="dense",
                            up="dense_h_to_4h", down="dense_4h_to_h", norms=("input_layernorm", "post_attention_layernorm"),
                            ends=[("transformer.word_embeddings.weight", "vocabulary"), ("transformer.ln_f.weight", ""),
                                  ("transformer.word_embeddings_layernorm.weight", "")])


def falcon(config, layers):
    def qkv(h, heads):
        d = h // heads
        if config["new_decoder_architecture"]:
            groups = config["num_kv_heads"]
            return "query_key_value", (heads + 2 * groups) * d, cut(0, (heads // groups + 2) * d)
        return "query_key_value", (heads + 2) * d, parts(0, (heads * d, 0), (d, 1), (d, 1))
    norms = ("ln_attn", "ln_mlp") if config["new_decoder_architecture"] else ("input_layernorm",)
    return packed_attention(config, layers, at="transformer.", block="h", attention="self_attention", qkv=qkv, out="dense",
                            up="dense_h_to_4h", down="dense_4h_to_h", norms=norms, bias=False,
                            ends=[("transformer.word_embeddings.weight", "vocabulary"), ("transformer.ln_f.weight", ""),
                                  ("lm_head.weight", "vocabulary")])


def mpt(config, layers):
    return packed_attention(config, layers, at="transformer.", block="blocks", attention="attn", bias=False,
                            qkv=lambda h, heads: ("Wqkv", 3 * h, parts(0, (h, 0), (h, 0), (h, 0))), out="out_proj",
                            up="up_proj", down="down_proj", norms=("norm_1", "norm_2"), mlp="ffn",
                            ends=[("transformer.wte.weight", "vocabulary"), ("transformer.norm_f.weight", "")])


def chatglm(config, layers):
    d, groups = config["kv_channels"], config["multi_query_group_num"]
    return packed_attention(config, layers, at="transformer.encoder.", block="layers", attention="self_attention", bias=False,
                            qkv=lambda h, heads: ("query_key_value", (heads + 2 * groups) * d,
                                                  parts(0, (heads * d, 0), (groups * d, groups), (groups * d, groups))),
                            out="dense", up="dense_h_to_4h*2", down="dense_4h_to_h",
                            norms=("input_layernorm", "post_attention_layernorm"),
                            ends=[("transformer.embedding.word_embeddings.weight", "vocabulary"),
                                  ("transformer.encoder.final_layernorm.weight", ""),
                                  ("transformer.output_layer.weight", "vocabulary")])


def gpt2(config, layers):
    m = Model(config)
    h, d = config["n_embd"], config["n_embd"] // config["n_head"]
    for i in layers:
        p = f"h.{i}"
        m.add(f"{p}.attn.c_attn.weight", (h, 3 * h), parts(1, (h, 0), (h, 0), (h, 0)))
        m.add(f"{p}.attn.c_attn.bias", (3 * h,), parts(0, (h, 0), (h, 0), (h, 0)))
        m.add(f"{p}.attn.c_proj.weight", (h, h), cut(0, d))
        m.add(f"{p}.mlp.c_fc.weight", (h, 4 * h), cut(1))
        m.add(f"{p}.mlp.c_fc.bias", (4 * h,), cut(0))
        m.add(f"{p}.mlp.c_proj.weight", (4 * h, h), cut(0))
        m.norms(f"{p}.ln_1", f"{p}.ln_2", size=h, bias=True)
    m.add("wte.weight", (config["vocab_size"], h), vocabulary())
    m.add("wpe.weight", (1024, h), whole())
    m.norms("ln_f", size=h, bias=True)
    return m


def gptj(config, layers):
    m = Model(config)
    h, d = config["n_embd"], config["n_embd"] // config["n_head"]
    for i in layers:
        p = f"transformer.h.{i}"
        for name in ("q_proj", "k_proj", "v_proj"):
            m.linear(f"{p}.attn.{name}", h, h, cut(0, d))
        m.linear(f"{p}.attn.out_proj", h, h, cut(1, d))
        m.linear(f"{p}.mlp.fc_in", 4 * h, h, cut(0), True)
        m.linear(f"{p}.mlp.fc_out", h, 4 * h, cut(1), True)
        m.norms(f"{p}.ln_1", size=h, bias=True)
    m.add("transformer.wte.weight", (config["vocab_size"], h), vocabulary())
    m.norms("transformer.ln_f", size=h, bias=True)
    m.add("lm_head.weight", (config["vocab_size"], h), vocabulary())
    m.add("lm_head.bias", (config["vocab_size"],), vocabulary())
    return m


def encoder_layer(m, p, h, inner, heads, attentions=("self_attn",), key_bias=True, mlp=""):
    """OPT, Whisper, CLIP."""
    for attention in attentions:
        for name in ("q_proj", "k_proj", "v_proj"):
            m.linear(f"{p}.{attention}.{name}", h, h, cut(0, h // heads), key_bias or name != "k_proj")
        m.linear(f"{p}.{attention}.out_proj", h, h, cut(1, h // heads), True)
    m.linear(f"{p}.{mlp}fc1", inner, h, cut(0), True)
    m.linear(f"{p}.{mlp}fc2", h, inner, cut(1), True)


def opt(config, layers):
    m = Model(config)
    h = config["hidden_size"]
    for i in layers:
        p = f"model.decoder.layers.{i}"
        encoder_layer(m, p, h, config["ffn_dim"], config["num_attention_heads"])
        m.norms(f"{p}.self_attn_layer_norm", f"{p}.final_layer_norm", size=h, bias=True)
    m.add("model.decoder.embed_tokens.weight", (config["vocab_size"], h), vocabulary())
    m.add("model.decoder.embed_positions.weight", (2050, h), whole())
    m.norms("model.decoder.final_layer_norm", size=h, bias=True)
    return m


def whisper(config, layers):
    m = Model(config)
    h = config["d_model"]
    for i in layers:
        for side in ("encoder", "decoder"):
            p = f"model.{side}.layers.{i}"
            encoder_layer(m, p, h, config[f"{side}_ffn_dim"], config[f"{side}_attention_heads"],
                          ("self_attn", "encoder_attn") if side == "decoder" else ("self_attn",), False)
            m.norms(f"{p}.self_attn_layer_norm", f"{p}.final_layer_norm", size=h, bias=True)
    m.add("model.encoder.conv1.weight", (h, 128, 3), whole())
    m.add("model.encoder.embed_positions.weight", (1500, h), whole())
    m.norms("model.encoder.layer_norm", "model.decoder.layer_norm", size=h, bias=True)
    m.add("model.decoder.embed_tokens.weight", (config["vocab_size"], h), vocabulary())
    return m


def clip(config, layers):
    m = Model(config)
    for side, tower in (("text_model", config["text_config"]), ("vision_model", config["vision_config"])):
        h = tower["hidden_size"]
        for i in layers:
            p = f"{side}.encoder.layers.{i}"
            encoder_layer(m, p, h, tower["intermediate_size"], tower["num_attention_heads"], mlp="mlp.")
            m.norms(f"{p}.layer_norm1", f"{p}.layer_norm2", size=h, bias=True)
    m.add("text_model.embeddings.token_embedding.weight", (config["text_config"]["vocab_size"], config["text_config"]["hidden_size"]),
          vocabulary())
    m.add("text_model.embeddings.position_embedding.weight", (77, config["text_config"]["hidden_size"]), whole())
    m.add("vision_model.embeddings.class_embedding", (config["vision_config"]["hidden_size"],), whole())
    m.add("vision_model.embeddings.patch_embedding.weight", (config["vision_config"]["hidden_size"], 3, 14, 14), whole())
    m.norms("vision_model.pre_layrnorm", "vision_model.post_layernorm", size=config["vision_config"]["hidden_size"], bias=True)
    m.add("text_projection.weight", (768, config["text_config"]["hidden_size"]), whole())
    m.add("logit_scale", (), whole())
    return m


def bert(config, layers, at="bert", inside="self", ends=True, mlm=False):
    m = Model(config)
    h, d = config["hidden_size"], config["hidden_size"] // config["num_attention_heads"]
    for i in layers:
        p = f"{at}.encoder.layer.{i}"
        for name in ("query", "key", "value"):
            m.linear(f"{p}.attention.{inside}.{name}", h, h, cut(0, d), True)
        m.linear(f"{p}.attention.output.dense", h, h, cut(1, d), True)
        m.linear(f"{p}.intermediate.dense", config["intermediate_size"], h, cut(0), True)
        m.linear(f"{p}.output.dense", h, config["intermediate_size"], cut(1), True)
        names = ("attention.output.LayerNorm", "output.LayerNorm") if ends else ("layernorm_before", "layernorm_after")
        m.norms(*[f"{p}.{name}" for name in names], size=h, bias=True)
    if ends:
        m.add(f"{at}.embeddings.word_embeddings.weight", (config["vocab_size"], h), vocabulary())
        m.add(f"{at}.embeddings.position_embeddings.weight", (512, h), whole())
        m.norms(f"{at}.embeddings.LayerNorm", size=h, bias=True)
        if mlm:
            m.add("cls.predictions.bias", (config["vocab_size"],), whole())
            m.add("cls.predictions.transform.dense.weight", (h, h), whole())
    else:
        m.add(f"{at}.embeddings.patch_embeddings.projection.weight", (h, 3, 16, 16), whole())
        m.add(f"{at}.embeddings.cls_token", (1, 1, h), whole())
        m.norms(f"{at}.layernorm", size=h, bias=True)
        m.add("classifier.weight", (1000, h), whole())
    return m


def t5(config, layers):
    m = Model(config)
    h, inner, d = config["d_model"], config["num_heads"] * config["d_kv"], config["d_kv"]
    for i in layers:
        for side in ("encoder", "decoder"):
            p = f"{side}.block.{i}.layer"
            attentions = [f"{p}.0.SelfAttention"] + ([f"{p}.1.EncDecAttention"] if side == "decoder" else [])
            for attention in attentions:
                for name in "qkv":
                    m.linear(f"{attention}.{name}", inner, h, cut(0, d))
                m.linear(f"{attention}.o", h, inner, cut(1, d))
            if i == 0:
                m.add(f"{attentions[0]}.relative_attention_bias.weight", (32, config["num_heads"]), cut(1))
            last = f"{p}.{len(attentions)}"
            for name in ("wi_0", "wi_1"):
                m.linear(f"{last}.DenseReluDense.{name}", config["d_ff"], h, cut(0))
            m.linear(f"{last}.DenseReluDense.wo", h, config["d_ff"], cut(1))
            m.norms(f"{last}.layer_norm", size=h)
    m.add("shared.weight", (config["vocab_size"], h), vocabulary())
    m.add("lm_head.weight", (config["vocab_size"], h), vocabulary())
    m.norms("encoder.final_layer_norm", "decoder.final_layer_norm", size=h)
    return m


def add_mamba(m, p, h, inner, state, rank):
    m.add(f"{p}.in_proj.weight", (2 * inner, h), halves(0))
    m.add(f"{p}.conv1d.weight", (inner, 1, 4), cut(0))
    m.add(f"{p}.conv1d.bias", (inner,), cut(0))
    m.add(f"{p}.x_proj.weight", (rank + 2 * state, inner), cut(1))
    m.add(f"{p}.dt_proj.weight", (inner, rank), cut(0))
    m.add(f"{p}.dt_proj.bias", (inner,), cut(0))
    m.add(f"{p}.A_log", (inner, state), cut(0))
    m.add(f"{p}.D", (inner,), cut(0))
    m.add(f"{p}.out_proj.weight", (h, inner), cut(1))


def mamba(config, layers):
    m = Model(config)
    h = config["hidden_size"]
    for i in layers:
        add_mamba(m, f"backbone.layers.{i}.mixer", h, config["intermediate_size"], config["state_size"], config["time_step_rank"])
        m.norms(f"backbone.layers.{i}.norm", size=h)
    m.ends("backbone", False, "embeddings", "norm_f")
    return m


def add_mamba2(m, p, h, heads, d, groups, state, quantised=False):
    """quantised: whether forms replace its weights, as they do in hybrids."""
    inner, group = heads * d, groups * state
    add = (lambda name, out, inputs, how: m.linear(name, out, inputs, how)) if quantised else \
          (lambda name, out, inputs, how: m.add(f"{name}.weight", (out, inputs), how))
    add(f"{p}.in_proj", 2 * inner + 2 * group + heads, h,
        parts(0, (inner, 0), (inner, 0), (group, groups), (group, groups), (heads, 0)))
    m.add(f"{p}.conv1d.weight", (inner + 2 * group, 1, 4), parts(0, (inner, 0), (group, groups), (group, groups)))
    m.add(f"{p}.conv1d.bias", (inner + 2 * group,), parts(0, (inner, 0), (group, groups), (group, groups)))
    for name in ("A_log", "D", "dt_bias"):
        m.add(f"{p}.{name}", (heads,), cut(0))
    m.add(f"{p}.norm.weight", (inner,), cut(0, d))
    add(f"{p}.out_proj", h, inner, cut(1, d))


def mamba2(config, layers):
    m = Model(config)
    h = config["hidden_size"]
    for i in layers:
        add_mamba2(m, f"backbone.layers.{i}.mixer", h, config["num_heads"], config["head_dim"], config["n_groups"], config["state_size"])
        m.norms(f"backbone.layers.{i}.norm", size=h)
    m.ends("backbone", True, "embeddings", "norm_f")
    return m


def jamba(config, layers):
    m = Model(config)
    h, inner = config["hidden_size"], 2 * config["hidden_size"]
    for i in layers:
        p = f"model.layers.{i}"
        if i % 8 == 4:
            m.attention(f"{p}.self_attn")
        else:
            add_mamba(m, f"{p}.mamba", h, inner, config["mamba_d_state"], config["mamba_dt_rank"])
            m.norms(f"{p}.mamba.dt_layernorm", size=config["mamba_dt_rank"])
            m.norms(f"{p}.mamba.b_layernorm", f"{p}.mamba.c_layernorm", size=config["mamba_d_state"])
        if i % 2:
            m.add(f"{p}.feed_forward.router.weight", (config["num_experts"], h), whole())
            for e in range(config["num_experts"]):
                m.mlp(f"{p}.feed_forward.experts.{e}", config["intermediate_size"])
        else:
            m.mlp(f"{p}.feed_forward", config["intermediate_size"])
        m.norms(f"{p}.input_layernorm", f"{p}.pre_ff_layernorm", size=h)
    m.ends(norm="final_layernorm")
    return m


# ---- files --------------------------------------------------------------------------------------


def write_sparse(folder, tensors, config):
    """A model of real size that takes no room: headers, and files of holes."""
    os.makedirs(folder)
    header, at = {}, 0
    for name, dtype, shape, _ in tensors:
        size = files.size_of(dtype, shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(f"{folder}/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)


def write_small(folder, tensors, config, rnd):
    files.write(f"{folder}/model.safetensors", {name: (dtype, shape, rnd.randbytes(files.size_of(dtype, shape)))
                                                for name, dtype, shape, _ in tensors})
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
