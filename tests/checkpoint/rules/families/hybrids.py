# SPDX-License-Identifier: Apache-2.0
"""State spaces and linear attention, alone or between layers of attention: Mamba, Jamba, Nemotron-H, Qwen3-Next and others."""
from functools import partial as P

from families.cuts import cut, halves, kv, parts, vocabulary, whole
from families.model import Model, Row, sizes, text, text_of
from families.experts import granite_experts, moe


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


def hybrid(config, layers, attends, mlp):
    """Bamba, Falcon-H1 and Granite 4: attends(i) says whether the layer has attention, and mlp(m, p) adds what follows."""
    m = Model(config)
    h, numbers = config["hidden_size"], [config[f"mamba_{key}"] for key in ("n_heads", "d_head", "n_groups", "d_state")]
    for i in layers:
        p = f"model.layers.{i}"
        if attends(i) is not False:
            m.attention(f"{p}.self_attn")
        if attends(i) is not True:
            add_mamba2(m, f"{p}.mamba", h, *numbers, quantised=config["model_type"] == "bamba")
        mlp(m, p)
        m.norms(f"{p}.input_layernorm", f"{p}.pre_ff_layernorm", size=h)
    m.ends(norm="final_layernorm")
    return m


def bamba(config, layers):
    return hybrid(config, layers, lambda i: i % 9 == 0 and i > 0, lambda m, p: m.mlp(f"{p}.feed_forward", config["intermediate_size"]))


def falcon_h1(config, layers):
    return hybrid(config, layers, lambda i: None, lambda m, p: m.mlp(f"{p}.feed_forward", config["intermediate_size"]))


def granite_hybrid(config, layers):
    return hybrid(config, layers, lambda i: i % 10 == 5, lambda m, p: granite_experts(m, p, config["shared_intermediate_size"]))


def nemotron_h(config, layers):
    """A layer is one thing: by its number here Mamba2, an MLP or experts, attention."""
    m = Model(config)
    c, h = config, config["hidden_size"]
    for i in layers:
        p = f"backbone.layers.{i}.mixer"
        if i % 3 == 0:
            add_mamba2(m, p, h, c["mamba_num_heads"], c["mamba_head_dim"], c["n_groups"], c["ssm_state_size"], True)
        elif i % 3 == 1:
            m.attention(p)
        elif "n_routed_experts" in c:
            for e in range(c["n_routed_experts"]):
                m.mlp(f"{p}.experts.{e}", c["moe_intermediate_size"], gated=False)
            m.mlp(f"{p}.shared_experts", c["moe_shared_expert_intermediate_size"], gated=False)
            m.add(f"{p}.gate.weight", (c["n_routed_experts"], h), whole())
            m.add(f"{p}.gate.e_score_correction_bias", (c["n_routed_experts"],), whole(), "F32")
        else:
            m.mlp(p, c["intermediate_size"], gated=False)
        m.norms(f"backbone.layers.{i}.norm", size=h)
    m.ends("backbone", True, "embeddings", "norm_f")
    return m


def lfm2(config, layers):
    m = Model(config)
    c, h, w = config, config["hidden_size"], ("w1", "w3", "w2")
    for i in layers:
        p = f"model.layers.{i}"
        if i % 4 == 2:
            m.attention(f"{p}.self_attn", out="out_proj")
            m.norms(f"{p}.self_attn.q_layernorm", f"{p}.self_attn.k_layernorm", size=h // c["num_attention_heads"])
        else:
            m.linear(f"{p}.conv.in_proj", 3 * h, h, parts(0, (h, 0), (h, 0), (h, 0)))
            m.add(f"{p}.conv.conv.weight", (h, 1, 3), cut(0))
            m.linear(f"{p}.conv.out_proj", h, h, cut(1))
        if i < c.get("num_dense_layers", 99):
            m.mlp(f"{p}.feed_forward", c["intermediate_size"], names=w)
        else:
            for e in range(c["num_experts"]):
                m.mlp(f"{p}.feed_forward.experts.{e}", c["moe_intermediate_size"], names=w)
            m.add(f"{p}.feed_forward.gate.weight", (c["num_experts"], h), whole())
            m.add(f"{p}.feed_forward.expert_bias", (c["num_experts"],), whole(), "F32")
        m.norms(f"{p}.operator_norm", f"{p}.ffn_norm", size=h)
    m.ends(norm="embedding_norm", head=False)
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


def wide_attention(m, at):
    """Of the model's state and the embedding beside it."""
    h, heads, groups = (m.config[key] for key in ("hidden_size", "num_attention_heads", "num_key_value_heads"))
    d = 2 * h // heads
    m.linear(f"{at}.q_proj", 2 * h, 2 * h, cut(0, d))
    m.linear(f"{at}.k_proj", groups * d, 2 * h, kv(0, groups, d))
    m.linear(f"{at}.v_proj", groups * d, 2 * h, kv(0, groups, d))
    m.linear(f"{at}.o_proj", h, 2 * h, cut(1, d))


def zamba2(config, layers):
    """Hybrid layers use one of few blocks of attention, which the first of them store. A block has an adapter for each layer that uses it."""
    m = Model(config)
    h, inner, rank = config["hidden_size"], config["intermediate_size"], config["adapter_rank"]
    mamba_heads, groups, state = config["n_mamba_heads"], config["mamba_ngroups"], config["mamba_d_state"]
    for i in layers:
        p = f"model.layers.{i}"
        hybrid_layer = i in config["hybrid_layer_ids"]
        if hybrid_layer and config["hybrid_layer_ids"].index(i) < config["num_mem_blocks"]:
            at = f"{p}.shared_transformer"
            block = config["hybrid_layer_ids"].index(i)
            wide_attention(m, f"{at}.self_attn")
            m.linear(f"{at}.feed_forward.gate_up_proj", 2 * inner, h, halves(0))
            m.linear(f"{at}.feed_forward.down_proj", h, inner, cut(1))
            m.add(f"{at}.feed_forward.gate_up_proj_adapter_list.{block}.0.weight", (rank, h), cut(0))
            m.add(f"{at}.feed_forward.gate_up_proj_adapter_list.{block}.1.weight", (2 * inner, rank), halves(0))
            m.norms(f"{at}.input_layernorm", size=2 * h)
            m.norms(f"{at}.pre_ff_layernorm", size=h)
        if hybrid_layer:
            m.add(f"{p}.linear.weight", (h, h), whole())
            p += ".mamba_decoder"
        add_mamba2(m, f"{p}.mamba", h, mamba_heads, 2 * h // mamba_heads, groups, state)
        m.norms(f"{p}.input_layernorm", size=h)
    m.ends(head=False, norm="final_layernorm")
    return m


def zamba(config, layers):
    m = Model(config)
    h, states, few = config["hidden_size"], config["mamba_d_state"], config["n_mamba_heads"]
    channels, rank = 2 * h // few, -(-h // 16)
    for i in layers:
        p = f"model.layers.{i}"
        if i == 2:  # the first of those that share a block
            wide_attention(m, f"{p}.shared_transf.self_attn")
            m.mlp(f"{p}.shared_transf.feed_forward", config["intermediate_size"])
            m.norms(f"{p}.shared_transf.input_layernorm", size=2 * h)
            m.norms(f"{p}.shared_transf.pre_ff_layernorm", size=h)
            m.add(f"{p}.linear.weight", (h, h), whole())
            p += ".mamba_decoder"
        m.add(f"{p}.mamba.in_proj.weight", (4 * h, h), cut(0, 2 * channels))
        m.add(f"{p}.mamba.conv1d.weight", (2 * h, 1, 4), cut(0, channels))
        m.add(f"{p}.mamba.conv1d.bias", (2 * h,), cut(0, channels))
        m.add(f"{p}.mamba.x_proj_weight", (few, rank + 2 * states, channels), cut(0))
        m.add(f"{p}.mamba.dt_proj_weight", (few, channels, rank), cut(0))
        m.add(f"{p}.mamba.dt_proj_bias", (few, channels), cut(0))
        m.add(f"{p}.mamba.A_log", (few, channels, states), cut(0))
        m.add(f"{p}.mamba.D", (few, channels), cut(0))
        m.add(f"{p}.mamba.out_proj.weight", (h, 2 * h), cut(1, channels))
        m.norms(f"{p}.input_layernorm", size=h)
    m.ends(head=False, norm="final_layernorm")
    return m


def rwkv4(config, layers):
    """As transformers has it. It has no heads; its channels are cut in groups of 64, as if they were heads."""
    m = Model(config)
    h, inner = config["hidden_size"], config["intermediate_size"]
    d = config.get("head_size", 64)
    for i in layers:
        p = f"rwkv.blocks.{i}"
        for name in ("key", "value", "receptance"):
            m.add(f"{p}.attention.{name}.weight", (h, h), cut(0, d))
            m.add(f"{p}.attention.time_mix_{name}", (1, 1, h), whole())
        m.add(f"{p}.attention.output.weight", (h, h), cut(1, d))
        m.add(f"{p}.attention.time_decay", (h,), cut(0, d))
        m.add(f"{p}.attention.time_first", (h,), cut(0, d))
        add_channel_mix(m, f"{p}.feed_forward", h, inner, ("time_mix_key", "time_mix_receptance"))
        m.norms(f"{p}.ln1", f"{p}.ln2", *([f"{p}.pre_ln"] if i == 0 else []), size=h, bias=True)
    m.norms("rwkv.ln_out", size=h, bias=True)
    m.add("rwkv.embeddings.weight", (config["vocab_size"], h), vocabulary())
    m.add("head.weight", (config["vocab_size"], h), vocabulary())
    return m


def add_channel_mix(m, p, h, inner, mixes):
    m.add(f"{p}.key.weight", (inner, h), cut(0))
    m.add(f"{p}.value.weight", (h, inner), cut(1))
    m.add(f"{p}.receptance.weight", (h, h), whole())
    for name in mixes:
        m.add(f"{p}.{name}", (1, 1, h), whole())


def rwkv6(config, layers):
    """As first published, with few numbers beside: none of them is needed but those of layers."""
    m = Model(config)
    h, inner, mix, decay = (config[key] for key in ("hidden_size", "intermediate_size", "mix_rank", "decay_rank"))
    d = config.get("head_size", 64)
    for i in layers:
        p = f"blocks.{i}"
        for name in ("receptance", "key", "value", "gate"):
            m.add(f"{p}.att.{name}.weight", (h, h), cut(0, d))
        m.add(f"{p}.att.output.weight", (h, h), cut(1, d))
        for name in "xwkvrg":
            m.add(f"{p}.att.time_maa_{name}", (1, 1, h), whole())
        m.add(f"{p}.att.time_maa_w1", (h, 5 * mix), whole())
        m.add(f"{p}.att.time_maa_w2", (5, mix, h), whole())
        m.add(f"{p}.att.time_decay", (1, 1, h), cut(2, d))
        m.add(f"{p}.att.time_decay_w1", (h, decay), whole())
        m.add(f"{p}.att.time_decay_w2", (decay, h), cut(1, d))
        m.add(f"{p}.att.time_faaaa", (h // d, d), cut(0))
        for end in ("weight", "bias"):
            m.add(f"{p}.att.ln_x.{end}", (h,), cut(0, d))
        add_channel_mix(m, f"{p}.ffn", h, inner, ("time_maa_k", "time_maa_r"))
        m.norms(f"{p}.ln1", f"{p}.ln2", *([f"{p}.ln0"] if i == 0 else []), size=h, bias=True)
    m.norms("ln_out", size=h, bias=True)
    m.add("emb.weight", (config["vocab_size"], h), vocabulary())
    m.add("head.weight", (config["vocab_size"], h), vocabulary())
    return m


def rwkv7(config, layers):
    """As fla has it."""
    m = Model(config)
    h, d = config["hidden_size"], config["head_dim"]
    for i in layers:
        p = f"model.layers.{i}"
        for name in "rwkvag":
            m.add(f"{p}.attn.x_{name}", (1, 1, h), whole())
        for name in "rkv":
            m.add(f"{p}.attn.{name}_proj.weight", (h, h), cut(0, d))
        m.add(f"{p}.attn.o_proj.weight", (h, h), cut(1, d))
        for name, key in (("w", "decay"), ("a", "a"), ("v", "v"), ("g", "gate")):
            rank = config[f"{key}_low_rank_dim"]
            m.add(f"{p}.attn.{name}_lora.lora.0.weight", (rank, h), whole())
            m.add(f"{p}.attn.{name}_lora.lora.2.weight", (h, rank), cut(0, d))
            if name != "g":
                m.add(f"{p}.attn.{name}_lora.lora.2.bias", (h,), cut(0, d))
        m.add(f"{p}.attn.k_k", (h,), cut(0, d))
        m.add(f"{p}.attn.k_a", (h,), cut(0, d))
        m.add(f"{p}.attn.r_k", (h // d, d), cut(0))
        for end in ("weight", "bias"):
            m.add(f"{p}.attn.g_norm.{end}", (h,), cut(0, d))
        m.add(f"{p}.ffn.x_k", (h,), whole())
        m.add(f"{p}.ffn.key.weight", (config["intermediate_size"], h), cut(0))
        m.add(f"{p}.ffn.value.weight", (h, config["intermediate_size"]), cut(1))
        m.norms(f"{p}.attn_norm", f"{p}.ffn_norm", *([f"{p}.pre_norm"] if i == 0 else []), size=h, bias=True)
    m.ends(embed="embeddings", bias=True)
    return m


ROWS = [
    Row("Qwen3-Next-80B-A3B", "qwen3_next", qwen3_next,
        sizes("qwen3_next", 2048, 16, 2, 5120, 48, 151936, head_dim=256, moe_intermediate_size=512, shared_expert_intermediate_size=512,
               num_experts=512, linear_num_key_heads=16, linear_num_value_heads=32, linear_key_head_dim=128, linear_value_head_dim=128),
        sample=(0, 3, 47), axes="tp pp ep"),
    Row("MiniMax-Text-01", "minimax", minimax, sizes("minimax", 6144, 64, 8, 9216, 80, 200064, head_dim=128, num_local_experts=32),
        sample=(0, 7, 79), axes="tp pp ep"),
    Row("Mamba-2.8B", "mamba", mamba, {"model_type": "mamba", "hidden_size": 2560, "intermediate_size": 5120, "state_size": 16, "time_step_rank": 160,
        "num_hidden_layers": 64, "vocab_size": 50280}, forms=()),
    Row("Codestral-Mamba-7B", "mamba2", mamba2, {"model_type": "mamba2", "hidden_size": 4096, "num_heads": 128, "head_dim": 64, "n_groups": 8,
        "state_size": 128, "num_hidden_layers": 64, "vocab_size": 32768}, forms=()),
    Row("Jamba-v0.1", "jamba", jamba, sizes("jamba", 4096, 32, 8, 14336, 32, 65536, num_experts=16, mamba_d_state=16, mamba_dt_rank=256),
        sample=(0, 1, 4, 31), axes="tp pp ep"),
    Row("Granite-4.0-H-Small", "bamba", granite_hybrid, sizes("granitemoehybrid", 4096, 32, 8, 768, 40, 100352, num_local_experts=72, shared_intermediate_size=1536,
        mamba_n_heads=128, mamba_d_head=64, mamba_n_groups=1, mamba_d_state=128), sample=(0, 5, 39), axes="tp pp ep"),
    Row("Granite-4.0-Micro", "bamba", P(granite_hybrid), sizes("granitemoehybrid", 2560, 40, 8, 8192, 40, 100352, num_local_experts=0, shared_intermediate_size=8192,
        mamba_n_heads=64, mamba_d_head=80, mamba_n_groups=1, mamba_d_state=128), sample=(5, 35)),
    Row("Bamba-9B", "bamba", bamba, sizes("bamba", 4096, 32, 8, 14336, 32, 128256, mamba_n_heads=128, mamba_d_head=64, mamba_n_groups=1, mamba_d_state=128),
        sample=(0, 9, 31)),
    Row("Falcon-H1-34B", "bamba", falcon_h1, sizes("falcon_h1", 5120, 20, 4, 21504, 72, 261120, head_dim=128, mamba_n_heads=32, mamba_d_head=128, mamba_n_groups=2,
        mamba_d_state=256)),
    Row("Nemotron-Nano-9B-v2", "nemotron_h", nemotron_h, sizes("nemotron_h", 4480, 40, 8, 15680, 56, 131072, head_dim=128, attention_head_dim=128, mamba_num_heads=128,
        mamba_head_dim=80, n_groups=8, ssm_state_size=128), sample=(0, 1, 2, 55)),
    Row("Nemotron-3-Nano-30B-A3B", "nemotron_h", nemotron_h, sizes("nemotron_h", 2688, 32, 2, 1856, 52, 131072, head_dim=128, mamba_num_heads=64, mamba_head_dim=64,
        n_groups=8, ssm_state_size=128, n_routed_experts=128, moe_intermediate_size=1856, moe_shared_expert_intermediate_size=3712), sample=(0, 1, 2, 51),
        axes="tp pp ep"),
    Row("LFM2-1.2B", "lfm2", lfm2, sizes("lfm2", 2048, 32, 8, 8192, 16, 65536), sample=(0, 2, 15)),
    Row("LFM2-8B-A1B", "lfm2", lfm2, sizes("lfm2_moe", 2048, 32, 8, 7168, 24, 65536, num_experts=32, moe_intermediate_size=1792, num_dense_layers=2),
        sample=(0, 2, 23), axes="tp pp ep"),
    Row("Qwen3.5-35B-A3B", "qwen3_next", P(qwen3_next, at="model.language_model", apart=True), text("qwen3_5_moe",
        sizes("qwen3_5_moe_text", 2048, 16, 2, 5120, 40, 248320, head_dim=256, moe_intermediate_size=512, shared_expert_intermediate_size=512,
               num_experts=256, linear_num_key_heads=16, linear_num_value_heads=32, linear_key_head_dim=128, linear_value_head_dim=128)),
        sample=(0, 3, 39), axes="tp pp ep"),
    Row("Zamba2-7B", "zamba2", zamba2, sizes("zamba2", 3584, 32, 32, 14336, 81, 32000, n_mamba_heads=112, mamba_ngroups=2, mamba_d_state=64, adapter_rank=128,
        num_mem_blocks=2, hybrid_layer_ids=[6, 11, 17, 23, 29, 35, 41, 47, 53, 59, 65, 71, 77], tie_word_embeddings=True), sample=(0, 6, 11, 17)),
    Row("Zamba-7B-v1", "zamba", zamba, sizes("zamba", 3712, 16, 16, 14848, 76, 32000, n_mamba_heads=2, mamba_d_state=16, tie_word_embeddings=True), sample=(0, 2, 75)),
    Row("RWKV-4-Raven-7B", "rwkv", rwkv4, {"model_type": "rwkv", "hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 16384, "vocab_size": 50277}, forms=()),
    Row("RWKV-6-World-7B", "rwkv", rwkv6, {"hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 14336, "vocab_size": 65536, "mix_rank": 64, "decay_rank": 128},
        forms=()),
    Row("RWKV-7-World-2.9B", "rwkv", rwkv7, {"model_type": "rwkv7", "hidden_size": 2560, "num_hidden_layers": 32, "head_dim": 64, "intermediate_size": 10240,
        "vocab_size": 65536, "decay_low_rank_dim": 96, "a_low_rank_dim": 96, "v_low_rank_dim": 64, "gate_low_rank_dim": 320}, forms=()),
]
