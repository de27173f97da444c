# SPDX-License-Identifier: Apache-2.0
"""The checkpoints that pages of docs/answers begin with, under the names that they use."""
import json
import os
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "checkpoint"))
import files  # noqa: E402

# By page: the conversions of MODEL that make what it has.
CONVERSIONS = {
    "merge-fsdp-rank-files.md": ["ranks --to fsdp=8 --format torch-ranks --dtensor"],
    "dcp-to-hugging-face.md": ["run --to fsdp=8 --format dcp"],
    "another-number-of-gpus.md": ["run --to fsdp=8 --format dcp"],
    "what-differs.md": ["half --dtype bf16"],
    "look-into-a-pt.md": ["pt --format torch"],
}


def write_fp8(folder):
    """A quantised layer of DeepSeek's kind: codes, and one scale for each block of 128 by 128."""
    os.makedirs(folder)
    codes = bytes(0x30 + i % 16 for i in range(256 * 256))
    files.write(os.path.join(folder, "model.safetensors"), {
        "model.layers.0.mlp.up_proj.weight": ("F8_E4M3", (256, 256), codes),
        "model.layers.0.mlp.up_proj.weight_scale_inv": ("F32", (2, 2), struct.pack("<4f", 0.5, 1, 2, 4)),
        "model.norm.weight": ("BF16", (256,), bytes(512))})
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump({"model_type": "deepseek_v3", "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, file)


def make(command, folder, page):
    """Makes what a page of docs/answers begins with."""
    f32 = ["--dtype", "f32"] if page == "what-differs.md" else []
    subprocess.run([command, "bench", "model", "MODEL", "--bytes", "300K", *f32], cwd=folder, check=True, capture_output=True)
    for line in CONVERSIONS.get(page, []):
        subprocess.run([command, "convert", "MODEL", *line.split()], cwd=folder, check=True, capture_output=True)
    if page == "fp8-to-bf16.md":
        write_fp8(os.path.join(folder, "fp8"))
