#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints what every rank of a mesh holds of a checkpoint: shard.py MODEL [MESH]. Only headers are read."""
import sys

import reshard

path, mesh = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "tp=4"
with reshard.open(path) as ck:
    size = 1
    for n in reshard.Spec(mesh + ": " + ", ".join("R" for _ in mesh.split(","))).axes.values():
        size *= n
    print(f"{path}: {ck.format}, {len(ck)} tensors, {ck.nbytes:,} bytes")
    for rank in range(size):
        mine = ck.shard(mesh, rank)
        largest = max(mine, key=lambda name: mine.shape(name))
        print(f"rank {rank}: {len(mine)} tensors, {mine.nbytes:,} bytes, the tallest is {largest} {mine.shape(largest)}")
