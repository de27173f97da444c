# SPDX-License-Identifier: Apache-2.0
"""Gemma 1 to 4."""
from functools import partial as P

from families.cuts import cut, halves, kv, vocabulary, whole
from families.model import Model, Row, sizes, text, text_of
from families.llama import llama
from families.towers import add_tower


GEMMA_NORMS = ("input_layernorm", "post_attention_layernorm", "pre_feedforward_layernorm", "post_feedforward_layernorm")


def gemma3(config, layers):
    defaults = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262208}
    m = llama({**defaults, **config}, layers, "language_model.model", False, qk_norm="shared", norms=GEMMA_NORMS)
    add_tower(m, "vision_tower.vision_model", 1152, 4304, 2)
    m.add("multi_modal_projector.mm_input_projection_weight", (1152, m.config["hidden_size"]), whole())
    m.norms("multi_modal_projector.mm_soft_emb_norm", size=1152)
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


ROWS = [
    Row("Gemma-7B", "llama", P(llama, head=False), sizes("gemma", 3072, 16, 16, 24576, 28, 256000, head_dim=256)),
    Row("Gemma-2-9B", "llama", P(llama, head=False, norms=GEMMA_NORMS), sizes("gemma2", 3584, 16, 8, 14336, 42, 256000, head_dim=256)),
    Row("Gemma-3-1B", "llama", P(llama, head=False, qk_norm="shared", norms=GEMMA_NORMS), sizes("gemma3_text", 1152, 4, 1, 6912, 26, 262144, head_dim=256)),
    Row("Gemma-3-4B", "gemma3", gemma3, text("gemma3", {"model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34})),
    Row("Gemma-3-27B", "gemma3", gemma3, text("gemma3", sizes("gemma3_text", 5376, 32, 16, 21504, 62, 262208, head_dim=128))),
    Row("Gemma-3n-E4B", "gemma3n", gemma3n, text("gemma3n", sizes("gemma3n_text", 2048, 8, 2, 16384, 35, 262400, head_dim=256, hidden_size_per_layer_input=256,
        vocab_size_per_layer_input=262144))),
    Row("Gemma-4-31B", "gemma4", gemma4, text("gemma4", sizes("gemma4_text", 5376, 32, 16, 21504, 60, 262144, head_dim=256, global_head_dim=512,
        num_global_key_value_heads=4)), sample=(0, 5, 59)),
    Row("Gemma-4-26B-A4B", "gemma4", gemma4, text("gemma4", sizes("gemma4_text", 2816, 16, 8, 2112, 30, 262144, head_dim=256, global_head_dim=512,
        num_global_key_value_heads=2, num_experts=128, moe_intermediate_size=704)), sample=(0, 5, 29), axes="tp pp ep"),
]
