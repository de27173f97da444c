# SPDX-License-Identifier: Apache-2.0
"""Small models under the names that Hugging Face gives them, for tests of namings. Tensors are (dtype, shape, bytes), and what
rearranges them here goes element by element, and knows nothing of maps."""
import itertools

import files

H, V, LAYERS, HEADS, KV, D = 12, 40, 2, 4, 2, 6  # hidden size, vocabulary, layers, heads, key-value heads, head size


def build(dtype, shape, find):
    """A tensor whose element at an index is find(*index): a tensor, and an index there."""
    width, parts = files.BITS[dtype] // 8, []
    for index in itertools.product(*map(range, shape)):
        (kind, extents, values), there = find(*index)
        assert kind == dtype and len(there) == len(extents)
        at = 0
        for k, extent in zip(there, extents):
            assert 0 <= k < extent
            at = at * extent + k
        parts.append(values[at * width:(at + 1) * width])
    return (dtype, tuple(shape), b"".join(parts))


class Model:
    """Tensors under hf's names, and the config.json that goes with them."""

    def __init__(self, rnd, model_type, tied=False, bias=False, norms=False, **config):
        self.rnd, self.tensors = rnd, {}
        self.config = {"model_type": model_type, "hidden_size": H, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
                       "num_key_value_heads": KV, "head_dim": D, "vocab_size": V, "tie_word_embeddings": tied, **config}
        self.add("model.embed_tokens.weight", V, H)
        self.add("model.norm.weight", H)
        if not tied:
            self.add("lm_head.weight", V, H)
        for n in range(LAYERS):
            at = f"model.layers.{n}."
            self.add(at + "input_layernorm.weight", H)
            self.add(at + "post_attention_layernorm.weight", H)
            if "kv_lora_rank" in config:
                continue
            for name, rows in [("q", HEADS * D), ("k", KV * D), ("v", KV * D)]:
                self.add(f"{at}self_attn.{name}_proj.weight", rows, H)
                if bias:
                    self.add(f"{at}self_attn.{name}_proj.bias", rows)
            self.add(at + "self_attn.o_proj.weight", H, HEADS * D)
            if norms:
                self.add(at + "self_attn.q_norm.weight", D)
                self.add(at + "self_attn.k_norm.weight", D)

    def add(self, name, *shape, dtype="BF16"):
        self.tensors[name] = (dtype, shape, self.rnd.randbytes(files.size_of(dtype, shape)))

    def add_mlp(self, at, rows):
        self.add(at + "gate_proj.weight", rows, H)
        self.add(at + "up_proj.weight", rows, H)
        self.add(at + "down_proj.weight", H, rows)


def llama(rnd, **options):
    model = Model(rnd, "llama", intermediate_size=20, **options)
    for n in range(LAYERS):
        model.add_mlp(f"model.layers.{n}.mlp.", 20)
    return model


def qwen3(rnd):
    model = Model(rnd, "qwen3", norms=True, intermediate_size=20)
    for n in range(LAYERS):
        model.add_mlp(f"model.layers.{n}.mlp.", 20)
    return model


def mixtral(rnd):
    model = Model(rnd, "mixtral", intermediate_size=10, num_local_experts=3)
    for n in range(LAYERS):
        at = f"model.layers.{n}.block_sparse_moe."
        model.add(at + "gate.weight", 3, H)
        for e in range(3):
            model.add(f"{at}experts.{e}.w1.weight", 10, H)
            model.add(f"{at}experts.{e}.w2.weight", H, 10)
            model.add(f"{at}experts.{e}.w3.weight", 10, H)
    return model


def qwen3_moe(rnd, inner=5, experts=4):
    model = Model(rnd, "qwen3_moe", norms=True, intermediate_size=20, moe_intermediate_size=inner, num_experts=experts)
    for n in range(LAYERS):
        model.add(f"model.layers.{n}.mlp.gate.weight", experts, H)
        for e in range(experts):
            model.add_mlp(f"model.layers.{n}.mlp.experts.{e}.", inner)
    return model


def deepseek_v3(rnd, scales=False):
    """Latent attention; the first layer is dense, the others have routed and shared experts, as has a layer that predicts the next."""
    config = {"q_lora_rank": 7, "kv_lora_rank": 5, "qk_nope_head_dim": 4, "qk_rope_head_dim": 2, "v_head_dim": 3,
              "intermediate_size": 16, "moe_intermediate_size": 8, "n_routed_experts": 3, "n_shared_experts": 1,
              "first_k_dense_replace": 1, "num_nextn_predict_layers": 1}
    if scales:
        config["quantization_config"] = {"quant_method": "fp8", "weight_block_size": [4, 4]}
    model = Model(rnd, "deepseek_v3", **config)
    for n in range(LAYERS + 1):
        at = f"model.layers.{n}."
        for name, shape in [("q_a_proj", (7, H)), ("q_a_layernorm", (7,)), ("q_b_proj", (HEADS * 6, 7)), ("kv_a_proj_with_mqa", (7, H)),
                            ("kv_a_layernorm", (5,)), ("kv_b_proj", (HEADS * 7, 5)), ("o_proj", (H, HEADS * 3))]:
            model.add(f"{at}self_attn.{name}.weight", *shape)
        if n == 0:
            model.add_mlp(at + "mlp.", 16)
            continue
        model.add(at + "mlp.gate.weight", 3, H)
        model.add(at + "mlp.gate.e_score_correction_bias", 3, dtype="F32")
        model.add_mlp(at + "mlp.shared_experts.", 8)
        for e in range(3):
            for part, shape in [("gate", (8, H)), ("up", (8, H)), ("down", (H, 8))]:
                name = f"{at}mlp.experts.{e}.{part}_proj.weight"
                model.add(name, *shape, dtype="F8_E4M3" if scales else "BF16")
                if scales:
                    blocks = (2, 3) if part != "down" else (3, 2)
                    model.add(name + "_scale_inv", *blocks, dtype="F32")
    at = f"model.layers.{LAYERS}."
    for name, shape in [("enorm", (H,)), ("hnorm", (H,)), ("eh_proj", (H, 2 * H)), ("shared_head.norm", (H,)),
                        ("input_layernorm", (H,)), ("post_attention_layernorm", (H,))]:
        model.add(f"{at}{name}.weight", *shape)
    return model


def gpt_oss(rnd):
    model = Model(rnd, "gpt_oss", bias=True, intermediate_size=8, num_local_experts=3)
    for n in range(LAYERS):
        at = f"model.layers.{n}."
        model.add(at + "self_attn.o_proj.bias", H)
        model.add(at + "self_attn.sinks", HEADS)
        model.add(at + "mlp.router.weight", 3, H)
        model.add(at + "mlp.router.bias", 3)
        model.add(at + "mlp.experts.gate_up_proj", 3, H, 16)
        model.add(at + "mlp.experts.gate_up_proj_bias", 3, 16)
        model.add(at + "mlp.experts.down_proj", 3, 8, H)
        model.add(at + "mlp.experts.down_proj_bias", 3, H)
    return model


def llama4(rnd):
    """Experts in one tensor from the start, [expert, in, out]."""
    model = Model(rnd, "llama4_text", intermediate_size=8, num_local_experts=3)
    for n in range(LAYERS):
        at = f"model.layers.{n}.feed_forward."
        model.add(at + "router.weight", 3, H)
        model.add(at + "experts.gate_up_proj", 3, H, 16)
        model.add(at + "experts.down_proj", 3, 8, H)
        model.add_mlp(at + "shared_expert.", 8)
    return model
