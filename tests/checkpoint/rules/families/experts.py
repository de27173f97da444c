# SPDX-License-Identifier: Apache-2.0
"""Models with experts: Mixtral, Qwen-MoE, DeepSeek, GPT-OSS, DBRX and others."""
from functools import partial as P

from families.cuts import Cut, blocks, cut, halves, kv, parts, vocabulary, whole
from families.forms import follow
from families.model import Model, Row, sizes, text_of
from families.llama import hunyuan_norms


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


def minicpm3(config, layers):
    m = moe({**config, "v_head_dim": config["hidden_size"] // config["num_attention_heads"], "num_experts": 1}, layers, attention=latent_attention, dense=99)
    return m


MLA = {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
V3 = sizes("deepseek_v3", 7168, 128, 128, 18432, 61, 129280, moe_intermediate_size=2048, n_routed_experts=256, n_shared_experts=1,
            first_k_dense_replace=3, num_nextn_predict_layers=1, **MLA)
K2 = sizes("kimi_k2", 7168, 64, 64, 18432, 61, 163840, moe_intermediate_size=2048, n_routed_experts=384, n_shared_experts=1,
            first_k_dense_replace=1, num_nextn_predict_layers=0, **MLA)


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


def deepseek_v4(config, layers):
    """As published: fp8 in blocks of 128 x 128, experts in fp4, two to a byte and 32 to a scale."""
    m = Model(config)
    c, h = config, config["hidden_size"]
    heads, d, inner = c["num_attention_heads"], c["head_dim"], c["moe_intermediate_size"]
    scaled = "quantization_config" in c

    def weight(name, out, inputs, how):
        m.add(f"{name}.weight", (out, inputs), how, "F8_E4M3")
        if scaled:
            m.add(f"{name}.scale", (-(-out // 128), -(-inputs // 128)), follow(how, (0, 128), (1, 128)), "U8")

    def expert(name, out, inputs, how):
        m.add(f"{name}.weight", (out, inputs // 2), how, "I8")
        if scaled:
            m.add(f"{name}.scale", (out, inputs // 32), follow(how, (0, 1), (1, 16)), "U8")
    block = 128 if scaled else 1
    for i in layers:
        p = f"layers.{i}"
        weight(f"{p}.attn.wq_a", c["q_lora_rank"], h, whole())
        weight(f"{p}.attn.wq_b", heads * d, c["q_lora_rank"], cut(0, d))
        weight(f"{p}.attn.wkv", d, h, whole())
        weight(f"{p}.attn.wo_a", c["o_groups"] * c["o_lora_rank"], heads * d // c["o_groups"], cut(0, c["o_lora_rank"]))
        weight(f"{p}.attn.wo_b", h, c["o_groups"] * c["o_lora_rank"], cut(1, c["o_lora_rank"]))
        m.add(f"{p}.attn.attn_sink", (heads,), cut(0), "F32")
        m.norms(f"{p}.attn.q_norm", size=c["q_lora_rank"])
        m.norms(f"{p}.attn.kv_norm", size=d)
        if i >= 2:
            m.add(f"{p}.attn.compressor.ape", (4, 2 * d), whole(), "F32")
            m.add(f"{p}.attn.compressor.wkv.weight", (2 * d, h), whole())
            m.add(f"{p}.attn.indexer.wq_b.weight", (c["index_n_heads"] * c["index_head_dim"], c["q_lora_rank"]), whole())
        for name, shape in (("fn", (24, 4 * h)), ("base", (24,)), ("scale", (3,))):
            m.add(f"{p}.hc_attn_{name}", shape, whole(), "F32")
            m.add(f"{p}.hc_ffn_{name}", shape, whole(), "F32")
        for e in range(c["n_routed_experts"]):
            for name in ("w1", "w3"):
                expert(f"{p}.ffn.experts.{e}.{name}", inner, h, cut(0, block))
            expert(f"{p}.ffn.experts.{e}.w2", h, inner, cut(1, block))
        for name in ("w1", "w3"):
            weight(f"{p}.ffn.shared_experts.{name}", inner, h, cut(0, block))
        weight(f"{p}.ffn.shared_experts.w2", h, inner, cut(1, block))
        m.add(f"{p}.ffn.gate.weight", (c["n_routed_experts"], h), whole())
        m.add(f"{p}.ffn.gate.{'tid2eid' if i < 3 else 'bias'}", (c["vocab_size"], 6) if i < 3 else (c["n_routed_experts"],), whole(), "I32" if i < 3 else "F32")
        m.norms(f"{p}.attn_norm", f"{p}.ffn_norm", size=h)
    for name, shape in (("fn", (4, 4 * h)), ("base", (4,)), ("scale", (1,))):
        m.add(f"hc_head_{name}", shape, whole(), "F32")
    m.add("mtp.0.e_proj.weight", (h, h), whole())
    m.add("mtp.0.h_proj.weight", (h, h), whole())
    m.norms("norm", "mtp.0.enorm", "mtp.0.hnorm", size=h)
    for name in ("embed.weight", "head.weight"):
        m.add(name, (c["vocab_size"], h), vocabulary())
    return m


def mimo_v2(config, layers):
    """Every sixth layer sees all tokens; the others have a window, sinks and more heads of keys."""
    def attention(m, at):
        c, everywhere = m.config, int(at.split(".")[2]) % 6 == 5 or ".0." in at
        h, heads, groups = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"] if everywhere else c["swa_num_key_value_heads"]
        m.linear(f"{at}.q_proj", heads * c["head_dim"], h, cut(0, c["head_dim"]))
        m.linear(f"{at}.k_proj", groups * c["head_dim"], h, kv(0, groups, c["head_dim"]))
        m.linear(f"{at}.v_proj", groups * c["v_head_dim"], h, kv(0, groups, c["v_head_dim"]))
        m.linear(f"{at}.o_proj", h, heads * c["v_head_dim"], cut(1, c["v_head_dim"]))
        if not everywhere:
            m.add(f"{at}.attention_sink_bias", (heads,), cut(0))
    return moe(config, layers, attention=attention, dense=1, router_bias="mlp.gate.e_score_correction_bias")


ROWS = [
    Row("Qwen2-57B-A14B", "mixtral", P(moe, bias=True, shared=("shared_expert", 20480)),
        sizes("qwen2_moe", 3584, 28, 4, 18944, 28, 151936, moe_intermediate_size=2560, num_experts=64), axes="tp pp ep"),
    Row("Qwen3-235B-A22B", "mixtral", P(moe, qk_norm="shared"),
        sizes("qwen3_moe", 4096, 64, 4, 12288, 94, 151936, head_dim=128, moe_intermediate_size=1536, num_experts=128), axes="tp pp ep"),
    Row("DeepSeek-V2-Lite", "deepseek", deepseek,
        sizes("deepseek_v2", 2048, 16, 16, 10944, 27, 102400, moe_intermediate_size=1408, n_routed_experts=64, n_shared_experts=2,
               first_k_dense_replace=1, **{**MLA, "q_lora_rank": None}), axes="tp pp ep"),
    Row("DeepSeek-V3", "deepseek", P(deepseek, router_bias="mlp.gate.e_score_correction_bias"), V3, sample=(0, 3, 60), mtp=(61,), axes="tp pp ep"),
    Row("Kimi-K2", "deepseek", P(deepseek, router_bias="mlp.gate.e_score_correction_bias"), K2, axes="tp pp ep"),
    Row("GLM-4.5", "mixtral", P(moe, bias=True, qk_norm="shared", dense=3, shared=("shared_experts", 1536), router_bias="mlp.gate.e_score_correction_bias"),
        sizes("glm4_moe", 5120, 96, 8, 12288, 92, 151552, head_dim=128, moe_intermediate_size=1536, n_routed_experts=160, num_nextn_predict_layers=1),
        sample=(0, 3, 91), mtp=(92,), axes="tp pp ep"),
    Row("GPT-OSS-120B", "gpt_oss", gpt_oss, sizes("gpt_oss", 2880, 64, 8, 2880, 36, 201088, head_dim=64, num_local_experts=128,
        quantization_config={"quant_method": "mxfp4"}), axes="tp pp ep", forms=()),
    Row("GPT-OSS-20B in bf16", "gpt_oss", P(gpt_oss, packed=False), sizes("gpt_oss", 2880, 64, 8, 2880, 24, 201088, head_dim=64, num_local_experts=32),
        axes="tp pp ep", forms=()),
    Row("Mixtral-8x7B", "mixtral", P(moe, block="block_sparse_moe", names=("w1", "w3", "w2")),
        sizes("mixtral", 4096, 32, 8, 14336, 32, 32000, num_local_experts=8), axes="tp pp ep"),
    Row("MiniMax-M2", "mixtral", P(moe, block="block_sparse_moe", names=("w1", "w3", "w2"), qk_norm="of all heads",
        router_bias="block_sparse_moe.e_score_correction_bias"),
        sizes("minimax_m2", 3072, 48, 8, 1536, 62, 200064, head_dim=128, num_local_experts=256), axes="tp pp ep"),
    Row("OLMoE-1B-7B", "mixtral", P(moe, qk_norm="all"), sizes("olmoe", 2048, 16, 16, 1024, 16, 50304, num_experts=64), axes="tp pp ep"),
    Row("Granite-3.1-3B-A800M", "granitemoe", granite_moe, sizes("granitemoe", 1536, 24, 8, 512, 32, 49155, num_local_experts=40), axes="tp pp ep"),
    Row("Phi-3.5-MoE", "mixtral", P(moe, block="block_sparse_moe", names=("w1", "w3", "w2"), bias=True, norm_bias=True),
        sizes("phimoe", 4096, 32, 8, 6400, 32, 32064, num_local_experts=16), axes="tp pp ep"),
    Row("ERNIE-4.5-21B-A3B", "mixtral", P(moe, dense=1, shared=("shared_experts", 3072), router_bias="mlp.moe_statics.e_score_correction_bias"),
        sizes("ernie4_5_moe", 2560, 20, 4, 12288, 28, 103424, head_dim=128, moe_num_experts=64, moe_intermediate_size=1536), axes="tp pp ep"),
    Row("Hunyuan-A13B", "mixtral", P(moe, shared=("shared_mlp", 3072), router="gate.wg", more=hunyuan_norms),
        sizes("hunyuan_v1_moe", 4096, 32, 8, 3072, 32, 128167, head_dim=128, num_experts=64), axes="tp pp ep"),
    Row("K-EXAONE-236B", "mixtral", P(moe, dense=1, qk_norm="shared", shared=("shared_experts", 2048), router_bias="mlp.e_score_correction_bias"),
        sizes("exaone_moe", 6144, 64, 8, 18432, 48, 153600, head_dim=128, num_experts=128, moe_intermediate_size=2048), axes="tp pp ep"),
    Row("Arctic-480B", "mixtral", arctic, sizes("arctic", 7168, 56, 8, 4864, 35, 32000, num_local_experts=128), axes="tp pp ep"),
    Row("DBRX", "dbrx", dbrx, {"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352, "attn_config": {"kv_n_heads": 8},
        "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16}}, forms=()),
    Row("Ling-mini-2.0", "bailing_moe", bailing, sizes("bailing_moe_v2", 2048, 16, 4, 5120, 20, 157184, head_dim=128, num_experts=256, moe_intermediate_size=512),
        axes="tp pp ep"),
    Row("MiniCPM3-4B", "minicpm3", minicpm3, sizes("minicpm3", 2560, 40, 40, 6400, 62, 73448, q_lora_rank=768, kv_lora_rank=256, qk_nope_head_dim=64, qk_rope_head_dim=32)),
    Row("DeepSeek-V4-Flash", "deepseek_v4", deepseek_v4, {"model_type": "deepseek_v4", "hidden_size": 4096, "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512,
        "moe_intermediate_size": 2048, "num_hidden_layers": 43, "vocab_size": 129280, "q_lora_rank": 1024, "o_groups": 8, "o_lora_rank": 1024, "n_routed_experts": 256,
        "index_n_heads": 64, "index_head_dim": 128, "num_nextn_predict_layers": 1, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}},
        sample=(0, 3, 42), axes="tp pp ep", forms=()),
    Row("MiMo-V2-Flash", "mimo_v2", mimo_v2, sizes("mimo_v2_flash", 4096, 64, 4, 16384, 48, 152576, head_dim=192, v_head_dim=128, swa_num_key_value_heads=8, swa_head_dim=192,
        swa_v_head_dim=128, n_routed_experts=256, moe_intermediate_size=2048), sample=(0, 1, 5, 47), axes="tp pp ep"),
    Row("Hy3", "mixtral", P(moe, dense=1, qk_norm="shared", shared=("shared_mlp", 1536), router="router.gate", router_bias="mlp.expert_bias"),
        sizes("hy_v3", 4096, 64, 8, 13312, 80, 120832, head_dim=128, num_experts=192, moe_intermediate_size=1536), axes="tp pp ep"),
]
