# SPDX-License-Identifier: Apache-2.0
from .core_model_loading import (Chunk, Concatenate, Interleave, MergeModulelist, PermuteForRope, SplitModulelist, Transpose, Unheard, WeightConverter,
                                 WeightRenaming)

REGISTRY = {
    "experts": [
        WeightRenaming(".block_sparse_moe.gate", ".mlp.gate"),
        WeightConverter(["block_sparse_moe.experts.*.w1.weight", "block_sparse_moe.experts.*.w3.weight"], "mlp.experts.gate_up_proj",
                        [MergeModulelist(0), Concatenate(1)]),
        WeightConverter("block_sparse_moe.experts.*.w2.weight", "mlp.experts.down_proj", [MergeModulelist(0), Transpose(1, 2)]),
    ],
    "fused": [
        WeightConverter("attn.qkv.weight", ["attn.q.weight", "attn.k.weight", "attn.v.weight"], [Chunk(0)]),
        WeightConverter("mlp.w13", ["mlp.gate", "mlp.up"], [Interleave(1), Chunk(1)]),
        WeightConverter("mlp.both", "mlp.apart", [Interleave(0)]),
        WeightConverter("mlp.halves", "mlp.mixed", [Interleave(0, inverse=True)]),
        WeightConverter("bank.weight", "bank.*.weight", [SplitModulelist(1)]),
        WeightConverter("turned.weight", "straight.weight", [Transpose(0, 1)]),
        WeightConverter(["pair.a", "pair.b"], "pair.ab", [Concatenate(0)]),
    ],
    "rope": [
        WeightRenaming("^vision_", "vision."),
        WeightConverter(["wqkv"], ["attn.q_proj", "attn.k_proj", "attn.v_proj"],
                        [Chunk(0), PermuteForRope("vision_config", ["q_proj", "k_proj"])]),
        WeightConverter("attn.query", "attn.query_rows", [PermuteForRope(None, ["query"], inverse=True)]),
    ],
    "prefixed": [WeightRenaming(r"(.+)", r"timm_model.\1")],
    "doubtful": [WeightConverter("down", "down_turned", [Transpose(0, 1, check_dims=True)])],
    "odd": [WeightConverter("x", "y", [Unheard()])],
    "clash": [WeightRenaming("a$", "c"), WeightRenaming("b$", "c")],
    "some": [WeightRenaming("layers.1.x", "layers.1.y")],
    "legacy": [WeightRenaming("LayerNorm.gamma", "LayerNorm.weight")],
}


def get_checkpoint_conversion_mapping(model_type):
    return REGISTRY.get(model_type)
