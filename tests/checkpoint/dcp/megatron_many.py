# SPDX-License-Identifier: Apache-2.0
"""Megatron-Core's folder of a published model at its full size, which takes no room: `.metadata` says where every chunk would lie, and
the data files are holes. Keys and shapes follow from those of Hugging Face's tensors, by the names of latent attention and experts."""
import os
import re

import files
import megatron_files
import torch_files
from dcp_many import METADATA, Pickle, batches

PARTS = {"input_layernorm.weight": "input_layernorm.weight", "self_attn.q_a_proj.weight": "self_attention.linear_q_down_proj.weight",
         "self_attn.q_a_layernorm.weight": "self_attention.linear_q_up_proj.layer_norm_weight",
         "self_attn.q_b_proj.weight": "self_attention.linear_q_up_proj.weight",
         "self_attn.kv_a_proj_with_mqa.weight": "self_attention.linear_kv_down_proj.weight",
         "self_attn.kv_a_layernorm.weight": "self_attention.linear_kv_up_proj.layer_norm_weight",
         "self_attn.kv_b_proj.weight": "self_attention.linear_kv_up_proj.weight", "self_attn.o_proj.weight": "self_attention.linear_proj.weight",
         "mlp.gate_proj.weight": "mlp.linear_fc1.weight", "mlp.up_proj.weight": None, "mlp.down_proj.weight": "mlp.linear_fc2.weight",
         "mlp.gate.weight": "mlp.router.weight", "mlp.gate.e_score_correction_bias": "mlp.router.expert_bias",
         "mlp.shared_experts.gate_proj.weight": "mlp.shared_experts.linear_fc1.weight", "mlp.shared_experts.up_proj.weight": None,
         "mlp.shared_experts.down_proj.weight": "mlp.shared_experts.linear_fc2.weight",
         "mlp.experts.0.gate_proj.weight": "mlp.experts.experts.linear_fc1.weight", "mlp.experts.0.up_proj.weight": None,
         "mlp.experts.0.down_proj.weight": "mlp.experts.experts.linear_fc2.weight"}
ENDS = {"model.embed_tokens.weight": "embedding.word_embeddings.weight", "lm_head.weight": "output_layer.weight",
        "model.norm.weight": "decoder.final_layernorm.weight"}
MTP = {"enorm.weight": "enorm.weight", "hnorm.weight": "hnorm.weight", "eh_proj.weight": "eh_proj.weight",
       "shared_head.norm.weight": "final_layernorm.weight", "embed_tokens.weight": None, "shared_head.head.weight": None}
DTYPES = {"BF16": "bfloat16", "F32": "float32"}


def shapes_of(tensors, layers, experts):
    """{Megatron's key: (dtype, shape)} of Hugging Face's (name, dtype, shape), with numbered layers."""
    moe = {name.split(".")[2] for name, *_ in tensors if ".mlp.experts." in name}
    made = {}
    for name, dtype, shape, *_ in tensors:
        if name in ENDS:
            made[ENDS[name]] = dtype, tuple(shape)
            continue
        number, part = re.fullmatch(r"model\.layers\.(\d+)\.(.*)", name).groups()
        front = f"decoder.layers.{number}." if int(number) < layers else f"mtp.layers.{int(number) - layers}."
        if int(number) >= layers and part in MTP:
            if MTP[part]:
                made[front + MTP[part]] = dtype, tuple(shape)
            continue
        if int(number) >= layers:
            front += "transformer_layer."
        if re.match(r"mlp\.experts\.[1-9]", part):
            continue
        norm = "pre_mlp_layernorm.weight" if number in moe else "mlp.linear_fc1.layer_norm_weight"
        key = norm if part == "post_attention_layernorm.weight" else PARTS[part]
        if key is None:
            continue
        if key.endswith("linear_fc1.weight"):
            shape = (2 * shape[0], *shape[1:])
        made[front + key] = dtype, ((experts, *shape) if ".experts.experts." in key else tuple(shape))
    return made


def write_tensor(p, name, dtype, shape, chunks):
    p.text(name)
    p.begin(METADATA, "TensorStorageMetadata")
    p.shared("properties")
    p.name(METADATA, "TensorProperties")
    p.add(b")\x81\x94(", 1)
    p.name("torch", DTYPES[dtype])
    p.name("torch.serialization", "_get_layout")
    p.shared("torch.strided")
    p.add(b"\x85\x94R\x94\x89", 2)
    p.name(METADATA, "_MEM_FORMAT_ENCODING")
    p.add(b"K\x00\x85\x94R\x94\x89t\x94b", 3)
    p.shared("size")
    write_size(p, shape)
    p.shared("chunks")
    p.add(b"]\x94", 1)
    batches(p, len(chunks), lambda i: write_chunk(p, *chunks[i]), b"e")
    p.end()


def write_chunk(p, offset, size):
    p.begin(METADATA, "ChunkStorageMetadata")
    p.shared("offsets")
    write_size(p, offset)
    p.shared("sizes")
    write_size(p, size)
    p.end()


def write_size(p, numbers):
    """A torch.Size of any length: Pickle.size has the tuples of two."""
    p.name("torch", "Size")
    p.add(b"(")
    for number in numbers:
        p.integer(number)
    p.add(b"t\x94\x85\x94R\x94", 3)


def write_entry(p, name, offset, file, at, size):
    p.begin(METADATA, "MetadataIndex")
    p.shared("fqn")
    p.text(name)
    p.shared("offset")
    if offset is None:
        p.add(b"N")
    else:
        write_size(p, offset)
    p.shared("index")
    p.add(b"N")
    p.end()
    p.begin("torch.distributed.checkpoint.filesystem", "_StorageInfo")
    p.shared("relative_path")
    p.shared(file)
    p.shared("offset")
    p.integer(at)
    p.shared("length")
    p.integer(size)
    p.end()


def write_state(p, name):
    p.text(name)
    p.begin(METADATA, "BytesStorageMetadata")
    p.end()


def write(folder, shapes, tp):
    """A folder `release` of one stage, each tensor parallel rank with a file. Returns how many chunks there are."""
    inside, ends, held = os.path.join(folder, "release"), {}, []
    os.makedirs(inside)
    tensors = [(name, dtype, shape, megatron_files.chunks(name, shape, tp)) for name, (dtype, shape) in shapes.items()]
    nothing = torch_files.pack([None])
    states = sorted(megatron_files.extra_states({name: (dtype, shape, None) for name, (dtype, shape) in shapes.items()}))

    def place(file, size):
        at = ends.get(file, 0)
        ends[file] = at + size
        return file, at, size
    first = {"__0_0.distcp": bytearray()}
    for name in states:
        held.append((name, None, *place("__0_0.distcp", len(nothing))))
        first["__0_0.distcp"] += nothing
    for name, dtype, _, chunks in tensors:
        for i, (offset, size) in enumerate(chunks):
            held.append((name, offset, *place(f"__{i % tp}_0.distcp", files.size_of(dtype, size) + 1024)))
    p = Pickle()
    p.begin(METADATA, "Metadata")
    p.shared("state_dict_metadata")
    p.add(b"}\x94", 1)
    batches(p, len(tensors), lambda i: write_tensor(p, *tensors[i]), b"u")
    batches(p, len(states), lambda i: write_state(p, states[i]), b"u")
    p.shared("planner_data")
    p.add(b"N")
    p.shared("storage_data")
    p.add(b"}\x94", 1)
    batches(p, len(held), lambda i: write_entry(p, *held[i]), b"u")
    p.end()
    p.add(b".")
    with open(os.path.join(inside, ".metadata"), "wb") as stream:
        stream.write(b"".join(p.parts))
    for file, end in ends.items():
        with open(os.path.join(inside, file), "wb") as stream:
            stream.write(first.get(file, b""))
            stream.truncate(end)
    torch_files.write(os.path.join(inside, "common.pt"), {"checkpoint_version": 3.0, "iteration": 0})
    with open(os.path.join(inside, "metadata.json"), "w", encoding="utf-8") as stream:
        stream.write('{"sharded_backend": "torch_dist", "sharded_backend_version": 1}')
    with open(os.path.join(folder, "latest_checkpointed_iteration.txt"), "w", encoding="utf-8") as stream:
        stream.write("release")
    return sum(len(chunks) for *_, chunks in tensors)
