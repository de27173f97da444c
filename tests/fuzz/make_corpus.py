#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the first inputs of the targets `flow` and `plan` (fuzz_flow.c tells how they look); the others were found by the
fuzzer, and stay.

    python3 tests/fuzz/make_corpus.py
"""
import json
import os
import struct
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "checkpoint", "support"))
import torch_files
import torch_objects

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = ["model.safetensors", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
         "model.safetensors.index.json", "config.json", "shard-00001-model-00001-of-00001.safetensors",
         "shard-00002-model-00001-of-00001.safetensors", "rank-00000-of-00002.safetensors", "rank-00001-of-00002.safetensors",
         "tokenizer.json", "pytorch_model.bin", ".metadata", "__0_0.distcp", "__1_0.distcp", "model.pt",
         "model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt", "optim_world_size_2_rank_0.pt", "optim_world_size_2_rank_1.pt",
         "metadata.pkl", "checkpoint_0.pt", "checkpoint_1.pt", "RULES", "JOURNAL"]
MESHES = [None, "tp=2", "dp=2", "tp=3", "pp=2,tp=2", "fsdp=2", "x=5", "1"]
FORMATS = [None, "hf", "dcp-safetensors", "rank-files", "dcp", "torch"]
STORAGE_BYTES = 512
BYTES = {"F32": 4, "BF16": 2, "U8": 1, "I64": 8, "F64": 8}


def head(tensors, metadata=None):
    """A header of safetensors, and how many bytes of data it wants."""
    header, at = ({"__metadata__": metadata} if metadata else {}), 0
    for name, (dtype, *shape) in tensors.items():
        count = BYTES[dtype]
        for extent in shape:
            count *= extent
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + count]}
        at += count
    return json.dumps(header).encode(), at


class Graph(bytes):
    """A pickle that becomes a file of torch.save."""


def graph(value, mesh=None):
    """The storage of the mesh is the first, which has numbers."""
    pickler = torch_files.Pickler()
    if mesh is not None:
        pickler.storages.append(mesh.state["mesh"].storage)
    return Graph(pickler.dump(value))


def flow(*records, source=None, to=None, form=None, rules=False, own_rules=False, cast=False, rename=False, verify=False,
         stop=None, dtensors=False, model=False):
    choices = [MESHES.index(source) | 8 * own_rules | FORMATS.index(form) // 4 << 4 | dtensors << 5 | model << 6,
               MESHES.index(to) | FORMATS.index(form) % 4 << 3 | rules << 5 | cast << 6 | rename << 7,
               (stop is not None) | verify << 7, stop or 0]
    data = bytes(choices)
    for name, content, *number in records:
        framed = isinstance(content, tuple)
        text, count = content if framed else (content, number[0] if number else 0)
        kind = 2 if isinstance(content, Graph) else framed or bool(number)
        data += struct.pack("<BBHH", NAMES.index(name), kind, len(text), STORAGE_BYTES if kind == 2 else count) + text
    return data


PLAIN = head({"model.layers.0.self_attn.q_proj.weight": ("F32", 8, 6), "model.norm.weight": ("BF16", 6),
              "n": ("I64",), "empty": ("U8", 0, 3)}, {"format": "pt"})
CUT = b"*.q_proj.weight S(0)@tp pad(0,3)\n*norm* R\nn R\n* S(-1)@tp\n"
LLAMA = json.dumps({"model_type": "llama", "hidden_size": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
                    "num_hidden_layers": 1, "vocab_size": 10}).encode()


def dcp(rank):
    tensors = {"a": ("F32", 2, 6), "b": ("F64", 5, 3)} if rank == 0 else {"a": ("F32", 3, 6), "b": ("F64", 5, 1)}
    offsets = {"a": [2 * rank, 0], "b": [0, 3 * rank]}
    info = {name: {"saved_offsets": offsets[name]} for name in tensors}
    return head(tensors, {"DCP_SHARDING_INFO": json.dumps(info), "DCP_VERSION": "1.0", "format": "pt",
                          "RESHARD_SHAPES": json.dumps({"a": [5, 6], "b": [5, 4]})})


def index():
    return json.dumps({"metadata": {"total_size": 40}, "weight_map": {"x": NAMES[1], "y": NAMES[2]}}).encode()


def dtensors(rank):
    """Rows of 3 over 2 ranks, a replicated norm, a value."""
    mesh = torch_files.mesh([0, 1], names=("fsdp",))
    local = ("F32", (2, 3) if rank == 0 else (1, 3), bytes(24 if rank == 0 else 12))
    return graph({"w": torch_files.dtensor(local, (3, 3), mesh, ["S0"]), "n": torch_files.dtensor(("BF16", (4,), bytes(8)), (4,), mesh, ["R"]), "step": 7},
                 mesh)


def layouts(rank):
    """As PyTorch 2.10 writes meshes, here of two axes of which one has size 1."""
    return dump_objects("2.10", rank)


def axes(rank):
    """As PyTorch has written them since April 2026."""
    return dump_objects("2.13", rank)


def dump_objects(generation, rank):
    torch = torch_objects.Torch(generation, rank)
    root = torch.root([0, 1], (1, 2), ("dp", "tp"), dtype="I64")
    value = {"w": torch.dtensor(("F32", (4, 1), bytes(16)), (4, 2), root.mesh, ["R", "S1"])}
    return Graph(torch.dump(value, [root.storage])[0])


def shards(rank):
    offsets = [2 * rank, 0]
    return graph({"a": torch_files.sharded([(offsets, ("F32", (2, 3), bytes(24)))], (4, 3), "F32", rank, 2, new=rank == 0)})


def states(rank):
    moment = torch_files.tensor(("F32", (2, 2), bytes(16)))
    return graph({"state": {0: {"exp_avg": moment, "step": 3}}, "param_groups": [{"lr": 0.5, "params": [0]}]})


def tied():
    shared = torch_files.Storage("F32", bytes(64))
    return graph({"model": {"a": torch_files.View(shared, 0, (4, 4), (1, 4)), "b": torch_files.View(shared, 0, (4, 4), (1, 4)),
                            "c": torch_files.View(shared, 3, (2, 3), (0, 2)), "none": torch_files.tensor(("U8", (0,), b""))},
                  "optimizer": [{"lr": 0.1}, (1, 2)], "epoch": 3})


RANKS = ("model_world_size_2_rank_0.pt", "model_world_size_2_rank_1.pt")
OPTIMIZERS = ("optim_world_size_2_rank_0.pt", "optim_world_size_2_rank_1.pt")


def by_rank(names, make):
    return [(name, make(rank)) for rank, name in enumerate(names)]


FLOWS = {
    "torch_tied": flow(("model.pt", tied()), form="hf"),
    "torch_model": flow(("model.pt", tied()), form="hf", model=True),
    "torch_values": flow(("model.pt", tied()), form="torch", verify=True),
    "torch_dcp": flow(("model.pt", tied()), to="fsdp=2", form="dcp", stop=1),
    "dtensors": flow(*by_rank(RANKS, dtensors), form="hf", verify=True),
    "dtensors_recut": flow(*by_rank(RANKS, dtensors), ("RULES", b"* S(0)@fsdp\n"), to="fsdp=2", rules=True, form="torch", dtensors=True),
    "dtensors_dcp": flow(*by_rank(RANKS, dtensors), to="fsdp=2", form="dcp"),
    "mesh_layouts": flow(*by_rank(RANKS, layouts), form="hf"),
    "mesh_axes": flow(*by_rank(RANKS, axes), form="hf"),
    "sharded": flow(*by_rank(RANKS, shards), form="hf", stop=0),
    "optimizers": flow(*by_rank(RANKS, dtensors), *by_rank(OPTIMIZERS, states), form="torch"),
    "lost_rank": flow((RANKS[0], dtensors(0)), form="hf"),
    "one": flow(("model.safetensors", PLAIN)),
    "cut": flow(("model.safetensors", PLAIN), ("RULES", CUT), to="tp=3", rules=True),
    "cast": flow(("model.safetensors", PLAIN), ("config.json", LLAMA), to="fsdp=2", cast=True, rename=True, verify=True),
    "llama": flow(("model.safetensors", head({"model.layers.0.self_attn.k_proj.weight": ("F32", 4, 8),
                                              "model.layers.0.mlp.down_proj.weight": ("BF16", 8, 6),
                                              "model.embed_tokens.weight": ("F32", 10, 8)})), ("config.json", LLAMA), ("tokenizer.json", b"{}"), to="tp=2"),
    "ranks": flow(("model.safetensors", PLAIN), ("RULES", CUT), to="tp=2", form="rank-files", rules=True),
    "index": flow(("model-00001-of-00002.safetensors", head({"x": ("F32", 4, 2)})),
                  ("model-00002-of-00002.safetensors", head({"y": ("U8", 8)})), ("model.safetensors.index.json", index()),
                  ("RULES", b"* S(0)@x\n"), to="x=5", rules=True),
    "dcp": flow(("shard-00001-model-00001-of-00001.safetensors", dcp(0)),
                ("shard-00002-model-00001-of-00001.safetensors", dcp(1)), form="hf"),
    "recut": flow(("shard-00001-model-00001-of-00001.safetensors", dcp(0)),
                  ("shard-00002-model-00001-of-00001.safetensors", dcp(1)), ("RULES", b"* S(1/1)@tp\n"), to="tp=3", rules=True),
    "read_ranks": flow(("rank-00000-of-00002.safetensors", head({"w": ("F32", 2, 3), "norm": ("U8", 3)})),
                       ("rank-00001-of-00002.safetensors", head({"w": ("F32", 2, 3), "norm": ("U8", 3)})),
                       ("RULES", b"w S(0)@tp name(v)\n* S(0)@tp\n"), source="tp=2", own_rules=True, rules=True),
    "packed": flow(("model.safetensors", head({"qkv": ("F32", 12, 4)})), ("RULES", b"qkv S(0;4,4,4)@tp\n"), to="tp=2",
                   rules=True, stop=0),
    "stopped": flow(("model.safetensors", PLAIN), ("RULES", CUT), to="tp=2", rules=True, stop=1),
    "journal": flow(("model.safetensors", PLAIN), ("RULES", CUT), ("JOURNAL", b"\x01", 70), to="tp=2", rules=True, stop=2),
    "foreign_journal": flow(("model.safetensors", PLAIN), ("JOURNAL", b"reshard conversion 1\n"), to="fsdp=2", stop=1),
    "keys": flow(("model.safetensors", PLAIN), ("config.json", LLAMA),
                 ("RULES", b"*.q_proj.weight S(0, unit=$head_dim)@tp\n* R\n"), to="tp=2", rules=True),
    "stages": flow(("model.safetensors", PLAIN), ("RULES", b"*.{0..3}.* A(0)@pp, S(0)@tp\nn R\n* S(0)@tp\n"), to="pp=2,tp=2",
                   rules=True),
}
PLANS = {
    "rows": "12x8\n4: S(0)\n4: S(1)\n", "gather": "7x5\n3: S(0)\n3: R\n", "scatter": "9\n1: R\n4: S(0)\n",
    "reduce": "6x4\n4: P\n4: S(0)\n", "all_reduce": "10\ndp=2,tp=3: P, S(0)\ndp=2,tp=3: R, S(0)\n",
    "mesh": "8x12\ndp=2,tp=4: R, S(-1)\nfsdp=4,tp=2: S(0)@tp, S(0)@fsdp\n", "ragged": "10x3\n3: S(0=2,3,5)\n3: S(0~)\n",
    "cyclic": "24x5\n4: S(0/2)\n3: S(0*2)\n", "packed": "12x4\n2: S(0;6,3,3)\n4: S(0, unit=3)\n",
    "flat": "5x7\n4: S(flat)\n3: S(flat~)\n", "copies": "8x4\ntp=8: S(0, max=4)\ntp=4: S(0)\n",
    "boxes": "6x6\nboxes 6x6: 0[0:2,0:4] 1[0:4,4:6] 2[2:6,0:4] 3[4:6,4:6]\n4: S(1)\n",
    "cover": "6\ncover 6: 0[0:4] 1[2:6] 2[0:6]\n2[4..5]: S(0)\n", "relabel": "8x8!\n4[3,1,0,2]: S(0)\n4: S(0)\n",
    "exact": "8x8?\n4: R\n4: S(0)\n", "single": "16#\n4: P(max)\n4: R\n", "axes": "4x4\n2,2: A(0), S(0)\n2,2: R, S(1)\n",
    "huge": "9223372036854775807\n4: S(0/1)\n2: S(0)\n", "many": "1000000x4\n1000000: S(0)\n1000000: S(1)\n",
    "wide": "2147483647\n2147483647: S(0)\n2147483646: S(0)\n", "tiny_blocks": "100000000\n64: S(0/1)\n63: S(0/1)\n",
    "scalar": "\n2: R\n3: R\n", "empty": "0x5\n2: S(0)\n2: S(1)\n",
}

for folder, inputs in [("flow", FLOWS), ("plan", {name: text.encode() for name, text in PLANS.items()})]:
    os.makedirs(f"{HERE}/corpus/{folder}", exist_ok=True)
    for name, data in inputs.items():
        with open(f"{HERE}/corpus/{folder}/{name}", "wb") as file:
            file.write(data)
