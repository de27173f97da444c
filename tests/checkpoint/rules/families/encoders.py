# SPDX-License-Identifier: Apache-2.0
"""Encoders of text, images and sound: BERT, ViT, CLIP, Wav2Vec2 and others."""
from functools import partial as P

from families.cuts import cut, halves, parts, vocabulary, whole
from families.model import Model, Row, renamed, sizes


def encoder_layer(m, p, h, inner, heads, attentions=("self_attn",), key_bias=True, mlp=""):
    """OPT, Whisper, CLIP."""
    for attention in attentions:
        for name in ("q_proj", "k_proj", "v_proj"):
            m.linear(f"{p}.{attention}.{name}", h, h, cut(0, h // heads), key_bias or name != "k_proj")
        m.linear(f"{p}.{attention}.out_proj", h, h, cut(1, h // heads), True)
    m.linear(f"{p}.{mlp}fc1", inner, h, cut(0), True)
    m.linear(f"{p}.{mlp}fc2", h, inner, cut(1), True)


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


def wavlm(config, layers):
    """Wav2Vec2 with positions that each head weighs by a gate of its own; the first layer has their table."""
    m = renamed(wav2vec2(config, layers), "wav2vec2.", "wavlm.")
    heads = config["num_attention_heads"]
    for i in layers:
        p = f"wavlm.encoder.layers.{i}.attention"
        m.add(f"{p}.gru_rel_pos_const", (1, heads, 1, 1), cut(1))
        m.add(f"{p}.gru_rel_pos_linear.weight", (8, config["hidden_size"] // heads), whole())
        m.add(f"{p}.gru_rel_pos_linear.bias", (8,), whole())
        if i == 0:
            m.add(f"{p}.rel_attn_embed.weight", (320, heads), cut(1))
    return m


def xlnet(config, layers):
    m = Model(config)
    h, heads, inner = config["d_model"], config["n_head"], config["d_inner"]
    d = h // heads
    for i in layers:
        p = f"transformer.layer.{i}"
        for name in "qkvor":
            m.add(f"{p}.rel_attn.{name}", (h, heads, d), cut(1))
        for name in "rsw":
            m.add(f"{p}.rel_attn.r_{name}_bias", (heads, d), cut(0))
        m.add(f"{p}.rel_attn.seg_embed", (2, heads, d), cut(1))
        m.linear(f"{p}.ff.layer_1", inner, h, cut(0), True)
        m.linear(f"{p}.ff.layer_2", h, inner, cut(1), True)
        m.norms(f"{p}.rel_attn.layer_norm", f"{p}.ff.layer_norm", size=h, bias=True)
    m.add("transformer.mask_emb", (1, 1, h), whole())
    m.add("transformer.word_embedding.weight", (config["vocab_size"], h), vocabulary())
    m.add("lm_loss.bias", (config["vocab_size"],), vocabulary())
    return m


def longformer(config, layers):
    m = bert(config, layers, at="longformer")
    h, d = config["hidden_size"], config["hidden_size"] // config["num_attention_heads"]
    for i in layers:
        for name in ("query_global", "key_global", "value_global"):
            m.linear(f"longformer.encoder.layer.{i}.attention.self.{name}", h, h, cut(0, d), True)
    return m


def layoutlmv3(config, layers):
    """Text and patches of the page beside it, with a bias for each head and distance that all layers share."""
    m = bert(config, layers, at="layoutlmv3")
    h, heads = config["hidden_size"], config["num_attention_heads"]
    for name, bins in (("rel_pos_bias", 32), ("rel_pos_x_bias", 64), ("rel_pos_y_bias", 64)):
        m.add(f"layoutlmv3.encoder.{name}.weight", (heads, bins), cut(0))
    m.add("layoutlmv3.patch_embed.proj.weight", (h, 3, 16, 16), whole())
    m.add("layoutlmv3.patch_embed.proj.bias", (h,), whole())
    m.add("layoutlmv3.cls_token", (1, 1, h), whole())
    m.add("layoutlmv3.pos_embed", (1, 197, h), whole())
    m.norms("layoutlmv3.LayerNorm", "layoutlmv3.norm", size=h, bias=True)
    return m


def esm(config, layers):
    """Norms come before what they are for, and have other names than BERT's."""
    m = bert(config, layers, at="esm")
    m.tensors = [(tensor[0].replace("output.LayerNorm", "LayerNorm"), *tensor[1:]) for tensor in m.tensors]
    m.norms("esm.encoder.emb_layer_norm_after", size=config["hidden_size"], bias=True)
    m.add("esm.encoder.layer.0.attention.self.rotary_embeddings.inv_freq", (32,), whole())
    m.add("esm.contact_head.regression.weight", (1, config["num_hidden_layers"] * config["num_attention_heads"]), whole())
    return m


def nomic_bert(config, layers):
    m = Model(config)
    h, inner, d = config["n_embd"], config["n_inner"], config["n_embd"] // config["n_head"]
    for i in layers:
        p = f"encoder.layers.{i}"
        m.linear(f"{p}.attn.Wqkv", 3 * h, h, parts(0, (h, 0), (h, 0), (h, 0)))
        m.linear(f"{p}.attn.out_proj", h, h, cut(1, d))
        m.linear(f"{p}.mlp.fc11", inner, h, cut(0))
        m.linear(f"{p}.mlp.fc12", inner, h, cut(0))
        m.linear(f"{p}.mlp.fc2", h, inner, cut(1))
        m.norms(f"{p}.norm1", f"{p}.norm2", size=h, bias=True)
    m.norms("emb_ln", size=h, bias=True)
    m.add("embeddings.word_embeddings.weight", (config["vocab_size"], h), vocabulary())
    m.add("embeddings.token_type_embeddings.weight", (2, h), whole())
    return m


ROWS = [
    Row("BERT-large", "bert", P(bert, mlm=True), sizes("bert", 1024, 16, 16, 4096, 24, 30522)),
    Row("RoBERTa-large", "bert", P(bert, at="roberta"), sizes("roberta", 1024, 16, 16, 4096, 24, 50265), headless=True),
    Row("ViT-large", "bert", P(bert, at="vit", inside="attention", ends=False), sizes("vit", 1024, 16, 16, 4096, 24, 0)),
    Row("CLIP ViT-L/14", "clip", clip, {"model_type": "clip", "text_config": {"hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072, "vocab_size": 49408},
        "vision_config": {"hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 4096}, "num_hidden_layers": 12}, axes="tp"),
    Row("XLM-RoBERTa-large", "bert", P(bert, at="roberta"), sizes("xlm-roberta", 1024, 16, 16, 4096, 24, 250002), headless=True),
    Row("DistilBERT-base", "distilbert", distilbert, {"model_type": "distilbert", "dim": 768, "n_heads": 12, "n_layers": 6, "vocab_size": 30522}),
    Row("ALBERT-xxlarge", "encoders", albert, sizes("albert", 4096, 64, 64, 16384, 12, 30000, embedding_size=128), axes="tp"),
    Row("DeBERTa-v3-large", "encoders", deberta, sizes("deberta-v2", 1024, 16, 16, 4096, 24, 128100), axes="tp"),
    Row("MPNet-base", "encoders", mpnet, sizes("mpnet", 768, 12, 12, 3072, 12, 30527), axes="tp"),
    Row("ModernBERT-large", "modernbert", modernbert, sizes("modernbert", 1024, 16, 16, 2624, 28, 50368)),
    Row("DINOv3 ViT-L/16", "bert", dinov3, sizes("dinov3_vit", 1024, 16, 16, 4096, 24, 0)),
    Row("Wav2Vec2-large", "wav2vec2", wav2vec2, sizes("wav2vec2", 1024, 16, 16, 4096, 24, 32)),
    Row("WavLM-large", "wav2vec2", wavlm, sizes("wavlm", 1024, 16, 16, 4096, 24, 32)),
    Row("XLNet-large", "xlnet", xlnet, {"model_type": "xlnet", "d_model": 1024, "n_head": 16, "d_inner": 4096, "n_layer": 24, "vocab_size": 32000}),
    Row("Longformer-large", "bert", longformer, sizes("longformer", 1024, 16, 16, 4096, 24, 50265), headless=True),
    Row("LayoutLMv3-base", "bert", layoutlmv3, sizes("layoutlmv3", 768, 12, 12, 3072, 12, 50265), headless=True),
    Row("ESM-2-650M", "bert", esm, sizes("esm", 1280, 20, 20, 5120, 33, 33), headless=True),
    Row("Nomic-Embed-v1.5", "nomic_bert", nomic_bert, {"model_type": "nomic_bert", "n_embd": 768, "n_head": 12, "n_inner": 3072, "n_layer": 12, "vocab_size": 30528}, headless=True),
]
