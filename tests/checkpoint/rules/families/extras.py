# SPDX-License-Identifier: Apache-2.0
"""Names that some checkpoints of a family have and the rows' models do not: biases, output heads of their own, buffers of old
programs, heads of classifiers. They are here so that each line of each family, and each alternative in its braces, is tried on a
tensor (test_family_lines.py).

An Extra is a row's model with other numbers and these tensors alone: (name, shape, cut), or (name, shape, cut, stage) where 0 is
the first stage of a pipeline and -1 the last, of two. DROP: the tensor is left out.
"""
from families.cuts import cut, halves, kv, parts, vocabulary, whole

DROP = None
W = whole()


class Extra:
    def __init__(self, row, tensors, changes=None, refused=None, meshes=("tp=2", "pp=2"), options=()):
        self.row, self.changes, self.refused, self.meshes, self.options = row, changes or {}, refused, meshes, options
        self.tensors = [(name, "F32", shape, how) for name, shape, how, *_ in tensors]
        self.stages = {name: {0: {0}, -1: {1}, "both": {0, 1}}[stage[0]] for name, _, _, *stage in tensors if stage and stage[0] is not None}


def three(h, unit_heads=0):
    return parts(0, *[(h, unit_heads)] * 3)


def masks(at):
    """The causal mask, which old programs stored."""
    return [(f"{at}.bias", (1, 1, 8, 8), DROP), (f"{at}.masked_bias", (), DROP)]


TEXT = [
    Extra("Llama-2-7B", [
        ("model.layers.0.cross_attn.q_proj.bias", (4096,), cut(0, 128)), ("model.layers.0.cross_attn.k_proj.bias", (4096,), kv(0, 32, 128)),
        ("model.layers.0.cross_attn.o_proj.bias", (4096,), W), ("model.layers.0.self_attn.qkv_proj.bias", (12288,), three(4096)),
        ("model.layers.0.mlp.gate_proj.bias", (11008,), cut(0)), ("model.layers.0.mlp.up_proj.bias", (11008,), cut(0)),
        ("model.layers.0.mlp.gate_up_proj.bias", (22016,), halves(0)), ("model.layers.0.mlp.down_proj.bias", (4096,), W),
        ("model.layers.0.self_attn.rotary_emb.inv_freq", (64,), W), ("model.layers.0.self_attn.rotary_emb.cos_cached", (1, 8), W),
        ("model.layers.0.self_attn.rotary_emb.sin_cached", (1, 8), W),
        ("score.weight", (1, 4096), W), ("classifier.weight", (2, 4096), W), ("v_head.summary.weight", (1, 4096), W), ("value_head.weight", (1, 4096), W),
        ("base_model.model.score.weight", (1, 4096), W)], meshes=("tp=2",)),
    Extra("Llama-2-7B", [("score.weight", (1, 4096), W, -1), ("classifier.weight", (2, 4096), W, -1), ("v_head.summary.weight", (1, 4096), W, -1),
                         ("value_head.weight", (1, 4096), W, -1), ("norm.weight", (4096,), W, -1), ("model.embed_tokens.weight", (32000, 4096), vocabulary(), 0),
                         ("lm_head.weight", (32000, 4096), vocabulary(), -1)], meshes=("pp=2",)),
    Extra("Llama-2-7B", [("model.embed_tokens.weight", (32000, 4096), vocabulary(), "both"), ("lm_head.weight", (32000, 4096), vocabulary(), -1)],
          {"tie_word_embeddings": True}, meshes=("pp=2",)),
    Extra("InternLM2.5-7B", [
        ("model.layers.0.attention.wqkv.bias", (6144,), cut(0, 768)), ("model.layers.0.attention.wo.bias", (4096,), W), ("v_head.weight", (1, 4096), W, -1),
        ("model.tok_embeddings.weight", (92544, 4096), vocabulary(), "both")]),
    Extra("Gemma-3n-E4B", [("model.language_model.layers.0.altup.prediction_coefs.weight", (16, 4), W)]),
    Extra("Gemma-4-31B", [("model.language_model.layers.5.self_attn.v_proj.weight", (2048, 5376), kv(0, 4, 512))], meshes=("tp=8",)),
    Extra("Qwen3-Next-80B-A3B", [("model.layers.3.self_attn.q_proj.bias", (8192,), cut(0, 512))], {"attention_bias": True}, meshes=("tp=2",)),
    Extra("Qwen-7B", [("transformer.rotary_emb.inv_freq", (64,), W)], meshes=("tp=2",)),
    Extra("GPT-2 large", [
        ("h.0.attn.c_proj.bias", (1280,), W), ("h.0.mlp.c_proj.bias", (1280,), W), ("lm_head.weight", (50257, 1280), vocabulary(), -1),
        ("wte.weight", (50257, 1280), vocabulary(), 0), *masks("h.0.attn")], {"tie_word_embeddings": False}),
    Extra("GPT-2 large", [("lm_head.weight", (50257, 1280), vocabulary(), -1), ("wte.weight", (50257, 1280), vocabulary(), "both")]),
    Extra("GPT-2 large", [("wte.weight", (50257, 1280), vocabulary(), "both")], {"tie_word_embeddings": False}),
    Extra("GPT-J-6B", [*masks("transformer.h.0.attn"), ("transformer.wte.weight", (50400, 4096), vocabulary(), "both")]),
    Extra("CodeGen-16B", [("transformer.h.0.attn.causal_mask", (1, 1, 8, 8), DROP), ("transformer.h.0.ln_1.weight", (6144,), W)], meshes=("tp=2",)),
    Extra("GPT-Neo-2.7B", [
        ("transformer.h.0.attn.attention.q_proj.bias", (2560,), cut(0, 128)), ("transformer.h.0.attn.attention.k_proj.bias", (2560,), cut(0, 128)),
        ("transformer.h.0.attn.attention.v_proj.bias", (2560,), cut(0, 128)), ("transformer.h.0.attn.attention.rotary.inv_freq", (64,), W),
        *masks("transformer.h.0.attn.attention")]),
    Extra("StarCoder-15B", [("lm_head.weight", (49152, 6144), vocabulary(), -1), ("transformer.wte.weight", (49152, 6144), vocabulary(), 0),
                            *masks("transformer.h.0.attn")]),
    Extra("StarCoder-15B", [("transformer.h.0.attn.c_attn.weight", (18432, 6144), cut(0, 384)), ("transformer.h.0.attn.c_attn.bias", (18432,), cut(0, 384))],
          {"multi_query": False}),
    Extra("GPT-NeoX-20B", [
        ("gpt_neox.layers.0.attention.rotary_emb.inv_freq", (12,), W), ("lm_head.weight", (50432, 6144), vocabulary(), -1),
        ("gpt_neox.embed_in.weight", (50432, 6144), vocabulary(), 0), *masks("gpt_neox.layers.0.attention")]),
    Extra("GPT-NeoX-20B", [("gpt_neox.embed_in.weight", (50432, 6144), vocabulary(), "both")]),
    Extra("GPT-NeoX-20B", [("gpt_neox.embed_in.weight", (50432, 6144), vocabulary(), "both"), ("embed_out.weight", (50432, 6144), vocabulary(), -1)],
          {"tie_word_embeddings": True}),
    Extra("BLOOM-176B", [("lm_head.weight", (250880, 14336), vocabulary(), -1), ("transformer.word_embeddings.weight", (250880, 14336), vocabulary(), 0)]),
    Extra("Falcon-40B", [
        ("transformer.h.0.self_attention.query_key_value.bias", (9216,), cut(0, 1152)), ("transformer.h.0.self_attention.dense.bias", (8192,), W),
        ("transformer.h.0.mlp.dense_h_to_4h.bias", (32768,), cut(0)), ("transformer.h.0.mlp.dense_4h_to_h.bias", (8192,), W),
        ("transformer.h.0.ln_attn.bias", (8192,), W), ("transformer.word_embeddings.weight", (65024, 8192), vocabulary(), "both")]),
    Extra("Falcon-40B", [("transformer.h.0.self_attention.query_key_value.weight", (3072, 1024), cut(0, 192)),
                         ("transformer.h.0.self_attention.query_key_value.bias", (3072,), cut(0, 192))],  # RW-1B
          {"hidden_size": 1024, "num_attention_heads": 16, "new_decoder_architecture": False, "multi_query": False, "num_kv_heads": 16}),
    Extra("Falcon-40B", [("transformer.h.0.self_attention.query_key_value.bias", (384,), parts(0, (256, 0), (64, 1), (64, 1)))],
          {"hidden_size": 256, "num_attention_heads": 4, "new_decoder_architecture": False}),
    Extra("Falcon-40B", [("transformer.h.0.self_attention.query_key_value.weight", (9216, 8192), W)], refused="8 units of 1152 cannot be divided evenly by tp=16", meshes=("tp=16",)),
    Extra("MPT-30B", [
        ("transformer.blocks.0.attn.Wqkv.bias", (21504,), three(7168)), ("transformer.blocks.0.attn.out_proj.bias", (7168,), W),
        ("transformer.blocks.0.ffn.up_proj.bias", (28672,), cut(0)), ("transformer.blocks.0.ffn.down_proj.bias", (7168,), W),
        ("transformer.blocks.0.norm_1.bias", (7168,), W), ("lm_head.weight", (50432, 7168), vocabulary(), -1),
        ("transformer.wte.weight", (50432, 7168), vocabulary(), 0)]),
    Extra("OPT-66B", [
        ("model.decoder.project_in.weight", (9216, 512), W, 0), ("model.decoder.project_out.weight", (512, 9216), W, -1),
        ("lm_head.weight", (50272, 9216), vocabulary(), -1), ("model.decoder.embed_tokens.weight", (50272, 9216), vocabulary(), 0)],
          {"tie_word_embeddings": False}),
    Extra("OPT-66B", [("lm_head.weight", (50272, 9216), vocabulary(), -1), ("model.decoder.embed_tokens.weight", (50272, 9216), vocabulary(), "both")]),
    Extra("OPT-66B", [("model.decoder.embed_tokens.weight", (50272, 9216), vocabulary(), "both")], {"tie_word_embeddings": False}),
    Extra("GLM-4-9B", [("transformer.encoder.layers.0.self_attention.query_key_value.weight", (9216, 4096), parts(0, (8192, 0), (512, 2), (512, 2)))],
          {"kv_channels": 256}),
    Extra("GLM-4-9B", [("transformer.encoder.layers.0.self_attention.query_key_value.bias", (4608,), parts(0, (4096, 0), (256, 2), (256, 2))),
                       ("transformer.rotary_pos_emb.inv_freq", (32,), W, 0)]),
]

EXPERTS = [
    Extra("MiMo-V2-Flash", [("model.layers.1.self_attn.sinks", (64,), cut(0))]),
    Extra("MiMo-V2-Flash", [("model.layers.1.self_attn.k_proj.weight", (1536, 4096), kv(0, 8, 192)), ("model.layers.1.self_attn.v_proj.weight", (1024, 4096), kv(0, 8, 128))],
          {"swa_num_key_value_heads": None, "swa_head_dim": None, "swa_v_head_dim": None}, meshes=("tp=8",)),
    Extra("Ling-mini-2.0", [
        ("model.layers.0.attention.query_key_value.bias", (3072,), parts(0, (2048, 0), (512, 4), (512, 4))), ("model.layers.0.attention.dense.bias", (2048,), W),
        ("model.word_embeddings.weight", (157184, 2048), vocabulary(), "both")]),
    Extra("DeepSeek-V3", [
        ("model.layers.0.self_attn.q_a_proj.bias", (1536,), W), ("model.layers.0.self_attn.kv_a_proj_with_mqa.bias", (576,), W),
        ("model.layers.0.self_attn.indexer.wq_b.weight", (8192, 1536), W)]),
    Extra("Mixtral-8x7B", [
        ("model.layers.0.block_sparse_moe.mlp.w1.weight", (14336, 4096), cut(0)), ("model.layers.0.block_sparse_moe.mlp.w3.weight", (14336, 4096), cut(0)),
        ("model.layers.0.block_sparse_moe.mlp.w2.weight", (4096, 14336), cut(1)), ("model.layers.0.mlp.gate.bias", (8,), W)]),
    Extra("ERNIE-4.5-21B-A3B", [("model.layers.1.mlp.gate.moe_statics.e_score_correction_bias", (1, 64), W)]),
    # All experts in one tensor, of a model whose model_type does not tell how they are stored.
    Extra("Mixtral-8x7B", [("model.layers.0.mlp.experts.gate_up_proj", (8, 28672, 4096), halves(0).stacked()),
                           ("model.layers.0.mlp.experts.down_proj", (8, 4096, 14336), cut(1).stacked())],
          {"model_type": "unheard_of"}, meshes=("tp=2", "ep=2")),
    Extra("Mixtral-8x7B", [("model.layers.0.mlp.experts.gate_up_proj", (8, 4096, 28672), halves(1).stacked()),
                           ("model.layers.0.mlp.experts.down_proj", (8, 14336, 4096), cut(0).stacked())],
          {"model_type": "unheard_of"}, meshes=("tp=2", "ep=2")),
    Extra("Mixtral-8x7B", [(f"model.layers.0.mlp.experts.3.{name}.weight_scale_inv", (112, 32) if how.dim == 0 else (32, 112), how)
                           for name, how in (("w1", cut(0)), ("w3", cut(0)), ("w2", cut(1)), ("gate_proj", cut(0)), ("up_proj", cut(0)), ("down_proj", cut(1)))],
          {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, meshes=("tp=2",)),
    Extra("Qwen3-VL-30B-A3B", [("model.language_model.layers.0.mlp.experts.gate_up_proj_scale_inv", (128, 16, 12), halves(1).stacked()),
                               ("model.language_model.layers.0.mlp.experts.down_proj_scale_inv", (128, 6, 16), cut(0).stacked())],
          {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, meshes=("tp=2", "ep=2")),
]

STATES = [
    Extra("Zamba-7B-v1", [("model.layers.0.mamba.in_proj.bias", (14848,), cut(0, 7424)), ("model.layers.0.mamba.out_proj.bias", (3712,), W)]),
    Extra("Zamba2-7B", [
        *[(f"model.layers.6.shared_transformer.self_attn.linear_{name}_adapter_list.0.{end}", shape, how, "both")
          for name in "qkv" for end, shape, how in (("0.weight", (128, 7168), cut(0)), ("1.weight", (7168, 128), cut(0, 224)))],
        ("model.layers.6.shared_transformer.feed_forward.gate_up_proj.bias", (28672,), halves(0), "both"),
        ("model.layers.6.shared_transformer.feed_forward.down_proj.bias", (3584,), W, "both")]),
    Extra("RWKV-6-World-7B", [  # RWKV 5 has decays of [head, channel]
        ("blocks.0.att.receptance.weight", (4096, 4096), cut(0, 64)), ("blocks.0.att.time_decay", (64, 64), cut(0))]),
    Extra("RWKV-6-World-7B", [  # RWKV 7, as first published
        ("blocks.0.att.receptance.weight", (4096, 4096), cut(0, 64)),
        *[(f"blocks.1.att.{name}", (1, 1, 4096), cut(2, 64)) for name in ("w0", "a0", "v0", "k_k", "k_a")],
        *[(f"blocks.1.att.{name}1", (4096, 128), W) for name in "wavg"], *[(f"blocks.1.att.{name}2", (128, 4096), cut(1, 64)) for name in "wavg"]]),
    Extra("Jamba-v0.1", [("model.layers.0.mamba.in_proj.bias", (16384,), halves(0)), ("model.layers.0.mamba.out_proj.bias", (4096,), W)]),
    Extra("LFM2-1.2B", [("model.layers.0.conv.in_proj.bias", (6144,), three(2048)), ("model.layers.0.conv.conv.bias", (2048,), cut(0)),
                        ("model.layers.0.conv.out_proj.bias", (2048,), W)]),
    Extra("Mamba-2.8B", [
        ("backbone.layers.0.mixer.in_proj.bias", (10240,), halves(0)), ("backbone.layers.0.mixer.out_proj.bias", (2560,), W),
        *[(f"backbone.layers.0.mixer.{name}_layernorm.weight", (160,), W) for name in ("dt", "b", "c")],
        ("lm_head.weight", (50280, 2560), vocabulary(), -1), ("backbone.embeddings.weight", (50280, 2560), vocabulary(), 0)]),
    Extra("Codestral-Mamba-7B", [
        ("backbone.layers.0.mixer.in_proj.bias", (18560,), parts(0, (8192, 0), (8192, 0), (1024, 8), (1024, 8), (128, 0))),
        ("backbone.layers.0.mixer.out_proj.bias", (4096,), W), ("backbone.embeddings.weight", (32768, 4096), vocabulary(), "both")]),
    Extra("Bamba-9B", [("model.layers.0.mamba.out_proj.bias", (4096,), W)]),
    Extra("Nemotron-Nano-9B-v2", [("backbone.layers.0.mixer.q_proj.weight", (5120, 4480), cut(0, 128))], {"head_dim": None}),
    Extra("Nemotron-3-Nano-30B-A3B", [
        ("backbone.layers.0.mixer.q_proj.bias", (4096,), cut(0, 128)), ("backbone.layers.0.mixer.k_proj.bias", (256,), kv(0, 2, 128)),
        ("backbone.layers.0.mixer.v_proj.bias", (256,), kv(0, 2, 128)), ("backbone.layers.0.mixer.o_proj.bias", (2688,), W),
        ("backbone.layers.1.mixer.up_proj.bias", (1856,), cut(0)), ("backbone.layers.1.mixer.down_proj.bias", (2688,), W),
        ("backbone.layers.1.mixer.shared_experts.up_proj.bias", (3712,), cut(0)), ("backbone.layers.1.mixer.shared_experts.down_proj.bias", (2688,), W),
        *[(f"backbone.layers.2.mixer.fc{n}_latent_proj.{end}", shape, W) for n in (1, 2) for end, shape in (("weight", (1024, 2688)), ("bias", (1024,)))],
        ("mtp.layers.0.eh_proj.weight", (2688, 5376), W, -1), ("backbone.embeddings.weight", (131072, 2688), vocabulary(), "both")]),
    Extra("Nemotron-3-Nano-30B-A3B", [("backbone.layers.2.mixer.experts.up_proj", (128, 1856, 2688), cut(0).stacked()),
                                      ("backbone.layers.2.mixer.experts.down_proj", (128, 2688, 1856), cut(1).stacked())], meshes=("tp=2", "pp=2", "ep=2")),
]

SENSES = [
    Extra("DeepSeek-VL2-Small", [("tile_indicators", (2, 2048), W, 0)]),
    Extra("Idefics2-8B", [("model.text_model.layers.0.self_attn.k_proj.weight", (1024, 4096), kv(0, 8, 128))], meshes=("tp=16",)),
    Extra("Phi-4-multimodal", [  # as published: the weights are beneath two adapters
        *[(f"model.layers.0.self_attn.qkv_proj.{name}.weight", shape, how) for name, shape, how in (
            ("base_layer", (5120, 3072), parts(0, (3072, 0), (1024, 8), (1024, 8))), ("lora_A.speech", (320, 3072), W), ("lora_A.vision", (256, 3072), W),
            ("lora_B.speech", (5120, 320), parts(0, (3072, 0), (1024, 8), (1024, 8))), ("lora_B.vision", (5120, 256), parts(0, (3072, 0), (1024, 8), (1024, 8))))],
        ("model.layers.0.mlp.down_proj.lora_A.speech.weight", (320, 8192), cut(1)), ("model.layers.0.mlp.down_proj.lora_B.vision.weight", (3072, 256), W)]),
    Extra("XLNet-large", [
        ("lm_loss.weight", (32000, 1024), vocabulary(), -1), ("transformer.word_embedding.weight", (32000, 1024), vocabulary(), 0),
        *[(f"{name}.weight", (8, 1024), W, -1) for name in ("sequence_summary.summary", "logits_proj", "classifier", "qa_outputs", "start_logits.dense",
                                                            "end_logits.dense_0", "answer_class.dense_0")]]),
    Extra("Qwen2.5-Omni-7B", [("token2wav.code2wav_dit_model.x.weight", (8, 8), W, -1), ("code2wav.x.weight", (8, 8), W, -1)]),
    Extra("Llava-1.5-7B", [
        *[(f"{at}{tower}.x.weight", (8, 8), W, 0) for at in ("", "model.", "base_model.model.")
          for tower in ("vision_encoder", "audio_tower", "mm_projector", "mlp_AR", "projector", "connector", "patch_merger", "vision_language_adapter", "vision_embed_tokens",
                        "apm", "audio_projection_layer", "tts")],
        ("image_newline", (4096,), W, 0), ("model.image_newline", (4096,), W, 0)]),
    Extra("CLIP ViT-L/14", [
        ("vision_model.head.probe", (1, 1, 1024), W), ("text_model.head.weight", (768, 768), W), ("visual_projection.weight", (768, 1024), W),
        ("logit_bias", (), W), ("text_model.encoder.layer_norm.weight", (768,), W),
        *[(f"base_model.model.{side}_model.encoder.layers.0.self_attn.{name}.weight", (h, h), how)
          for side, h in (("text", 768), ("vision", 1024)) for name, how in (("q_proj", cut(0, 64)), ("out_proj", cut(1, 64)))]], meshes=("tp=2",)),
    Extra("BERT-large", [
        ("bert.encoder.layer.0.mlp.fc1.weight", (4096, 1024), cut(0)), ("bert.encoder.layer.0.mlp.gate_proj.weight", (4096, 1024), cut(0)),
        ("bert.encoder.layer.0.mlp.weights_in.weight", (8192, 1024), halves(0)), ("bert.encoder.layer.0.mlp.weights_in.bias", (8192,), halves(0)),
        ("bert.encoder.layer.0.mlp.fc2.weight", (1024, 4096), cut(1)), ("bert.encoder.layer.0.mlp.weights_out.weight", (1024, 4096), cut(1)),
        ("bert.encoder.layer.0.mlp.fc2.bias", (1024,), W), ("bert.encoder.layer.0.mlp.weights_out.bias", (1024,), W),
        ("bert.encoder.layer.0.layer_norm.weight", (1024,), W), ("bert.encoder.layer.0.norm2.weight", (1024,), W),
        ("bert.encoder.layer.0.layer_scale2.lambda1", (1024,), W),
        *[(f"{name}.weight", (8, 1024), W, -1) for name in ("bert.pooler.dense", "qa_outputs", "cls.seq_relationship", "lm_head.dense",
                                                            "discriminator_predictions.dense", "generator_predictions.dense", "generator_lm_head")],
        ("electra.embeddings_project.weight", (1024, 128), W, 0)]),
    Extra("Nomic-Embed-v1.5", [
        ("encoder.layers.0.attn.Wqkv.bias", (2304,), three(768)), ("encoder.layers.0.mlp.fc11.bias", (3072,), cut(0)), ("encoder.layers.0.mlp.fc12.bias", (3072,), cut(0)),
        ("encoder.layers.0.attn.out_proj.bias", (768,), W), ("encoder.layers.0.mlp.fc2.bias", (768,), W)]),
    Extra("ESM-2-650M", [("esm.embeddings.word_embeddings.weight", (33, 1280), vocabulary(), "both"), ("lm_head.bias", (33,), W, -1), ("lm_head.dense.weight", (1280, 1280), W, -1),
                         ("lm_head.layer_norm.weight", (1280,), W, -1)]),
    Extra("DistilBERT-base", [(f"{name}.weight", (2, 768), W, -1) for name in ("pre_classifier", "classifier", "qa_outputs")]),
    Extra("DistilBERT-base", [("distilbert.embeddings.word_embeddings.weight", (30522, 768), vocabulary(), 0)]),
    Extra("DeBERTa-v3-large", [
        *[(f"deberta.encoder.layer.0.attention.self.pos_{name}_proj.weight", (1024, 1024), cut(0, 64)) for name in ("query", "key")],
        ("deberta.encoder.conv.conv.bias", (1024,), W), ("albert.encoder.embedding_hidden_mapping_in.bias", (1024,), W),
        *[(f"{name}.weight", (8, 1024), W) for name in ("classifier", "qa_outputs", "lm_head", "mask_predictions.dense", "sop_classifier.classifier")]],
          meshes=("tp=2",)),
    Extra("ModernBERT-large", [
        ("model.layers.0.attn.Wqkv.bias", (3072,), three(1024)), ("model.layers.0.mlp.Wi.bias", (5248,), halves(0)),
        ("model.layers.0.attn.Wo.bias", (1024,), W), ("model.layers.0.mlp.Wo.bias", (1024,), W), ("model.final_norm.bias", (1024,), W, -1),
        ("classifier.weight", (2, 1024), W, -1), ("model.embeddings.tok_embeddings.weight", (50368, 1024), vocabulary(), 0)]),
    Extra("Wav2Vec2-large", [
        ("quantizer.codevectors", (1, 640, 384), W, -1), ("layer_weights", (25,), W, -1), ("wav2vec2.feature_projection.projection.weight", (1024, 512), W, 0),
        ("wav2vec2.encoder.layer_norm.weight", (1024,), W, "both"),
        *[(f"{name}.{end}", shape, W, -1) for name in ("quantizer.weight_proj", "project_q", "project_hid", "projector", "classifier")
          for end, shape in (("weight", (8, 1024)), ("bias", (8,)))]]),
    Extra("Whisper-large-v3", [
        ("model.encoder.conv2.weight", (1280, 1280, 3), W), ("model.encoder.conv2.bias", (1280,), W), ("proj_out.weight", (51866, 1280), vocabulary()),
        ("lm_head.weight", (51866, 1280), vocabulary()), ("model.encoder.embed_tokens.weight", (51866, 1280), vocabulary()),
        *[(f"{name}.{end}", shape, W) for name in ("classification_head.dense", "classification_head.out_proj", "qa_outputs")
          for end, shape in (("weight", (8, 1280)), ("bias", (8,)))]], meshes=("tp=2",)),
    Extra("Flan-T5-XXL", [
        ("encoder.block.0.layer.1.DenseReluDense.wi.weight", (10240, 4096), cut(0)), ("encoder.embed_tokens.weight", (32128, 4096), vocabulary()),
        ("decoder.embed_tokens.weight", (32128, 4096), vocabulary())], meshes=("tp=2",)),
]

Q, D = "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.down_proj"  # 4096x4096, by rows; 4096x11008, by columns
QUANTISED = [
    Extra("Llama-2-7B", [  # one scale for each weight, or for each of its rows
        (f"{Q}.weight_scale", (1,), W), (f"{D}.weight_scale", (1, 1), W), ("model.layers.1.self_attn.q_proj.weight_scale", (4096,), cut(0, 128)),
        (f"{Q}.weight_zero_point", (), W), (f"{D}.weight_zero_point", (1,), W), ("model.layers.1.self_attn.q_proj.weight_zero_point", (4096, 1), cut(0, 128)),
        (f"{D}.weight_scale_2", (), W), (f"{D}.input_scale_ub", (), W), (f"{D}.input_zero_point", (1,), W),
        *[(f"model.layers.0.self_attn.{name}_scale", (), W) for name in ("k", "v", "q", "kv", "prob")],
        *[(f"model.layers.1.self_attn.{name}_scale", (1,), W) for name in ("k", "v", "q", "kv", "prob")]]),
    Extra("Llama-2-7B", [(f"{Q}.weight_scale", (32, 32), cut(0)), (f"{D}.weight_scale", (32, 86), cut(1))],
          {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": {"block_structure": [128, 128]}}}}}),
    Extra("Llama-2-7B", [  # groups of inputs in an order of their own: every rank needs all scales of its rows
        (f"{Q}.weight_g_idx", (4096,), W), (f"{D}.weight_g_idx", (11008,), cut(0)), (f"{Q}.weight_scale", (4096, 32), cut(0, 128)), (f"{D}.weight_scale", (4096, 86), W),
        (f"{Q}.weight_zero_point", (512, 32), cut(0)), (f"{D}.weight_zero_point", (512, 86), W)]),
    Extra("Llama-2-7B", [  # one group of all inputs
        (f"{Q}.qzeros", (1, 512), cut(1)), (f"{D}.qzeros", (1, 512), W), (f"{Q}.scales", (1, 4096), cut(1, 128)), (f"{D}.scales", (1, 4096), W)],
          {"quantization_config": {"quant_method": "gptq", "group_size": -1}}),
    Extra("Llama-2-7B", [(f"{Q}.qzeros", (32, 512), cut(1)), (f"{D}.qzeros", (86, 512), W), (f"{Q}.scales", (32, 4096), cut(1, 128)), (f"{D}.scales", (86, 4096), W)],
          {"quantization_config": {"quant_method": "gptq", "group_size": 128, "desc_act": True}}),
    *[Extra("Llama-2-7B", [(f"{D}.weight.{name}", (64,), W)], refused="bitsandbytes stores a weight as blocks", meshes=("tp=2",))
      for name in ("absmax", "quant_map", "nested_absmax", "nested_quant_map", "quant_state.bitsandbytes__nf4", "quant_state.bitsandbytes__fp4")],
    *[Extra("Llama-2-7B", [(f"{D}.{name}", (64,), W)], refused="bitsandbytes weights are not cut", meshes=("tp=2",)) for name in ("SCB", "weight_format")],
    Extra("Llama-2-7B", [
        (f"{Q}.base_layer.weight", (4096, 4096), cut(0, 128)), (f"{Q}.base_layer.bias", (4096,), cut(0, 128)),
        (f"{Q}.lora_A.default.weight", (8, 4096), W), (f"{Q}.lora_B.default.weight", (4096, 8), cut(0, 128)),
        (f"{D}.lora_A.default.weight", (8, 11008), cut(1)), (f"{D}.lora_B.default.weight", (4096, 8), W),
        (f"{Q}.lora_B.bias", (4096,), cut(0, 128)), (f"{Q}.lora_B.default.bias", (4096,), cut(0, 128)),
        ("model.embed_tokens.lora_embedding_A", (8, 32000), cut(1)), ("model.embed_tokens.lora_embedding_B", (4096, 8), W),
        (f"{Q}.lora_magnitude_vector", (4096,), cut(0, 128)), (f"{D}.lora_magnitude_vector.weight", (4096,), W)], meshes=("tp=2",)),
]

EXTRAS = TEXT + EXPERTS + STATES + SENSES + QUANTISED
