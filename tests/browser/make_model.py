# SPDX-License-Identifier: Apache-2.0
"""Makes checkpoints for the browser test; their files are sparse, since nobody reads the weights.

    python3 make_model.py large FOLDER     1,000 tensors that 1,024 ranks can share
    python3 make_model.py hostile FOLDER   tensors whose names are markup, scripts, and what breaks scripts
"""
import json
import os
import struct
import sys

# Each would do something if it reached the page as anything but text.
HOSTILE = [
    "</script><script>window.hurt = 1</script>",
    "<img src=x onerror=window.hurt=1>",
    "<!--<script>",
    "]]>\u2028\u2029\u0000\u0007",
    "'\"`${window.hurt = 1}\\",
    "__proto__",
    "constructor",
    "&lt;b&gt; &amp; #tensor=%00&rank=7",
    "\u202egpj.exe \U0001f9e0 " + "long " * 60,
    "",
]


def large_model():
    shapes = [(4096, 64), (64, 4096), (2048, 128), (4096,), (1024, 8, 16)]
    return {f"model.layers.{i // 5}.part_{i % 5}.weight": shapes[i % 5] for i in range(1000)}


def hostile_model():
    return {name: (8, 4 + i) for i, name in enumerate(HOSTILE)}


def write(folder, model):
    os.makedirs(folder, exist_ok=True)
    header, at = {}, 0
    for name, shape in model.items():
        volume = 1
        for extent in shape:
            volume *= extent
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [at, at + 2 * volume]}
        at += 2 * volume
    text = json.dumps(header).encode()
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.truncate(8 + len(text) + at)


write(sys.argv[2], {"large": large_model, "hostile": hostile_model}[sys.argv[1]]())
