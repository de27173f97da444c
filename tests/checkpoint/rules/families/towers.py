# SPDX-License-Identifier: Apache-2.0
"""Text models behind towers for images and sound: Llava, Qwen-VL, Llama 4, Omni and others. The last part has the towers' layers as they are cut when somebody asks for it."""
from families.cuts import cut, halves, parts, vocabulary, whole
from families.model import Model, Row, flat, renamed, sizes, text, text_of
from families.llama import glm4, internlm2, llama
from families.experts import MLA, deepseek, latent_attention, moe, stacked
from families.hybrids import lfm2


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


# Names inside a layer of a tower that somebody asked to be cut, in any of the towers.
LAYER_NAMES = [*[f"x.{name}.{end}" for name in ("q_proj", "k_proj", "v_proj", "fc1", "gate_proj", "up_proj") for end in ("weight", "bias")],
               "attn.qkv.weight", "attn.qkv.bias", "x.o_proj.weight", "x.out_proj.weight", "attn.proj.weight", "x.fc2.weight", "x.down_proj.weight"]


def deepseek_vl2(config, layers):
    m = renamed(deepseek(flat(config, "language_config"), layers), "", "language.")
    m.add("vision.blocks.0.attn.qkv.weight", (3456, 1152), whole())
    m.add("projector.layers.0.weight", (2048, 4608), whole())
    m.add("image_newline", (m.config["hidden_size"],), whole())
    m.add("view_seperator", (m.config["hidden_size"],), whole())
    return m


def idefics(config, layers):
    """Idefics 2 and 3, SmolVLM. The configuration of Idefics 2 leaves out what its Mistral has anyway."""
    defaults = {"hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, "intermediate_size": 14336}
    m = llama({**defaults, **config}, layers, "model.text_model")
    add_tower(m, "model.vision_model", 1152, 4304, 2)
    m.add("model.connector.modality_projection.proj.weight", (m.config["hidden_size"], 10368), whole())
    return m


def phi4_multimodal(config, layers):
    m = llama(config, layers, fused=True, head=False)
    m.add("model.embed_tokens_extend.image_embed.img_processor.encoder.layers.0.self_attn.q_proj.weight", (1152, 1152), whole())
    m.add("model.embed_tokens_extend.audio_embed.encoder.encoders.0.self_attn.q_proj.weight", (1024, 1024), whole())
    m.add("model.embed_tokens_extend.audio_embed.encoder.encoders.0.feed_forward_in.gate_up_proj.weight", (3072, 1024), whole())
    return m


def mistral4(config, layers):
    """Latent attention, and all experts in one tensor, [expert, out, in]."""
    c = text_of(config)
    m = Model(c)
    h, inner, experts = c["hidden_size"], c["moe_intermediate_size"], c["n_routed_experts"]
    for i in layers:
        p = f"model.language_model.layers.{i}"
        latent_attention(m, f"{p}.self_attn")
        m.add(f"{p}.mlp.experts.gate_up_proj", (experts, 2 * inner, h), halves(0).stacked())
        m.add(f"{p}.mlp.experts.down_proj", (experts, h, inner), cut(1).stacked())
        m.add(f"{p}.mlp.gate.weight", (experts, h), whole())
        m.mlp(f"{p}.mlp.shared_experts", inner)
        m.norms(f"{p}.input_layernorm", f"{p}.post_attention_layernorm", size=h)
    m.ends("model.language_model")
    m.add("model.vision_tower.transformer.layers.0.attention.o_proj.weight", (1024, 1024), whole())
    m.add("model.multi_modal_projector.linear_1.weight", (h, 1024), whole())
    return m


def paddleocr_vl(config, layers):
    m = llama(config, layers)
    add_tower(m, "visual.vision_model", 1152, 4304, 2)
    m.add("mlp_AR.linear_1.weight", (4608, 4608), whole())
    return m


def glm_ocr(config, layers):
    m = renamed(glm4(text_of(config), layers), "model.", "model.language_model.")
    m.add("model.visual.blocks.0.attn.qkv.weight", (3072, 1024), whole())
    return m


def lfm2_vl(config, layers):
    """The layers of its tower have a name that those of the text have too: out_proj."""
    m = renamed(lfm2(text_of(config), layers), "model.", "model.language_model.")
    add_tower(m, "model.vision_tower.vision_model", 1152, 4304, 2)
    m.add("model.multi_modal_projector.linear_1.weight", (2560, 4608), whole())
    return m


ROWS = [
    Row("Llava-1.5-7B", "llava", llava, text("llava", {"model_type": "llama", "vocab_size": 32064})),
    Row("Llama-3.2-11B-Vision", "llama", mllama, text("mllama", sizes("mllama_text_model", 4096, 32, 8, 14336, 40, 128256,
        cross_attention_layers=[3, 8, 13, 18, 23, 28, 33, 38])), sample=(0, 3, 39)),
    Row("Llama-4-Scout", "mixtral", llama4, text("llama4", sizes("llama4_text", 5120, 40, 8, 8192, 48, 202048, head_dim=128, num_local_experts=16)),
        axes="tp pp ep"),
    Row("Mistral-Small-3.1-24B", "mistral3", mistral3, text("mistral3", sizes("mistral", 5120, 32, 8, 32768, 40, 131072, head_dim=128))),
    Row("Qwen2-VL-7B", "llama", qwen_vl, sizes("qwen2_vl", 3584, 28, 4, 18944, 28, 152064)),
    Row("Qwen2.5-VL-7B", "llama", qwen_vl, sizes("qwen2_5_vl", 3584, 28, 4, 18944, 28, 152064)),
    Row("Qwen3-VL-8B", "llama", qwen3_vl, text("qwen3_vl", sizes("qwen3_vl_text", 4096, 32, 8, 12288, 36, 151936, head_dim=128))),
    Row("Qwen3-VL-30B-A3B", "mixtral", qwen3_vl_moe,
        text("qwen3_vl_moe", sizes("qwen3_vl_moe_text", 2048, 32, 4, 6144, 48, 151936, head_dim=128, moe_intermediate_size=768, num_experts=128)),
        axes="tp pp ep"),
    Row("InternVL2.5-8B", "internvl_chat", internvl, {"model_type": "internvl_chat", "llm_config": sizes("internlm2", 4096, 32, 8, 14336, 32, 92553)}),
    Row("InternVL3-8B", "internvl_chat", internvl, {"model_type": "internvl_chat", "llm_config": sizes("qwen2", 3584, 28, 4, 18944, 28, 151674)}),
    Row("MiniCPM-V-2.6", "llama", minicpmv, sizes("minicpmv", 3584, 28, 4, 18944, 28, 151700)),
    Row("Qwen2.5-Omni-7B", "omni", omni, {"model_type": "qwen2_5_omni", "thinker_config": {"text_config": sizes("qwen2_5_omni_text", 3584, 28, 4, 18944, 28, 152064)}}),
    Row("Qwen3-Omni-30B-A3B", "omni", omni, {"model_type": "qwen3_omni_moe", "thinker_config": {"text_config": sizes("qwen3_omni_moe_text", 2048, 32, 4, 768, 48, 152064,
        head_dim=128, num_experts=128, moe_intermediate_size=768)}}, axes="tp pp ep"),
    Row("Idefics2-8B", "idefics2", idefics, text("idefics2", {"model_type": "mistral", "vocab_size": 32003})),
    Row("SmolVLM2-2.2B", "llama", idefics, text("smolvlm", sizes("llama", 2048, 32, 32, 8192, 24, 49280, head_dim=64))),
    Row("DeepSeek-VL2-Small", "deepseek_vl2", deepseek_vl2, {"model_type": "deepseek_vl_v2", "language_config": sizes("deepseek_v2", 2048, 16, 16, 10944, 27, 102400,
        moe_intermediate_size=1408, n_routed_experts=64, n_shared_experts=2, first_k_dense_replace=1, **{**MLA, "q_lora_rank": None})}, axes="tp pp ep"),
    Row("Phi-4-multimodal", "phi4_multimodal", phi4_multimodal, sizes("phi4_multimodal", 3072, 24, 8, 8192, 32, 200064, tie_word_embeddings=True)),
    Row("Mistral-Small-4-119B", "mistral3", mistral4, text("mistral3", sizes("mistral4", 4096, 32, 32, 12288, 36, 131072, moe_intermediate_size=2048, n_routed_experts=128,
        q_lora_rank=1024, kv_lora_rank=256, qk_nope_head_dim=64, qk_rope_head_dim=64, v_head_dim=128)), axes="tp pp ep"),
    Row("PaddleOCR-VL", "llama", paddleocr_vl, sizes("paddleocr_vl", 1024, 16, 2, 3072, 18, 103424, head_dim=128)),
    Row("GLM-OCR", "llama", glm_ocr, text("glm_ocr", sizes("glm_ocr_text", 1024, 16, 8, 4096, 16, 59392))),
    Row("LFM2-VL-1.6B", "lfm2", lfm2_vl, text("lfm2_vl", sizes("lfm2", 2048, 32, 8, 8192, 16, 65536)), sample=(0, 2, 15)),
]
