# SPDX-License-Identifier: Apache-2.0
"""ShardedTensor: translates its sharding specs, and provides a reshard that works for all of them.

torch's own reshard needs every rank of the group to own exactly one chunk, in a cut that gloo can express with pieces of
equal size; here any spec can become any other. Placements name ranks of the group in torch 1.x and of the world in 2.x;
specs here are always over ranks of the group.
"""
from typing import Any, List, Tuple

import torch
import torch.distributed as dist

from .. import _native
from .._errors import Unsupported
from .._layout import Layout, Spec
from ._redistribute import Redistribute

_BY_GROUP_RANK = int(torch.__version__.split(".")[0]) < 2


def _group_rank(placement: Any, group: Any) -> int:
    rank = int(placement.rank())
    return rank if _BY_GROUP_RANK or group is None else int(dist.get_group_rank(group, rank))


def _world_rank(rank: int, group: Any) -> int:
    return rank if _BY_GROUP_RANK or group is None else int(dist.get_global_rank(group, rank))


def text_of_sharding(sharding: Any, shape: Tuple[int, ...], group: Any) -> str:
    """A ChunkShardingSpec or an EnumerableShardingSpec as text."""
    if hasattr(sharding, "placements"):
        ranks = [_group_rank(placement, group) for placement in sharding.placements]
        return "%d[%s]: S(%d)" % (len(ranks), ",".join(map(str, ranks)), sharding.dim)
    if hasattr(sharding, "shards"):
        return text_of_boxes([(_group_rank(each.placement, group), each.shard_offsets, each.shard_sizes)
                              for each in sharding.shards], shape)
    raise Unsupported("a sharding spec of class %s" % type(sharding).__name__)


def text_of_boxes(boxes: Any, shape: Tuple[int, ...]) -> str:
    listed = ["%d[%s]" % (rank, ",".join("%d:%d" % (o, o + n) for o, n in zip(offsets, sizes)))
              for rank, offsets, sizes in boxes]
    return "boxes %s: %s" % ("x".join(map(str, shape)), " ".join(listed))


def spec_of_sharded(tensor: Any) -> Spec:
    return Spec(text_of_sharding(tensor.sharding_spec(), tuple(tensor.metadata().size), tensor._process_group))


def _is_chunks(spec: Spec) -> bool:
    if not spec._mesh or len(spec._cuts) != 1 or len(spec.axes) != 1:
        return False
    placement = spec._cuts[0].placement
    return bool(placement.kind == _native.RESHARD_SHARD and placement.rule == _native.RESHARD_CHUNK and
                placement.unit <= 1 and placement.max == 0 and placement.dim != _native.RESHARD_DIM_FLAT)


def sharding_of(spec: Any, shape: Any, group: Any = None, device: str = "cpu") -> Any:
    """The sharding spec of torch that splits a tensor of this shape in the same way.

    Chunks of one dimension become a ChunkShardingSpec, everything else an EnumerableShardingSpec. Raises Unsupported for
    what torch cannot express: replicas, partial sums, shards that are not one box.
    """
    from torch.distributed._shard import sharding_spec
    from torch.distributed._shard.metadata import ShardMetadata
    spec = spec if isinstance(spec, Spec) else Spec(spec)
    layout = Layout(spec, shape)
    named = "rank:%d/%s"
    if _is_chunks(spec):
        dim = spec._cuts[0].placement.dim
        return sharding_spec.ChunkShardingSpec(dim, [named % (_world_rank(rank, group), device) for rank in spec.ranks.tolist()])
    listed, seen = [], set()
    for shard in layout.all_shards():
        if shard.partial or len(shard.pieces) > 1 or len(shard.shape) != len(layout.shape):
            raise Unsupported("a ShardedTensor cannot be split as %r: rank %d has %s" %
                              (spec, shard.rank, "partial sums" if shard.partial else "a shard that is not one box"))
        for piece in shard.pieces:
            if piece.offset in seen:
                raise Unsupported("a ShardedTensor cannot be split as %r: rank %d has a replica" % (spec, shard.rank))
            seen.add(piece.offset)
            listed.append(ShardMetadata(list(piece.offset), list(piece.size), named % (_world_rank(shard.rank, group), device)))
    return sharding_spec.EnumerableShardingSpec(listed)


def _parts(layout: Layout, rank: int, shards: List[Any], dtype: Any) -> List[Any]:
    """A rank's shards with the empty ones added, which layouts have and torch leaves out."""
    left = iter(shards)
    return [torch.empty(shard.shape, dtype=dtype) if 0 in shard.shape else next(left) for shard in layout.shards(rank)]


def reshard(tensor: Any, target: Any, **options: Any) -> Any:
    """Collective. A new ShardedTensor with the same values, split by `target`: a sharding spec of torch, or a text.

    The old one is not changed. The options are those of Redistribute.
    """
    from torch.distributed._shard.sharded_tensor import Shard, ShardedTensor
    group, metadata = tensor._process_group, tensor.metadata()
    shape, rank = tuple(metadata.size), dist.get_rank(tensor._process_group)
    locals_ = sorted(tensor.local_shards(), key=lambda shard: list(shard.metadata.shard_offsets))
    device = locals_[0].tensor.device.type if locals_ else "cpu"
    if isinstance(target, (str, Spec)):
        target = sharding_of(target, shape, group, device)
    source, wanted = spec_of_sharded(tensor), Spec(text_of_sharding(target, shape, group))
    dtype = metadata.tensor_properties.dtype
    mine = _parts(Layout(source, shape), rank, [shard.tensor for shard in locals_], dtype)
    move = Redistribute({"tensor": mine} if mine else {}, source, wanted, group, shapes={"tensor": shape}, **options)
    made = move().get("tensor", [])
    arrived = {shard.offset: part for shard, part in zip(Layout(wanted, shape).shards(rank), made if isinstance(made, list) else [made])
               if part.numel()}
    properties = metadata.tensor_properties
    described = target.build_metadata(torch.Size(shape), properties)
    shards = [Shard(arrived[tuple(each.shard_offsets)], each) for each in described.shards_metadata
              if _group_rank(each.placement, group) == rank]
    return ShardedTensor._init_from_local_shards_and_global_metadata(shards, described, process_group=group, sharding_spec=target)
