# SPDX-License-Identifier: Apache-2.0
"""Dense models with the names of Llama, and InternLM2."""
from functools import partial as P

from families.cuts import cut, halves, kv, parts, vocabulary, whole
from families.model import Model, Row, sizes, text_of


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


ROWS = [
    Row("Llama-2-7B", "llama", llama, sizes("llama", 4096, 32, 32, 11008, 32, 32000)),
    Row("Llama-3.1-70B", "llama", llama, sizes("llama", 8192, 64, 8, 28672, 80, 128256)),
    Row("Llama-3.2-1B", "llama", P(llama, head=False), sizes("llama", 2048, 32, 8, 8192, 16, 128256, head_dim=64, tie_word_embeddings=True)),
    Row("Mistral-7B-v0.3", "llama", llama, sizes("mistral", 4096, 32, 8, 14336, 32, 32768)),
    Row("Ministral-8B", "llama", llama, sizes("mistral", 4096, 32, 8, 12288, 36, 131072, head_dim=128)),
    Row("Qwen2.5-7B", "llama", P(llama, bias=True), sizes("qwen2", 3584, 28, 4, 18944, 28, 152064)),
    Row("Qwen3-8B", "llama", P(llama, qk_norm="shared"), sizes("qwen3", 4096, 32, 8, 12288, 36, 151936, head_dim=128)),
    Row("Phi-2", "llama", phi2, sizes("phi", 2560, 32, 32, 10240, 32, 51200)),
    Row("Phi-3-mini", "llama", P(llama, fused=True), sizes("phi3", 3072, 32, 32, 8192, 32, 32064)),
    Row("Phi-4", "llama", P(llama, fused=True), sizes("phi3", 5120, 40, 10, 17920, 40, 100352)),
    Row("Phi-4-mini", "llama", P(llama, fused=True, head=False), sizes("phi3", 3072, 24, 8, 8192, 32, 200064, tie_word_embeddings=True)),
    Row("GLM-4-9B-0414", "llama", glm4, sizes("glm4", 4096, 32, 2, 13696, 40, 151552, head_dim=128)),
    Row("OLMo-7B", "llama", olmo, sizes("olmo", 4096, 32, 32, 11008, 32, 50304)),
    Row("OLMo-2-7B", "llama", P(llama, qk_norm="all", norms=("post_attention_layernorm", "post_feedforward_layernorm")),
        sizes("olmo2", 4096, 32, 32, 11008, 32, 100352)),
    Row("Command-R", "llama", P(llama, head=False, norms=("input_layernorm",)), sizes("cohere", 8192, 64, 64, 22528, 40, 256000)),
    Row("Command-R+", "llama", P(llama, head=False, qk_norm="each", norms=("input_layernorm",)), sizes("cohere", 12288, 96, 8, 33792, 64, 256000)),
    Row("StarCoder2-15B", "llama", starcoder2, sizes("starcoder2", 6144, 48, 4, 24576, 40, 49152)),
    Row("Falcon3-7B", "llama", llama, sizes("llama", 3072, 12, 4, 23040, 28, 131072, head_dim=256)),
    Row("Granite-3.1-8B", "llama", P(llama, head=False), sizes("granite", 4096, 32, 8, 12800, 40, 49155, tie_word_embeddings=True)),
    Row("StableLM-2-12B", "llama", P(llama, norms=("input_layernorm",), norm_bias=True, more=heads_norms), sizes("stablelm", 5120, 32, 8, 13824, 40, 100352)),
    Row("SmolLM3-3B", "llama", P(llama, head=False), sizes("smollm3", 2048, 16, 4, 11008, 36, 128256, tie_word_embeddings=True)),
    Row("Seed-OSS-36B", "llama", P(llama, bias=True), sizes("seed_oss", 5120, 80, 8, 27648, 64, 155136, head_dim=128)),
    Row("EXAONE-4.0-32B", "llama", P(llama, qk_norm="shared", norms=("post_attention_layernorm", "post_feedforward_layernorm")),
        sizes("exaone4", 5120, 40, 8, 27392, 64, 102400, head_dim=128)),
    Row("Apertus-8B", "llama", P(llama, qk_norm="shared", norms=("attention_layernorm", "feedforward_layernorm"), gated=False, more=xielu),
        sizes("apertus", 4096, 32, 8, 21504, 32, 131072)),
    Row("Minitron-8B", "llama", P(llama, gated=False, norm_bias=True), sizes("nemotron", 4096, 48, 8, 16384, 32, 256000, head_dim=128)),
    Row("Baichuan2-13B", "llama", baichuan, sizes("baichuan", 5120, 40, 40, 13696, 40, 125696)),
    Row("InternLM3-8B", "llama", llama, sizes("internlm3", 4096, 32, 2, 10240, 48, 128512, head_dim=128)),
    Row("MiniCPM-2B", "llama", P(llama, head=False), sizes("minicpm", 2304, 36, 36, 5760, 40, 122753)),
    Row("Hunyuan-7B", "llama", P(llama, head=False, more=hunyuan_norms), sizes("hunyuan_v1_dense", 4096, 32, 8, 14336, 32, 128167, head_dim=128)),
    Row("AFM-4.5B", "llama", P(llama, gated=False), sizes("arcee", 2560, 20, 4, 18432, 36, 128004, head_dim=128)),
    Row("ERNIE-4.5-0.3B", "llama", P(llama, head=False), sizes("ernie4_5", 1024, 16, 2, 3072, 18, 103424, head_dim=128)),
    Row("Helium-1-2B", "llama", llama, sizes("helium", 2048, 16, 8, 8192, 28, 64000)),
    Row("InternLM2.5-7B", "internlm2", internlm2, sizes("internlm2", 4096, 32, 8, 14336, 32, 92544)),
]
