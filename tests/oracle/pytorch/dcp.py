# SPDX-License-Identifier: Apache-2.0
"""Distributed checkpoints and PyTorch 1.13 itself.

  dcp.py save FOLDER WORLD    WORLD processes save model() into FOLDER
  dcp.py load FOLDER WORLD    WORLD processes load FOLDER, which holds model(), and compare every element

The folders dcp-1, dcp-2 and dcp-4 beside this file were made by `save`; tests read them where there is no PyTorch.
"""
import dataclasses
import os
import sys
import tempfile

import torch


def import_shard():
    """torch.distributed._shard of 1.13 does not import under Python 3.11, which refuses a default that cannot be hashed."""
    genuine = dataclasses.dataclass

    def hashable(made=None, **options):
        if made is None:
            return lambda later: hashable(later, **options)
        made = genuine(made, **options)
        if made.__hash__ is None:
            made.__hash__ = object.__hash__
        return made
    dataclasses.dataclass = hashable
    try:
        import torch.distributed._shard.checkpoint  # noqa: F401
    finally:
        dataclasses.dataclass = genuine


def model():
    """{name: whole tensor}; those in SHARDED are cut by dim 0."""
    def count(dtype, *shape):
        size = 1
        for extent in shape:
            size *= extent
        return torch.arange(size).to(dtype).reshape(shape)
    return {"model.weight": count(torch.float32, 7, 3), "model.bias": count(torch.bfloat16, 5), "model.big": count(torch.int64, 16, 2, 2),
            "plain": count(torch.float64, 2, 3), "turned": count(torch.float32, 4, 3).t(), "scalar": torch.tensor(2.5), "flags": count(torch.int64, 6) % 2 == 0}


SHARDED = ("model.weight", "model.bias", "model.big")


def shard(whole, world):
    """Chunks of dim 0, as ChunkShardingSpec cuts it; made from local shards, because gloo cannot scatter all dtypes."""
    from torch.distributed._shard.sharded_tensor import Shard, ShardedTensor, ShardedTensorMetadata
    from torch.distributed._shard.sharded_tensor.metadata import TensorProperties
    from torch.distributed._shard.metadata import ShardMetadata
    step, me, all_parts, mine = -(-whole.shape[0] // world), torch.distributed.get_rank(), [], []
    for rank in range(world):
        begin, end = min(rank * step, whole.shape[0]), min((rank + 1) * step, whole.shape[0])
        if begin == end:
            continue
        part = ShardMetadata([begin] + [0] * (whole.dim() - 1), [end - begin] + list(whole.shape[1:]), f"rank:{rank}/cpu")
        all_parts.append(part)
        if rank == me:
            mine.append(Shard(whole[begin:end].clone(), part))
    facts = ShardedTensorMetadata(all_parts, whole.shape, TensorProperties(dtype=whole.dtype))
    return ShardedTensor._init_from_local_shards_and_global_metadata(mine, facts)


def make_state(world, empty=False):
    state = {name: (torch.zeros_like(whole) if empty else whole) for name, whole in model().items()}
    for name in SHARDED:
        state[name] = shard(state[name], world)
    if not empty:
        state["step"] = 7
    return state


def save(folder, world):
    import torch.distributed._shard.checkpoint as checkpoint
    checkpoint.save_state_dict(make_state(world), checkpoint.FileSystemWriter(folder))


def load(folder, world):
    """What reshard writes names the modules of PyTorch 2, which are other names for the same classes here."""
    import torch.distributed._shard.checkpoint as checkpoint
    for name in ("metadata", "filesystem"):
        __import__("torch.distributed._shard.checkpoint." + name)
        sys.modules["torch.distributed.checkpoint." + name] = sys.modules["torch.distributed._shard.checkpoint." + name]
    sys.modules["torch.distributed.checkpoint"] = checkpoint
    state, rank = make_state(world, empty=True), torch.distributed.get_rank()
    checkpoint.load_state_dict(state, checkpoint.FileSystemReader(folder))
    for name, whole in model().items():
        pieces = [(None, state[name])] if name not in SHARDED else [(part.metadata, part.tensor) for part in state[name].local_shards()]
        for place, found in pieces:
            wanted = whole if place is None else whole[place.shard_offsets[0]:place.shard_offsets[0] + place.shard_sizes[0]]
            assert torch.equal(found, wanted), (rank, name, found, wanted)


def run(rank, action, folder, world, meeting):
    import_shard()
    torch.distributed.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=world)
    {"save": save, "load": load}[action](folder, world)
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()


def main():
    action, folder, world = sys.argv[1], sys.argv[2], int(sys.argv[3])
    with tempfile.TemporaryDirectory() as place:
        torch.multiprocessing.spawn(run, (action, folder, world, os.path.join(place, "meeting")), world)


if __name__ == "__main__":
    main()
