# SPDX-License-Identifier: Apache-2.0
"""What Q8_0 costs models of random weights, by size and by the scale of their weights: how far the logits are from those of the
weights as they were, as parts of the largest logit. Weights and activations are rounded as the engine rounds them; test_llama.py
checks that this gives the engine's logits. Needs NumPy only.

    python3 tests/oracle/llama/measure_q8.py
"""
import os
import sys

import numpy

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import forward

SEEDS = 5
# hidden, heads, groups, size of a head, feed-forward, layers, vocabulary, experts; "small": weights as in test_llama.py,
# "0.02": a standard deviation of 0.02 and norms of 1, as models begin their training.
CASES = [("small", 64, 4, 2, 16, 96, 1, 50, 0), ("small", 64, 4, 2, 16, 96, 2, 50, 0), ("small", 256, 8, 4, 32, 512, 2, 50, 0),
         ("small", 64, 4, 2, 16, 96, 2, 50, 4), ("0.02", 64, 4, 2, 16, 96, 2, 50, 0), ("0.02", 256, 8, 4, 32, 512, 2, 256, 0),
         ("0.02", 512, 8, 4, 64, 1024, 2, 512, 0), ("0.02", 512, 8, 4, 64, 1024, 4, 512, 0), ("0.02", 512, 8, 4, 64, 1024, 8, 512, 0),
         ("0.02", 512, 8, 4, 64, 768, 4, 512, 4), ("0.02", 1024, 16, 8, 64, 2816, 4, 1024, 0)]


def quantise(weight):
    """Values of Q8_0: a scale for each 32, halves rounded away from zero, the scale stored as f16."""
    blocks = weight.reshape(-1, 32).astype("f4")
    scale = numpy.abs(blocks).max(1, keepdims=True) / numpy.float32(127)
    codes = blocks * numpy.divide(numpy.float32(1), scale, out=numpy.zeros_like(scale), where=scale != 0)
    return (numpy.sign(codes) * numpy.floor(numpy.abs(codes) + numpy.float32(0.5)) * scale.astype("f2").astype("f4")).reshape(weight.shape)


def make(rnd, scale, hidden, heads, groups, head, wide, layers, vocabulary, experts):
    def new(*shape):
        numbers = rnd.standard_normal(shape)
        if scale == "0.02":
            return (0.02 * numbers if len(shape) > 1 else numpy.ones(shape)).astype("f4")
        return ((len(shape) == 1) + (0.3 if len(shape) == 1 else shape[-1] ** -0.5) * numbers).astype("f4")

    weights = {"model.embed_tokens.weight": new(vocabulary, hidden), "model.norm.weight": new(hidden), "lm_head.weight": new(vocabulary, hidden)}
    for n in range(layers):
        at = f"model.layers.{n}."
        weights.update({at + "input_layernorm.weight": new(hidden), at + "post_attention_layernorm.weight": new(hidden),
                        at + "self_attn.q_proj.weight": new(heads * head, hidden), at + "self_attn.k_proj.weight": new(groups * head, hidden),
                        at + "self_attn.v_proj.weight": new(groups * head, hidden), at + "self_attn.o_proj.weight": new(hidden, heads * head)})
        parts = [f"mlp.experts.{e}." for e in range(experts)] or ["mlp."]
        if experts:
            weights[at + "mlp.gate.weight"] = new(experts, hidden)
        for part in parts:
            weights.update({at + part + "gate_proj.weight": new(wide, hidden), at + part + "up_proj.weight": new(wide, hidden),
                            at + part + "down_proj.weight": new(hidden, wide)})
    return weights, {"num_attention_heads": heads, "num_key_value_heads": groups, "head_dim": head, "rms_norm_eps": 1e-5, "rope_theta": 1e4,
                     "num_hidden_layers": layers, "num_experts_per_tok": 2}


def main():
    for case in CASES:
        found = []
        for seed in range(SEEDS):
            rnd = numpy.random.default_rng(seed)
            weights, config = make(rnd, *case)
            tokens = list(rnd.integers(0, case[7], 8))
            rounded = {name: quantise(value) if value.ndim == 2 and not name.endswith("mlp.gate.weight") else value
                       for name, value in weights.items()}
            exact, theirs = forward.logits(weights, config, tokens), forward.logits(rounded, config, tokens, forward.in_eight_bits)
            found.append(numpy.abs(exact - theirs).max() / numpy.abs(theirs).max())
        print(f"weights {case[0]:>5}, hidden {case[1]:4}, layers {case[6]}, experts {case[8]}: " + " ".join(f"{x:.1e}" for x in found), flush=True)


if __name__ == "__main__":
    main()
