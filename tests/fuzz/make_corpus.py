#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the first inputs of the targets `flow` and `plan` (fuzz_flow.c tells how they look); the others were found by the
fuzzer, and stay.

    python3 tests/fuzz/make_corpus.py
"""
import json
import os
import struct

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = ["model.safetensors", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
         "model.safetensors.index.json", "config.json", "shard-00001-model-00001-of-00001.safetensors",
         "shard-00002-model-00001-of-00001.safetensors", "rank-00000-of-00002.safetensors", "rank-00001-of-00002.safetensors",
         "tokenizer.json", "pytorch_model.bin", ".metadata", "__0_0.distcp", "__1_0.distcp", "RULES", "JOURNAL"]
MESHES = [None, "tp=2", "dp=2", "tp=3", "pp=2,tp=2", "fsdp=2", "x=5", "1"]
FORMATS = [None, "hf", "dcp-safetensors", "rank-files"]
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


def flow(*records, source=None, to=None, form=None, rules=False, own_rules=False, cast=False, rename=False, verify=False,
         stop=None):
    choices = [MESHES.index(source) | 8 * own_rules,
               MESHES.index(to) | FORMATS.index(form) << 3 | rules << 5 | cast << 6 | rename << 7,
               (stop is not None) | verify << 7, stop or 0]
    data = bytes(choices)
    for name, content, *number in records:
        framed = isinstance(content, tuple)
        text, count = content if framed else (content, number[0] if number else 0)
        odd = framed or bool(number)
        data += struct.pack("<BBHH", NAMES.index(name), odd, len(text), count) + text
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


FLOWS = {
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
