# SPDX-License-Identifier: Apache-2.0
"""Moves with gradients. The gradient of a move is the transposed move, which the library plans as well: what was copied to
several ranks is added up, and what was added up is copied. For local tensors x and y of the two splits, <move(x), y> =
<x, transpose(y)> when summed over all ranks."""
from typing import Any, Dict, List, Mapping, Tuple

import torch

from .._errors import Unsupported
from ._redistribute import Redistribute


class _Move(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, move: Redistribute, *tensors: Any) -> Tuple[Any, ...]:
        context.move = move
        found = move({tensor.name: given for tensor, given in zip(move.plan.tensors, tensors)})
        return tuple(found[tensor.name] for tensor in move.plan.tensors)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Tuple[Any, ...]:
        move = context.move
        found = move.transpose()({tensor.name: gradient for tensor, gradient in zip(move.plan.tensors, gradients)})
        return (None,) + tuple(found[tensor.name] for tensor in move.plan.tensors)


def _check(move: Redistribute) -> None:
    for tensor in move.plan.tensors:
        for layout in (tensor.source, tensor.target):
            if layout.ranks.tolist() != list(range(move.size)) or any(len(layout.shards(rank)) != 1 for rank in range(move.size)):
                raise Unsupported("%s: a gradient needs one part on every rank of the group, and %r has others" %
                                  (tensor.name, layout.spec))


def apply(move: Redistribute, tensors: Mapping[str, Any]) -> Dict[str, Any]:
    """Collective. So is the backward pass through the results, which all ranks have to run."""
    _check(move)
    move.transpose()  # plan it now, together on all ranks, so that the backward pass finds it ready
    found: List[Any] = list(_Move.apply(move, *[tensors[tensor.name] for tensor in move.plan.tensors]))
    return {tensor.name: each for tensor, each in zip(move.plan.tensors, found)}


def redistribute(tensor: Any, source: Any, target: Any, group: Any = None, **options: Any) -> Any:
    """Collective. Moves one local tensor from one split to another, with a gradient.

    Plans at every call. To plan once, keep a Redistribute and call its method `differentiable`.
    """
    return apply(Redistribute({"tensor": tensor}, source, target, group, **options), {"tensor": tensor})["tensor"]
