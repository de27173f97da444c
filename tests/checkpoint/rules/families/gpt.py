# SPDX-License-Identifier: Apache-2.0
"""Models with the names of GPT-2, GPT-J, GPT-NeoX, BLOOM, Falcon, MPT, OPT and ChatGLM."""
import re
from functools import partial as P

from families.cuts import cut, halves, kv, parts, vocabulary, whole
from families.model import Model, Row, sizes
from families.encoders import encoder_layer


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


def codegen(config, layers):
    m = gptj(config, layers)
    h = config["n_embd"]
    m.tensors = [tensor for tensor in m.tensors if not re.search("[qkv]_proj", tensor[0])]
    m.linears = {name: value for name, value in m.linears.items() if not re.search("[qkv]_proj", name)}
    for i in layers:
        m.linear(f"transformer.h.{i}.attn.qkv_proj", 3 * h, h, cut(0, 3 * h // 4))
    return m


def gpt_names(config, layers, attention, mlp, bias=True, position=False, head=True):
    """Models with the names of GPT-2 whose weights are [out, in]: attention(m, p, h, d) and mlp, names and the last one."""
    m = Model(config)
    h = config.get("n_embd") or config["hidden_size"]
    d = h // (config.get("n_head") or config.get("num_heads") or config["num_attention_heads"])
    for i in layers:
        p = f"transformer.h.{i}"
        attention(m, p, h, d)
        size = config.get("inner") or 4 * h
        for name in mlp[:-1]:
            m.linear(f"{p}.mlp.{name}", size, h, cut(0), bias)
        m.linear(f"{p}.mlp.{mlp[-1]}", h, size, cut(1), bias)
        m.norms(f"{p}.ln_1", f"{p}.ln_2", size=h, bias=bias)
    m.add("transformer.wte.weight", (config["vocab_size"], h), vocabulary())
    m.norms("transformer.ln_f", size=h, bias=bias)
    if position:
        m.add("transformer.wpe.weight", (2048, h), whole())
    if head:
        m.add("lm_head.weight", (config["vocab_size"], h), vocabulary())
    return m


def gpt_neo(config, layers, mlp=("c_fc", "c_proj"), out_bias=True, **options):
    def attention(m, p, h, d):
        groups = config.get("num_key_value_heads", h // d)
        m.linear(f"{p}.attn.attention.q_proj", h, h, cut(0, d))
        for name in ("k_proj", "v_proj"):
            m.linear(f"{p}.attn.attention.{name}", groups * d, h, kv(0, groups, d))
        m.linear(f"{p}.attn.attention.out_proj", h, h, cut(1, d), out_bias)
    return gpt_names(config, layers, attention, mlp, **options)


def gpt_bigcode(config, layers):
    def attention(m, p, h, d):
        m.linear(f"{p}.attn.c_attn", h + 2 * d, h, parts(0, (h, 0), (d, 1), (d, 1)), True)
        m.linear(f"{p}.attn.c_proj", h, h, cut(1, d), True)
    return gpt_names(config, layers, attention, ("c_fc", "c_proj"), position=True, head=False)


def qwen(config, layers):
    def attention(m, p, h, d):
        m.linear(f"{p}.attn.c_attn", 3 * h, h, parts(0, (h, 0), (h, 0), (h, 0)), True)
        m.linear(f"{p}.attn.c_proj", h, h, cut(1, d))
    return gpt_names(config, layers, attention, ("w1", "w2", "c_proj"), bias=False)


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


ROWS = [
    Row("GLM-4-9B", "chatglm", chatglm, {"model_type": "chatglm", "hidden_size": 4096, "num_attention_heads": 32, "multi_query_group_num": 2,
        "kv_channels": 128, "ffn_hidden_size": 13696, "num_layers": 40, "padded_vocab_size": 151552}),
    Row("Falcon-7B", "falcon", falcon, {"model_type": "falcon", "hidden_size": 4544, "num_attention_heads": 71, "num_hidden_layers": 32,
        "vocab_size": 65024, "multi_query": True, "new_decoder_architecture": False}),
    Row("Falcon-40B", "falcon", falcon, {"model_type": "falcon", "hidden_size": 8192, "num_attention_heads": 128, "num_kv_heads": 8, "num_hidden_layers": 60,
        "vocab_size": 65024, "multi_query": True, "new_decoder_architecture": True}),
    Row("BLOOM-176B", "bloom", bloom, {"model_type": "bloom", "n_embed": 14336, "n_head": 112, "n_layer": 70, "vocab_size": 250880}),
    Row("OPT-66B", "opt", opt, {"model_type": "opt", "hidden_size": 9216, "num_attention_heads": 72, "ffn_dim": 36864, "num_hidden_layers": 64, "vocab_size": 50272}),
    Row("GPT-2 large", "gpt2", gpt2, {"model_type": "gpt2", "n_embd": 1280, "n_head": 20, "n_layer": 36, "vocab_size": 50257}, forms=()),
    Row("GPT-J-6B", "gptj", gptj, {"model_type": "gptj", "n_embd": 4096, "n_head": 16, "n_layer": 28, "vocab_size": 50400}),
    Row("GPT-NeoX-20B", "neox", neox, sizes("gpt_neox", 6144, 64, 64, 24576, 44, 50432)),
    Row("MPT-30B", "mpt", mpt, {"model_type": "mpt", "d_model": 7168, "n_heads": 64, "n_layers": 48, "vocab_size": 50432}),
    Row("EXAONE-3.5-7.8B", "gpt_neo", P(gpt_neo, mlp=("c_fc_0", "c_fc_1", "c_proj"), bias=False, out_bias=False),
        {"model_type": "exaone", "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "num_layers": 32, "vocab_size": 102400, "inner": 14336}),
    Row("GPT-Neo-2.7B", "gpt_neo", P(gpt_neo, position=True, head=False), {"model_type": "gpt_neo", "hidden_size": 2560, "num_heads": 20, "num_layers": 32, "vocab_size": 50257}),
    Row("StarCoder-15B", "gpt_bigcode", gpt_bigcode, {"model_type": "gpt_bigcode", "n_embd": 6144, "n_head": 48, "n_layer": 40, "vocab_size": 49152, "multi_query": True}),
    Row("CodeGen-16B", "codegen", codegen, {"model_type": "codegen", "n_embd": 6144, "n_head": 24, "n_layer": 34, "vocab_size": 51200}),
    Row("Qwen-7B", "qwen", qwen, {"model_type": "qwen", "hidden_size": 4096, "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 151936, "inner": 11008}),
]
