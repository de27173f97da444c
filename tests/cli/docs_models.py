# SPDX-License-Identifier: Apache-2.0
"""The checkpoints that pages of docs/answers begin with, under the names that they use."""
import json
import os
import struct
import subprocess
import sys

FILES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "checkpoint")
sys.path[:0] = [os.path.join(FILES, "support"), os.path.join(FILES, "gguf")]
import files  # noqa: E402
import gguf_files as gguf  # noqa: E402
import zero_files  # noqa: E402

# By page: the conversions of MODEL that make what it has.
CONVERSIONS = {
    "merge-fsdp-rank-files.md": ["ranks --to fsdp=8 --format torch-ranks --dtensor"],
    "dcp-to-hugging-face.md": ["run --to fsdp=8 --format dcp"],
    "another-number-of-gpus.md": ["run --to fsdp=8 --format dcp"],
    "what-differs.md": ["half --dtype bf16"],
    "look-into-a-pt.md": ["pt --format torch"],
    "megatron-to-hugging-face.md": ["run --as megatron --to tp=2,pp=2"],
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


def write_zero(model, folder):
    """A run of DeepSpeed in stage 3 with a model's shapes."""
    shapes = {name: shape for name, (_, shape, _) in files.read_hf(model).items()}
    zero_files.Zero(shapes, [list(shapes)], 4, 3).write(os.path.join(folder, "global_step7"))
    zero_files.write_latest(folder, "global_step7")


def write_gguf(path):
    """A llama of one layer: matrices in Q8_0, norms in F32."""
    hidden, wide, words, ones = 64, 128, 96, struct.pack("<64f", *[1.0] * 64)
    values = [("general.architecture", gguf.TEXT, "llama"), ("llama.block_count", gguf.U32, 1), ("llama.context_length", gguf.U32, 128),
              ("llama.embedding_length", gguf.U32, hidden), ("llama.feed_forward_length", gguf.U32, wide),
              ("llama.attention.head_count", gguf.U32, 4), ("llama.attention.head_count_kv", gguf.U32, 2),
              ("llama.attention.layer_norm_rms_epsilon", gguf.F32, 1e-5), ("llama.rope.dimension_count", gguf.U32, 16),
              ("llama.vocab_size", gguf.U32, words)]
    blk = "blk.0."
    tensors = [(name, "F32", (hidden,), ones) for name in ["output_norm.weight", blk + "attn_norm.weight", blk + "ffn_norm.weight"]]
    for name, shape in [("token_embd.weight", (words, hidden)), ("output.weight", (words, hidden)), (blk + "attn_q.weight", (hidden, hidden)),
                        (blk + "attn_k.weight", (hidden // 2, hidden)), (blk + "attn_v.weight", (hidden // 2, hidden)),
                        (blk + "attn_output.weight", (hidden, hidden)), (blk + "ffn_gate.weight", (wide, hidden)),
                        (blk + "ffn_up.weight", (wide, hidden)), (blk + "ffn_down.weight", (hidden, wide))]:
        blocks = shape[0] * shape[1] // 32
        tensors.append((name, "Q8_0", shape, b"".join(struct.pack("<e32b", 0.01, *[(i * 7 + k) % 255 - 127 for k in range(32)]) for i in range(blocks))))
    gguf.write(path, values, tensors)


def make(command, folder, page):
    """Makes what a page of docs/answers begins with."""
    f32 = ["--dtype", "f32"] if page == "what-differs.md" else []
    subprocess.run([command, "bench", "model", "MODEL", "--bytes", "300K", *f32], cwd=folder, check=True, capture_output=True)
    for line in CONVERSIONS.get(page, []):
        subprocess.run([command, "convert", "MODEL", *line.split()], cwd=folder, check=True, capture_output=True)
    if page == "fp8-to-bf16.md":
        write_fp8(os.path.join(folder, "fp8"))
    if page == "deepspeed-to-hugging-face.md":
        write_zero(os.path.join(folder, "MODEL"), os.path.join(folder, "run"))
    if page == "gguf-to-hugging-face.md":
        write_gguf(os.path.join(folder, "model.gguf"))
