# SPDX-License-Identifier: Apache-2.0
"""More of families.py, whose names this has too: hybrids, models with names of their own, encoders, towers."""
import re

from families import *  # pylint: disable=wildcard-import,unused-wildcard-import
from families import Model, cut, halves, kv, parts, vocabulary, whole

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


def granite_experts(m, p, shared):
    c = m.config
    h, inner, experts = c["hidden_size"], c["intermediate_size"], c["num_local_experts"]
    if experts:
        m.add(f"{p}.block_sparse_moe.input_linear.weight", (experts, 2 * inner, h), halves(0).stacked())
        m.add(f"{p}.block_sparse_moe.output_linear.weight", (experts, h, inner), cut(1).stacked())
        m.add(f"{p}.block_sparse_moe.router.layer.weight", (experts, h), whole())
    if shared:
        m.linear(f"{p}.shared_mlp.input_linear", 2 * shared, h, halves(0))
        m.linear(f"{p}.shared_mlp.output_linear", h, shared, cut(1))


def granite_moe(config, layers):
    m = Model(config)
    for i in layers:
        p = f"model.layers.{i}"
        m.attention(f"{p}.self_attn")
        granite_experts(m, p, 0)
        m.norms(f"{p}.input_layernorm", f"{p}.post_attention_layernorm", size=config["hidden_size"])
    m.ends(head=False)
    return m


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


def gemma4(config, layers, at="model.language_model"):
    """Every sixth layer has heads of another size, and no values of its own."""
    c = text_of(config)
    m = Model(c)
    h, heads = c["hidden_size"], c["num_attention_heads"]
    for i in layers:
        p, everywhere = f"{at}.layers.{i}", i % 6 == 5
        d, groups = (c["global_head_dim"], c["num_global_key_value_heads"]) if everywhere else (c["head_dim"], c["num_key_value_heads"])
        m.linear(f"{p}.self_attn.q_proj", heads * d, h, cut(0, d))
        for name in ("k_proj",) if everywhere else ("k_proj", "v_proj"):
            m.linear(f"{p}.self_attn.{name}", groups * d, h, kv(0, groups, d))
        m.linear(f"{p}.self_attn.o_proj", h, heads * d, cut(1, d))
        m.norms(f"{p}.self_attn.q_norm", f"{p}.self_attn.k_norm", size=d)
        m.mlp(f"{p}.mlp", c["intermediate_size"])
        m.norms(*[f"{p}.{norm}" for norm in GEMMA_NORMS], size=h)
        m.add(f"{p}.layer_scalar", (1,), whole())
        if "num_experts" in c:
            m.add(f"{p}.experts.gate_up_proj", (c["num_experts"], 2 * c["moe_intermediate_size"], h), halves(0).stacked())
            m.add(f"{p}.experts.down_proj", (c["num_experts"], h, c["moe_intermediate_size"]), cut(1).stacked())
            m.add(f"{p}.router.proj.weight", (c["num_experts"], h), whole())
            m.add(f"{p}.router.scale", (h,), whole())
            m.add(f"{p}.router.per_expert_scale", (c["num_experts"],), whole())
            m.norms(f"{p}.post_feedforward_layernorm_1", f"{p}.pre_feedforward_layernorm_2", size=h)
    m.ends(at, False)
    m.add("model.embed_vision.embedding_projection.weight", (h, 1152), whole())
    m.add("model.vision_tower.encoder.layers.0.self_attn.q_proj.linear.weight", (1152, 1152), whole())
    return m


def gemma3n(config, layers):
    at = "model.language_model"
    h, n = text_of(config)["hidden_size"], text_of(config)["hidden_size_per_layer_input"]

    def more(m, p):
        for name, shape in (("per_layer_input_gate", (n, h)), ("per_layer_projection", (h, n)), ("laurel.linear_left", (64, h)),
                            ("laurel.linear_right", (h, 64)), ("altup.correction_coefs", (4, 4)), ("altup.modality_router", (4, h))):
            m.add(f"{p}.{name}.weight", shape, whole())
        m.add(f"{p}.altup.correct_output_scale", (h,), whole())
        m.norms(f"{p}.altup.router_norm", f"{p}.laurel.post_laurel_norm", f"{p}.post_per_layer_input_norm", size=h)
    m = llama(config, layers, at, False, qk_norm="shared", norms=GEMMA_NORMS, more=more)
    m.add(f"{at}.embed_tokens_per_layer.weight", (m.config["vocab_size_per_layer_input"], m.config["num_hidden_layers"] * n), vocabulary())
    m.add(f"{at}.per_layer_model_projection.weight", (m.config["num_hidden_layers"] * n, h), whole())
    m.norms(f"{at}.per_layer_projection_norm", size=n)
    m.add(f"{at}.altup_projections.0.weight", (h, h), whole())
    m.add(f"{at}.altup_unembed_projections.2.weight", (h, h), whole())
    m.add("model.embed_audio.embedding.weight", (128, 1536), whole())
    return m


def internlm2(config, layers):
    m = Model(config)
    h, heads, groups = config["hidden_size"], config["num_attention_heads"], config["num_key_value_heads"]
    d = h // heads
    for i in layers:
        p = f"model.layers.{i}"
        m.linear(f"{p}.attention.wqkv", (heads + 2 * groups) * d, h, cut(0, (heads // groups + 2) * d))
        m.linear(f"{p}.attention.wo", h, h, cut(1, d))
        m.mlp(f"{p}.feed_forward", config["intermediate_size"], names=("w1", "w3", "w2"))
        m.norms(f"{p}.attention_norm", f"{p}.ffn_norm", size=h)
    m.ends(embed="tok_embeddings", head_name="output")
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


def codegen(config, layers):
    m = gptj(config, layers)
    h = config["n_embd"]
    m.tensors = [tensor for tensor in m.tensors if not re.search("[qkv]_proj", tensor[0])]
    m.linears = {name: value for name, value in m.linears.items() if not re.search("[qkv]_proj", name)}
    for i in layers:
        m.linear(f"transformer.h.{i}.attn.qkv_proj", 3 * h, h, cut(0, 3 * h // 4))
    return m


def dbrx(config, layers):
    m = Model(config)
    h, heads, groups = config["d_model"], config["n_heads"], config["attn_config"]["kv_n_heads"]
    experts, inner, d = config["ffn_config"]["moe_num_experts"], config["ffn_config"]["ffn_hidden_size"], h // heads
    for i in layers:
        p = f"transformer.blocks.{i}"
        m.add(f"{p}.norm_attn_norm.attn.Wqkv.weight", ((heads + 2 * groups) * d, h),
              parts(0, (heads * d, 0), (groups * d, groups), (groups * d, groups)))
        m.add(f"{p}.norm_attn_norm.attn.out_proj.weight", (h, h), cut(1, d))
        for name in ("w1", "v1", "w2"):
            m.add(f"{p}.ffn.experts.mlp.{name}", (experts * inner, h), parts(0, *[(inner, 0)] * experts))
        m.add(f"{p}.ffn.router.layer.weight", (experts, h), whole())
        m.norms(f"{p}.norm_attn_norm.norm_1", f"{p}.norm_attn_norm.norm_2", size=h)
    for name in ("transformer.wte.weight", "lm_head.weight"):
        m.add(name, (config["vocab_size"], h), vocabulary())
    m.norms("transformer.norm_f", size=h)
    return m


def bailing(config, layers):
    def attention(m, at):
        c, at = m.config, at.replace("self_attn", "attention")
        h, heads, groups, d = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]
        m.linear(f"{at}.query_key_value", (heads + 2 * groups) * d, h, parts(0, (heads * d, 0), (groups * d, groups), (groups * d, groups)))
        m.linear(f"{at}.dense", h, heads * d, cut(1, d))
        m.norms(f"{at}.query_layernorm", f"{at}.key_layernorm", size=d)
    m = moe(config, layers, attention=attention, dense=1, shared=("shared_experts", config["moe_intermediate_size"]), router_bias="mlp.gate.expert_bias")
    m.tensors = [(tensor[0].replace("embed_tokens", "word_embeddings"), *tensor[1:]) for tensor in m.tensors]
    return m


def minicpm3(config, layers):
    m = moe({**config, "v_head_dim": config["hidden_size"] // config["num_attention_heads"], "num_experts": 1}, layers, attention=latent_attention, dense=99)
    return m


# ---- encoders, and models with an encoder and a decoder ---------------------------------------------


def masked_encoder(config, layers, at, names, embed="embeddings.word_embeddings", size="hidden_size"):
    """at(i): the prefix of a layer; names: q, k and v, what follows them, the two of the MLP."""
    m = Model(config)
    h = config[size]
    d = h // (config.get("num_attention_heads") or config["n_heads"])
    *qkv, out, up, down = names
    for i in layers:
        p = at(i)
        for name in qkv:
            m.linear(f"{p}.{name}", h, h, cut(0, d), True)
        m.linear(f"{p}.{out}", h, h, cut(1, d), True)
        m.linear(f"{p}.{up}", 4 * h, h, cut(0), True)
        m.linear(f"{p}.{down}", h, 4 * h, cut(1), True)
    if embed:
        m.add(f"{embed}.weight", (config["vocab_size"], config.get("embedding_size", h)), vocabulary())
    return m


def distilbert(config, layers):
    m = masked_encoder(config, layers, lambda i: f"distilbert.transformer.layer.{i}",
                       ("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin", "ffn.lin1", "ffn.lin2"),
                       "distilbert.embeddings.word_embeddings", "dim")
    h = config["dim"]
    m.add("distilbert.embeddings.position_embeddings.weight", (512, h), whole())
    m.norms("distilbert.embeddings.LayerNorm", "distilbert.transformer.layer.0.sa_layer_norm", "vocab_layer_norm", size=h, bias=True)
    m.add("vocab_transform.weight", (h, h), whole())
    m.add("vocab_projector.bias", (config["vocab_size"],), whole())
    return m


def albert(config, layers):
    """All of its layers are one."""
    p = "albert.encoder.albert_layer_groups.0.albert_layers.0"
    m = masked_encoder(config, [0], lambda i: p, ("attention.query", "attention.key", "attention.value", "attention.dense", "ffn", "ffn_output"),
                       "albert.embeddings.word_embeddings")
    h = config["hidden_size"]
    m.norms(f"{p}.full_layer_layer_norm", f"{p}.attention.LayerNorm", size=h, bias=True)
    m.add("albert.encoder.embedding_hidden_mapping_in.weight", (h, config["embedding_size"]), whole())
    m.add("albert.pooler.weight", (h, h), whole())
    m.add("predictions.dense.weight", (config["embedding_size"], h), whole())
    return m


def deberta(config, layers):
    m = masked_encoder(config, layers, lambda i: f"deberta.encoder.layer.{i}",
                       ("attention.self.query_proj", "attention.self.key_proj", "attention.self.value_proj", "attention.output.dense",
                        "intermediate.dense", "output.dense"), "deberta.embeddings.word_embeddings")
    h = config["hidden_size"]
    m.norms("deberta.encoder.LayerNorm", "deberta.encoder.layer.0.output.LayerNorm", "deberta.embeddings.LayerNorm", size=h, bias=True)
    m.add("deberta.encoder.rel_embeddings.weight", (512, h), whole())
    m.add("deberta.encoder.conv.conv.weight", (h, h, 3), whole())
    return m


def mpnet(config, layers):
    m = masked_encoder(config, layers, lambda i: f"encoder.layer.{i}",
                       ("attention.attn.q", "attention.attn.k", "attention.attn.v", "attention.attn.o", "intermediate.dense", "output.dense"))
    m.norms("encoder.layer.0.attention.LayerNorm", "encoder.layer.0.output.LayerNorm", "embeddings.LayerNorm", size=config["hidden_size"], bias=True)
    m.add("encoder.relative_attention_bias.weight", (32, config["num_attention_heads"]), cut(1))
    m.add("pooler.dense.weight", (config["hidden_size"],) * 2, whole())
    return m


def modernbert(config, layers):
    m = Model(config)
    h, inner, d = config["hidden_size"], config["intermediate_size"], config["hidden_size"] // config["num_attention_heads"]
    for i in layers:
        p = f"model.layers.{i}"
        m.linear(f"{p}.attn.Wqkv", 3 * h, h, parts(0, (h, 0), (h, 0), (h, 0)))
        m.linear(f"{p}.attn.Wo", h, h, cut(1, d))
        m.linear(f"{p}.mlp.Wi", 2 * inner, h, halves(0))
        m.linear(f"{p}.mlp.Wo", h, inner, cut(1))
        m.norms(f"{p}.attn_norm", f"{p}.mlp_norm", size=h)
    m.add("model.embeddings.tok_embeddings.weight", (config["vocab_size"], h), vocabulary())
    m.norms("model.embeddings.norm", "model.final_norm", "head.norm", size=h)
    m.add("head.dense.weight", (h, h), whole())
    m.add("decoder.bias", (config["vocab_size"],), whole())
    return m


def dinov3(config, layers):
    m = masked_encoder(config, layers, lambda i: f"layer.{i}",
                       ("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.o_proj", "mlp.up_proj", "mlp.down_proj"), None)
    h = config["hidden_size"]
    m.norms("layer.0.norm1", "norm", size=h, bias=True)
    m.add("layer.0.layer_scale1.lambda1", (h,), whole())
    m.add("embeddings.patch_embeddings.weight", (h, 3, 16, 16), whole())
    m.add("embeddings.register_tokens", (1, 4, h), whole())
    return m


def wav2vec2(config, layers):
    m = masked_encoder(config, layers, lambda i: f"wav2vec2.encoder.layers.{i}",
                       ("attention.q_proj", "attention.k_proj", "attention.v_proj", "attention.out_proj", "feed_forward.intermediate_dense",
                        "feed_forward.output_dense"), None)
    h = config["hidden_size"]
    m.norms("wav2vec2.encoder.layers.0.final_layer_norm", size=h, bias=True)
    m.add("wav2vec2.feature_extractor.conv_layers.0.conv.weight", (512, 1, 10), whole())
    m.add("wav2vec2.encoder.pos_conv_embed.conv.weight_v", (h, h // 16, 128), whole())
    m.add("wav2vec2.masked_spec_embed", (h,), whole())
    m.add("lm_head.weight", (config["vocab_size"], h), whole())
    return m


def bart(config, layers):
    m = whisper({**config, "num_hidden_layers": 12}, layers)
    h = config["d_model"]
    m.tensors = [tensor for tensor in m.tensors if ".conv1" not in tensor[0] and "embed_tokens" not in tensor[0]]
    for i in layers:  # other than Whisper, its keys have biases
        for name in ("encoder.layers.{}.self_attn", "decoder.layers.{}.self_attn", "decoder.layers.{}.encoder_attn"):
            m.add(f"model.{name.format(i)}.k_proj.bias", (h,), cut(0, h // config["encoder_attention_heads"]))
    m.add("model.shared.weight", (config["vocab_size"], h), vocabulary())
    m.norms("model.encoder.layernorm_embedding", "model.decoder.layernorm_embedding", size=h, bias=True)
    m.add("final_logits_bias", (1, config["vocab_size"]), whole())
    return m


# ---- with towers ----------------------------------------------------------------------------------------


def renamed(m, old, new):
    m.tensors = [(tensor[0].replace(old, new, 1), *tensor[1:]) for tensor in m.tensors]
    m.linears = {name.replace(old, new, 1): value for name, value in m.linears.items()}
    return m


def flat(config, key):
    for part in key.split("."):
        config = {**config, **config.get(part, {})}
    return config


def omni(config, layers):
    c = flat(config, "thinker_config.text_config")
    m = renamed(llama(c, layers, bias=True), "", "thinker.") if "num_experts" not in c else renamed(moe(c, layers, qk_norm="shared"), "", "thinker.")
    m.add("thinker.visual.blocks.0.attn.qkv.weight", (3840, 1280), whole())
    m.add("thinker.audio_tower.layers.0.self_attn.q_proj.weight", (1280, 1280), whole())
    m.add("talker.model.layers.0.self_attn.q_proj.weight", (1536, 896), whole())
    return m


def internvl(config, layers):
    c = flat(config, "llm_config")
    m = renamed(internlm2(c, layers) if c["model_type"] == "internlm2" else llama(c, layers, bias=True), "", "language_model.")
    m.add("vision_model.encoder.layers.0.attn.qkv.weight", (3072, 1024), whole())
    m.add("mlp1.1.weight", (c["hidden_size"], 4096), whole())
    return m


def minicpmv(config, layers):
    m = renamed(llama(config, layers, bias=True), "", "llm.")
    m.add("vpm.encoder.layers.0.self_attn.q_proj.weight", (1152, 1152), whole())
    m.add("resampler.attn.in_proj_weight", (10752, 3584), whole())
    return m
