# SPDX-License-Identifier: Apache-2.0
"""Models on disk: of real size without any data, and small ones with random data."""
import json
import os
import struct

import files


def small(given):
    """The same configuration with small numbers, for models that are really written."""
    numbers = {"hidden_size": 64, "n_embd": 64, "n_embed": 64, "d_model": 64, "num_attention_heads": 4, "n_head": 4, "n_heads": 4,
               "num_heads": 4, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_key_value_heads": 2,
               "num_kv_heads": 2, "multi_query_group_num": 2, "head_dim": 16, "kv_channels": 16, "d_kv": 16,
               "intermediate_size": 64, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32,
               "ffn_hidden_size": 64, "ffn_dim": 64, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "d_ff": 64,
               "num_local_experts": 4, "num_experts": 4, "n_routed_experts": 4, "vocab_size": 100, "padded_vocab_size": 100,
               "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16,
               "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
               "state_size": 8, "n_groups": 2, "time_step_rank": 4, "mamba_d_state": 8, "mamba_dt_rank": 4,
               "mamba_n_heads": 8, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_num_heads": 8, "mamba_head_dim": 16, "ssm_state_size": 8,
               "moe_num_experts": 4, "shared_intermediate_size": 32, "moe_shared_expert_intermediate_size": 32,
               "global_head_dim": 32, "num_global_key_value_heads": 2, "kv_n_heads": 2, "vocab_size_per_layer_input": 96, "hidden_size_per_layer_input": 8,
               "swa_num_key_value_heads": 4, "swa_head_dim": 16, "swa_v_head_dim": 16, "n_inner": 64, "n_mamba_heads": 4, "mamba_ngroups": 2, "adapter_rank": 8, "head_size": 16, "mix_rank": 4, "decay_rank": 8, "d_inner": 64,
               "decay_low_rank_dim": 8, "a_low_rank_dim": 8, "v_low_rank_dim": 8, "gate_low_rank_dim": 8, "o_groups": 4, "o_lora_rank": 16, "index_n_heads": 4,
               "index_head_dim": 8, "inner": 96, "dim": 64, "embedding_size": 16}
    made = {}
    for key, value in given.items():
        made[key] = small(value) if isinstance(value, dict) else numbers.get(key, value) if value else value
    made.pop("quantization_config", None)
    return made


def write_sparse(folder, tensors, config):
    """A model of real size that takes no room: headers, and files of holes."""
    os.makedirs(folder)
    header, at = {}, 0
    for name, dtype, shape, _ in tensors:
        size = files.size_of(dtype, shape)
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(f"{folder}/model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)


def write_small(folder, tensors, config, rnd):
    files.write(f"{folder}/model.safetensors", {name: (dtype, shape, rnd.randbytes(files.size_of(dtype, shape)))
                                                for name, dtype, shape, _ in tensors})
    with open(f"{folder}/config.json", "w", encoding="utf-8") as file:
        json.dump(config, file)
