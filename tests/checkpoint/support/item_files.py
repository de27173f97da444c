# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of torch_checkpointing (metadata.pkl and a file for each item and rank) made byte by byte, for tests: nothing here shares
code with the library. What is in metadata.pkl are plain dicts, lists, tuples, texts and numbers, so Python's own pickler writes it.
"""
import json
import os
import pickle

import files
import torch_files


def box_of(shape, sizes, coordinate, cuts):
    """cuts: (axis, dim) in the order in which they are made."""
    begin, end = [0] * len(shape), list(shape)
    for axis, d in cuts:
        a, b = torch_files.chunk(end[d] - begin[d], sizes[axis], coordinate[axis])
        begin[d], end[d] = begin[d] + a, begin[d] + b
    return begin, [b - a for a, b in zip(begin, end)]


def local_part(array, sizes, position, cuts):
    """What the rank at a position of the mesh has of (dtype, shape, bytes)."""
    dtype, shape, _ = array
    coordinate = [position // step % n for step, n in zip(torch_files.dense(sizes), sizes)]
    offset, size = box_of(shape, sizes, coordinate, cuts)
    return dtype, tuple(size), files.cut(array, offset, size)


def placement(text):
    """"S0", "R", or "S0*2" for a strided cut with the split factor 2."""
    if text == "R":
        return {"type": "Replicate"}
    dim, _, factor = text[1:].partition("*")
    return {"type": "StridedShard", "dim": int(dim), "split_factor": int(factor)} if factor else {"type": "Shard", "dim": int(dim)}


def describe(array, mesh, sizes, texts, kind="DTensorShardingMetadata"):
    """One group of ranks: how a tensor is spread over the mesh, a list of ranks in the shape of sizes."""
    dtype, shape, _ = array
    return {"sharding_metadata": {"type": kind, "data": {
                "global_shape": list(shape), "dtype": "torch." + torch_files.DTYPES[dtype][0], "stride": list(torch_files.dense(shape)),
                "mesh_spec": {"device_type": "cuda", "mesh_shape": tuple(sizes), "mesh_data": tuple(mesh), "mesh_dim_names": None},
                "placements": [placement(text) for text in texts]}},
            "ranks": tuple(mesh)}


def path_key(*steps):
    return json.dumps(list(steps), separators=(",", ":"))


def layout(path, kind):
    return {"file_path": path, "serialization_format": {"type": kind}}


def write_metadata(folder, items, world, version="2.0", protocol=4):
    """items: {item: ({path key: [groups]}, {rank: layout or None})}"""
    os.makedirs(folder, exist_ok=True)
    if version == "1.0":
        paths = {json.dumps([item] + json.loads(key), separators=(",", ":")): groups for item, (tensors, _) in items.items() for key, groups in tensors.items()}
        ranks = {rank: {item: layouts[rank] for item, (_, layouts) in items.items() if rank in layouts} for rank in range(world)}
        value = {"metadata": paths, "rank_to_layout_info_mappings": ranks, "world_size": world, "version": version}
    else:
        value = {"metadata": {item: {"nested_path_to_metadata": tensors, "rank_to_layout_info": layouts} for item, (tensors, layouts) in items.items()},
                 "world_size": world, "version": version}
    with open(f"{folder}/metadata.pkl", "wb") as file:
        file.write(pickle.dumps(value, protocol=protocol))


def write(folder, model, sizes=(2,), texts=("S0",), item="model", body="torch", version="2.0", values=None):
    """A whole checkpoint of one item: tensors with enough dims spread by the texts, others as replicas."""
    world = files.volume(sizes)
    cuts = [(axis, int(text[1])) for axis, text in enumerate(texts) if text != "R"]
    spread = {name for name, (_, shape, _) in model.items() if len(shape) > max([d for _, d in cuts], default=0)}
    tensors = {path_key(name): [describe(model[name], range(world), sizes, texts)] for name in sorted(spread)}
    kind, ending = ("TorchSerialization", "pt") if body != "safetensors" else ("SafetensorsSerialization", "safetensors")
    layouts = {rank: layout(f"{item}_{rank}.{ending}", kind) if body == "safetensors" else None for rank in range(world)}
    for rank in range(world):
        local = {name: local_part(array, sizes, rank, cuts) if name in spread else array for name, array in model.items()}
        path = f"{folder}/{item}_{rank}.{ending}"
        if body == "safetensors":
            files.write(path, local)
        elif body == "plain":
            torch_files.write(path, {name: torch_files.tensor(array) for name, array in local.items()})
        else:
            mesh = torch_files.mesh(list(range(world)), tuple(sizes))
            torch_files.write(path, {**{name: torch_files.dtensor(array, model[name][1], mesh, texts) if name in spread else torch_files.tensor(array)
                                        for name, array in local.items()}, **(values or {})})
    write_metadata(folder, {item: (tensors, layouts)}, world, version)
