# SPDX-License-Identifier: Apache-2.0
"""Models with an encoder and a decoder: T5, Whisper, BART and others."""
from families.cuts import cut, vocabulary, whole
from families.model import Model, Row
from families.encoders import encoder_layer


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


ROWS = [
    Row("Flan-T5-XXL", "t5", t5, {"model_type": "t5", "d_model": 4096, "d_kv": 64, "num_heads": 64, "d_ff": 10240, "num_layers": 24, "vocab_size": 32128}, axes="tp"),
    Row("Whisper-large-v3", "whisper", whisper, {"model_type": "whisper", "d_model": 1280, "encoder_attention_heads": 20, "decoder_attention_heads": 20,
        "encoder_ffn_dim": 5120, "decoder_ffn_dim": 5120, "num_hidden_layers": 32, "vocab_size": 51866}, axes="tp"),
    Row("BART-large", "whisper", bart, {"model_type": "bart", "d_model": 1024, "encoder_attention_heads": 16, "decoder_attention_heads": 16,
        "encoder_ffn_dim": 4096, "decoder_ffn_dim": 4096, "num_hidden_layers": 12, "vocab_size": 50265}, axes="tp"),
    Row("NLLB-200-3.3B", "whisper", bart, {"model_type": "m2m_100", "d_model": 2048, "encoder_attention_heads": 16, "decoder_attention_heads": 16,
        "encoder_ffn_dim": 8192, "decoder_ffn_dim": 8192, "num_hidden_layers": 24, "vocab_size": 256206}, axes="tp"),
]
