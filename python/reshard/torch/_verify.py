# SPDX-License-Identifier: Apache-2.0
"""A check that does not use plans. Each element is weighted by its place in the whole tensor, so that the sums over two
splits of one tensor are equal, whatever the splits are, and two swapped elements are noticed. Sums wrap around."""
from typing import Any, Dict, List, Tuple

import torch

from .._errors import Check
from .._layout import Layout, ShardInfo

Key = Tuple[Any, ...]
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_ROWS = 1 << 20  # elements at a time


def _wrap(number: int) -> int:
    """The number as torch's int64 holds it."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _weigh(places: Any, values: Any) -> int:
    mixed = (places + 1) * _wrap(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> 29)) * _wrap(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> 32)) | 1
    return int((mixed * (values * _wrap(0x94D049BB133111EB) + 1)).sum())


def _bits(tensor: Any) -> Any:
    """The elements as integers. Complex ones get another dimension at the end."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor)
    return tensor.view(_BITS[tensor.element_size()]) if tensor.dtype != torch.bool else tensor.view(torch.uint8)


def weigh_shard(layout: Layout, shard: ShardInfo, flat: Any) -> int:
    total = 0
    steps = [1] * layout.ndim
    for d in range(layout.ndim - 2, -1, -1):
        steps[d] = steps[d + 1] * layout.shape[d + 1]
    for piece in shard.pieces:
        box = flat.as_strided(piece.size, piece.strides, flat.storage_offset() + piece.at) if piece.size else flat[piece.at]
        rows = piece.size[0] if piece.size else 1
        at_once = max(1, _ROWS * rows // max(1, box.numel()))
        for first in range(0, rows, at_once):
            part = _bits(box[first:first + at_once] if piece.size else box)
            places = torch.zeros((), dtype=torch.int64, device=flat.device)
            for d, n in enumerate(piece.size):
                count, begin = (min(at_once, rows - first), first) if d == 0 else (n, 0)
                along = torch.arange(count, dtype=torch.int64, device=flat.device) + (piece.offset[d] + begin)
                places = places.unsqueeze(-1) + along * steps[d]
            if part.dim() > places.dim():  # real and imaginary parts
                places = places.unsqueeze(-1) * 2 + torch.arange(2, dtype=torch.int64, device=flat.device)
            total = _wrap(total + _weigh(places, part.to(torch.int64)))
    return total


def weigh(layout: Layout, rank: int, flats: List[Any]) -> Dict[Key, int]:
    """{boxes: weight} for the shards of this rank."""
    found = {}
    for shard, flat in zip(layout.shards(rank), flats):
        key = tuple(sorted((piece.offset, piece.size) for piece in shard.pieces))
        if key:
            found[key] = weigh_shard(layout, shard, flat)
    return found


def total(name: str, side: str, everyone: List[Dict[Key, int]]) -> int:
    """The weight of a whole tensor. Raises Check if ranks that hold the same boxes hold different values."""
    distinct: Dict[Key, Tuple[int, int]] = {}
    for rank, held in enumerate(everyone):
        for key, weight in held.items():
            first, other = distinct.setdefault(key, (rank, weight))
            if other != weight:
                raise Check("%s: ranks %d and %d hold different values of the same part of the %s" % (name, first, rank, side))
    return _wrap(sum(weight for _, weight in distinct.values()))
