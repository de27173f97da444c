#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Turns tests/vectors/chunk_layouts.json, what PyTorch 1.13 computed, into chunk_vectors.inc.

Each layout becomes one row of numbers: ndim, shape, count, dim, the ranks by chunk, the ranks in placement
order, then offset and size of each shard by rank. Run it from any folder; it writes beside itself.
"""
import json
import pathlib

here = pathlib.Path(__file__).resolve().parent
cases = json.loads((here.parent / "vectors" / "chunk_layouts.json").read_text())["cases"]

lines = [
    "/* Made by make_vectors.py from what PyTorch 1.13 computed. Do not edit. */",
    "static const int16_t chunk_vectors[] = {",
]
layouts = 0
for case in cases:
    for side in (case["source"], case["target"]):
        row = [len(case["shape"]), *case["shape"], case["world"], side["dim"]]
        row += side["ranks"] + side["order"]
        for rank, shard in enumerate(side["shards_by_rank"]):
            assert shard["rank"] == rank
            row += shard["offset"] + shard["size"]
        assert len(side["ranks"]) == case["world"] == len(side["shards_by_rank"])
        line = "   "
        for number in row:
            if len(line) + len(str(number)) > 96:
                lines.append(line)
                line = "   "
            line += f" {number},"
        lines.append(line)
        layouts += 1
lines.append("};")
lines.append(f"enum {{ CHUNK_VECTORS = {layouts} }};")
(here / "chunk_vectors.inc").write_text("\n".join(lines) + "\n")
