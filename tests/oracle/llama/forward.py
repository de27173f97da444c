# SPDX-License-Identifier: Apache-2.0
"""The forward pass of a model with Hugging Face's tensors, in f64: llama, granite, qwen3 and qwen3_moe.
Only Granite has multipliers in config.json."""
import numpy


def norm(x, weight, epsilon):
    return x / numpy.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight


def rotate(x, base):
    """x: [tokens, heads, size]. Hugging Face's order: element i turns with element i + size / 2."""
    tokens, _, size = x.shape
    angles = numpy.outer(numpy.arange(tokens), base ** (-numpy.arange(0, size, 2) / size))[:, None, :]
    first, second = x[..., :size // 2], x[..., size // 2:]
    return numpy.concatenate([first * numpy.cos(angles) - second * numpy.sin(angles),
                              second * numpy.cos(angles) + first * numpy.sin(angles)], -1)


def softmax(x):
    x = numpy.exp(x - x.max(-1, keepdims=True))
    return x / x.sum(-1, keepdims=True)


def silu(x):
    return x / (1 + numpy.exp(-x))


def in_eight_bits(x):
    """What the engine makes of the other factor where weights are Q8_0: each 32 elements get a scale of f16, and codes from -127 to 127.
    It rounds halves to even here."""
    blocks = x.astype("f4").reshape(-1, 32)
    most = numpy.abs(blocks).max(1, keepdims=True)
    factor = numpy.divide(numpy.float32(127), most, out=numpy.zeros_like(most), where=most != 0)
    scale = (most / numpy.float32(127)).astype("f2").astype("f8")
    return (numpy.rint(blocks * factor) * scale).reshape(x.shape)


class Model:
    """Weights by name, and products with them. rounds: the engine's rounding of the other factor; it does not concern routers."""

    def __init__(self, weights, rounds=None):
        self.weights, self.rounds = {name: value.astype("f8") for name, value in weights.items()}, rounds or (lambda x: x)

    def __contains__(self, name):
        return name in self.weights

    def __getitem__(self, name):
        return self.weights[name]

    def times(self, x, name):
        return (x if name.endswith("mlp.gate.weight") else self.rounds(x)) @ self.weights[name].T


def feed(w, x, name):
    return w.times(silu(w.times(x, name + ".gate_proj.weight")) * w.times(x, name + ".up_proj.weight"), name + ".down_proj.weight")


def mix(w, x, name, config):
    """The chosen experts of each token, weighted so that their shares add up to one."""
    shares = softmax(w.times(x, name + ".gate.weight"))
    out = numpy.zeros_like(x)
    for token in range(len(x)):
        chosen = numpy.argsort(-shares[token])[:config["num_experts_per_tok"]]
        for e in chosen:
            out[token] += shares[token, e] / shares[token, chosen].sum() * feed(w, x[token], f"{name}.experts.{e}")
    return out


def attend(w, x, name, config):
    heads, groups, size = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]
    parts = {}
    for p, count in (("q", heads), ("k", groups), ("v", groups)):
        one = w.times(x, f"{name}.{p}_proj.weight") + (w[f"{name}.{p}_proj.bias"] if f"{name}.{p}_proj.bias" in w else 0)
        one = one.reshape(len(x), count, size)
        if f"{name}.{p}_norm.weight" in w:
            one = norm(one, w[f"{name}.{p}_norm.weight"], config["rms_norm_eps"])
        parts[p] = rotate(one, config["rope_theta"]) if p != "v" else one
    k, v = (numpy.repeat(parts[p], heads // groups, 1) for p in "kv")
    scores = numpy.einsum("qhd,khd->hqk", parts["q"], k) * config.get("attention_multiplier", size ** -0.5)
    scores += numpy.triu(numpy.full((len(x), len(x)), -numpy.inf), 1)
    return w.times(numpy.einsum("hqk,khd->qhd", softmax(scores), v).reshape(len(x), -1), f"{name}.o_proj.weight")


def logits(weights, config, tokens, rounds=None):
    w = Model(weights, rounds)
    share = config.get("residual_multiplier", 1)
    x = w["model.embed_tokens.weight"][tokens] * config.get("embedding_multiplier", 1)
    for n in range(config["num_hidden_layers"]):
        name = f"model.layers.{n}"
        x = x + share * attend(w, norm(x, w[name + ".input_layernorm.weight"], config["rms_norm_eps"]), name + ".self_attn", config)
        y = norm(x, w[name + ".post_attention_layernorm.weight"], config["rms_norm_eps"])
        x = x + share * (mix(w, y, name + ".mlp", config) if name + ".mlp.gate.weight" in w else feed(w, y, name + ".mlp"))
    head = "lm_head.weight" if "lm_head.weight" in w else "model.embed_tokens.weight"
    return w.times(norm(x, w["model.norm.weight"], config["rms_norm_eps"])[-1:], head)[0] / config.get("logits_scaling", 1)
